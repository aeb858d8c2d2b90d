"""Tables that look alike in JupyterLab, on GitHub and in Colab."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from datetime import datetime
from numbers import Integral
from typing import Any

import pandas as pd

from workbook.show.markup import prose

TEXT = "text-align:left; vertical-align:top; white-space:pre-wrap; max-width:42em"
NUMBER = "text-align:right; vertical-align:top"


class Table(pd.DataFrame):  # type: ignore[misc]
    """A pandas frame that is drawn without its row numbers, text to the left, nothing cut off.

    It carries no generated ids, so that a notebook run again is the same file again.
    """

    @property
    def _constructor(self) -> type[Table]:
        return Table

    def _repr_html_(self) -> str:
        columns = [self.iloc[:, number] for number in range(self.shape[1])]
        styles = [NUMBER if _is_numeric(column) else TEXT for column in columns]
        heads = _cells("th", self.columns, styles)
        rows = [_cells("td", row, styles) for row in zip(*map(_texts, columns), strict=True)]
        body = "".join(f"<tr>{row}</tr>\n" for row in rows)
        return f"<table>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>"


def table(rows: Iterable[Any], columns: Sequence[str] | None = None) -> Table:
    """Make a table of whatever holds rows.

    Args:
        rows: Mappings, dataclasses, pydantic models, or sequences of cells; one mapping, which
            becomes a row for each key; or a frame, whose index becomes a column when it has a name.
        columns: Which fields to show, in order, and the headings of sequences. The default is
            every field.

    Returns:
        A pandas frame. Counts stay whole numbers when a cell is empty.
    """
    if isinstance(rows, pd.DataFrame):
        return Table(rows.reset_index() if rows.index.name else rows)
    if isinstance(rows, Mapping):
        rows, columns = list(rows.items()), columns or ("", "value")
    frame = Table([_row(row) for row in rows], columns=None if columns is None else list(columns))
    return Table({name: _whole(frame[name]) for name in frame.columns}, columns=frame.columns)


def _row(row: Any) -> Any:
    if is_dataclass(row) and not isinstance(row, type):
        return asdict(row)
    return row.model_dump() if hasattr(row, "model_dump") else row


def _whole(column: Any) -> Any:
    """Keep a column of counts with gaps as counts: pandas would make it one of floats."""
    known = [value for value in column if not _is_missing(value)]
    if known and all(isinstance(value, float) and value.is_integer() for value in known):
        return column.astype("Int64") if len(known) < len(column) else column
    return column


def _is_missing(value: Any) -> bool:
    return value is None or value is pd.NA or value is pd.NaT or value != value


def _is_numeric(column: Any) -> bool:
    return bool(pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column))


def _cells(tag: str, values: Iterable[Any], styles: Sequence[str]) -> str:
    paired = zip(values, styles, strict=True)
    return "".join(f'<{tag} style="{style}">{prose(str(value))}</{tag}>' for value, style in paired)


def _texts(column: Any) -> list[str]:
    """Write a column's cells: scores and shares all with as many decimals as one of them needs."""
    if not pd.api.types.is_float_dtype(column) or column.abs().max() > 1:
        return [_text(value) for value in column]
    places = max((_places(value) for value in column if not _is_missing(value)), default=1)
    return ["" if _is_missing(value) else f"{value:.{places}f}" for value in column]


def _places(value: float) -> int:
    """Return how many decimals of three a number needs, at least one."""
    return max(1, len(f"{value:.3f}".rstrip("0").partition(".")[2]))


def _text(value: Any) -> str:
    if isinstance(value, (list, tuple, set)):
        return ", ".join(map(_text, value))
    if isinstance(value, Mapping):
        return json.dumps(dict(value), default=str, ensure_ascii=False)
    if _is_missing(value):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M}"
    if isinstance(value, float) and not value.is_integer():
        return f"{value:,.3f}"
    return f"{int(value):,}" if isinstance(value, (float, Integral)) else str(value)
