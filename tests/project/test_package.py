"""The package's metadata, and what a wheel brings."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
PYPROJECT = tomllib.loads((PROJECT / "pyproject.toml").read_text())


def required() -> set[str]:
    """Return the requirements of requirements.txt, comments and the project itself left out."""
    lines = (PROJECT / "requirements.txt").read_text().splitlines()
    stated = {re.sub(r"\s+#.*|^#.*", "", line).strip() for line in lines}
    return stated - {"", "-e ."}


def test_requirements_and_metadata_name_the_same_ranges() -> None:
    project = PYPROJECT["project"]
    extras = project["optional-dependencies"]
    declared = {*project["dependencies"], *extras["workbook"], *extras["dev"]}
    assert required() == declared


def test_colab_keeps_its_own_numpy_and_pandas() -> None:
    ranges = {re.split(r"[<>=]", line)[0]: line for line in required()}
    assert ranges["numpy"] == "numpy>=1.26"
    assert ranges["pandas"].startswith("pandas>=2.2,")


def test_the_wheel_brings_the_backend_alone(tmp_path: Path) -> None:
    subprocess.run(
        f"{sys.executable} -m pip wheel -q --no-deps --no-build-isolation -w {tmp_path} .".split(),
        cwd=PROJECT,
        check=True,
        timeout=120,
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        folders = {name.split("/")[0] for name in archive.namelist()}
        names = set(archive.namelist())
    assert {folder for folder in folders if not folder.endswith(".dist-info")} == {
        "crewai_mongodb_memory"
    }
    assert "crewai_mongodb_memory/py.typed" in names


def test_the_backend_imports_nothing_from_the_workbook() -> None:
    for source in (PROJECT / "src" / "crewai_mongodb_memory").glob("*.py"):
        assert not re.search(r"^\s*(from|import) workbook", source.read_text(), re.M), source.name
