"""Build what `find`, `delete_many` and `$vectorSearch` filter by.

Every value is compared by `$eq` or `$in`, so that a value such as `{"$gt": ""}` or a regular
expression is never run as an operator.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from bson import ObjectId

from crewai_mongodb_memory.errors import InvalidInputError
from crewai_mongodb_memory.schema import ROOT
from crewai_mongodb_memory.values import storable, text, texts, utc

Filter = dict[str, Any]

# What a filter of $vectorSearch can compare; anything else is filtered after the search.
PREFILTER_TYPES = (bool, int, float, str, datetime, UUID, ObjectId)


def subtree(scope: str) -> Filter:
    """Return the filter for a normalised scope and everything below it.

    The range is served by the index `scope_1` (`0` is the character after `/`) and the equality
    takes out siblings such as `/app-b`: exact, and no regular expression.
    """
    if scope == ROOT:
        return {}
    return {"scope": {"$gte": scope, "$lt": scope + "0"}, "scope_ancestors": {"$eq": scope}}


def any_id(record_ids: Collection[str]) -> Filter:
    """Return the filter for records by id.

    Raises:
        InvalidInputError: If it is no list of text.
    """
    return {"_id": {"$in": texts(record_ids, "record_ids")}}


def any_category(categories: Collection[str]) -> Filter:
    """Return the filter for records with at least one of the categories.

    Raises:
        InvalidInputError: If it is no list of text.
    """
    return {"categories": {"$in": texts(categories, "categories")}}


def older(than: datetime) -> Filter:
    """Return the filter for records made before a moment; a naive one is UTC.

    Raises:
        InvalidInputError: If it is no `datetime`.
    """
    return {"created_at": {"$lt": utc(than, "older_than")}}


def metadata(conditions: Mapping[str, Any]) -> Filter:
    """Return the filter for metadata: every key must have its value.

    A key is a dotted path (`"address.city"`); a value is compared as BSON compares it: 1 equals
    1.0, but neither `"1"` nor True; None is null or missing; a dict equals one with the same keys
    in the same order; a list means any of its values. As everywhere in MongoDB, a stored list
    matches if one of its elements does.

    Raises:
        InvalidInputError: If a key names no path or a value cannot be compared.
    """
    if not isinstance(conditions, Mapping):
        raise InvalidInputError("metadata_filter must be a dict of keys and values")
    return {
        f"metadata.{metadata_path(key)}": _condition(key, value)
        for key, value in conditions.items()
    }


def metadata_paths(keys: Iterable[str]) -> tuple[str, ...]:
    """Return metadata keys that a filter can name, each once.

    Raises:
        InvalidInputError: If it is no list of keys, or one of them cannot be named.
    """
    return tuple(dict.fromkeys(map(metadata_path, texts(keys, "metadata_filter_fields"))))


def metadata_path(key: str) -> str:
    """Return a metadata key or dotted path if a filter can name it.

    Raises:
        InvalidInputError: If it has an empty part or one that begins with `$`.
    """
    path = text(key, "a metadata key to filter by")
    if any(not name or name.startswith("$") or "\0" in name for name in path.split(".")):
        raise InvalidInputError(
            f"metadata cannot be filtered by {path!r}: give a key or a dotted path such as "
            "'address.city', without empty parts and parts that begin with $"
        )
    return path


def is_prefilterable(condition: Mapping[str, Any]) -> bool:
    """Say whether `$vectorSearch` itself can apply a condition made by this module.

    It compares the values of `PREFILTER_TYPES` but NaN, and a list only if all are of one type.
    """
    ((operator, operand),) = condition.items()
    values = operand if operator == "$in" else [operand]
    comparable = all(isinstance(value, PREFILTER_TYPES) and value == value for value in values)
    return comparable and len({type(value) for value in values}) == 1


def _condition(key: str, value: Any) -> Filter:
    wanted = storable(value, f"metadata_filter[{key!r}]")
    if not isinstance(wanted, list):
        return {"$eq": wanted}
    if any(isinstance(item, list | dict) for item in wanted):
        raise InvalidInputError(
            f"metadata_filter[{key!r}]: a list means any of its values, and they must be plain "
            "ones, not lists or dicts"
        )
    return {"$in": wanted}
