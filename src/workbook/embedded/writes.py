"""What a write that passes by may change: which documents an index must look at again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from workbook.embedded.definitions import Namespace
from workbook.embedded.wire import Message

Roots = Callable[[Namespace], "set[str] | None"]

DOCUMENTS = {"insert", "update", "delete", "findAndModify", "findandmodify", "bulkWrite"}
STRUCTURE = {"drop", "dropDatabase", "renameCollection", "commitTransaction", "abortTransaction"}
WHOLE = {"convertToCapped", "mapReduce"}
INDEXES = {"createIndexes", "dropIndexes", "collMod"}


@dataclass
class Change:
    """What one write may change in one collection.

    Attributes:
        namespace: Database and collection.
        ids: Documents that it names.
        conditions: Conditions that choose further documents, each with its collation and so on.
        everything: Whether it may change documents that cannot be told.
    """

    namespace: Namespace
    ids: list[Any] = field(default_factory=list)
    conditions: list[dict[str, Any]] = field(default_factory=list)
    everything: bool = False

    def __bool__(self) -> bool:
        return bool(self.ids or self.conditions or self.everything)

    def choose(self, condition: Any, operation: Mapping[str, Any]) -> None:
        """Add what a condition chooses."""
        ids = ids_of(condition)
        if ids is not None:
            self.ids.extend(ids)
        elif isinstance(condition, Mapping):
            chosen = {"filter": condition}
            chosen.update({key: operation[key] for key in ("collation", "let") if key in operation})
            self.conditions.append(chosen)


def ids_of(condition: Any) -> list[Any] | None:
    """Return the only `_id`s that a condition can match, None when it does not name them."""
    if not isinstance(condition, Mapping) or "_id" not in condition:
        return None
    value = condition["_id"]
    if not isinstance(value, Mapping) or not any(key.startswith("$") for key in value):
        return [value]
    if "$eq" in value:
        return [value["$eq"]]
    if isinstance(value.get("$in"), list):
        return list(value["$in"])
    return None


def changes(command: str, database: str, message: Message, roots: Roots) -> list[Change]:
    """Return what a write of documents may change, by collection.

    Args:
        command: The command's name.
        database: Where it runs.
        message: The command.
        roots: Returns the top-level fields that a collection's indexes look at, None when the
            collection is not indexed: what touches other fields alone changes nothing.
    """
    body = message.body
    if command == "bulkWrite":
        return _bulk(message, roots)
    target = body.get(command)
    if not isinstance(target, str) or (watched := roots((database, target))) is None:
        return []
    change = Change((database, target))
    if command == "insert":
        for one in message.documents("documents"):
            _insert(change, one)
    elif command == "update":
        for one in message.documents("updates"):
            if _concerns(one.get("u"), watched):
                change.choose(one.get("q"), {**body, **one})
    elif command == "delete":
        for one in message.documents("deletes"):
            change.choose(one.get("q"), {**body, **one})
    elif command in ("findAndModify", "findandmodify"):
        if body.get("remove") or _concerns(body.get("update"), watched):
            change.choose(body.get("query", {}), body)
    else:
        change.everything = True
    return [change] if change else []


def _insert(change: Change, document: Any) -> None:
    if isinstance(document, Mapping) and "_id" in document:
        change.ids.append(document["_id"])
    else:
        # The server will choose an _id; no driver leaves that to it.
        change.everything = True


def _bulk(message: Message, roots: Roots) -> list[Change]:
    found = []
    for one in message.documents("nsInfo"):
        database, _, collection = str(one.get("ns")).partition(".")
        found.append(Change((database, collection)))
    for operation in message.documents("ops"):
        kind = next(iter(operation), "")
        number = operation.get(kind)
        if not isinstance(number, int) or not 0 <= number < len(found):
            continue
        change = found[number]
        if (watched := roots(change.namespace)) is None:
            continue
        if kind == "insert":
            _insert(change, operation.get("document"))
        elif kind == "delete" or _concerns(operation.get("updateMods"), watched):
            change.choose(operation.get("filter"), {**message.body, **operation})
            change.everything |= bool(operation.get("upsert")) and bool(change.conditions)
    return [change for change in found if change]


def _concerns(update: Any, watched: set[str]) -> bool:
    """Tell whether an update may change a watched field; a replacement or a pipeline may."""
    if not isinstance(update, Mapping) or not all(key.startswith("$") for key in update):
        return True
    for operator, fields in update.items():
        if not isinstance(fields, Mapping):
            return True
        names = [*fields, *(fields.values() if operator == "$rename" else ())]
        if any(str(name).partition(".")[0] in watched for name in names):
            return True
    return False


def output(database: str, pipeline: Any) -> list[Change]:
    """Return the collection that a pipeline's `$out` or `$merge` writes."""
    if not isinstance(pipeline, list) or not pipeline or not isinstance(pipeline[-1], Mapping):
        return []
    last = pipeline[-1]
    target = last.get("$out", last.get("$merge"))
    if isinstance(target, Mapping) and "into" in target:
        target = target["into"]
    if isinstance(target, Mapping):
        database, target = str(target.get("db", database)), target.get("coll")
    if not isinstance(target, str):
        return []
    return [Change((database, target), everything=True)]


def upserted(reply: Mapping[str, Any]) -> Iterable[Any]:
    """Return the `_id`s that an answer names as made by an upsert."""
    for one in reply.get("upserted") or ():
        yield one["_id"]
    last = reply.get("lastErrorObject")
    if isinstance(last, Mapping) and "upserted" in last:
        yield last["upserted"]
