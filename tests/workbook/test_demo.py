"""`python -m workbook demo` as a reader runs it: processes, text, network, a killed database."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pymongo
import pytest

from crewai_mongodb_memory import connection
from workbook import crew, demo, embedded, paths
from workbook.connect import DATABASE
from workbook.scripted_llm import LABEL, language

# Its runs of the demo are shared: one worker makes them, once.
pytestmark = pytest.mark.xdist_group("demo")

WATCH = Path(__file__).parent / "watch"
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")
# What CrewAI writes when its telemetry or tracing are on.
CHATTER = re.compile(r"(?i)telemetry|tracing|traces|opentelemetry|\[y/n\]|new version|traceback")


@dataclass
class Run:
    """A finished run of the command line."""

    code: int
    out: str
    err: str = ""


@dataclass
class Machine:
    """A machine with an empty home: nothing set, nothing installed but the project."""

    folder: Path

    @property
    def home(self) -> Path:
        return self.folder / "workbook"

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder / "home"),
            "PYTHONPATH": os.pathsep.join([str(WATCH), str(paths.PROJECT / "src")]),
            "WORKBOOK_HOME": str(self.home),
            "WATCH_FILE": str(self.folder / "addresses"),
            "PYTHONUNBUFFERED": "1",
            "COLUMNS": "80",
        }

    def start(self, *arguments: str, **options: object) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "workbook", "demo", *arguments],
            env=self.environment,
            cwd=self.folder,
            text=True,
            **options,  # type: ignore[call-overload]
        )

    def run(self, *arguments: str) -> Run:
        process = self.start(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        out, err = process.communicate(timeout=600)
        return Run(process.returncode, out, err)

    def run_in_terminal(self) -> Run:
        """Run the demo on a pseudo-terminal, which is where a prompt would appear."""
        parent, child = pty.openpty()
        process = self.start(stdin=child, stdout=child, stderr=child)
        os.close(child)
        shown = bytearray()
        while True:
            try:
                part = os.read(parent, 65536)
            except OSError:  # Linux reports the closed terminal as an error
                break
            if not part:
                break
            shown += part
        os.close(parent)
        return Run(process.wait(timeout=600), ESCAPES.sub("", shown.decode()))

    def addresses(self) -> list[tuple[list[str], str, str]]:
        lines = (self.folder / "addresses").read_text().splitlines()
        return [tuple(json.loads(line)) for line in lines]

    def contents(self) -> list[str]:
        """Return the contents of the demo's memories, read in this process."""
        server = embedded.start(self.home)
        with pymongo.MongoClient(server.uri) as client:
            found = client.crewai_memory.memories.find({"scope_ancestors": crew.MEMORY_SCOPE})
            return sorted(document["content"] for document in found)

    def kill_database(self) -> None:
        """End every process of the database at once, as a crash or a power cut would."""
        for pid in _processes_of(self.home):
            os.kill(pid, signal.SIGKILL)


def _processes_of(home: Path) -> list[int]:
    """Return the pids of the database in a folder: its process and all that it started."""
    status = embedded.status(home)
    assert status is not None
    found = [status.pid]
    for pid in found:
        children = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True
        )
        found += map(int, children.stdout.split())
    return found


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    made = Machine(tmp_path_factory.mktemp("machine"))
    (made.folder / "home").mkdir()
    yield made
    embedded.stop(made.home)


@pytest.fixture(scope="module")
def piped(machine: Machine) -> Run:
    return machine.run()


@pytest.fixture(scope="module")
def in_terminal(machine: Machine, piped: Run) -> Run:
    """Return the second run, which meets what the first one left."""
    return machine.run_in_terminal()


def facts() -> list[str]:
    return language.statements(crew.MESSAGE)


def joined(text: str) -> str:
    """Return a screen's text without the frames and line breaks that its width causes."""
    return " ".join(re.sub(r"[│─╭╮╰╯━┃┏┓┗┛┡┩┬┴┼└┘┌┐├┤╇╈]", " ", text).split())


def test_the_demo_ends_well_and_shows_every_step(piped: Run) -> None:
    assert (piped.code, piped.err) == (0, "")
    shown = joined(piped.out)
    for expected in (
        *facts(),
        "Concierge calls save_to_memory",
        "Concierge calls search_memory",
        "Staffing analyst calls search_team",
        f"answers ({LABEL})",
        "the same crew without memory",
        "scope_ancestors: ['/demo', '/demo/memory'",
        "1024 doubles",
        "turn_count: 4",
        "make lab",
    ):
        assert expected in shown


def test_piped_output_is_plain_and_fits_80_columns(piped: Run) -> None:
    assert "\x1b" not in piped.out
    assert max(map(len, piped.out.splitlines())) <= 80


def test_a_rerun_says_the_same_even_in_a_terminal(piped: Run, in_terminal: Run) -> None:
    assert in_terminal.code == 0
    clean = [line.rstrip() for line in piped.out.splitlines()]
    assert [line.rstrip() for line in in_terminal.out.splitlines()] == clean


