"""The prefilter of `$vectorSearch`: which documents of an index it leaves.

Conditions mean what they mean in a `$match`; only the operators documented for the prefilter are
accepted, only on paths declared as filters, and only with the documented value types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from workbook.embedded import values
from workbook.embedded.values import Key

Rows = npt.NDArray[np.bool_]

LOGICAL = ("$and", "$or", "$nor")
TYPES = "boolean, date, number, objectId, string, uuid or null"


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
            raise FilterError(f'"{name}" must be a nonempty array of documents')
        parts = [self.clause(one) for one in value]
        if name == "$and":
            return _all(parts)
        return _any(parts) if name == "$or" else _not(_any(parts))

    def _field(self, path: str, value: Any) -> Filter:
        if isinstance(value, Mapping) and any(name.startswith("$") for name in value):
            return _all([self._operator(path, name, operand) for name, operand in value.items()])
        return self._operator(path, "$eq", value)

    def _operator(self, path: str, name: str, operand: Any) -> Filter:
        if name == "$eq":
            return _equal(path, [_scalar(path, operand)])
        if name == "$ne":
            return _not(_equal(path, [_scalar(path, operand)]))
        if name in ("$in", "$nin"):
            if not isinstance(operand, list) or not operand:
                raise FilterError(f'"{path}.{name}" must be a nonempty array')
            found = _equal(path, [_scalar(path, one) for one in operand])
            return found if name == "$in" else _not(found)
        if name in _RANGES:
            return _range(path, name, _scalar(path, operand))
        if name == "$exists":
            if not isinstance(operand, bool):
                raise FilterError(f'"{path}.$exists" must be a boolean')
            return _exists(path) if operand else _not(_exists(path))
        if name == "$not":
            if not isinstance(operand, Mapping) or not operand:
                raise FilterError(f'"{path}.$not" must be a document of operators')
            return _not(self._field(path, operand))
        raise FilterError(f'"{path}" unrecognized field "{name}"')


_RANGES: dict[str, Callable[[Any, Any], bool]] = {
    "$gt": lambda value, bound: bool(value > bound),
    "$gte": lambda value, bound: bool(value >= bound),
    "$lt": lambda value, bound: bool(value < bound),
    "$lte": lambda value, bound: bool(value <= bound),
}


def _scalar(path: str, value: Any) -> Key:
    key = values.key(value)
    if key is None:
        raise FilterError(f'"{path}" must be a {TYPES}')
    return key


def _equal(path: str, keys: list[Key]) -> Filter:
    return lambda columns: columns.equal(path, keys)


def _exists(path: str) -> Filter:
    return lambda columns: columns.present(path)


def _range(path: str, name: str, key: Key) -> Filter:
    bracket, bound = key
    if key == values.NULL:
        if name in ("$gte", "$lte"):
            return _equal(path, [key])
        return lambda columns: ~columns.everything()
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
