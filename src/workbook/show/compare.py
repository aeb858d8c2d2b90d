"""Two results side by side."""

from __future__ import annotations

from typing import Any

from workbook.show.markup import literal

CELL = "text-align:left; vertical-align:top; white-space:normal"


class Comparison:
    """Two results under their titles, side by side in a notebook, one after the other in text."""

    def __init__(self, left: Any, right: Any, titles: tuple[str, str]) -> None:
        self._sides = (left, right)
        self._titles = titles

    def __repr__(self) -> str:
        pairs = zip(self._titles, self._sides, strict=True)
        return "\n\n".join(f"{title}\n{'-' * len(title)}\n{_plain(side)}" for title, side in pairs)

    def _repr_html_(self) -> str:
        heads = "".join(f'<th style="{CELL}">{literal(title)}</th>' for title in self._titles)
        cells = "".join(f'<td style="{CELL}">{_html(side)}</td>' for side in self._sides)
        return f"<table>\n<tr>{heads}</tr>\n<tr>{cells}</tr>\n</table>"


def compare(left: Any, right: Any, titles: tuple[str, str] = ("left", "right")) -> Comparison:
    """Show two results side by side.

    Args:
        left: Anything a notebook can draw: a text, or what another `show` function returns.
        right: The other one.
        titles: What stands above each.
    """
    return Comparison(left, right, titles)


def _plain(side: Any) -> str:
    return side if isinstance(side, str) else repr(side)


def _html(side: Any) -> str:
    if hasattr(side, "_repr_html_"):
        return str(side._repr_html_())
    return literal(_plain(side)).replace("\n", "<br>")
