"""The set-up cell, in Colab (a stand-in, in a virtual environment of its own) and elsewhere."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import textwrap
import venv
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import nbformat
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from workbook import paths
from workbook.notebooks import addresses, setup_cell
from workbook.notebooks.homes import environment, own_home
from workbook.notebooks.run import all_notebooks

COLAB_PINS = {"numpy": "2.0.2", "pandas": "2.2.2"}

# Colab's secret store raises classes of its own, and they have changed: none may end the run.
STAND_IN = """
class NotebookAccessError(Exception): ...
class TimeoutException(RuntimeError): ...
class SecretNotFoundError(LookupError): ...

def get(name):
    if name == "MONGODB_URI":
        return {uri!r}
    if name == "VOYAGE_API_KEY":
        raise NotebookAccessError(name)
    if name == "MODEL":
        raise TimeoutException(name)
    raise SecretNotFoundError(name)
"""

RUN = """
import sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
source = open(sys.argv[1], encoding="utf-8").read()
for _ in range(2):
    shell.run_cell(source).raise_error()
shell.run_cell("import crewai_mongodb_memory, numpy, pandas, workbook").raise_error()
shell.run_cell("connection.close()").raise_error()
for name in ("workbook", "numpy", "pandas"):
    print("FROM", name, sys.modules[name].__file__)
"""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a git repository that holds the project as it lies here."""
    folder = tmp_path_factory.mktemp("origin")
    for name in ("src", "data"):
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(paths.PROJECT / name, folder / name, ignore=ignore)
    for name in ("pyproject.toml", "requirements.txt", "README.md", "LICENSE"):
        shutil.copy(paths.PROJECT / name, folder / name)
    author = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    for command in (["init", "-q"], ["add", "."], [*author, "commit", "-qm", "all"]):
        subprocess.run(["git", *command], cwd=folder, check=True)
    return folder


@pytest.fixture(scope="module")
def colab(tmp_path_factory: pytest.TempPathFactory, mongodb_uri: str) -> Path:
    """Return the Python of a virtual environment that has a `google.colab`.

    It sees this environment's packages, so that nothing has to be fetched to install the project.
    """
    folder = tmp_path_factory.mktemp("colab")
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    asked = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = Path(subprocess.check_output([python, "-c", asked], text=True).strip())
    (site / "installed.pth").write_text(sysconfig.get_path("purelib"))
    (site / "google" / "colab").mkdir(parents=True)
    (site / "google" / "colab" / "__init__.py").touch()
    (site / "google" / "colab" / "userdata.py").write_text(STAND_IN.format(uri=mongodb_uri))
    return python


@pytest.fixture
def content(tmp_path: Path, repository: Path) -> tuple[Path, dict[str, str]]:
    """Return an empty folder to start in, and an environment in which git clones from here."""
    own = {
        "HOME": str(tmp_path),
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.file://{repository}.insteadOf",
        "GIT_CONFIG_VALUE_0": addresses.clone_address(),
        "PIP_NO_INDEX": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # pip reads this as: build with the packages that are here
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    start = tmp_path / "content"
    start.mkdir()
    return start, kept | own


def set_up_cells() -> list[str]:
    """Return the different set-up cells that the notebooks have: there should be one."""
    found = {setup_cell.source()}
    for path in all_notebooks():
        cells = nbformat.read(path, as_version=4).cells
        found |= {cell.source for cell in cells if "setup" in cell.metadata.get("tags", [])}
    return sorted(found)


@pytest.mark.parametrize("source", set_up_cells(), ids=lambda _: "set-up cell")
def test_F7_in_colab_it_fetches_and_installs_and_moves_neither_numpy_nor_pandas(
    source: str, colab: Path, content: tuple[Path, dict[str, str]], mongodb_uri: str
) -> None:
    start, variables = content
    (start / "cell.txt").write_text(source, "utf-8")
    done = subprocess.run(
        [str(colab), "-c", textwrap.dedent(RUN), "cell.txt"],
        cwd=start,
        env=variables,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    came_from = dict(
        line.split()[1:] for line in done.stdout.splitlines() if line.startswith("FROM")
    )
    assert came_from["workbook"].startswith(str(start / "crewai-mongodb-memory" / "src"))
    for name in ("numpy", "pandas"):
        assert came_from[name].startswith(sysconfig.get_path("platlib"))
    assert "CrewAI 1." in done.stdout
    assert done.stdout.count("database   MongoDB at mongodb://") == 2
    assert "***" in done.stdout
    assert mongodb_uri not in done.stdout + done.stderr


def test_outside_colab_it_imports_and_needs_no_installation(tmp_path: Path) -> None:
    """From the notebooks' folder, with no key, and with nothing of the project installed."""
    (tmp_path / "cell.txt").write_text(setup_cell.source(), "utf-8")
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    with own_home() as home:
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(RUN), str(tmp_path / "cell.txt")],
            cwd=paths.NOTEBOOKS,
            env=kept | environment(home) | {"HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("an embedded MongoDB server on this machine") == 2
    assert str(paths.PROJECT / "src") in done.stdout
    assert "mongodb://" not in done.stdout


def needed_by_the_workbook() -> Iterator[tuple[str, Requirement]]:
    """Yield every requirement that installing the project in Colab brings, and whose it is."""
    settings = (paths.PROJECT / "pyproject.toml").read_text("utf-8")
    import tomllib

    project = tomllib.loads(settings)["project"]
    own = [*project["dependencies"], *project["optional-dependencies"]["workbook"]]
    waiting = [("the project", Requirement(text)) for text in own]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        owner, requirement = waiting.pop()
        yield owner, requirement
        name, extras = canonicalize_name(requirement.name), frozenset(requirement.extras)
        if (name, extras) in seen or name in COLAB_PINS:
            continue
        seen.add((name, extras))
        try:
            further = requires(name) or []
        except PackageNotFoundError:  # for another platform
            continue
        for text in further:
            each = Requirement(text)
            wanted = [{"extra": extra} for extra in extras or {""}]
            if each.marker is None or any(each.marker.evaluate(extra) for extra in wanted):
                waiting.append((name, each))


def test_F7_nothing_that_the_project_needs_asks_for_another_numpy_or_pandas() -> None:
    asked = list(needed_by_the_workbook())
    assert len(asked) > 200  # the whole tree has been walked
    for owner, requirement in asked:
        pinned = COLAB_PINS.get(canonicalize_name(requirement.name))
        assert pinned is None or requirement.specifier.contains(pinned), f"{owner}: {requirement}"


def test_F7_jupyterlab_and_the_test_tools_are_not_installed_in_colab() -> None:
    names = {canonicalize_name(requirement.name) for _, requirement in needed_by_the_workbook()}
    assert not names & {"jupyterlab", "notebook", "nbmake", "pytest-xdist", "hypothesis"}
