"""Search indexes in memory, kept in step with the writes that pass by."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import Any, Protocol

from bson.raw_bson import RawBSONDocument

from workbook.embedded import values, wire
from workbook.embedded.definitions import Namespace, SearchIndex
from workbook.embedded.vector_index import VectorIndex

REREAD_AT_ONCE = 20
READ_AT_ONCE = 500


class Reader(Protocol):
    """Reads from the storage server with the rights of the client that asks."""

    async def ask(self, database: str, command: Mapping[str, Any]) -> RawBSONDocument:
        """Return the answer to a command."""

    def find(
        self, namespace: Namespace, condition: dict[str, Any], batch: int, **options: Any
    ) -> AsyncIterator[list[RawBSONDocument]]:
        """Yield the documents that match, in batches."""


class CollectionIndexes:
    """The indexes of one collection that have been searched.

    `touch` only notes what may have changed, when a write is answered; the next search reads it
    again. So a write costs nothing here, and a search sees every write acknowledged before it.
    """

    def __init__(self, namespace: Namespace) -> None:
        self.namespace = namespace
        self.lock = asyncio.Lock()
        self._loaded: dict[str, VectorIndex] = {}
        self._touched: dict[Any, Any] = {}
        self._reload = False
        self._expires: bool | None = None
        self._watchers: list[dict[Any, Any]] = []

    @property
    def roots(self) -> set[str]:
        """Return the top-level fields that the indexes look at."""
        found = set()
        for index in self._loaded.values():
            for path in (*index.index.vectors, *index.index.filter_paths):
                found.add(path.partition(".")[0])
        return found

    def touch(self, ids: Iterable[Any]) -> None:
        """Note documents that may have changed."""
        noted = {values.id_key(one): one for one in ids}
        self._touched.update(noted)
        for watcher in self._watchers:
            watcher.update(noted)

    def touch_everything(self) -> None:
        """Note that any document may have changed."""
        self._reload = True

    def indexes_changed(self) -> None:
        """Note that the collection's ordinary indexes may be others."""
        self._expires = None

    @contextlib.contextmanager
    def watch(self) -> Iterator[dict[Any, Any]]:
        """Collect what is touched meanwhile.

        A write that chooses by condition may meet documents that other writes have just changed;
        what they touched while it ran counts as touched by it.
        """
        watcher: dict[Any, Any] = {}
        self._watchers.append(watcher)
        try:
            yield watcher
        finally:
            # By identity: two watchers may hold equal notes.
            self._watchers = [one for one in self._watchers if one is not watcher]

    async def ready(self, index: SearchIndex, reader: Reader) -> VectorIndex:
        """Return an index that knows every write acknowledged so far; call it under the lock."""
        await self._refresh(reader)
        key = f"{index.id}:{index.version}"
        if key not in self._loaded:
            self._loaded[key] = loading = VectorIndex(index)
            try:
                await self._load(loading, reader)
            except BaseException:
                del self._loaded[key]
                raise
        return self._loaded[key]

    async def forget_expired(self, ids: list[Any], reader: Reader) -> bool:
        """Forget those of these documents that are gone, and tell whether any was.

        A TTL index deletes behind our back. Without one nothing does, and nothing is asked.
        """
        if self._expires is None:
            self._expires = await _has_ttl_index(self.namespace, reader)
        if not self._expires:
            return False
        gone = {values.id_key(one): one for one in ids}
        async for _, batch in self._look_up(ids, reader, projection={"_id": 1}):
            for document in batch:
                gone.pop(values.id_key(document["_id"]), None)
        for one in gone.values():
            for index in self._loaded.values():
                index.remove(one)
        return bool(gone)

    def has(self, index: SearchIndex) -> bool:
        """Tell whether an index is in memory."""
        return f"{index.id}:{index.version}" in self._loaded

    def keep_only(self, indexes: list[SearchIndex]) -> None:
        """Drop from memory what is not among these."""
        kept = {f"{index.id}:{index.version}" for index in indexes}
        self._loaded = {key: one for key, one in self._loaded.items() if key in kept}

    async def _load(self, index: VectorIndex, reader: Reader) -> None:
        async for batch in reader.find(self.namespace, {}, READ_AT_ONCE):
            await asyncio.to_thread(_put, [index], batch)

    async def _refresh(self, reader: Reader) -> None:
        size = max(map(len, self._loaded.values()), default=0)
        # Reading most documents one by one costs more than reading all.
        if self._reload or (len(self._touched) > 1000 and len(self._touched) * 2 > size):
            self._loaded.clear()
        self._reload = False
        touched, self._touched = self._touched, {}
        if not self._loaded:
            return
        try:
            await self._reread(list(touched.values()), reader)
        except BaseException:
            self._touched = {**touched, **self._touched}
            raise

    async def _reread(self, ids: list[Any], reader: Reader) -> None:
        indexes = list(self._loaded.values())
        async for some, found in self._look_up(ids, reader):
            await asyncio.to_thread(_replace, indexes, some, found)

    async def _look_up(
        self, ids: list[Any], reader: Reader, **options: Any
    ) -> AsyncIterator[tuple[list[Any], list[RawBSONDocument]]]:
        """Yield some of the ids and the documents that they name, until all were looked up."""
        for start in range(0, len(ids), REREAD_AT_ONCE):
            some = ids[start : start + REREAD_AT_ONCE]
            found: list[RawBSONDocument] = []
            condition = {"_id": {"$in": some}}
            async for batch in reader.find(self.namespace, condition, REREAD_AT_ONCE, **options):
                found.extend(batch)
            yield some, found


async def _has_ttl_index(namespace: Namespace, reader: Reader) -> bool:
    database, collection = namespace
    reply = wire.decode(await reader.ask(database, {"listIndexes": collection}))
    return any("expireAfterSeconds" in index for index in reply["cursor"]["firstBatch"])


def _put(indexes: list[VectorIndex], documents: list[RawBSONDocument]) -> None:
    for document in documents:
        for index in indexes:
            index.put(document)


def _replace(indexes: list[VectorIndex], ids: list[Any], documents: list[RawBSONDocument]) -> None:
    there = {values.id_key(document["_id"]) for document in documents}
    for one in ids:
        if values.id_key(one) not in there:
            for index in indexes:
                index.remove(one)
    _put(indexes, documents)
