"""Show documents as they lie in the database, in the notation of mongosh."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any

from bson import Binary, ObjectId

from workbook.show.markup import block

WIDTH = 84
UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
VECTOR_FROM = 9  # numbers; a shorter list is shown whole
MANY_FIELDS = 6  # of a document in one line: one with more shows the first few
SHOWN_FIELDS = 3


class Documents:
    """Documents that draw themselves: field by field, vectors cut short, long texts wrapped."""

    def __init__(self, documents: Sequence[Mapping[str, Any]], more: bool = False) -> None:
        self.documents = list(documents)
        self._more = more

    def __len__(self) -> int:
        return len(self.documents)

    def __repr__(self) -> str:
        shown = [_render(document) for document in self.documents] or ["(no documents)"]
        return "\n".join([*shown, "…"] if self._more else shown)

    def _repr_html_(self) -> str:
        return block(repr(self))


def documents(
    found: Mapping[str, Any] | Iterable[Mapping[str, Any]] | None,
    *,
    fields: Sequence[str] | None = None,
    limit: int = 10,
) -> Documents:
    """Show documents as the database holds them.

    Args:
        found: A document, a cursor, or any iterable of documents; `None` (what `find_one` returns
            when nothing matches) shows as no documents.
        fields: Show these fields only, in this order.
        limit: How many documents to show; an ellipsis stands for those left out.

    Returns:
        The documents, drawn in mongosh's notation. A vector shows its first three numbers and
        its length.
    """
    each = [found] if isinstance(found, Mapping) else (found or [])
    taken = list(islice(each, limit + 1))
    chosen = [_only(document, fields) for document in taken[:limit]]
    return Documents(chosen, more=len(taken) > limit)


def _only(document: Mapping[str, Any], fields: Sequence[str] | None) -> Mapping[str, Any]:
    if fields is None:
        return document
    return {name: document[name] for name in fields if name in document}


def _render(value: Any, indent: int = 0) -> str:
    if isinstance(value, Mapping):
        return _block("{", [f"{name}: " for name in value], list(value.values()), "}", indent)
    if _is_vector(value):
        first = ", ".join(f"{number:.4f}" for number in value[:3])
        return f"[ {first}, … {len(value):,} numbers ]"
    if isinstance(value, (list, tuple)):
        return _block("[", [""] * len(value), list(value), "]", indent)
    if isinstance(value, str):
        return repr(value)
    return _scalar(value)


def _block(opening: str, names: list[str], values: list[Any], closing: str, indent: int) -> str:
    """Draw a document or an array on one line when it is short, else on one line per item."""
    if not values:
        return opening + closing
    drawn = [_render(value, indent + 2) for value in values]
    parts = [name + part for name, part in zip(names, drawn, strict=True)]
    line = f"{opening} {', '.join(parts)} {closing}"
    if indent and len(line) + indent <= WIDTH and "\n" not in line:
        return line
    pad = " " * (indent + 2)
    inner = "".join(f"{pad}{_wrapped(part, indent + 2)},\n" for part in parts)
    return f"{opening}\n{inner}{' ' * indent}{closing}"


def _is_vector(value: Any) -> bool:
    return (
        isinstance(value, (list, tuple))
        and len(value) >= VECTOR_FROM
        and all(isinstance(item, (int, float)) and not isinstance(item, bool) for item in value)
    )


def _is_id(value: Any) -> bool:
    return isinstance(value, ObjectId) or (isinstance(value, str) and bool(UUID.fullmatch(value)))


def _wrapped(part: str, indent: int) -> str:
    """Wrap a long text, its further lines set in; what has several lines already is left alone."""
    if "\n" in part:
        return part
    lines = textwrap.wrap(part, WIDTH - indent - 4, break_long_words=False)
    return ("\n" + " " * (indent + 4)).join(lines)


def _scalar(value: Any) -> str:
    if isinstance(value, datetime):
        return f"ISODate('{value.replace(tzinfo=None).isoformat(timespec='seconds')}Z')"
    if isinstance(value, ObjectId):
        return f"ObjectId('{value}')"
    if isinstance(value, bytes):
        kind = value.subtype if isinstance(value, Binary) else 0
        return f"BinData({kind}, {len(value):,} bytes)"
    words = {None: "null", True: "true", False: "false"}
    return words[value] if value is None or isinstance(value, bool) else repr(value)


def abbreviate(value: Any) -> str:
    """Return a value in mongosh's notation on one line.

    Long arrays are cut after two items, documents of more than six fields after three. Generated
    ids and dates stand as `<id>` and `<date>`: they say little, and they would be others in the
    next run.
    """
    if isinstance(value, Mapping):
        return _short_document(value)
    if _is_vector(value):
        return f"[… {len(value):,} numbers]"
    if _is_id(value):
        return "<id>"
    if isinstance(value, (list, tuple)):
        return _short_array(value)
    if isinstance(value, datetime):
        return "<date>"
    return repr(value) if isinstance(value, str) else _scalar(value)


def _short_document(document: Mapping[str, Any]) -> str:
    shown = list(document.items())[: SHOWN_FIELDS if len(document) > MANY_FIELDS else None]
    fields = [f"{name}: {abbreviate(item)}" for name, item in shown]
    rest = [f"… {len(document)} fields"] if len(document) > len(shown) else []
    return f"{{{', '.join(fields + rest)}}}"


def _short_array(array: Sequence[Any]) -> str:
    if len(array) > 1 and all(map(_is_id, array)):
        return f"[{len(array):,} ids]"
    shown = [abbreviate(item) for item in array[:2]]
    rest = [f"… {len(array):,} in all"] if len(array) > len(shown) else []
    return f"[{', '.join(shown + rest)}]"
