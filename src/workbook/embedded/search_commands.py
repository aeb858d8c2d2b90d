"""The search commands: index management, and aggregations that search."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from workbook.embedded import pipelines, vector_search, wire
from workbook.embedded.catalog import CollectionIndexes
from workbook.embedded.definitions import (
    DefinitionError,
    FileStore,
    Namespace,
    SearchIndex,
    validate,
)
from workbook.embedded.filters import FilterError
from workbook.embedded.proxy import Link
from workbook.embedded.vector_search import StageError
from workbook.embedded.wire import Header, Message

CODES = {
    8: "UnknownError",
    9: "FailedToParse",
    26: "NamespaceNotFound",
    27: "IndexNotFound",
    68: "IndexAlreadyExists",
    263: "OperationNotSupportedInTransaction",
    40218: "Location40218",
    40600: "Location40600",
    40602: "Location40602",
}


def SEARCH_STAGE(data: bytes) -> bool:
    """Tell whether a message may hold a search stage."""
    return b"$vectorSearch\0" in data or b"$listSearchIndexes\0" in data


class CommandError(Exception):
    """A command that is refused, with the code that MongoDB gives."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code

    def reply(self) -> dict[str, Any]:
        """Return the answer that a driver turns into an exception."""
        return {
            "ok": 0.0,
            "errmsg": str(self),
            "code": self.code,
            "codeName": CODES[self.code],
        }


