"""What a write that passes by may change: which documents an index must look at again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from workbook.embedded.definitions import Namespace
from workbook.embedded.wire import Message

WRITES = {
    "insert",
    "update",
    "delete",
    "findAndModify",
    "findandmodify",
    "bulkWrite",
    "aggregate",
    "mapReduce",
    "drop",
    "dropDatabase",
    "renameCollection",
    "commitTransaction",
    "convertToCapped",
}


@dataclass
class Change:
    """What one write may change in one collection.

    Attributes:
        namespace: Database and collection.
        ids: The documents; None means that they cannot be told.
    """

    namespace: Namespace
    ids: list[Any] | None = field(default_factory=list)

    def add(self, ids: Iterable[Any] | None) -> None:
        """Add documents, or that they cannot be told."""
        if ids is None or self.ids is None:
            self.ids = None
        else:
            self.ids.extend(ids)


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


def changes(command: str, database: str, message: Message) -> list[Change]:
    """Return what a write of documents may change, by collection."""
    body = message.body
    if command == "bulkWrite":
        return _bulk(message)
    target = body.get(command)
    if not isinstance(target, str):
        return []
    change = Change((database, target))
    if command == "insert":
        for one in message.documents("documents"):
            change.add([one["_id"]] if "_id" in one else None)
    elif command == "update":
        for one in message.documents("updates"):
            change.add(ids_of(one.get("q")))
    elif command == "delete":
        for one in message.documents("deletes"):
            change.add(ids_of(one.get("q")))
    elif command in ("findAndModify", "findandmodify"):
        change.add(ids_of(body.get("query")))
    elif command == "aggregate":
        return _output(database, body.get("pipeline"))
    else:
        change.add(None)
    return [change]


def _bulk(message: Message) -> list[Change]:
    found = []
    for one in message.documents("nsInfo"):
        database, _, collection = str(one.get("ns")).partition(".")
        found.append(Change((database, collection)))
    for operation in message.documents("ops"):
        kind = next(iter(operation), "")
        number = operation.get(kind)
        if not isinstance(number, int) or not 0 <= number < len(found):
            continue
        if kind == "insert":
            document = operation.get("document", {})
            found[number].add([document["_id"]] if "_id" in document else None)
        else:
            found[number].add(ids_of(operation.get("filter")))
    return found


def _output(database: str, pipeline: Any) -> list[Change]:
    """Return the collection that a pipeline's `$out` or `$merge` writes."""
    if not isinstance(pipeline, list) or not pipeline or not isinstance(pipeline[-1], Mapping):
        return []
    last = pipeline[-1]
    target = last.get("$out", last.get("$merge"))
    if isinstance(target, Mapping):
        target = target.get("into", target)
    if isinstance(target, Mapping):
        database, target = str(target.get("db", database)), target.get("coll")
    return [Change((database, target), None)] if isinstance(target, str) else []
