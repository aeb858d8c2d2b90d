"""nbmake runs every notebook, with no key, each on a database of its own.

The last notebook runs first here: none may count on what an earlier one left behind. That they
also share a folder well, in that order, is shown by `test_answers.py`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook
from nbmake.nb_run import NotebookRun

from workbook import paths
from workbook.notebooks.homes import environment, own_home
from workbook.notebooks.run import CELL_TIMEOUT, all_notebooks, execute, late_first, run, tidy


def assert_runs(path: Path) -> None:
    result = NotebookRun(path, CELL_TIMEOUT).execute()
    assert result.error is None, result.error.trace


@pytest.mark.parametrize("path", late_first(), ids=lambda path: path.stem)
def test_F2_nbmake_runs_it_without_keys(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with own_home() as home:
        for name, value in environment(home).items():
            monkeypatch.setenv(name, value)
        assert_runs(path)


def test_a_reader_may_start_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A notebook again, in the folder in which it ran before."""
    with own_home() as home:
        for name, value in environment(home).items():
            monkeypatch.setenv(name, value)
        for path in [all_notebooks()[0]] * 2:
            assert_runs(path)


@pytest.fixture
def scratch(tmp_path: Path) -> Any:
    """Return a function that writes a notebook of the given cells."""

    def write(name: str, *sources: str) -> Path:
        path = tmp_path / f"{name}.ipynb"
        nbformat.write(new_notebook(cells=[new_code_cell(source) for source in sources]), path)
        return path

    return write


def test_F4_nbmakes_own_command_gives_each_notebook_its_folder(
    scratch: Any, tmp_path: Path
) -> None:
    say = f"import os; open(r'{tmp_path}/homes', 'a').write(os.environ['WORKBOOK_HOME'] + '\\n')"
    found = [str(scratch(name, say)) for name in ("a", "b")]
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--nbmake", *found]
    options = ["--rootdir", str(paths.PROJECT), "-c", str(paths.PROJECT / "pyproject.toml")]
    done = subprocess.run(
        [*command, *options, "-p", "no:cacheprovider"],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(paths.PROJECT / "src")},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    homes = (tmp_path / "homes").read_text().split()
    assert len(set(homes)) == 2
    assert not any(Path(home).exists() for home in homes)
    assert str(paths.PROJECT / ".workbook") not in homes


def test_running_in_place_keeps_outputs_and_nothing_of_the_run(scratch: Any) -> None:
    path = scratch("a", "print('one'); print('two')", "1 + 1")
    assert run([path]) == {}
    first = path.read_bytes()
    notebook = nbformat.read(path, as_version=4)
    assert notebook.cells[0].outputs[0].text == "one\ntwo\n"
    assert notebook.cells[1].outputs[0].data["text/plain"] == "2"
    assert notebook.metadata.kernelspec.name == "python3"
    assert b"iopub" not in first
    assert run([path]) == {}
    assert path.read_bytes() == first


def test_running_in_place_uses_no_key(scratch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MONGODB_URI", "VOYAGE_API_KEY", "MODEL"):
        monkeypatch.setenv(name, "set")
    path = scratch(
        "a", "import os; sorted({'MONGODB_URI', 'VOYAGE_API_KEY', 'MODEL'} & {*os.environ})"
    )
    assert run([path]) == {}
    assert nbformat.read(path, as_version=4).cells[0].outputs[0].data["text/plain"] == "[]"


def test_a_notebook_that_fails_is_named_and_left_alone(scratch: Any) -> None:
    good, bad = scratch("good", "1"), scratch("bad", "raise ValueError('no such scope')")
    before = bad.read_bytes()
    assert run([good, bad]) == {bad: "ValueError: no such scope"}
    assert bad.read_bytes() == before


def test_a_progress_bar_leaves_its_last_line_only(scratch: Any, tmp_path: Path) -> None:
    path = scratch("a", "for n in range(3):\n    print(f'\\r{n} of 2', end='', flush=True)")
    notebook = nbformat.read(path, as_version=4)
    execute(notebook, tmp_path, tmp_path)
    assert tidy(notebook).cells[0].outputs[0].text == "2 of 2"
