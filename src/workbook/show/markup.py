"""Text as HTML that every notebook draws as it is."""

from __future__ import annotations

from html import escape


def literal(text: str) -> str:
    """Return a text as HTML that shows exactly these characters.

    Notebooks typeset what stands between two dollar signs as a formula, and MongoDB's operators
    begin with one: each gets an element of its own, which no formula reaches across.
    """
    return escape(text).replace("$", "<span>$</span>")
