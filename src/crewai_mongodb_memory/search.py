"""Vector search: which condition goes where, how wide to search, and what a score means."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from pymongo.collection import Collection
from pymongo.errors import OperationFailure
from pymongo.read_concern import ReadConcern

from crewai_mongodb_memory import filters, pipelines
from crewai_mongodb_memory.filters import Filter
from crewai_mongodb_memory.indexes import VectorIndex
from crewai_mongodb_memory.log import log_once

Documents = Collection[dict[str, Any]]

# The one that $vectorSearch takes, whatever the connection string says.
LOCAL = ReadConcern("local")

OVERLOADED = 489
ATTEMPTS = 3
WIDEN_BY = 10


def run(
    memories: Documents,
    index: VectorIndex,
    query: list[float],
    match: Filter,
    limit: int,
    with_vectors: bool = True,
) -> list[dict[str, Any]]:
    """Return the nearest documents that match, the nearest first.

    Conditions on declared filter paths are applied inside `$vectorSearch`. Others are matched
    after it, and the search is widened until `limit` documents are found, there are no more, or
    the 10,000 nearest have been looked at, which is as far as `$vectorSearch` goes.

    Args:
        memories: The collection.
        index: Its vector index.
        query: The query's vector.
        match: Conditions by field, each `{"$eq": value}` or `{"$in": values}`.
        limit: How many documents at most; at least 1.
        with_vectors: Whether the documents bring their vectors, most of their bytes.

    Raises:
        VectorIndexError: If the server refuses the search. It is logged as well, since CrewAI
            swallows what a search raises.
    """
    if any(condition.get("$in") == [] for condition in match.values()):
        return []
    limit = min(limit, pipelines.MAX_CANDIDATES)
    inside = {path: c for path, c in match.items() if _is_prefilter(index, path, c)}
    after = {path: c for path, c in match.items() if path not in inside}
    ask = functools.partial(
        pipelines.vector_search, index.name, query, inside, with_vectors=with_vectors
    )
    try:
        if not after:
            return _aggregate(memories, ask(after, limit, limit))
        _tell_what_to_declare(memories, index, after)
        return _widening(memories, ask, after, limit)
    except OperationFailure as error:
        if index.do_without(error):
            return run(memories, index, query, match, limit, with_vectors)
        problem = index.explain(error)
        log_once(str(problem))
        raise problem from error


def cosine(score: float) -> float:
    """Return cosine similarity, from 0 to 1, for Atlas's score of (1 + cosine) / 2.

    Atlas computes in single precision: digits beyond the sixth are noise, and would keep the same
    text from reaching 1.0.
    """
    return min(max(round(2 * score - 1, 6), 0.0), 1.0)


def _is_prefilter(index: VectorIndex, path: str, condition: Filter) -> bool:
    return path in index.filter_paths and filters.is_prefilterable(condition)


def _tell_what_to_declare(memories: Documents, index: VectorIndex, after: Filter) -> None:
    for path in after.keys() - index.filter_paths - {"_id"}:
        log_once(
            f"{memories.full_name}: {path} is filtered after the search, which costs more; declare "
            f"it once by metadata_filter_fields=({path.removeprefix('metadata.')!r},)",
            logging.INFO,
        )


def _widening(
    memories: Documents,
    ask: Callable[[Filter, int, int], pipelines.Pipeline],
    after: Filter,
    limit: int,
) -> list[dict[str, Any]]:
    """Search wider and wider; no document is fetched twice."""
    found: list[dict[str, Any]] = []
    memories_there = memories.estimated_document_count()
    most = min(memories_there, pipelines.MAX_CANDIDATES)
    width = max(WIDEN_BY * limit, pipelines.MIN_CANDIDATES)
    while True:
        width = min(width, pipelines.MAX_CANDIDATES)
        unseen = {**after, "_id": {"$nin": [d["_id"] for d in found]}} if found else after
        found += _aggregate(memories, ask(unseen, width, limit - len(found)))
        if len(found) < limit and width == pipelines.MAX_CANDIDATES < memories_there:
            log_once(
                f"{memories.full_name}: a filter on {', '.join(after)} was tried on the "
                f"{width:,} nearest records alone, and may have missed others: declare it by "
                "metadata_filter_fields"
            )
        if len(found) >= limit or width >= most:
            return sorted(found, key=lambda d: d[pipelines.SCORE_FIELD], reverse=True)
        width *= WIDEN_BY


def _aggregate(memories: Documents, pipeline: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Run a search again, a little later, when the server says that it is overloaded."""
    memories = memories.with_options(read_concern=LOCAL)
    for attempt in range(1, ATTEMPTS):
        try:
            return list(memories.aggregate(pipeline))
        except OperationFailure as error:
            if error.code != OVERLOADED:
                raise
            time.sleep(0.2 * 2**attempt)
    return list(memories.aggregate(pipeline))
