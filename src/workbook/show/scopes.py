"""The scopes of a collection as a tree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from pymongo.collection import Collection

from workbook.show.markup import block


class Tree:
    """Scopes as a tree, each with the records that lie in it and below it."""

    def __init__(self, counts: Counter[str]) -> None:
        self._counts = counts

    def __repr__(self) -> str:
        paths = {path for scope in self._counts for path in _upwards(scope)} | {"/"}
        return "\n".join(self._lines("/", paths, "", ""))

    def _repr_html_(self) -> str:
        return block(repr(self))

    def _lines(self, path: str, paths: set[str], own: str, below: str) -> Iterator[str]:
        yield f"{own}{path if path == '/' else path.rsplit('/', 1)[1]}  {self._says(path)}".rstrip()
        children = sorted(each for each in paths if _parent(each) == path)
        for child in children:
            last = child == children[-1]
            branch, line = ("└── ", "    ") if last else ("├── ", "│   ")
            yield from self._lines(child, paths, below + branch, below + line)

    def _says(self, path: str) -> str:
        here = self._counts[path]
        under = sum(count for scope, count in self._counts.items() if path in _upwards(scope))
        return f"{here:,} here" if here == under else f"{here:,} here, {under:,} in all"


def tree(source: Any, scope: str = "/") -> Tree:
    """Show which scopes there are, and how many records lie in each.

    Args:
        source: A storage backend, a collection of memories, or an iterable of scope paths.
        scope: With a backend or a collection, only the records in this scope and below it.

    Returns:
        The tree; each scope says how many records it holds itself and with all below it.
    """
    found = getattr(source, "collection", source)
    if isinstance(found, Collection):
        below = {} if scope == "/" else {"scope_ancestors": scope}
        count = {"$group": {"_id": "$scope", "records": {"$sum": 1}}}
        groups = found.aggregate([{"$match": below}, count])
        return Tree(Counter({group["_id"]: group["records"] for group in groups}))
    scopes: Iterable[str] = found
    return Tree(Counter(scopes))


def _upwards(scope: str) -> list[str]:
    """Return a scope and every scope above it, the root included."""
    parts = [part for part in scope.split("/") if part]
    return ["/", *("/" + "/".join(parts[:depth]) for depth in range(1, len(parts) + 1))]


def _parent(path: str) -> str | None:
    return None if path == "/" else path.rsplit("/", 1)[0] or "/"
