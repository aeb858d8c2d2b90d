"""The aggregation pipelines that the backend sends."""

from __future__ import annotations

from typing import Any

from crewai_mongodb_memory.filters import Filter
from crewai_mongodb_memory.schema import ROOT, scope_segments

Pipeline = list[dict[str, Any]]

SCORE_FIELD = "vector_search_score"

# Atlas looks at no more than 10,000 candidates and returns no more than it looked at. Too few of
# them make an approximate search miss close records.
MAX_CANDIDATES = 10_000
MIN_CANDIDATES = 100
CANDIDATES_PER_HIT = 20


def vector_search(
    index: str,
    query: list[float],
    inside: Filter,
    after: Filter,
    width: int,
    limit: int,
    with_vectors: bool = True,
) -> Pipeline:
    """Return the pipeline of a search; each document found has its score in `SCORE_FIELD`.

    Args:
        index: The name of the vector index.
        query: The query's vector.
        inside: What `$vectorSearch` itself filters by.
        after: What is matched among the documents that it found.
        width: How many documents `$vectorSearch` finds.
        limit: How many of those that match are returned.
        with_vectors: Whether they bring their vectors.
    """
    stage: dict[str, Any] = {
        "index": index,
        "path": "embedding",
        "queryVector": query,
        "numCandidates": min(max(CANDIDATES_PER_HIT * width, MIN_CANDIDATES), MAX_CANDIDATES),
        "limit": width,
    }
    conditions = [{path: condition} for path, condition in inside.items()]
    if conditions:  # Atlas refuses an absent filter that is written as null
        stage["filter"] = {"$and": conditions} if len(conditions) > 1 else conditions[0]
    pipeline: Pipeline = [
        {"$vectorSearch": stage},
        {"$set": {SCORE_FIELD: {"$meta": "vectorSearchScore"}}},
    ]
    if after:
        pipeline += [{"$match": after}, {"$limit": limit}]
    if not with_vectors:
        pipeline.append({"$unset": "embedding"})
    return pipeline


def scope_info(subtree: Filter, path: str) -> Pipeline:
    """Return the pipeline whose one row has a scope's totals, categories and child scopes.

    Args:
        subtree: The filter for the scope.
        path: Its normalised path.
    """
    totals = {
        "_id": None,
        "count": {"$sum": 1},
        "oldest": {"$min": "$created_at"},
        "newest": {"$max": "$created_at"},
    }
    facets = {
        "totals": [{"$group": totals}],
        "categories": _counted_categories(),
        "children": _children(path),
    }
    return [{"$match": subtree}, {"$facet": facets}]


def child_scopes(subtree: Filter, path: str) -> Pipeline:
    """Return the pipeline whose rows are the immediate child scopes of a path, in order."""
    return [{"$match": subtree}, *_children(path)]


def categories(subtree: Filter) -> Pipeline:
    """Return the pipeline whose rows are categories and their numbers of records, in order."""
    return [{"$match": subtree}, *_counted_categories()]


def _children(path: str) -> Pipeline:
    depth = len(scope_segments(path))
    return [
        # The prefix at this depth is the child that holds the record; at the path itself, none.
        {"$project": {"child": {"$arrayElemAt": ["$scope_ancestors", depth]}}},
        {"$match": {"child": {"$nin": [None, ROOT]}}},
        {"$group": {"_id": "$child"}},
        {"$sort": {"_id": 1}},
    ]


def _counted_categories() -> Pipeline:
    return [
        {"$project": {"category": {"$setUnion": ["$categories", []]}}},
        {"$unwind": "$category"},
        {"$group": {"_id": "$category", "count": {"$sum": 1}}},
        {"$sort": {"_id": 1}},
    ]
