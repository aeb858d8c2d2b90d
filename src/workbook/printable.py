"""A terminal, and text for it: what users and models wrote must be read, and never steer it."""

from __future__ import annotations

import sys
import unicodedata

from rich.text import Text

KEPT = "\n\t"


def is_terminal() -> bool:
    """Tell whether somebody types and reads at a terminal: either stream may be closed or piped."""
    return bool(sys.stdin and sys.stdin.isatty() and sys.stdout and sys.stdout.isatty())


def printable(text: str) -> str:
    """Return a text without control characters, line ends and tabs excepted.

    An escape sequence in a memory could otherwise clear the screen or rename the window. Half of a
    surrogate pair, which a terminal may hand over, becomes the replacement character: MongoDB
    stores whole characters only.
    """
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return "".join(c for c in whole if c in KEPT or unicodedata.category(c) != "Cc")


def as_text(text: str, style: str = "") -> Text:
    """Return a text to print with rich: no control characters, no markup."""
    return Text(printable(text), style=style)
