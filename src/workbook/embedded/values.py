"""Values as an index sees them: type brackets, comparison keys, and the path through documents."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator, Mapping
from typing import Any

import bson
from bson import Binary, Decimal128, ObjectId
from bson.datetime_ms import DatetimeMS

Key = tuple[str, Any]

NULL: Key = ("null", None)


def id_key(value: Any) -> Any:
    """Return a hashable stand-in for an `_id` that is equal exactly when MongoDB's values are."""
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, str | int | ObjectId):
        return value
    if isinstance(value, float):
        return int(value) if math.isfinite(value) and value.is_integer() else value
    return bson.encode({"": value})


def key(value: Any) -> Key | None:
    """Return a scalar's bracket and comparison key, or None for a type that no filter takes.

    Values of different brackets are never equal and never compared by a range, as in MongoDB:
    numbers of all types are one bracket; true is not 1.
    """
    if value is None:
        return NULL
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, int | float):
        return ("number", value)
    if isinstance(value, str):
        return ("string", value)
    if isinstance(value, datetime.datetime):
        return ("date", int(DatetimeMS(value)))
    if isinstance(value, DatetimeMS):
        return ("date", int(value))
    if isinstance(value, ObjectId):
        return ("objectId", value.binary)
    if isinstance(value, Binary) and value.subtype == 4:
        return ("uuid", bytes(value))
    if isinstance(value, Decimal128):
        return None
    return None


def at_path(document: Any, path: str) -> Iterator[Any]:
    """Yield what a dotted path reaches in a document, through arrays of documents as well.

    A leaf that is an array is yielded as it is; a path that reaches nothing yields nothing.
    """
    head, _, rest = path.partition(".")
    if isinstance(document, Mapping):
        if head in document:
            value = document[head]
            if rest:
                yield from at_path(value, rest)
            else:
                yield value
    elif isinstance(document, list):
        for element in document:
            if isinstance(element, Mapping):
                yield from at_path(element, path)
