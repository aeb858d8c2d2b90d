"""Setting up where something is wrong: one line that says what to do, and no half-made .venv."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]

# Stands in for a Python whose version and whose installer behave as the test says.
FAKE_PYTHON = """#!/bin/bash
case "$*" in
  *version_info*) exit {version_check} ;;
  "--version") echo "Python {version}" ;;
  *"-m venv"*) {venv} ; mkdir -p "${{@: -1}}/bin" && cp "$0" "${{@: -1}}/bin/python" ;;
  *"-m pip install"*) echo "Collecting crewai"; echo "{pip_says}"; exit {pip_exit} ;;
esac
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a folder with just what the set-up reads."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(PROJECT / ".ci" / "setup", tmp_path / ".ci" / "setup")
    for name in ("requirements.txt", "pyproject.toml"):
        shutil.copy(PROJECT / name, tmp_path / name)
    (tmp_path / "bin").mkdir()
    for tool in ("bash", "cat", "cksum", "dirname", "mkdir", "cp", "rm", "tail", "tee", "awk"):
        (tmp_path / "bin" / tool).symlink_to(shutil.which(tool) or tool)
    return tmp_path


def fake_python(
    checkout: Path,
    *,
    fits: bool = True,
    version: str = "3.12.4",
    venv: str = "true",
    pip_says: str = "Successfully installed crewai",
    pip_exit: int = 0,
) -> None:
    path = checkout / "bin" / "python3"
    path.write_text(
        FAKE_PYTHON.format(
            version_check=0 if fits else 1,
            version=version,
            venv=venv,
            pip_says=pip_says,
            pip_exit=pip_exit,
        )
    )
    path.chmod(0o755)


def set_up(checkout: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", ".ci/setup"],
        cwd=checkout,
        env={"PATH": str(checkout / "bin"), "HOME": str(checkout), **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


def advice(run: subprocess.CompletedProcess[str]) -> str:
    """Return what the failed set-up says, which must be one line."""
    assert run.returncode == 1
    lines = [line for line in run.stderr.splitlines() if line.strip()]
    assert len(lines) == 1, run.stderr
    return lines[0]


def test_a_wrong_python_version_is_named_with_what_to_do(checkout: Path) -> None:
    fake_python(checkout, fits=False, version="3.9.18")
    said = advice(set_up(checkout))
    assert "3.11, 3.12 or 3.13 is needed" in said
    assert "3.9.18" in said
    assert "PYTHON=" in said
    assert not (checkout / ".venv").exists()


def test_no_python_at_all(checkout: Path) -> None:
    assert "no Python at all" in advice(set_up(checkout))


def test_a_chosen_python_that_does_not_fit(checkout: Path) -> None:
    fake_python(checkout, fits=False)
    said = advice(set_up(checkout, PYTHON=str(checkout / "bin" / "python3")))
    assert "is not Python 3.11, 3.12 or 3.13" in said


def test_a_python_without_venv(checkout: Path) -> None:
    fake_python(checkout, venv="exit 1")
    assert "apt install python3-venv" in advice(set_up(checkout))
    assert not (checkout / ".venv").exists()


@pytest.mark.parametrize(
    ("pip_says", "what_to_do"),
    [
        ("error: command 'gcc' failed: No such file or directory", "build-essential"),
        ("ERROR: No matching distribution found for secantusdb==0.7.0b3", "Python 3.12"),
        ("Failed to establish a new Connection: name resolution", "network"),
        ("OSError: [Errno 28] No space left on device", "disk is full"),
        ("something nobody foresaw", "log is .venv/install.log"),
    ],
)
def test_a_failed_install_says_what_to_do(checkout: Path, pip_says: str, what_to_do: str) -> None:
    fake_python(checkout, pip_says=pip_says, pip_exit=1)
    assert what_to_do in advice(set_up(checkout))
    assert not (checkout / ".venv" / ".installed").exists(), "the next run must try again"


def test_a_second_run_installs_nothing_until_the_requirements_change(checkout: Path) -> None:
    fake_python(checkout)
    first, second = set_up(checkout), set_up(checkout)
    assert first.returncode == second.returncode == 0
    assert "Installing" in first.stdout
    assert second.stdout == ""

    with (checkout / "requirements.txt").open("a") as file:
        file.write("six\n")
    assert "Installing" in set_up(checkout).stdout


def test_uv_is_used_when_it_is_there(checkout: Path) -> None:
    fake_python(checkout)
    uv = checkout / "bin" / "uv"
    uv.write_text(
        '#!/bin/bash\necho "uv $*" >> uv.log\n'
        '[ "$1" = venv ] && mkdir -p .venv/bin && cp bin/python3 .venv/bin/python\nexit 0\n'
    )
    uv.chmod(0o755)
    assert set_up(checkout).returncode == 0
    calls = (checkout / "uv.log").read_text().splitlines()
    assert [call.split()[1] for call in calls] == ["venv", "pip"]
