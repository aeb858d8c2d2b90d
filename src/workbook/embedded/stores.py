"""Where search index definitions are kept."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Protocol

from workbook.embedded import wire
from workbook.embedded.definitions import Namespace, SearchIndex
from workbook.embedded.proxy import Link

COLLECTION = "search_indexes"


class Store(Protocol):
    """Keeps the search indexes of collections."""

    async def get(self, link: Link, namespace: Namespace) -> list[SearchIndex]:
        """Return a collection's search indexes."""

    async def put(self, link: Link, namespace: Namespace, indexes: list[SearchIndex]) -> None:
        """Replace a collection's search indexes, durably."""

    def dropped(self, namespace: Namespace) -> None:
        """Take notice of a dropped collection."""

    def renamed(self, old: Namespace, new: Namespace) -> None:
        """Take notice of a renamed collection, which takes its indexes along."""

    def of_database(self, database: str) -> list[Namespace]:
        """Return the collections of a database that are known to have search indexes."""


class FileStore:
    """Keeps definitions in a file: each change is written beside it and moved into place."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._indexes: dict[Namespace, list[SearchIndex]] = {}
        if path.exists():
            for entry in json.loads(path.read_text()):
                namespace = (entry["database"], entry["collection"])
                self._indexes[namespace] = [SearchIndex(**one) for one in entry["indexes"]]

    async def get(self, link: Link, namespace: Namespace) -> list[SearchIndex]:
        """Return a collection's search indexes."""
        return list(self._indexes.get(namespace, ()))

    async def put(self, link: Link, namespace: Namespace, indexes: list[SearchIndex]) -> None:
        """Replace a collection's search indexes, durably."""
        self._set(namespace, indexes)

    def dropped(self, namespace: Namespace) -> None:
        """Forget the indexes of a dropped collection."""
        if namespace in self._indexes:
            self._set(namespace, [])

    def renamed(self, old: Namespace, new: Namespace) -> None:
        """Move the indexes of a renamed collection; those of a replaced one are gone."""
        if old in self._indexes or new in self._indexes:
            moved = self._indexes.pop(old, [])
            self._set(new, moved)

    def of_database(self, database: str) -> list[Namespace]:
        """Return the collections of a database that have search indexes."""
        return [namespace for namespace in self._indexes if namespace[0] == database]

    def everything(self) -> list[tuple[Namespace, SearchIndex]]:
        """Return every index that is kept."""
        return [(name, index) for name, kept in self._indexes.items() for index in kept]

    def _set(self, namespace: Namespace, indexes: list[SearchIndex]) -> None:
        self._indexes[namespace] = indexes
        if not indexes:
            del self._indexes[namespace]
        entries = [
            {"database": database, "collection": collection, "indexes": [vars(i) for i in kept]}
            for (database, collection), kept in self._indexes.items()
        ]
        fresh = self._path.with_suffix(".new")
        with fresh.open("w") as file:
            json.dump(entries, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._path)


class CollectionStore:
    """Keeps definitions in the server behind, in a small collection beside the indexed ones.

    An entry belongs to the collection's UUID: a renamed collection keeps its indexes and one that
    is dropped and made again has none, whoever did it.
    """

    async def get(self, link: Link, namespace: Namespace) -> list[SearchIndex]:
        """Return a collection's search indexes."""
        uuid = await self._uuid(link, namespace)
        if uuid is None:
            return []
        command = {"find": COLLECTION, "filter": {"_id": uuid}, "singleBatch": True}
        reply = wire.decode(await link.ask(namespace[0], command))
        entries: list[dict[str, Any]] = reply["cursor"]["firstBatch"]
        return [SearchIndex(**one) for entry in entries for one in entry["indexes"]]

    async def put(self, link: Link, namespace: Namespace, indexes: list[SearchIndex]) -> None:
        """Replace a collection's search indexes."""
        database, collection = namespace
        uuid = await self._uuid(link, namespace)
        stale = {"collection": collection, "_id": {"$ne": uuid}}
        await link.ask(database, {"delete": COLLECTION, "deletes": [{"q": stale, "limit": 0}]})
        entry = {"collection": collection, "indexes": [vars(one) for one in indexes]}
        update = {"q": {"_id": uuid}, "u": {"$set": entry}, "upsert": True}
        await link.ask(database, {"update": COLLECTION, "updates": [update]})

    def dropped(self, namespace: Namespace) -> None:
        """Do nothing: the entry's UUID is gone."""

    def renamed(self, old: Namespace, new: Namespace) -> None:
        """Do nothing: the entry's UUID stays."""

    def of_database(self, database: str) -> list[Namespace]:
        """Return nothing: entries are not looked at before they are needed."""
        return []

    async def _uuid(self, link: Link, namespace: Namespace) -> Any:
        command = {"listCollections": 1, "filter": {"name": namespace[1]}}
        found = wire.decode(await link.ask(namespace[0], command))["cursor"]["firstBatch"]
        return found[0]["info"].get("uuid") if found else None
