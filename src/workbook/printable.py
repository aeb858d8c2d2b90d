"""Text for a terminal: what users and models wrote must be read, and never steer the screen."""

from __future__ import annotations

import unicodedata

from rich.text import Text

KEPT = "\n\t"


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
