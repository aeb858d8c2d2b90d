"""The collections that have search indexes: their definitions, and their indexes in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any, Protocol

from bson.raw_bson import RawBSONDocument

from workbook.embedded import values
from workbook.embedded.definitions import Namespace, SearchIndex
from workbook.embedded.vector_index import VectorIndex

REREAD_AT_ONCE = 20
READ_AT_ONCE = 500


class Reader(Protocol):
    """Reads from the storage server with the rights of the client that asks."""

    def find(
        self, namespace: Namespace, condition: dict[str, Any], batch: int
    ) -> AsyncIterator[list[RawBSONDocument]]:
        """Yield the documents that match, in batches."""


class CollectionIndexes:
    """The indexes of one collection that have been searched, kept in step with its writes.

    `touch` only notes what may have changed; the next search reads it again. So a write costs
    nothing here, and a search sees every write that was acknowledged before it.
    """

    def __init__(self, namespace: Namespace) -> None:
        self.namespace = namespace
        self.lock = asyncio.Lock()
        self._loaded: dict[str, VectorIndex] = {}
        self._touched: dict[Any, Any] = {}
        self._reload = False

    def touch(self, ids: Iterable[Any] | None) -> None:
        """Note documents that may have changed; None means that any may have."""
        if ids is None:
            self._reload = True
        else:
            self._touched.update((values.id_key(one), one) for one in ids)

    def forget(self, index_id: str | None = None) -> None:
        """Drop an index, or all, from memory."""
        if index_id is None:
            self._loaded.clear()
        else:
            self._loaded.pop(index_id, None)

    async def ready(self, index: SearchIndex, reader: Reader) -> VectorIndex:
        """Return an index that knows every write acknowledged so far; call it under the lock."""
        await self._refresh(reader)
        key = f"{index.id}:{index.version}"
        if key not in self._loaded:
            self._loaded[key] = await self._load(index, reader)
        return self._loaded[key]

    async def _load(self, index: SearchIndex, reader: Reader) -> VectorIndex:
        loaded = VectorIndex(index)
        async for batch in reader.find(self.namespace, {}, READ_AT_ONCE):
            await asyncio.to_thread(_put, [loaded], batch)
        return loaded

    async def _refresh(self, reader: Reader) -> None:
        if self._reload:
            self._reload = False
            self._touched.clear()
            self._loaded.clear()
        if not self._loaded:
            self._touched.clear()
        touched, self._touched = self._touched, {}
        try:
            await self._reread(list(touched.values()), reader)
        except BaseException:
            self._touched = {**touched, **self._touched}
            raise

    async def _reread(self, ids: list[Any], reader: Reader) -> None:
        indexes = list(self._loaded.values())
        for start in range(0, len(ids), REREAD_AT_ONCE):
            some = ids[start : start + REREAD_AT_ONCE]
            found: list[RawBSONDocument] = []
            condition = {"_id": {"$in": some}}
            async for batch in reader.find(self.namespace, condition, REREAD_AT_ONCE):
                found.extend(batch)
            await asyncio.to_thread(_replace, indexes, some, found)


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
