"""What the project's texts may not contain, and that what they name exists."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
TEXT = {".md", ".py", ".ipynb", ".toml", ".txt", ".yml", ".json", ""}
# Words that are data: the model's vocabulary, and the patterns that the tests look for.
DATA = (Path("data/minilm"), Path("tests"))


def tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=PROJECT, capture_output=True, text=True, check=True
    )
    return [Path(line) for line in listed.stdout.splitlines()]


def texts() -> Iterator[tuple[Path, str]]:
    """Yield every committed text that people read, and what it says."""
    for path in tracked():
        is_data = any(path.is_relative_to(folder) for folder in DATA)
        if path.suffix in TEXT and not is_data and (PROJECT / path).is_file():
            yield path, (PROJECT / path).read_text(errors="replace")


@pytest.mark.parametrize(
    "forbidden",
    [
        r"/work/(main|shared)",
        r"/root/|/home/\w+/|/Users/[a-z]+/",
        r"(?i)\bclaude\b|\bcopilot\b|\bchatgpt\b",
        r"pypi\.org|files\.pythonhosted|registry\.npmjs",
        r"\.\./shared",
    ],
)
def test_no_text_names_a_machine_or_a_tool(forbidden: str) -> None:
    found = [
        f"{path}: {match[0]}" for path, text in texts() if (match := re.search(forbidden, text))
    ]
    assert found == []


def test_no_credential_is_committed() -> None:
    key = re.compile(
        r"\b(sk|pa|AIza)-[A-Za-z0-9_-]{20,}"
        r"|mongodb(\+srv)?://\w+:(?!\*\*\*)[^@\s<{'\"]{6,}@"
    )
    found = [f"{path}: {match[0][:20]}..." for path, text in texts() if (match := key.search(text))]
    assert found == []


def test_the_readme_names_only_what_exists() -> None:
    readme = (PROJECT / "README.md").read_text()
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", readme)
    assert links, "the README links to the notebooks and the contract"
    assert [link for link in links if not (PROJECT / link).exists()] == []

    targets = set(re.findall(r"^(\w+):", (PROJECT / "Makefile").read_text(), re.M))
    assert set(re.findall(r"\bmake (\w+)", readme)) <= targets

    from workbook.__main__ import COMMANDS

    named = set(re.findall(r"python -m workbook (\w+)", readme))
    assert named
    assert named <= set(COMMANDS)


def test_the_top_level_is_what_the_project_promises() -> None:
    top = {path.parts[0] for path in tracked() if not path.parts[0].startswith(".")}
    assert top == {
        "notebooks", "src", "data", "tests",
        "requirements.txt", "EDD.md", "README.md", "Makefile", "pyproject.toml", "LICENSE",
    }  # fmt: skip


def test_the_tables_of_the_progression_agree_with_the_notebooks() -> None:
    stated = {}
    for path in sorted((PROJECT / "notebooks").glob("*.ipynb")):
        cells = json.loads(path.read_text())["cells"]
        minutes = re.search(r"\*(\d+) minutes", "".join(cells[0]["source"]))
        assert minutes, path.name
        stated[path.name] = minutes[1]
    for readme in ("README.md", "notebooks/README.md"):
        rows = re.findall(r"\((?:notebooks/)?(\d\d_\w+\.ipynb)\) \|.*\| (\d+) \|$",
                          (PROJECT / readme).read_text(), re.M)  # fmt: skip
        assert dict(rows) == stated, readme
