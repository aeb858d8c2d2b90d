"""The search commands: index management, and aggregations that search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from workbook.embedded import pipelines, vector_search, wire
from workbook.embedded.definitions import DefinitionError, Namespace, SearchIndex, validate
from workbook.embedded.errors import CommandError
from workbook.embedded.filters import FilterError
from workbook.embedded.indexes import Hits, Indexes
from workbook.embedded.placement import check_placement, holds_search
from workbook.embedded.proxy import Link
from workbook.embedded.vector_search import NotAnObjectError, StageError
from workbook.embedded.wire import Header, Message

Body = dict[str, Any]


@dataclass(frozen=True)
class Request:
    """A client's command."""

    link: Link
    header: Header
    message: Message

    @cached_property
    def body(self) -> Body:
        """Return the command, decoded."""
        return wire.decode(self.message.body)

    @property
    def database(self) -> str:
        """Return where it runs."""
        return str(self.body.get("$db", ""))

    def changed(self, body: Body) -> bytes:
        """Return the message with another body."""
        flags = self.message.flags & ~wire.CHECKSUM_PRESENT
        return wire.build(body, self.header.request_id, flags=flags)


class SearchCommands:
    """Answers the search commands for all connections.

    Each runs a command of its own on the client's upstream connection first, so that a client
    without rights gets the storage server's refusal.

    Args:
        indexes: Where definitions and vectors are.
    """

    def __init__(self, indexes: Indexes) -> None:
        self._indexes = indexes
        self._store = indexes.store

    async def create(self, request: Request) -> Body:
        """Answer `createSearchIndexes`: all of its indexes are made, or none."""
        namespace = await self._collection(request, "createSearchIndexes")
        wanted = request.body.get("indexes")
        if not isinstance(wanted, list) or not wanted:
            raise CommandError(
                40414, "BSON field 'createSearchIndexes.indexes' is missing but a required field"
            )
        kept = await self._store.get(request.link, namespace)
        before = len(kept)
        named = [_found_or_added(kept, _new_index(one)) for one in wanted]
        if len(kept) > before:
            await self._store.put(request.link, namespace, kept)
        return {"indexesCreated": [{"id": i.id, "name": i.name} for i in named], "ok": 1.0}

    async def update(self, request: Request) -> Body:
        """Answer `updateSearchIndex`."""
        namespace = await self._collection(request, "updateSearchIndex")
        kept = await self._store.get(request.link, namespace)
        index = _named(kept, namespace, request.body)
        index.definition = _checked(request.body.get("definition"))
        index.version += 1
        await self._store.put(request.link, namespace, kept)
        return {"ok": 1.0}

    async def drop(self, request: Request) -> Body:
        """Answer `dropSearchIndex`."""
        namespace = await self._collection(request, "dropSearchIndex")
        kept = await self._store.get(request.link, namespace)
        kept.remove(_named(kept, namespace, request.body))
        await self._store.put(request.link, namespace, kept)
        return {"ok": 1.0}

    async def create_view(self, request: Request) -> None:
        """Refuse a view that searches; pass any other `create` or `collMod` on."""
        if holds_search(request.body.get("pipeline")):
            raise CommandError(167, "$vectorSearch is not allowed in a view definition")

    async def aggregate(self, request: Request) -> Body | bytes | None:
        """Return what to send upstream in place of an aggregation that searches."""
        body, pipeline = request.body, request.body.get("pipeline")
        if not isinstance(pipeline, list) or not holds_search(pipeline):
            return None
        _refuse_in_transaction(body)
        check_placement(pipeline)
        if body.get("explain"):
            return await self._explained(request, body, "queryPlanner")
        return request.changed(await self._rewritten(request, body))

    async def explain(self, request: Request) -> Body | None:
        """Answer `explain` of an aggregation that searches."""
        explained = request.body.get("explain")
        if not isinstance(explained, Mapping) or not holds_search(explained.get("pipeline")):
            return None
        check_placement(explained["pipeline"])
        verbosity = str(request.body.get("verbosity", "allPlansExecution"))
        return await self._explained(request, dict(explained), verbosity)

    async def _rewritten(self, request: Request, body: Body) -> Body:
        first, *rest = body["pipeline"]
        target = body["aggregate"]
        namespace = (request.database, str(target))
        rest = [await self._union(request, stage) for stage in rest]
        if "$listSearchIndexes" in first:
            shown = await self._listed(request, namespace, first["$listSearchIndexes"])
            pipeline = [{"$documents": [{"$literal": one} for one in shown]}, *rest]
        elif "$vectorSearch" in first:
            hits = await self._hits(request, namespace, first["$vectorSearch"])
            pipeline = _metadata_checked(pipelines.after, hits, namespace[1], rest)
        else:
            return {**body, "pipeline": [await self._union(request, first), *rest]}
        kept = {key: value for key, value in body.items() if key != "hint"}
        return {**kept, "aggregate": 1, "pipeline": pipeline}

    async def _union(self, request: Request, stage: Any) -> Any:
        """Rewrite a `$unionWith` whose pipeline searches."""
        union = stage.get("$unionWith") if isinstance(stage, Mapping) else None
        if not isinstance(union, Mapping) or not holds_search(union.get("pipeline")):
            return stage
        first, *rest = union["pipeline"]
        rest = [await self._union(request, one) for one in rest]
        if "$vectorSearch" in first:
            namespace = (request.database, str(union.get("coll")))
            hits = await self._hits(request, namespace, first["$vectorSearch"])
            pipeline = _metadata_checked(pipelines.inside, hits, rest)
        else:
            pipeline = [await self._union(request, first), *rest]
        return {"$unionWith": {**union, "pipeline": pipeline}}

    async def _hits(self, request: Request, namespace: Namespace, stage: Any) -> Hits:
        if request.database not in request.link.cleared:
            await _exists(request.link, namespace)
            request.link.cleared.add(request.database)
        try:
            return await self._indexes.search(request.link, namespace, vector_search.parse(stage))
        except NotAnObjectError as error:
            raise CommandError(10065, str(error)) from error
        except (StageError, FilterError) as error:
            raise CommandError(
                8, f"PlanExecutor error during aggregation :: caused by :: {error}"
            ) from error

    async def _listed(self, request: Request, namespace: Namespace, wanted: Any) -> list[Body]:
        if not isinstance(wanted, Mapping) or set(wanted) - {"id", "name"}:
            raise CommandError(9, "$listSearchIndexes takes a document with 'id' or 'name'")
        if len(wanted) > 1:
            raise CommandError(9, "Cannot set both 'name' and 'id' for $listSearchIndexes.")
        if not await _exists(request.link, namespace):
            return []
        shown = [one.listed() for one in await self._store.get(request.link, namespace)]
        return [one for one in shown if all(one[key] == value for key, value in wanted.items())]

    async def _explained(self, request: Request, body: Body, verbosity: str) -> Body:
        first, *rest = body["pipeline"]
        stage = first.get("$vectorSearch", {})
        search: Body = {"$vectorSearch": {**stage, "explain": _plan(stage)}}
        lookup: Body = {"$_internalSearchIdLookup": {"limit": stage.get("limit")}}
        namespace = (request.database, str(body.get("aggregate")))
        hits = await self._hits(request, namespace, stage)
        if verbosity != "queryPlanner":
            search["nReturned"] = lookup["nReturned"] = len(hits)
        host, _, port = request.link.address.partition(":")
        return {
            "explainVersion": "1",
            "stages": [search, lookup, *rest],
            "command": body,
            "serverInfo": {"host": host, "port": int(port)},
            "ok": 1.0,
        }

    async def _collection(self, request: Request, command: str) -> Namespace:
        name = request.body[command]
        if not isinstance(name, str) or not name:
            raise CommandError(14, f"collection name has invalid type for {command}")
        namespace = (request.database, name)
        if not await _exists(request.link, namespace):
            raise CommandError(26, f"Collection '{'.'.join(namespace)}' does not exist.")
        return namespace