class SearchService:
    """Answers the search commands for all connections.

    Args:
        store: Keeps the definitions.
    """

    def __init__(self, store: FileStore) -> None:
        self._store = store
        self._collections: dict[Namespace, CollectionIndexes] = {}

    @property
    def has_indexes(self) -> bool:
        """Return whether any collection has a search index."""
        return bool(self._store.namespaces())

    def is_indexed(self, namespace: Namespace) -> bool:
        """Return whether a collection has a search index."""
        return bool(self._store.get(namespace))

    def touch(self, namespace: Namespace, ids: Iterable[Any] | None) -> None:
        """Note documents that may have changed."""
        if namespace in self._collections:
            self._collections[namespace].touch(ids)

    def dropped(self, database: str, collection: str | None) -> None:
        """Forget the indexes of a collection, or of all of a database."""
        for namespace in self._store.namespaces():
            if namespace[0] == database and collection in (None, namespace[1]):
                self._store.put(namespace, [])
                self._collections.pop(namespace, None)

    def renamed(self, source: str, target: str) -> None:
        """Move the indexes of a collection with it; those of a replaced target are gone."""
        old, new = _namespace(source), _namespace(target)
        self._collections.pop(old, None)
        self._collections.pop(new, None)
        self._store.put(new, self._store.get(old))
        self._store.put(old, [])

    async def create(
        self, link: Link, header: Header, message: Message, database: str
    ) -> Mapping[str, Any]:
        """Answer `createSearchIndexes`."""
        body = wire.decode(message.body)
        namespace = await self._existing(link, database, body["createSearchIndexes"])
        kept = self._store.get(namespace)
        made: list[dict[str, Any]] = []
        for one in body.get("indexes", []):
            index = _new_index(one)
            if any(index.name == other.name for other in kept):
                raise CommandError(68, f"Index {index.name} already exists")
            kept.append(index)
            made.append({"id": index.id, "name": index.name})
        self._store.put(namespace, kept)
        return {"indexesCreated": made, "ok": 1.0}

    async def update(
        self, link: Link, header: Header, message: Message, database: str
    ) -> Mapping[str, Any]:
        """Answer `updateSearchIndex`."""
        body = wire.decode(message.body)
        namespace = await self._existing(link, database, body["updateSearchIndex"])
        index = self._named(namespace, body)
        index.definition = _checked(body.get("definition"))
        index.version += 1
        self._forget(namespace)
        self._store.put(namespace, self._store.get(namespace))
        return {"ok": 1.0}

    async def drop(
        self, link: Link, header: Header, message: Message, database: str
    ) -> Mapping[str, Any]:
        """Answer `dropSearchIndex`."""
        body = wire.decode(message.body)
        namespace = await self._existing(link, database, body["dropSearchIndex"])
        index = self._named(namespace, body)
        self._forget(namespace)
        self._store.put(namespace, [i for i in self._store.get(namespace) if i is not index])
        return {"ok": 1.0}

    async def aggregate(
        self, link: Link, header: Header, message: Message, database: str
    ) -> Mapping[str, Any] | bytes:
        """Answer an aggregation with a search stage, or return what to send upstream instead."""
        body = wire.decode(message.body)
        pipeline, target = body.get("pipeline"), body.get("aggregate")
        first = pipeline[0] if isinstance(pipeline, list) and pipeline else None
        if not isinstance(first, Mapping) or not isinstance(target, str):
            return b"".join([header_of(header, message, body)])
        namespace = (database, target)
        if "$listSearchIndexes" in first:
            await self._exists(link, namespace)
            shown = [one.listed() for one in self._store.get(namespace)]
            wanted = first["$listSearchIndexes"]
            shown = [
                one
                for one in shown
                if all(one.get(key) == wanted[key] for key in ("id", "name") if key in wanted)
            ]
            documents = {"$documents": [{"$literal": one} for one in shown]}
            body = {**body, "aggregate": 1, "pipeline": [documents, *pipeline[1:]]}
        elif "$vectorSearch" in first:
            body = await self._search(link, namespace, body)
        else:
            raise CommandError(
                40602, "$vectorSearch is only valid as the first stage in a pipeline."
            )
        return header_of(header, message, body)

    async def _search(
        self, link: Link, namespace: Namespace, body: dict[str, Any]
    ) -> dict[str, Any]:
        stage, *rest = body["pipeline"]
        await self._exists(link, namespace)
        try:
            search = vector_search.parse(stage["$vectorSearch"])
            hits = await self._hits(link, namespace, search)
            pipeline = pipelines.after(hits, namespace[1], rest)
        except (StageError, FilterError) as error:
            raise CommandError(
                8, f"PlanExecutor error during aggregation :: caused by :: {error}"
            ) from error
        except pipelines.MetadataError as error:
            raise CommandError(40218, str(error)) from error
        return {**body, "aggregate": 1, "pipeline": pipeline}

    async def _hits(
        self, link: Link, namespace: Namespace, search: vector_search.VectorSearch
    ) -> list[tuple[Any, float]]:
        named = [one for one in self._store.get(namespace) if one.name == search.index]
        if not named:
            return []
        chosen = vector_search.bind(search, named[0])
        query = vector_search.query_vector(search, named[0])
        collection = self._collections.setdefault(namespace, CollectionIndexes(namespace))
        async with collection.lock:
            index = await collection.ready(named[0], link)
            return await asyncio.to_thread(index.search, search.path, query, chosen, search.limit)

    async def _exists(self, link: Link, namespace: Namespace) -> bool:
        command = {"listCollections": 1, "filter": {"name": namespace[1]}, "nameOnly": True}
        reply = await link.ask(namespace[0], command)
        return bool(wire.decode(reply)["cursor"]["firstBatch"])

    async def _existing(self, link: Link, database: str, collection: Any) -> Namespace:
        namespace = (database, str(collection))
        if not await self._exists(link, namespace):
            raise CommandError(26, f"Collection '{database}.{collection}' does not exist.")
        return namespace

    def _named(self, namespace: Namespace, body: Mapping[str, Any]) -> SearchIndex:
        for index in self._store.get(namespace):
            if body.get("id") == index.id or body.get("name") == index.name:
                return index
        wanted = body.get("name", body.get("id"))
        raise CommandError(27, f"Search index '{wanted}' cannot be found.")

    def _forget(self, namespace: Namespace) -> None:
        if namespace in self._collections:
            self._collections[namespace].forget()


def header_of(header: Header, message: Message, body: Mapping[str, Any]) -> bytes:
    """Rebuild a client's request with another body."""
    flags = message.flags & ~wire.CHECKSUM_PRESENT
    return wire.build(body, header.request_id, flags=flags)


def _namespace(full: str) -> Namespace:
    database, _, collection = full.partition(".")
    return database, collection


def _new_index(one: Any) -> SearchIndex:
    if one.get("type", "search") != "vectorSearch":
        raise CommandError(
            9,
            'only indexes of type "vectorSearch" are supported by the embedded database',
        )
    return SearchIndex(one.get("name", "default"), _checked(one.get("definition")))


def _checked(definition: Any) -> dict[str, Any]:
    try:
        return validate(definition)
    except DefinitionError as error:
        raise CommandError(9, f"Invalid index definition: {error}") from error
