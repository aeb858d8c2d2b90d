"""The house rules: what a reader may rely on in every notebook, each rule one test."""

from __future__ import annotations

import ast
import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from IPython.core.inputtransformer2 import TransformerManager

from workbook import paths
from workbook.notebooks import addresses, setup_cell
from workbook.notebooks.run import all_notebooks, tidy

LARGEST = 1_000_000  # bytes
VERBS = {
    *("Build", "Choose", "Find", "Follow", "Give", "Keep", "Meet", "Model", "Plug", "Put", "Read"),
    *("Remember", "Run", "Search", "See", "Send", "Ship", "Store", "Take", "Watch", "Write"),
}
FACTS = re.compile(
    r"\*\d+ minutes · (beginner|intermediate|advanced) · (comes first|comes after \[.+\]\(.+\)) · "
    r"no keys needed\*"
)
ORDER = [
    *("## What you'll do", "## What you'll learn", "## Set up"),
    *("## Recap", "## On your own", "## Further reading", "## Clean up"),
]
MACHINE_PATHS = re.compile(r"/home/\w|/Users/[A-Za-z]|/root/|/tmp/|[A-Z]:\\\\?\w|site-packages")
CREDENTIALS = re.compile(r"mongodb(?:\+srv)?://[^\s:/@]+:(?!\*\*\*|<|PASSWORD|password@)[^\s@]+@")
KEYS = re.compile(
    r"\b(?:sk|pa|al|pk|rk)-[A-Za-z0-9_-]{16,}|\bAIza[A-Za-z0-9_-]{20,}|\bgh[pousr]_\w{20,}"
    r"|\bAKIA[0-9A-Z]{16}\b|\beyJ[A-Za-z0-9_-]{20,}"
)

pytestmark = pytest.mark.parametrize("path", all_notebooks(), ids=lambda path: path.stem)


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def tagged(notebook: Any, tag: str) -> list[Any]:
    return [cell for cell in notebook.cells if tag in cell.metadata.get("tags", [])]


def code(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def prose(notebook: Any) -> str:
    return "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")


def texts(notebook: Any) -> Iterator[str]:
    """Yield every text that a reader sees: sources and outputs, pictures left out."""
    for cell in notebook.cells:
        yield cell.source
        for output in cell.get("outputs", []):
            yield output.get("text", "")
            for kind, data in output.get("data", {}).items():
                if not kind.startswith("image/"):
                    yield data if isinstance(data, str) else json.dumps(data)


def parsed(cell: Any) -> ast.Module:
    return ast.parse(TransformerManager().transform_cell(cell.source))


# Executed, and tidy


def test_it_is_valid_and_small(path: Path) -> None:
    nbformat.validate(read(path))
    assert path.stat().st_size < LARGEST


def test_it_is_committed_executed_in_order(path: Path) -> None:
    counts = [cell.execution_count for cell in code(read(path))]
    assert counts == list(range(1, len(counts) + 1))


def test_no_output_is_an_error_or_a_warning(path: Path) -> None:
    for cell in code(read(path)):
        for output in cell.outputs:
            assert output.output_type != "error", cell.source
            assert output.get("name") != "stderr", (cell.source, output.text)


def test_it_holds_nothing_that_changes_with_the_machine(path: Path) -> None:
    assert nbformat.writes(tidy(read(path))) == path.read_text("utf-8").rstrip("\n")


def test_F1_its_kernel_is_python3(path: Path) -> None:
    assert read(path).metadata.kernelspec.name == "python3"


def test_it_shows_no_path_of_a_machine(path: Path) -> None:
    own = {str(paths.PROJECT), str(Path.home()), tempfile.gettempdir()} - {"/"}
    for text in texts(read(path)):
        assert not MACHINE_PATHS.search(text), text[:500]
        assert not any(folder + "/" in text for folder in own), text[:500]


def test_it_shows_no_credential(path: Path) -> None:
    for text in texts(read(path)):
        assert not CREDENTIALS.search(text), text[:500]
        assert not KEYS.search(text), text[:500]


def test_its_outputs_fit_on_a_page(path: Path) -> None:
    for cell in code(read(path)):
        for output in cell.outputs:
            if output.output_type == "stream":
                assert output.text.count("\n") <= 60, cell.source
                assert max(map(len, output.text.splitlines()), default=0) <= 220, cell.source


# Addresses


def test_its_badge_opens_this_very_file(path: Path) -> None:
    assert addresses.badge(path.name) in read(path).cells[0].source
    assert prose(read(path)).count("colab.research.google.com/github/") == 1


def test_its_links_to_other_notebooks_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+\.(?:ipynb|md|py|json))\)", prose(read(path))):
        if not target.startswith("http"):
            assert (path.parent / target).exists(), target


# Anatomy


def test_its_title_begins_with_a_verb_and_its_facts_follow(path: Path) -> None:
    first = read(path).cells[0].source
    title = re.match(r"# (\w+)", first)
    assert title, first
    assert title[1] in VERBS, title[1]
    assert FACTS.search(first), "a line of minutes, level, what comes before, and keys"


