"""One command rewrites every badge and clone address for a fork."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from workbook import paths
from workbook.notebooks import addresses
from workbook.notebooks.__main__ import main


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a copy of the files that name the repository."""
    shutil.copytree(paths.NOTEBOOKS, tmp_path / "notebooks")
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(paths.PROJECT / name, tmp_path / name)
    return tmp_path


def test_moving_rewrites_every_file_that_names_the_repository(project: Path) -> None:
    before = addresses.repository(project)
    addresses.move("acme/agent-memory", project)
    assert addresses.repository(project) == "acme/agent-memory"
    for path in addresses._files(project):
        assert before not in path.read_text("utf-8"), path
    for path in (project / "notebooks").glob("*.ipynb"):
        text = "".join("".join(cell["source"]) for cell in json.loads(path.read_text())["cells"])
        assert addresses.badge(path.name, "acme/agent-memory") in text
        assert "git clone --quiet --depth 1 https://github.com/acme/agent-memory " in text


def test_moving_there_and_back_changes_nothing(project: Path) -> None:
    before = {path: path.read_bytes() for path in addresses._files(project)}
    own = addresses.repository(project)
    addresses.move("acme/agent-memory", project)
    addresses.move(own, project)
    assert {path: path.read_bytes() for path in addresses._files(project)} == before


def test_a_repository_whose_name_begins_alike_is_left_alone(project: Path) -> None:
    own = addresses.repository(project)
    readme = project / "README.md"
    readme.write_text(f"https://github.com/{own} https://github.com/{own}-extras", "utf-8")
    addresses.move("a/b", project)
    assert readme.read_text("utf-8") == (f"https://github.com/a/b https://github.com/{own}-extras")


@pytest.mark.parametrize(
    "name", ["", "acme", "https://github.com/acme/x", "a/b/c", "a b/c", "-a/b"]
)
def test_a_name_that_is_no_repository_changes_nothing(name: str, project: Path) -> None:
    before = {path: path.read_bytes() for path in addresses._files(project)}
    with pytest.raises(addresses.AddressError, match="OWNER/NAME"):
        addresses.move(name, project)
    assert {path: path.read_bytes() for path in addresses._files(project)} == before


def test_the_command_says_how_it_is_called(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["badges", "not-a-repository"]) == 2
    assert "make badges REPO=owner/name" in capsys.readouterr().err
