"""Turn Python values into values that MongoDB stores, or say which one cannot be stored."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from bson import Decimal128, ObjectId

from crewai_mongodb_memory.errors import EmbeddingDimensionMismatchError, InvalidInputError

# MongoDB nests documents to 100 levels; a document that holds the metadata takes some of them.
MAX_DEPTH = 90


def text(value: Any, where: str) -> str:
    """Return `value` if it is text that MongoDB can store.

    Raises:
        InvalidInputError: If it is no string, or holds half of a surrogate pair, which has no
            UTF-8 form.
    """
    if not isinstance(value, str):
        raise InvalidInputError(f"{where} must be text, and is of type {type(value).__name__}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError(
            f"{where} has a lone surrogate at character {error.start}, which MongoDB cannot "
            'store: repair the text first, such as by text.encode(errors="replace").decode()'
        ) from None
    return value


def texts(values: Any, where: str) -> list[str]:
    """Return a list of texts; a single string is refused, since it would be taken letter by letter.

    Raises:
        InvalidInputError: If it is no list of text.
    """
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InvalidInputError(f"{where} must be a list of text, not {type(values).__name__}")
    return [text(value, f"an entry of {where}") for value in values]


def utc(value: Any, where: str) -> datetime:
    """Return a date as naive UTC, which is what CrewAI makes and computes with.

    A naive date is taken as UTC. MongoDB keeps milliseconds, so the rest is cut off.

    Raises:
        InvalidInputError: If it is no `datetime`, or lies outside the years 1 to 9999 in UTC.
    """
    if not isinstance(value, datetime):
        raise InvalidInputError(f"{where} must be a datetime, not {type(value).__name__}")
    try:
        moment = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
    except OverflowError:
        raise InvalidInputError(f"{where} is outside the years 1 to 9999 in UTC") from None
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def vector(values: Any, dimensions: int, where: str) -> list[float]:
    """Return a vector as plain floats.

    Args:
        values: A list or tuple of numbers or a numpy array, of one dimension.
        dimensions: The length that it must have.
        where: The record or argument, for the message.

    Raises:
        EmbeddingDimensionMismatchError: If it has another length.
        InvalidInputError: If it is no list of numbers, holds NaN or infinity, or is all zeros, for
            which cosine similarity is not defined.
    """
    if hasattr(values, "tolist"):
        values = values.tolist()
    try:
        numbers = [float(value) for value in values]
    except (TypeError, ValueError, OverflowError):
        raise InvalidInputError(f"{where} must be a flat list of numbers") from None
    if len(numbers) != dimensions:
        raise EmbeddingDimensionMismatchError(dimensions, len(numbers), where)
    if not all(map(math.isfinite, numbers)):
        raise InvalidInputError(f"{where} holds NaN or infinity: the embedder failed on this text")
    if not any(numbers):
        raise InvalidInputError(
            f"{where} is all zeros, and cosine similarity is not defined for it: leave the vector "
            "out (None), and the record is stored but not searched"
        )
    return numbers


def storable(value: Any, where: str, depth: int = 0) -> Any:
    """Return a value as MongoDB stores it and gives it back.

    Text, numbers, booleans, None, bytes, UUIDs, ObjectIds and Decimal128s stay as they are; numpy
    values become plain ones, tuples lists, and dates naive UTC.

    Raises:
        InvalidInputError: If it, or anything in it, cannot be stored; the message names the key.
    """
    if hasattr(value, "dtype") and hasattr(value, "tolist"):
        value = value.tolist()
    if value is None or isinstance(value, bool | float | bytes | UUID | ObjectId | Decimal128):
        return value
    if isinstance(value, str):
        return text(value, where)
    if isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise InvalidInputError(f"{where} is an integer of over 64 bits: store it as text")
        return value
    if isinstance(value, datetime):
        return utc(value, where)
    if depth > MAX_DEPTH:
        raise InvalidInputError(f"{where} is nested deeper than MongoDB stores: flatten it")
    if isinstance(value, Mapping):
        return {
            _key(key, where): storable(item, f"{where}.{key}", depth + 1)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [storable(item, f"{where}[{n}]", depth + 1) for n, item in enumerate(value)]
    raise InvalidInputError(
        f"{where} is of type {type(value).__name__}, which MongoDB cannot store: convert it to "
        "text, a number, a boolean, a datetime, a list or a dict first"
    )


def _key(key: Any, where: str) -> str:
    if "\0" in text(key, f"a key of {where}"):
        raise InvalidInputError(f"{where} has the key {key!r}: a key cannot hold a NUL character")
    return str(key)
