"""All collections whose search indexes are in memory, and where their definitions are."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from workbook.embedded.catalog import CollectionIndexes
from workbook.embedded.definitions import Namespace, SearchIndex
from workbook.embedded.proxy import Link
from workbook.embedded.stores import Store
from workbook.embedded.vector_search import VectorSearch, bind, query_vector

Hits = list[tuple[Any, float]]


class Indexes:
    """Searches, and takes notice of what passes by.

    Args:
        store: Keeps the definitions.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.clock = 0
        self._collections: dict[Namespace, CollectionIndexes] = {}
        self._loaded_at: dict[Namespace, int] = {}

    @property
    def any_loaded(self) -> bool:
        """Return whether anything is in memory."""
        return bool(self._collections)

    def loaded(self, namespace: Namespace) -> CollectionIndexes | None:
        """Return a collection's indexes, if any has been searched."""
        return self._collections.get(namespace)

    def roots(self, namespace: Namespace) -> set[str] | None:
        """Return the top-level fields that a collection's loaded indexes look at."""
        collection = self._collections.get(namespace)
        return None if collection is None else collection.roots

    def watch(self, namespace: Namespace) -> contextlib.AbstractContextManager[dict[Any, Any]]:
        """Collect what is touched in a collection meanwhile."""
        return self._collections[namespace].watch()

    def arrived(self, collection: str | None, clock: int) -> None:
        """Take notice of an answered write that was sent when the clock showed `clock`.

        An index that was loaded in between may have been read before the write was applied.
        """
        if clock == self.clock:
            return
        for namespace, loaded_at in self._loaded_at.items():
            if loaded_at > clock and collection in (None, namespace[1]):
                self._collections[namespace].touch_everything()

    def dropped(self, database: str, collection: str | None) -> None:
        """Forget a dropped collection, or all of a dropped database."""
        known = {*self.store.of_database(database), *self._collections}
        for namespace in known:
            if namespace[0] == database and collection in (None, namespace[1]):
                self._forget(namespace)
                self.store.dropped(namespace)

    def renamed(self, source: str, target: str) -> None:
        """Forget a renamed collection; its definitions move with it."""
        old, new = _namespace(source), _namespace(target)
        self._forget(old)
        self._forget(new)
        self.store.renamed(old, new)

    async def search(self, link: Link, namespace: Namespace, search: VectorSearch) -> Hits:
        """Return `_id` and score of the documents nearest to a query, the best first.

        Raises:
            vector_search.StageError, filters.FilterError: If the index cannot answer it.
        """
        kept = await self.store.get(link, namespace)
        named = [index for index in kept if index.name == search.index]
        if not named:
            return []
        chosen = bind(search, named[0])
        query = query_vector(search, named[0])
        if namespace not in self._collections:
            self._collections[namespace] = CollectionIndexes(namespace)
        collection = self._collections[namespace]
        async with collection.lock:
            collection.keep_only(kept)
            self._note_loading(namespace, collection, named[0])
            index = await collection.ready(named[0], link)
            while True:
                hits = await asyncio.to_thread(
                    index.search, search.path, query, search.kind, chosen, search.limit
                )
                if not await collection.forget_expired([one for one, _ in hits], link):
                    return hits

    def _note_loading(
        self, namespace: Namespace, collection: CollectionIndexes, index: SearchIndex
    ) -> None:
        if not collection.has(index):
            self.clock += 1
            self._loaded_at[namespace] = self.clock

    def _forget(self, namespace: Namespace) -> None:
        self._collections.pop(namespace, None)
        self._loaded_at.pop(namespace, None)


def _namespace(full: str) -> Namespace:
    database, _, collection = full.partition(".")
    return database, collection
