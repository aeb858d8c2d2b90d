"""The `$vectorSearch` stage: what it may say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbook.embedded import filters, vectors
from workbook.embedded.definitions import SearchIndex
from workbook.embedded.vectors import Floats

MAX_CANDIDATES = 10_000

FIELDS = {
    "exact",
    "explainOptions",
    "filter",
    "index",
    "limit",
    "numCandidates",
    "path",
    "queryVector",
    "returnStoredSource",
    "searchNodePreference",
}


class StageError(ValueError):
    """A stage that Atlas would refuse; the message names what is wrong."""


class NotAnObjectError(ValueError):
    """A stage's filter is no document, which the server says before the search process does."""


@dataclass(frozen=True)
class VectorSearch:
    """A `$vectorSearch` stage whose fields have been checked.

    Attributes:
        index: The search index's name.
        path: The vector field.
        query: The query vector.
        kind: Which of the stored vectors it can be compared with; see `vectors.kind`.
        limit: How many documents at most.
        candidates: `numCandidates`, None for an exact search.
        filter: The prefilter as it was sent, None without one.
    """

    index: str
    path: str
    query: Floats
    kind: int
    limit: int
    candidates: int | None
    filter: Any


def parse(stage: Any) -> VectorSearch:
    """Check a stage's fields by themselves; what depends on the index is checked by `bind`.

    Raises:
        StageError: For whatever Atlas refuses.
    """
    if not isinstance(stage, Mapping):
        raise StageError("$vectorSearch must be an object")
    for name in stage:
        if name not in FIELDS:
            raise StageError(f'unrecognized field "{name}"')
    exact = stage.get("exact", False)
    if not isinstance(exact, bool):
        raise StageError('"exact" must be a boolean')
    limit = _positive(stage, "limit")
    if limit is None:
        raise StageError('"limit" is required')
    return VectorSearch(
        index=_text(stage, "index"),
        path=_text(stage, "path"),
        query=_query(stage),
        kind=vectors.kind(stage.get("queryVector")),
        limit=limit,
        candidates=_candidates(stage, exact, limit),
        filter=_filter(stage),
    )


def bind(search: VectorSearch, index: SearchIndex) -> filters.Filter | None:
    """Check a search against the index it names and return its filter.

    Raises:
        StageError: If the path is not indexed as a vector or the query is of another length.
        filters.FilterError: If the filter is not one that the index can answer.
    """
    field = index.vectors.get(search.path)
    if field is None:
        raise StageError(f"{search.path} is not indexed as vector")
    if len(search.query) != field.dimensions:
        raise StageError(
            f"vector field is indexed with {field.dimensions} dimensions "
            f"but queried with {len(search.query)}"
        )
    if field.similarity == "cosine" and not search.query.any():
        raise StageError("Cosine similarity cannot be calculated against a zero vector.")
    return None if search.filter is None else filters.parse(search.filter, index.filter_paths)


def query_vector(search: VectorSearch, index: SearchIndex) -> Floats:
    """Return the query as the index compares it."""
    if index.vectors[search.path].similarity != "cosine":
        return search.query
    scaled = vectors.unit(search.query)
    assert scaled is not None, "bind refuses a zero vector"
    return scaled


def _text(stage: Mapping[str, Any], name: str) -> str:
    value = stage.get(name)
    if value is None:
        raise StageError(f'"{name}" is required')
    if not isinstance(value, str):
        raise StageError(f'"{name}" must be a string')
    if not value:
        raise StageError(f'"{name}" cannot be empty')
    return value


def _positive(stage: Mapping[str, Any], name: str) -> int | None:
    value = stage.get(name)
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise StageError(f'"{name}" must be an integer')
    if value < 1:
        raise StageError(f'"{name}" must be positive')
    return int(value)


def _candidates(stage: Mapping[str, Any], exact: bool, limit: int) -> int | None:
    if exact:
        if stage.get("numCandidates") is not None:
            raise StageError('"numCandidates" must be omitted when "exact" is set to true')
        if limit > MAX_CANDIDATES:
            raise StageError(f'"limit" must be within bounds [1..{MAX_CANDIDATES}]')
        return None
    value = stage.get("numCandidates")
    if value is None:
        raise StageError("numCandidates is required for approximate vector search")
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise StageError('"numCandidates" must be an integer')
    if not 1 <= value <= MAX_CANDIDATES:
        raise StageError(f'"numCandidates" must be within bounds [1..{MAX_CANDIDATES}]')
    if limit > value:
        raise StageError("limit should be less than or equal to numCandidates")
    return int(value)


def _query(stage: Mapping[str, Any]) -> Floats:
    value = stage.get("queryVector")
    if value is None:
        raise StageError("Exactly one and only one of query and queryVector can be present")
    if isinstance(value, list) and not value:
        return np.zeros(0, np.float32)
    query = vectors.from_value(value)
    if query is None:
        raise StageError('"queryVector" must be an array of finite numbers or a BinData vector')
    return query


def _filter(stage: Mapping[str, Any]) -> Any:
    value = stage.get("filter")
    if "filter" in stage and not isinstance(value, Mapping):
        raise NotAnObjectError("invalid parameter: expected an object (filter)")
    return value