def test_no_prompt_and_no_telemetry_is_shown(piped: Run, in_terminal: Run) -> None:
    for run in (piped, in_terminal):
        assert CHATTER.findall(run.out + run.err) == []


def test_no_socket_leaves_the_machine(machine: Machine, piped: Run, in_terminal: Run) -> None:
    seen = machine.addresses()
    watched = {" ".join(command) for command, _, _ in seen}

    assert any("--session 1" in command for command in watched)
    assert any("--session 2" in command for command in watched)
    assert len({command for command in watched if "--session" not in command}) >= 2
    local = re.compile(r"'(127\.0\.0\.1|localhost|::1)'|\('127\.0\.0\.1'|^'/|^b'/|^''$|^None$")
    assert [entry for entry in seen if not local.search(entry[2])] == []


def test_the_home_directory_holds_nothing_but_crewai_s_own(machine: Machine, piped: Run) -> None:
    """Native telemetry leaves a device id there, which tells of it without any network."""
    written = [path for path in (machine.folder / "home").rglob("*") if path.is_file()]

    assert [path for path in written if "crewai" not in path.parts] == []


@pytest.mark.skipif(not shutil.which("strace"), reason="strace sees what native code sends")
def test_no_native_code_leaves_the_machine(machine: Machine, in_terminal: Run) -> None:
    log = machine.folder / "system-calls"
    watch = ["strace", "-f", "--seccomp-bpf", "-e", "trace=connect,sendto,sendmsg", "-o", str(log)]
    command = [sys.executable, "-m", "workbook", "demo", "--session", "1"]
    subprocess.run([*watch, *command], env=machine.environment, check=True, capture_output=True)

    calls = [line for line in log.read_text().splitlines() if "AF_INET" in line]
    assert any("127.0.0.1" in line for line in calls)
    assert [line for line in calls if '"127.0.0.1"' not in line and '"::1"' not in line] == []


def test_every_memory_is_there_for_another_process(machine: Machine, in_terminal: Run) -> None:
    contents = machine.contents()

    assert [contents.count(fact) for fact in facts()] == [1] * len(facts())


def test_nothing_acknowledged_is_lost_when_the_database_is_killed_between_sessions(
    machine: Machine, in_terminal: Run
) -> None:
    assert machine.run("--session", "1").code == 0
    before = machine.contents()
    machine.kill_database()

    later = machine.run("--session", "2")

    assert (later.code, later.err) == (0, "")
    assert set(before) <= set(machine.contents())
    assert joined(later.out) in joined(in_terminal.out)


def test_a_database_killed_within_a_session_stops_it_with_one_sentence(
    machine: Machine, in_terminal: Run
) -> None:
    before = machine.contents()
    process = machine.start("--session", "2", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    for line in process.stdout:
        if "Session 2" in line:
            machine.kill_database()
            break
    _, err = process.communicate(timeout=600)

    assert process.returncode == 1
    assert re.fullmatch(r"The demo stopped: The embedded database has stopped\. [^\n]+\.\n", err)
    assert set(facts()) <= set(before) == set(before) & set(machine.contents())
    again = machine.run()
    assert [line.rstrip() for line in again.out.splitlines()] == [
        line.rstrip() for line in in_terminal.out.splitlines()
    ]


@pytest.mark.parametrize(
    "uri", ["mongodb://someone:secret@127.0.0.1:1/", "mongodb://someone:secret@127.0.0.1:port/"]
)
def test_an_unreachable_database_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], uri: str
) -> None:
    monkeypatch.setenv("MONGODB_URI", uri)

    assert demo.main([]) == 1
    out, err = capsys.readouterr()
    assert "secret" not in out + err
    assert re.fullmatch(r"The demo stopped: [^\n]+ IP access list \(Network Access\)\.\n", err)


def test_the_parent_knows_the_names_that_the_crew_writes() -> None:
    from crewai_mongodb_memory import schema

    assert demo.SCOPE == crew.SCOPE
    assert demo.SESSION_ID == crew.SESSION_ID
    assert demo.MEMORIES in vars(schema).values()
    assert demo.CONVERSATIONS in vars(schema).values()


def test_the_parent_does_without_crewai() -> None:
    check = "import sys; from workbook import demo; print('crewai' in sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", check],
        env={**os.environ, "PYTHONPATH": str(paths.PROJECT / "src")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("path", "database"),
    [
        ("", "crewai_memory"),
        ("admin", "crewai_memory"),
        ("local", "crewai_memory"),
        ("alex", "alex"),
    ],
)
def test_the_documents_shown_are_of_the_database_that_the_sessions_chose(
    path: str, database: str
) -> None:
    uri = f"mongodb://127.0.0.1:1/{path}"
    with pymongo.MongoClient(uri, connect=False) as client:
        assert demo._named(client) == database
    assert (connection.named_database(uri) or DATABASE) == database
