"""Text as HTML that every notebook draws as it is."""

from __future__ import annotations

import re
from html import escape

CODE = re.compile(r"`([^`\n]+)`")


def literal(text: str) -> str:
    """Return a text as HTML that shows exactly these characters.

    Notebooks typeset what stands between two dollar signs as a formula, and MongoDB's operators
    begin with one: each gets an element of its own, which no formula reaches across.
    """
    return escape(text).replace("$", "<span>$</span>")


def prose(text: str) -> str:
    """Return a text as HTML, what stands in backticks set as code, as Markdown does it."""
    return CODE.sub(r"<code>\1</code>", literal(text))


def block(text: str) -> str:
    """Return a text of several lines as HTML that keeps them, in a fixed width."""
    return f'<pre style="margin:0; padding:0.4em">{escape(text, quote=False)}</pre>'
