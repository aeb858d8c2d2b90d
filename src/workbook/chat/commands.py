"""What can be typed into a chat: words for the concierge, and commands that begin with a slash."""

from __future__ import annotations

import re
from dataclasses import dataclass

from workbook.printable import printable

#: Each command, what follows it, and what it does.
COMMANDS = {
    "remember": ("TEXT", "store a memory, and see where it went"),
    "recall": ("QUERY", "search your memories by meaning, with their scores"),
    "scope": ("", "see your scopes as a tree, with what lies in each"),
    "history": ("[N]", "see the last turns of the transcript (10)"),
    "forget": ("TEXT or ID", "find memories, see them, and delete them if you say yes"),
    "clear": ("", "delete the transcript; the memories stay"),
    "help": ("", "see this list"),
    "quit": ("", "leave; everything is kept"),
}
ALIASES = {"exit": "quit", "bye": "quit", "?": "help", "h": "help", "scopes": "scope"}
LEAVING = frozenset({"quit", "exit"})  # understood without a slash too
YES = frozenset({"y", "yes"})
NO = frozenset({"", "n", "no"})
SHORT_ANSWER = 3  # words; "yes, but not the second one" is none


@dataclass(frozen=True)
class Line:
    """A line, taken apart.

    Attributes:
        command: The command's name without its slash, `""` for words to the concierge.
        text: What follows the command, or the words.
    """

    command: str
    text: str


def parse(line: str) -> Line:
    """Take a line apart. Control characters and broken Unicode are taken out.

    Args:
        line: What was typed or piped in.
    """
    clean = printable(line).strip()
    if clean.lower() in LEAVING:
        return Line("quit", "")
    if not clean.startswith("/"):
        return Line("", clean)
    name, *rest = re.split(r"\s+", clean[1:], maxsplit=1)
    name = name.lower()
    return Line(ALIASES.get(name, name) or "help", "".join(rest))


def decision(text: str) -> bool | None:
    """Return what was answered to a question, by the first word of a short answer.

    Args:
        text: What was typed, such as `Yes!` or `yes, please`; nothing at all means no.

    Returns:
        True for yes, False for no, None for what is neither.
    """
    words = re.findall(r"\w+", text.lower())
    if len(words) > SHORT_ANSWER:
        return None
    first = words[0] if words else ""
    return True if first in YES else False if first in NO else None


def usage() -> str:
    """Return the list of commands."""
    shown = {f"/{name} {follows}".strip(): does for name, (follows, does) in COMMANDS.items()}
    width = max(map(len, shown))
    return "\n".join(f"{command:<{width}}  {does}" for command, does in shown.items())
