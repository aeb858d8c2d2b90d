"""An exercise says that it is unsolved, what is wrong, or why an answer is right; never more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from workbook.exercises import call, exercise, expect, has_blank


@exercise(hint="Think of equality.")
def subtree(answer: dict[str, Any]) -> str:
    expect("$regex" not in answer, "A regular expression also finds /apple.")
    expect(answer == {"scope_ancestors": "/app"}, f"{answer} does not find /app/sub.")
    return "Every prefix is stored."


@exercise(hint="Join the parts.")
def joined(function: Callable[[str, str], str]) -> str:
    expect(call(function, "a", "b") == "/a/b", "join('a', 'b') should be '/a/b'.")
    return "One slash between two parts."


@pytest.mark.parametrize("answer", [..., {"scope_ancestors": ...}, {"$or": [{"scope": ...}]}])
def test_a_blank_anywhere_is_unsolved(answer: Any) -> None:
    verdict = subtree(answer)
    assert verdict.status == "unsolved"
    assert repr(verdict).startswith("Unsolved.")
    assert "Hint: Think of equality." in repr(verdict)


def test_a_function_whose_body_is_the_blank_is_unsolved() -> None:
    def returns_blank(left: str, right: str) -> Any:
        return ...

    def does_nothing(left: str, right: str) -> Any: ...

    assert joined(returns_blank).status == "unsolved"
    assert joined(does_nothing).status == "unsolved"


def test_a_wrong_answer_is_told_what_is_wrong() -> None:
    verdict = subtree({"$regex": "^/app"})
    assert verdict.status == "wrong"
    assert repr(verdict).startswith("Not yet. A regular expression also finds /apple.")


def test_an_answer_that_raises_is_wrong_and_says_how() -> None:
    verdict = joined(lambda left, right: left / right)
    assert verdict.status == "wrong"
    assert "raised TypeError: unsupported operand" in verdict.message


def test_a_right_answer_is_told_why_and_needs_no_hint() -> None:
    verdict = subtree({"scope_ancestors": "/app"})
    assert repr(verdict) == "Solved. Every prefix is stored."


def test_a_verdict_is_drawn_without_running_what_the_answer_holds() -> None:
    html = subtree({"<script>": 1})._repr_html_()
    assert "<script>" not in html
    assert "<b>Not yet.</b>" in html


def test_what_looks_like_a_blank_but_is_none() -> None:
    assert not has_blank({"a": [1, "...", None, (2.0, {})]})
