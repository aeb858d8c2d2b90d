"""The prefilter of `$vectorSearch`: which documents of an index it leaves.

Conditions mean what they mean in a `$match`; only the operators documented for the prefilter are
accepted, only on paths declared as filters, and only with the documented value types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from bson.binary import UUID_SUBTYPE, Binary

from workbook.embedded import values
from workbook.embedded.values import Key

Rows = npt.NDArray[np.bool_]

LOGICAL = ("$and", "$or", "$nor")
TYPES = "boolean, objectId, number, string, date, uuid, or null"
NOT_NULL = "boolean, objectId, number, string, date, or uuid"


class FilterError(ValueError):
    """A filter that Atlas would refuse."""


class Columns(Protocol):
    """What a filter looks at: the values of an index's filter paths."""

    def everything(self) -> Rows:
        """Return a selection of all rows."""

    def equal(self, path: str, keys: Iterable[Key]) -> Rows:
        """Return the rows that hold one of these values."""

    def within(self, path: str, bracket: str, accepts: Callable[[Any], bool]) -> Rows:
        """Return the rows that hold a value of this bracket that is accepted."""

    def present(self, path: str) -> Rows:
        """Return the rows that have the field."""


Filter = Callable[[Columns], Rows]


def parse(condition: Any, paths: Iterable[str]) -> Filter:
    """Parse a prefilter.

    Args:
        condition: The stage's `filter`.
        paths: The paths that the index declares as filters.

    Returns:
        A function from an index's columns to the rows that pass.

    Raises:
        FilterError: For whatever Atlas refuses.
    """
    return _Parser(frozenset(paths)).clause(condition)


class _Parser:
    def __init__(self, paths: frozenset[str]) -> None:
        self._paths = paths

    def clause(self, condition: Any) -> Filter:
        if not isinstance(condition, Mapping):
            raise FilterError('"filter" must be a document')
        parts = [self._part(name, value) for name, value in condition.items()]
        return _all(parts)

    def _part(self, name: str, value: Any) -> Filter:
        if name in LOGICAL:
            return self._logical(name, value)
        if name.startswith("$"):
            raise FilterError(f'"filter" does not support the operator {name}')
        if name not in self._paths:
            raise FilterError(f"Path '{name}' needs to be indexed as filter")
        return self._field(name, value)

    def _logical(self, name: str, value: Any) -> Filter:
        if not isinstance(value, list) or not value:
            raise FilterError(f'"{name}" cannot be empty')
        parts = [self.clause(one) for one in value]
        if name == "$and":
            return _all(parts)
        return _any(parts) if name == "$or" else _not(_any(parts))

    def _field(self, path: str, value: Any) -> Filter:
        if isinstance(value, Mapping) and any(name.startswith("$") for name in value):
            return _all([self._operator(path, name, operand) for name, operand in value.items()])
        return self._operator(path, "$eq", value)

    def _operator(self, path: str, name: str, operand: Any) -> Filter:
        where = f"{path}.{name}"
        if name == "$eq":
            return _equal(path, [_scalar(path, operand)])
        if name == "$ne":
            return _not(_equal(path, [_scalar(where, operand)]))
        if name in ("$in", "$nin"):
            found = _equal(path, _set(where, operand))
            return found if name == "$in" else _not(found)
        if name in _RANGES:
            return _range(path, name, _scalar(where, operand, null=False))
        if name == "$exists":
            if not isinstance(operand, bool):
                raise FilterError(f'"{where}" must be a boolean')
            return _exists(path) if operand else _not(_exists(path))
        if name == "$not":
            return self._negated(path, operand)
        raise FilterError(f'"{path}" unrecognized field "{name}"')

    def _negated(self, path: str, operand: Any) -> Filter:
        if not isinstance(operand, Mapping) or not operand:
            raise FilterError(f'"{path}.$not" must be a document of operators')
        parts = [self._operator(path, name, value) for name, value in operand.items()]
        return _not(_all(parts))


_RANGES: dict[str, Callable[[Any, Any], bool]] = {
    "$gt": lambda value, bound: bool(value > bound),
    "$gte": lambda value, bound: bool(value >= bound),
    "$lt": lambda value, bound: bool(value < bound),
    "$lte": lambda value, bound: bool(value <= bound),
}


def _scalar(where: str, value: Any, *, null: bool = True) -> Key:
    if isinstance(value, Binary | bytes) and getattr(value, "subtype", 0) != UUID_SUBTYPE:
        raise FilterError(f'"{where}" binary value must be UUID subtype 4')
    key = values.key(value)
    if key is None or (key == values.NULL and not null):
        raise FilterError(f'"{where}" must be a {TYPES if null else NOT_NULL}')
    return key


def _set(where: str, operand: Any) -> list[Key]:
    if not isinstance(operand, list):
        raise FilterError(f'"{where}" must be an array')
    if not operand:
        raise FilterError(f'"{where}" cannot be empty')
    keys = [_scalar(f"{where}[{i}]", one, null=False) for i, one in enumerate(operand)]
    if len({bracket for bracket, _ in keys}) > 1:
        raise FilterError(f'"{where}" must have elements of the same type')
    return keys


def _equal(path: str, keys: list[Key]) -> Filter:
    return lambda columns: columns.equal(path, keys)


def _exists(path: str) -> Filter:
    return lambda columns: columns.present(path)


def _range(path: str, name: str, key: Key) -> Filter:
    bracket, bound = key
    compare = _RANGES[name]
    return lambda columns: columns.within(path, bracket, lambda value: compare(value, bound))


def _all(parts: list[Filter]) -> Filter:
    def rows(columns: Columns) -> Rows:
        result = columns.everything()
        for part in parts:
            result = result & part(columns)
        return result

    return rows


def _any(parts: list[Filter]) -> Filter:
    def rows(columns: Columns) -> Rows:
        result = ~columns.everything()
        for part in parts:
            result = result | part(columns)
        return result

    return rows


def _not(part: Filter) -> Filter:
    return lambda columns: columns.everything() & ~part(columns)
