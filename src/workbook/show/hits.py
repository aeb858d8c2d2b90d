"""What a search found, with its scores drawn as bars."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from textwrap import shorten
from typing import Any

from workbook.show.tables import Table, table

BAR = 20  # characters at score 1.0
EIGHTHS = " ▏▎▍▌▋▊▉"


def hits(found: Iterable[Any], *, longest: int = 200) -> Table:
    """Show search results, best first as they came, each with its score and a bar.

    Args:
        found: `(record, score)` pairs from a backend's `search()`, matches from
            `Memory.recall()`, or documents with a `score` field. Scores are from 0 to 1.
        longest: How many characters of a content to show.

    Returns:
        Score, bar, content and scope of each.
    """
    rows = [_row(*scored(each), longest) for each in found]
    return table(rows, columns=("score", "", "content", "scope"))


def scored(hit: Any) -> tuple[Any, float]:
    """Return what was found and its score, from any of the three forms that `hits()` takes."""
    if isinstance(hit, Mapping):
        return hit, float(hit["score"])
    if isinstance(hit, tuple):
        return hit[0], float(hit[1])
    return hit.record, float(hit.score)


def bar(score: float, longest: int = BAR) -> str:
    """Return a bar of block characters, `longest` of them at score 1, none at score 0."""
    eighths = round(min(max(score, 0.0), 1.0) * longest * 8)
    return "█" * (eighths // 8) + EIGHTHS[eighths % 8].strip()


def field(found: Any, name: str) -> Any:
    """Return a field of a record or of a document, `None` when it has none."""
    return found.get(name) if isinstance(found, Mapping) else getattr(found, name, None)


def _row(found: Any, score: float, longest: int) -> tuple[float, str, str, Any]:
    content = shorten(str(field(found, "content") or ""), longest, placeholder=" …")
    return score, bar(score), content, field(found, "scope")