def test_the_picture_of_the_end_state_comes_first(path: Path) -> None:
    before = prose(read(path)).split("## What you'll do")[0]
    assert "```mermaid" in before or "![" in before.replace("[![", "")


def test_every_diagram_is_said_in_words_too(path: Path) -> None:
    for cell in read(path).cells:
        if "```mermaid" in cell.source:
            words = re.sub(r"(?s:```.*?```)|^#.*$|\[!.*", "", cell.source, flags=re.M)
            assert len(words.split()) >= 8, cell.source
            assert "accTitle: " in cell.source, "the title that a screen reader says"


def test_its_sections_come_in_the_usual_order(path: Path) -> None:
    headings = re.findall(r"^## .+$", prose(read(path)), re.M)
    assert [heading for heading in headings if heading in ORDER] == ORDER


def test_no_heading_has_an_emoji(path: Path) -> None:
    for heading in re.findall(r"^#+ .+$", prose(read(path)), re.M):
        assert all(ord(letter) < 0x2600 for letter in heading), heading


def test_its_set_up_cell_is_the_one_that_all_share(path: Path) -> None:
    notebook = read(path)
    assert [cell.source for cell in tagged(notebook, "setup")] == [setup_cell.source()]
    assert code(notebook)[0].metadata.tags == ["setup"]


def test_cells_are_short(path: Path) -> None:
    for cell in code(read(path)):
        if "setup" not in cell.metadata.get("tags", []):
            lines = [line for line in cell.source.splitlines() if line.strip()]
            assert len(lines) <= 20, cell.source


def test_the_recap_has_five_lines(path: Path) -> None:
    recap = prose(read(path)).split("## Recap")[1].split("\n## ")[0]
    assert len(re.findall(r"^- ", recap, re.M)) == 5


def test_its_last_cell_cleans_up(path: Path) -> None:
    last = code(read(path))[-1]
    assert last.metadata.get("tags") == ["cleanup"]
    assert "connection.close()" in last.source


# Exercises


def test_it_has_two_or_three_exercises_with_one_blank_each(path: Path) -> None:
    found = tagged(read(path), "exercise")
    assert 2 <= len(found) <= 3
    for cell in found:
        blanks = [
            node
            for node in ast.walk(parsed(cell))
            if isinstance(node, ast.Constant) and node.value is ...
        ]
        assert len(blanks) == 1, cell.source
        assert cell.metadata.wrong, "a plausible wrong answer, for the test of the check"


def test_each_exercise_is_followed_by_its_folded_solution(path: Path) -> None:
    cells = read(path).cells
    for number, cell in enumerate(cells):
        if "exercise" not in cell.metadata.get("tags", []):
            continue
        solution = cells[number + 1]
        assert solution.metadata.get("tags") == ["solution"]
        assert solution.source.startswith("<details>\n<summary>Solution</summary>\n\n```python\n")
        head, tail = cell.source.split("...")
        body = re.search(r"```python\n(.*?)\n```", solution.source, re.S)
        assert body
        assert body[1].startswith(head)
        assert body[1].endswith(tail)


def test_exercises_are_shown_unsolved(path: Path) -> None:
    for cell in tagged(read(path), "exercise"):
        assert any("Unsolved." in output.data["text/plain"] for output in cell.outputs)


# One version of everything


def names_defined(tree: ast.Module) -> set[str]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return {node.name for node in tree.body if isinstance(node, kinds)}


def names_imported(tree: ast.Module) -> set[str]:
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {alias.asname or alias.name for node in imports for alias in node.names}


def test_it_keeps_no_second_version_of_what_the_source_has(path: Path) -> None:
    source = set().union(
        *(names_defined(ast.parse(file.read_text())) for file in paths.PROJECT.glob("src/**/*.py"))
    )
    trees = [parsed(cell) for cell in code(read(path))]
    for number, tree in enumerate(trees):
        later = set().union(set(), *(names_imported(each) for each in trees[number + 1 :]))
        doubled = (names_defined(tree) & source) - later
        assert not doubled, f"{doubled} is in src too: import it, or build up to the import"


def test_it_branches_on_no_capability(path: Path) -> None:
    for cell in code(read(path)):
        if "setup" in cell.metadata.get("tags", []):
            continue
        tests = [n.test for n in ast.walk(parsed(cell)) if isinstance(n, (ast.If, ast.IfExp))]
        assert not any("capabilities" in ast.unparse(test) for test in tests), cell.source


def test_F9_it_starts_no_event_loop_of_its_own(path: Path) -> None:
    for cell in code(read(path)):
        assert "asyncio.run(" not in cell.source
        assert "nest_asyncio" not in cell.source
        assert ".kickoff(" not in cell.source
        assert "input(" not in cell.source
        assert "getpass" not in cell.source
