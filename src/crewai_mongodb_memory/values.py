"""Turn Python values into values that MongoDB stores, or say which one cannot be stored."""

from __future__ import annotations

import math
import operator
from array import array
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from bson import Decimal128, ObjectId

from crewai_mongodb_memory.errors import EmbeddingDimensionMismatchError, InvalidInputError

# MongoDB nests documents to 100 levels; a document that holds the metadata takes some of them.
MAX_DEPTH = 90

# Searches compute cosine similarity in 32-bit floats, whose range the squared norm must not leave.
SMALLEST_NORM, LARGEST_NORM = 1e-19, 1e19

LARGEST = 2**31 - 1  # what a limit may be


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
    return [text(value, f"{where}[{n}]") for n, value in enumerate(values)]


def whole(value: Any, where: str) -> int:
    """Return a whole number that MongoDB can count with; a larger one is cut to the largest.

    Raises:
        InvalidInputError: If it is none, or True or False.
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise InvalidInputError(f"{where} must be a whole number, not {value!r}")
    return min(number, LARGEST)


def utc(value: Any, where: str) -> datetime:
    """Return a date as naive UTC, which is what CrewAI makes and computes with.

    A naive date is taken as UTC. MongoDB keeps milliseconds, so the rest is cut off.

    Raises:
        InvalidInputError: If it is no `datetime`, is the `NaT` of pandas, or lies outside the years
            1 to 9999 in UTC.
    """
    if not isinstance(value, datetime):
        raise InvalidInputError(f"{where} must be a datetime, not {type(value).__name__}")
    if value != value:  # only NaT differs from itself
        raise InvalidInputError(f"{where} is NaT, which is no date: use None, or leave it out")
    try:
        moment = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
    except OverflowError:
        raise InvalidInputError(f"{where} is outside the years 1 to 9999 in UTC") from None
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def vector(values: Any, dimensions: int, where: str) -> list[float]:
    """Return a vector as plain floats.

    Args:
        values: A list, tuple or other sequence of numbers, or a numpy array, of one dimension.
        dimensions: The length that it must have.
        where: The record or argument, for the message.

    Raises:
        EmbeddingDimensionMismatchError: If it has another length.
        InvalidInputError: If it is no list of numbers, holds NaN or infinity, is all zeros, for
            which cosine similarity is not defined, or is too short or too long (norm below 1e-19 or
            above 1e19) to compute it in 32-bit floats.
    """
    numbers = _numbers(values, where)
    if len(numbers) != dimensions:
        raise EmbeddingDimensionMismatchError(dimensions, len(numbers), where)
    if not all(map(math.isfinite, numbers)):
        raise InvalidInputError(f"{where} holds NaN or infinity: the embedder failed on this text")
    if not any(numbers):
        raise InvalidInputError(
            f"{where} is all zeros, and cosine similarity is not defined for it: leave the vector "
            "out (None), and the record is stored but not searched"
        )
    if not SMALLEST_NORM <= (norm := math.hypot(*numbers)) <= LARGEST_NORM:
        raise InvalidInputError(
            f"{where} has the norm {norm:.3g}, which leaves the range of 32-bit floats when "
            "squared: scale the vector to the norm 1, which changes no cosine similarity"
        )
    return numbers


def _numbers(values: Any, where: str) -> list[float]:
    if hasattr(values, "tolist"):
        values = values.tolist()
    try:
        if isinstance(values, str | bytes | bytearray) or not isinstance(values, Sequence):
            raise TypeError
        return array("d", values).tolist()  # unlike float(), it takes no "1"
    except (TypeError, OverflowError):
        raise InvalidInputError(f"{where} must be a flat list of numbers") from None


def storable(value: Any, where: str, depth: int = 0) -> Any:
    """Return a value as MongoDB stores it and gives it back.

    Text, numbers, booleans, None, bytes, UUIDs, ObjectIds and Decimal128s stay as they are; numpy
    values become plain ones, tuples lists, and dates naive UTC. ObjectIds and Decimal128s are
    MongoDB's own types: a record that holds them is JSON only after you turn them into text.

    Raises:
        InvalidInputError: If it, or anything in it, cannot be stored; the message names the key.
    """
    if hasattr(value, "dtype") and hasattr(value, "tolist"):
        value = _plain(value, where)
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
        if "$ref" in value and "$id" in value:
            raise InvalidInputError(
                f"{where} holds both $ref and $id, which MongoDB reads back as a reference to "
                "another document (DBRef): rename one of the keys"
            )
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


def _plain(value: Any, where: str) -> Any:
    """Return what numpy or its like holds as plain Python values; dates are left to `storable`."""
    kind = getattr(value.dtype, "kind", None)
    if kind == "m":
        return value  # a duration, which numpy would turn into a bare integer
    if kind != "M":
        return value.tolist()
    if value.ndim:
        return list(value)
    moment = value.astype("datetime64[ms]").tolist()
    if not isinstance(moment, datetime):
        raise InvalidInputError(f"{where} is {value}, which is no date in the years 1 to 9999")
    return moment


def _key(key: Any, where: str) -> str:
    if "\0" in text(key, f"a key of {where}"):
        raise InvalidInputError(f"{where} has the key {key!r}: a key cannot hold a NUL character")
    return str(key)
