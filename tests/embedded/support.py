"""What the tests of the embedded database share."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

from pymongo.collection import Collection
from pymongo.operations import SearchIndexModel

Documents = Collection[dict[str, Any]]


def vector_field(
    path: str = "v", dimensions: int = 3, similarity: str = "cosine", **more: Any
) -> dict[str, Any]:
    return {
        "type": "vector",
        "path": path,
        "numDimensions": dimensions,
        "similarity": similarity,
        **more,
    }


def filter_field(path: str) -> dict[str, Any]:
    return {"type": "filter", "path": path}


def make_index(
    collection: Documents, *fields: dict[str, Any], name: str = "index", **more: Any
) -> str:
    if collection.name not in collection.database.list_collection_names():
        collection.database.create_collection(collection.name)
    definition = {"fields": list(fields or (vector_field(),)), **more}
    model = SearchIndexModel(definition=definition, name=name, type="vectorSearch")
    return collection.create_search_index(model)


def stage(query: Any = (1, 0, 0), **more: Any) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "index": "index",
        "path": "v",
        "queryVector": list(query) if isinstance(query, tuple) else query,
        "limit": 10,
        **more,
    }
    if "exact" not in settings and "numCandidates" not in settings:
        settings["numCandidates"] = 100
    return {"$vectorSearch": {k: v for k, v in settings.items() if v is not ...}}


def search(
    collection: Documents, query: Any = (1, 0, 0), *rest: dict[str, Any], **more: Any
) -> list[dict[str, Any]]:
    return list(collection.aggregate([stage(query, **more), *rest]))


def found(collection: Documents, query: Any = (1, 0, 0), **more: Any) -> list[Any]:
    return [document["_id"] for document in search(collection, query, **more)]


SCORE = {"$set": {"score": {"$meta": "vectorSearchScore"}}}


def scores(collection: Documents, query: Any = (1, 0, 0), **more: Any) -> dict[Any, float]:
    return {d["_id"]: d["score"] for d in search(collection, query, SCORE, **more)}


def random_vectors(count: int, dimensions: int, seed: int = 1) -> Iterable[Sequence[float]]:
    chance = random.Random(seed)
    for _ in range(count):
        yield [chance.gauss(0, 1) for _ in range(dimensions)]
