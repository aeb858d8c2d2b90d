"""Every error is of this package, says something, and stands in the docstring of who raises it."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

import crewai_mongodb_memory
from crewai_mongodb_memory import embeddings, errors

PACKAGE = Path(crewai_mongodb_memory.__file__).parent
OURS = [
    kind
    for module in (errors, embeddings)
    for _, kind in inspect.getmembers(module, inspect.isclass)
    if issubclass(kind, errors.MongoDBMemoryError)
]


def functions() -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef, set[str]]]:
    """Yield each function of the package and the names of what it raises itself."""
    for file in sorted(PACKAGE.glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{file.stem}.{node.name}", node, _raised(node)


def _raised(function: ast.AST) -> set[str]:
    raised = [n.exc for n in ast.walk(function) if isinstance(n, ast.Raise) and n.exc]
    calls = [one.func for one in raised if isinstance(one, ast.Call)]
    return {call.id for call in calls if isinstance(call, ast.Name) and call.id[0].isupper()}


FUNCTIONS = list(functions())


def test_what_is_raised_is_of_this_package() -> None:
    names = {kind.__name__ for kind in OURS}
    others = {name: raised - names for name, _, raised in FUNCTIONS}
    assert not {name: kinds for name, kinds in others.items() if kinds}


@pytest.mark.parametrize(
    ("function", "raised"),
    [
        pytest.param(node, raised, id=name)
        for name, node, raised in FUNCTIONS
        if raised and not node.name.startswith("_")
    ],
)
def test_a_public_function_documents_what_it_raises(
    function: ast.FunctionDef, raised: set[str]
) -> None:
    documented = (ast.get_docstring(function) or "").partition("Raises:")[2]
    assert not {kind for kind in raised if kind not in documented}


def test_no_error_is_taken_for_the_interpreters_end() -> None:
    assert not [kind for kind in OURS if issubclass(kind, RuntimeError) or not kind.__doc__]
