"""Which database server the tests use: one of their own, or `make test MONGODB_URI=...`."""

from __future__ import annotations

import os
import time
from typing import Any

from pymongo import MongoClient

# Not MONGODB_URI itself: a key in the environment must not turn an offline test into an online
# one. The workers of a parallel run inherit it.
KEPT = "WORKBOOK_TEST_MONGODB_URI"


def keep_chosen() -> None:
    """Take the server that was chosen out of the variables that the workbook reads."""
    if named := os.environ.pop("MONGODB_URI", None) or os.environ.pop("ATLAS_URI", None):
        os.environ[KEPT] = named


def chosen_uri() -> str | None:
    """Return the connection string that the tests were given, or None."""
    return os.environ.get(KEPT)


def in_database(uri: str, name: str) -> str:
    """Return a connection string that names a database, as a room's participants have it."""
    scheme, _, rest = uri.partition("://")
    address, _, options = rest.partition("?")
    return f"{scheme}://{address.partition('/')[0]}/{name}?{options}"


def wait_until_settled(uri: str, database: str, collection: str, timeout: float = 60.0) -> None:
    """Return when search finds every vector of a collection, or after some time in any case.

    On Atlas an index is built, and search follows the writes. The client is one of its own, so
    that no test counts these commands.
    """
    deadline = time.monotonic() + timeout
    with MongoClient[dict[str, Any]](uri) as client:
        memories = client[database][collection]
        vectors = memories.count_documents({"embedding": {"$exists": True}})
        while time.monotonic() < deadline:
            listed = _rows(memories, [{"$listSearchIndexes": {}}])
            ready = [one["name"] for one in listed if one.get("queryable")]
            if not listed or (len(ready) == len(listed) and _found(memories, ready[0]) >= vectors):
                return
            time.sleep(0.2)


def _found(memories: Any, index: str) -> int:
    query = [1.0] + [0.0] * 1023
    stage = {"index": index, "path": "embedding", "queryVector": query, "exact": True}
    return len(
        _rows(memories, [{"$vectorSearch": {**stage, "limit": 10_000}}, {"$project": {"_id": 1}}])
    )


def _rows(memories: Any, pipeline: list[dict[str, Any]]) -> list[dict[str, Any]]:
    # As a plain command: tests put failures into the methods of a collection.
    cursor = {"batchSize": 10_000}
    answer = memories.database.command("aggregate", memories.name, pipeline=pipeline, cursor=cursor)
    return list(answer["cursor"]["firstBatch"])
