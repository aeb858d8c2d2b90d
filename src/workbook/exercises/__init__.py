"""Exercises with one blank each: `...` stands where the learner's answer goes.

A check is a function that looks at the answer's value, or at what the database holds because of
it. Called with the blank still in place it says that the exercise is unsolved and gives a hint;
called with a wrong answer it says what is wrong; it never raises. The checks of one notebook are
in one module of this package.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, ParamSpec

from workbook.show.markup import prose

P = ParamSpec("P")
Status = Literal["unsolved", "wrong", "solved"]

BLANK = ...
HEADINGS: dict[Status, str] = {"unsolved": "Unsolved.", "wrong": "Not yet.", "solved": "Solved."}
COLOURS: dict[Status, str] = {"unsolved": "#56B4E9", "wrong": "#D55E00", "solved": "#009E73"}


class Wrong(Exception):
    """An answer is wrong; the message says what is wrong with it."""


class Unsolved(Exception):
    """The blank is still there, where only the check could see it."""


@dataclass(frozen=True)
class Verdict:
    """What a check found.

    Attributes:
        status: `unsolved`, `wrong` or `solved`.
        message: What to do, what is wrong, or why the answer is right.
        hint: Shown unless the exercise is solved.
    """

    status: Status
    message: str
    hint: str

    def __repr__(self) -> str:
        said = f"{HEADINGS[self.status]} {self.message}"
        return said if self.status == "solved" else f"{said}\nHint: {self.hint}"

    def _repr_html_(self) -> str:
        first, *rest = repr(self).split("\n")
        heading = HEADINGS[self.status]
        lines = [f"<b>{heading}</b>{prose(first.removeprefix(heading))}", *map(prose, rest)]
        style = f"border-left:4px solid {COLOURS[self.status]}; padding:0.3em 0.8em"
        return f'<div style="{style}">{"<br>".join(lines)}</div>'


def exercise(*, hint: str) -> Callable[[Callable[P, str]], Callable[P, Verdict]]:
    """Turn a function that judges an answer into a check that a notebook calls.

    The function raises `Wrong` (or calls `expect`) when the answer is wrong, and returns one
    sentence on why it is right. Whatever else it raises comes from the answer, and is shown.

    Args:
        hint: What helps a learner who is stuck, without giving the answer away.
    """

    def decorate(judge: Callable[P, str]) -> Callable[P, Verdict]:
        @functools.wraps(judge)
        def check(*args: P.args, **kwargs: P.kwargs) -> Verdict:
            if any(has_blank(value) for value in (*args, *kwargs.values())):
                return _unsolved(hint)
            try:
                return Verdict("solved", judge(*args, **kwargs), hint)
            except Unsolved:
                return _unsolved(hint)
            except Wrong as wrong:
                return Verdict("wrong", str(wrong), hint)
            except Exception as error:
                said = f"Trying your answer raised {type(error).__name__}: {_first_line(error)}"
                return Verdict("wrong", said, hint)

        return check

    return decorate


def expect(condition: bool, otherwise: str) -> None:
    """Raise `Wrong` with a sentence that says what is wrong, unless the condition holds."""
    if not condition:
        raise Wrong(otherwise)


def call(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function that the learner has written, for a check.

    Raises:
        Unsolved: When its blank is still in place: it returns `...`, or nothing.
    """
    result = function(*args)
    if result is None or has_blank(result):
        raise Unsolved
    return result


def has_blank(value: Any) -> bool:
    """Say whether `...` stands in a value, or anywhere inside a list or a document."""
    if value is BLANK:
        return True
    if isinstance(value, Mapping):
        return any(has_blank(item) for pair in value.items() for item in pair)
    return isinstance(value, (list, tuple, set)) and any(map(has_blank, value))


def _unsolved(hint: str) -> Verdict:
    return Verdict("unsolved", "Put your answer where the ... is, and run the cell again.", hint)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or ["(no message)"])[0][:300]
