"""The command line itself: how it ends, what it can print, and what `reset` deletes."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from workbook import __main__ as workbook_main
from workbook import embedded, paths, quiet, reset
from workbook.__main__ import INTERRUPTED, UNREAD, main

EVERYTHING = [paths.CHAT_HISTORY, paths.CREWAI, "database"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a home in which somebody has worked, without a server."""
    chosen = tmp_path / "home"
    monkeypatch.setenv("WORKBOOK_HOME", str(chosen))
    for folder in ("database", paths.CREWAI):
        (chosen / folder).mkdir(parents=True)
        (chosen / folder / "file").write_text("kept")
    (chosen / paths.CHAT_HISTORY).write_text("+/remember my passport number\n")
    (chosen / "mine.txt").write_text("somebody's own")
    return chosen


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# How it ends


def test_ctrl_c_is_no_traceback_even_while_a_command_is_imported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(workbook_main, "command", interrupted)
    assert main(["doctor"]) == INTERRUPTED
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "\n")


@pytest.mark.parametrize("arguments", [["status"], ["--help"]])
def test_a_reader_that_has_gone_is_met_quietly(arguments: list[str], tmp_path: Path) -> None:
    ended = python(arguments, tmp_path, stdout=gone())

    assert (ended.returncode, ended.stderr) == (UNREAD, "")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
def test_a_closed_stream_is_no_failure(closed: str, tmp_path: Path) -> None:
    shell = ["sh", "-c", f'"$0" -m workbook status {closed}', sys.executable]
    ended = subprocess.run(shell, env=environment(tmp_path), capture_output=True, text=True)

    assert (ended.returncode, ended.stderr) == (0, "")


def gone() -> int:
    """Return a pipe's end to write to that nobody reads."""
    read, write = os.pipe()
    os.close(read)
    return write


def environment(home: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(paths.PROJECT / "src"), "WORKBOOK_HOME": str(home)}


def python(arguments: list[str], home: Path, stdout: int) -> subprocess.CompletedProcess[str]:
    """Run a command that needs no CrewAI, and so no seconds."""
    try:
        return subprocess.run(
            [sys.executable, "-m", "workbook", *arguments],
            env=environment(home),
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
        )
    finally:
        os.close(stdout)


# What it can print


@pytest.mark.parametrize(
    ("encoding", "shown"), [("ascii", "Zo? ?"), ("latin-1", "Zoë ?"), ("utf-8", "Zoë ›")]
)
def test_what_an_encoding_lacks_is_a_question_mark(
    monkeypatch: pytest.MonkeyPatch, encoding: str, shown: str
) -> None:
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, encoding))

    def command(_: str) -> object:
        return lambda _: print("Zoë ›") or 0

    monkeypatch.setattr(workbook_main, "command", command)
    assert main(["doctor"]) == 0
    assert written.getvalue().decode(encoding).strip() == shown


# What `serve` is told


@pytest.mark.parametrize("seconds", ["nan", "-1", "0", "soon"])
def test_a_time_that_cannot_be_waited_is_refused(
    seconds: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["serve", "--idle-timeout", seconds])
    assert ended.value.code == 2
    assert f"'{seconds}' is no time to wait" in capsys.readouterr().err


# What `reset` deletes


def test_reset_deletes_all_that_is_kept_and_nothing_else(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert names(home) == sorted([*EVERYTHING, "mine.txt"])
    assert main(["reset"]) == 0
    assert names(home) == ["mine.txt"]

    capsys.readouterr()
    assert main(["reset"]) == 0
    assert capsys.readouterr().out == f"There is nothing to delete in {home}\n"


def test_reset_of_a_home_that_never_existed_makes_none(tmp_path: Path) -> None:
    assert main(["reset", "--home", str(tmp_path / "none")]) == 0
    assert names(tmp_path) == []


def test_reset_knows_where_crewai_s_file_is(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CREWAI_STORAGE_DIR", raising=False)
    quiet.silence_crewai()

    assert Path(os.environ["CREWAI_STORAGE_DIR"]) in reset.kept(home)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list of what is typed at a terminal, which ends after the last."""
    typed: list[str] = []

    def answered(_: str) -> str:
        if not typed:
            raise EOFError
        return typed.pop(0)

    monkeypatch.setattr(reset, "is_terminal", lambda: True)
    monkeypatch.setattr("builtins.input", answered)
    return typed


@pytest.mark.parametrize("answer", [[], [""], ["no"], ["yesterday"]])
def test_on_a_terminal_reset_deletes_nothing_without_a_yes(
    home: Path, terminal: list[str], answer: list[str]
) -> None:
    terminal += answer
    assert main(["reset"]) == 1
    assert names(home) == sorted([*EVERYTHING, "mine.txt"])


@pytest.mark.parametrize(("answer", "options"), [(["Yes!"], []), ([], ["--yes"])])
def test_on_a_terminal_reset_goes_on_after_a_yes(
    home: Path, terminal: list[str], answer: list[str], options: list[str]
) -> None:
    terminal += answer
    assert main(["reset", *options]) == 0
    assert names(home) == ["mine.txt"]


def test_a_database_that_does_not_stop_is_told_and_nothing_is_deleted(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stays(_: Path) -> None:
        raise embedded.EmbeddedError("The server does not end")

    monkeypatch.setattr(embedded, "reset", stays)
    assert main(["reset"]) == 1
    assert capsys.readouterr().err == "The server does not end\n"
    assert names(home) == sorted([*EVERYTHING, "mine.txt"])
