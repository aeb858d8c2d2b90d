"""An index in memory: a matrix per vector field, an inverted list per filter field."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from workbook.embedded import filters, values, vectors
from workbook.embedded.definitions import SearchIndex, VectorField
from workbook.embedded.filters import Rows
from workbook.embedded.values import Key

Floats = npt.NDArray[np.float32]

FIRST_CAPACITY = 64


class VectorColumn:
    """The vectors of one field, one row per document; a row may lack one."""

    def __init__(self, field: VectorField) -> None:
        self.field = field
        self.kinds: npt.NDArray[np.uint8] = np.zeros(0, np.uint8)
        self._matrix: Floats = np.zeros((0, field.dimensions), np.float32)

    def grow(self, capacity: int) -> None:
        """Make room for more rows."""
        more = capacity - len(self.kinds)
        self.kinds = np.pad(self.kinds, (0, more))
        self._matrix = np.vstack(
            [self._matrix, np.zeros((more, self.field.dimensions), np.float32)]
        )

    def set(self, row: int, vector: tuple[Floats, int] | None) -> None:
        """Store a row's vector and its kind, or that it has none."""
        self.kinds[row] = 0
        if vector is not None:
            self._matrix[row], self.kinds[row] = vector

    def nearest(self, query: Floats, kind: int, rows: Rows, limit: int) -> list[tuple[int, float]]:
        """Return the rows nearest to a query and their scores, the best first.

        Equal scores keep the order of the rows.
        """
        selected = np.flatnonzero(rows & (self.kinds[: len(rows)] == kind))
        if not len(selected):
            return []
        # Picking rows copies them: only worth it when most rows are left out.
        few = len(selected) * 4 < len(rows)
        matrix = self._matrix[selected] if few else self._matrix[: len(rows)]
        scores = vectors.scores(self.field.similarity, matrix, query)
        if not few:
            scores = scores[selected]
        if len(scores) > limit:
            best = np.argpartition(-scores, limit - 1)[:limit]
            selected, scores = selected[best], scores[best]
        order = np.lexsort((selected, -scores))
        return [(int(selected[i]), float(scores[i])) for i in order]


class FilterColumn:
    """The values of one filter field: for each value, the rows that hold it."""

    def __init__(self) -> None:
        self.rows: defaultdict[Key, set[int]] = defaultdict(set)
        self._keys: dict[int, frozenset[Key]] = {}
        self._arrays: dict[Key, npt.NDArray[np.intp]] = {}

    def set(self, row: int, keys: frozenset[Key]) -> None:
        """Replace the values of a row."""
        before = self._keys.get(row, frozenset())
        for key in before - keys:
            self._arrays.pop(key, None)
            self.rows[key].discard(row)
            if not self.rows[key]:
                del self.rows[key]
        for key in keys - before:
            self._arrays.pop(key, None)
            self.rows[key].add(row)
        self._keys[row] = keys
        if not keys:
            del self._keys[row]

    def select(self, keys: Iterable[Key], into: Rows) -> Rows:
        """Mark the rows that hold one of these values."""
        single = [key for key in keys if key in self.rows]
        if len(single) > 100:
            rows = chain.from_iterable(self.rows[key] for key in single)
            into[np.fromiter(rows, np.intp)] = True
            return into
        for key in single:
            if key not in self._arrays:
                self._arrays[key] = np.fromiter(self.rows[key], np.intp)
            into[self._arrays[key]] = True
        return into


MISSING: Key = ("missing", None)


class VectorIndex:
    """The documents of a collection as one search index sees them.

    Not thread-safe: the owner lets one user in at a time.
    """

    def __init__(self, index: SearchIndex) -> None:
        self.index = index
        self._vectors = {path: VectorColumn(field) for path, field in index.vectors.items()}
        self._filters = {path: FilterColumn() for path in index.filter_paths}
        self._rows: dict[Any, int] = {}
        self._ids: list[Any] = []
        self._free: list[int] = []
        self._live: Rows = np.zeros(0, np.bool_)

    def __len__(self) -> int:
        return len(self._rows)

    def put(self, document: Mapping[str, Any]) -> None:
        """Index a document anew; one without any usable vector is left out."""
        found = {
            path: vectors.from_document(document, column.field)
            for path, column in self._vectors.items()
        }
        if all(vector is None for vector in found.values()):
            self.remove(document["_id"])
            return
        row = self._row(document["_id"])
        for path, vector in found.items():
            self._vectors[path].set(row, vector)
        for path, column in self._filters.items():
            column.set(row, _keys(document, path))

    def remove(self, document_id: Any) -> None:
        """Forget a document, if it is known."""
        row = self._rows.pop(values.id_key(document_id), None)
        if row is None:
            return
        self._live[row] = False
        self._ids[row] = None
        self._free.append(row)
        for vector_column in self._vectors.values():
            vector_column.set(row, None)
        for filter_column in self._filters.values():
            filter_column.set(row, frozenset())

    def search(
        self, path: str, query: Floats, kind: int, chosen: filters.Filter | None, limit: int
    ) -> list[tuple[Any, float]]:
        """Return the `_id` and score of the nearest documents, the best first."""
        rows = chosen(self) if chosen else self.everything()
        hits = self._vectors[path].nearest(query, kind, rows, limit)
        return [(self._ids[row], score) for row, score in hits]

    def holds(self, document_id: Any) -> bool:
        """Tell whether a document is in the index."""
        return values.id_key(document_id) in self._rows

    def everything(self) -> Rows:
        """Return a selection of all rows."""
        return self._live[: len(self._ids)].copy()

    def equal(self, path: str, keys: Iterable[Key]) -> Rows:
        """Return the rows that hold one of these values; null stands for a missing field too."""
        wanted = set(keys)
        if values.NULL in wanted:
            wanted.add(MISSING)
        return self._filters[path].select(wanted, self._nothing())

    def within(self, path: str, bracket: str, accepts: Callable[[Any], bool]) -> Rows:
        """Return the rows that hold a value of this bracket that is accepted."""
        column = self._filters[path]
        keys = [key for key in column.rows if key[0] == bracket and accepts(key[1])]
        return column.select(keys, self._nothing())

    def present(self, path: str) -> Rows:
        """Return the rows that have the field."""
        missing = self._filters[path].select([MISSING], self._nothing())
        return self.everything() & ~missing

    def _nothing(self) -> Rows:
        return np.zeros(len(self._ids), np.bool_)

    def _row(self, document_id: Any) -> int:
        key = values.id_key(document_id)
        row = self._rows.get(key)
        if row is not None:
            return row
        if self._free:
            row = self._free.pop()
            self._ids[row] = document_id
        else:
            row = len(self._ids)
            self._ids.append(document_id)
            if row >= len(self._live):
                self._grow(max(FIRST_CAPACITY, 2 * len(self._live)))
        self._rows[key] = row
        self._live[row] = True
        return row

    def _grow(self, capacity: int) -> None:
        self._live = np.pad(self._live, (0, capacity - len(self._live)))
        for column in self._vectors.values():
            column.grow(capacity)


def _keys(document: Mapping[str, Any], path: str) -> frozenset[Key]:
    found = list(values.at_path(document, path))
    if not found:
        return frozenset([MISSING])
    flat = chain.from_iterable(one if isinstance(one, list) else [one] for one in found)
    # An empty array, or one of values that no filter takes, is a field that is there.
    present: Key = ("present", None)
    return frozenset([present, *(key for key in map(values.key, flat) if key is not None)])