def _plan(stage: Mapping[str, Any]) -> Body:
    query: Body = {"path": stage.get("path"), "type": "ExactVectorSearchQuery"}
    if stage.get("filter"):
        query["filter"] = stage["filter"]
    return {"query": {"type": "WrappedKnnQuery", "args": query}}


def _metadata_checked(rewrite: Any, *arguments: Any) -> list[Any]:
    try:
        return list(rewrite(*arguments))
    except pipelines.MetadataError as error:
        raise CommandError(40218, str(error)) from error


def _refuse_in_transaction(body: Body) -> None:
    if body.get("autocommit") is False:
        name = next(iter(body["pipeline"][0]), "$vectorSearch")
        raise CommandError(
            263,
            "Operation not permitted in transaction :: caused by :: Aggregation stage "
            f"{name} cannot run within a multi-document transaction",
        )


async def _exists(link: Link, namespace: Namespace) -> bool:
    command = {"listCollections": 1, "filter": {"name": namespace[1]}, "nameOnly": True}
    reply = wire.decode(await link.ask(namespace[0], command))
    return bool(reply["cursor"]["firstBatch"])


def _new_index(one: Any) -> SearchIndex:
    if not isinstance(one, Mapping):
        raise CommandError(
            14, "BSON field 'createSearchIndexes.indexes' has elements of type object"
        )
    name, kind = one.get("name", "default"), one.get("type", "search")
    if not isinstance(name, str) or not name:
        raise CommandError(9, "Invalid index specification: index name cannot be empty")
    if kind == "search":
        raise CommandError(
            115,
            "The embedded database has no full-text search: an index needs "
            '"type": "vectorSearch" here.',
        )
    if kind != "vectorSearch":
        raise CommandError(9, '"type" must be one of [search, vectorSearch]')
    return SearchIndex(name, _checked(one.get("definition")))


def _found_or_added(kept: list[SearchIndex], index: SearchIndex) -> SearchIndex:
    """Return the index of that name that is there, if it is the same, or add it."""
    for other in kept:
        if other.name == index.name:
            if other.definition != index.definition:
                raise CommandError(
                    68,
                    f"Index {index.name} already exists with a different definition. "
                    "Drop it first if needed.",
                )
            return other
    kept.append(index)
    return index


def _named(kept: list[SearchIndex], namespace: Namespace, body: Body) -> SearchIndex:
    keys = [key for key in ("name", "id") if key in body]
    if len(keys) != 1:
        raise CommandError(9, "Exactly one of 'name' and 'id' must be given")
    for index in kept:
        if getattr(index, keys[0]) == body[keys[0]]:
            return index
    raise CommandError(
        27,
        f"No index with {keys[0]} {body[keys[0]]} exists in namespace {'.'.join(namespace)}",
    )


def _checked(definition: Any) -> Body:
    try:
        return validate(definition)
    except DefinitionError as error:
        raise CommandError(9, f"Invalid index definition: {error}") from error
