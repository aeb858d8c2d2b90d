"""`python -m workbook doctor`: what this machine has, what works, and what to do about the rest."""

from __future__ import annotations

import argparse
import platform
import shutil
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING

from workbook import embedded, llm_failures, paths

if TYPE_CHECKING:
    from workbook.connect import Connection

PACKAGES = ("crewai", "pymongo", "secantusdb", "voyageai", "onnxruntime", "pandas", "jupyterlab")

# The doctor works in the database that is asked about, where its user may write, and in places of
# its own, which it empties.
OWN_SCOPE = f"/workbook-doctor-{uuid.uuid4().hex[:8]}"
OWN_SESSION = OWN_SCOPE.removeprefix("/")


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's report: what was looked at, whether it works, what was seen."""

    what: str
    works: bool
    seen: str


def findings() -> Iterator[Finding]:
    """Yield a finding for each thing the workbook needs, in the order in which they build up.

    Nothing raises: a failure is a finding, with the sentence that says what to do. No finding
    contains a secret.
    """
    yield _python()
    yield _packages()
    yield _disk()
    connection: Connection | None = None
    try:
        from workbook.connect import connect

        connection = connect(quiet=True)
        yield Finding("database", True, connection.describe().splitlines()[0].split(None, 1)[1])
    except Exception as error:
        yield Finding("database, embedder, LLM", False, embedded.mask(str(error)))
    if connection is None:
        return
    with connection:
        yield from (_tried(what, check, connection) for what, check in CHECKS)


def _python() -> Finding:
    works = (3, 11) <= sys.version_info[:2] <= (3, 13)
    seen = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    return Finding("Python", works, seen if works else f"{seen}: use 3.11, 3.12 or 3.13")


def _packages() -> Finding:
    versions, missing = [], []
    for name in PACKAGES:
        try:
            versions.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            missing.append(name)
    seen = ", ".join(versions)
    if missing:
        seen += f"; missing: {', '.join(missing)}: pip install -r requirements.txt"
    return Finding("packages", not missing, seen)


def _disk() -> Finding:
    existing = next(path for path in (paths.home(), *paths.home().parents) if path.exists())
    free = shutil.disk_usage(existing).free / 1e9
    works = free > 0.5
    seen = f"{free:.0f} GB free for the workbook's data"
    return Finding("disk", works, seen if works else f"{seen}: at least 0.5 GB is needed")


def _tried(what: str, check: Callable[[Connection], str], connection: Connection) -> Finding:
    try:
        return Finding(what, True, check(connection))
    except Exception as error:
        said = llm_failures.explain(error) or str(error) or type(error).__name__
        return Finding(what, False, embedded.mask(said.splitlines()[0]))


def _embeds(connection: Connection) -> str:
    vector = connection.embedder(["a memory"])[0]
    return f"{connection.embedder.model}: {len(vector)} dimensions"


def _remembers(connection: Connection) -> str:
    from crewai.memory.types import MemoryRecord

    backend, embedder = connection.backend, connection.embedder
    backend.ensure_vector_index()
    text = "The doctor was here."
    record = MemoryRecord(content=text, scope=OWN_SCOPE, embedding=embedder([text])[0])
    try:
        backend.save([record])
        if backend.get_record(record.id) is None:
            raise LookupError("a memory that was just written cannot be read")
    finally:
        backend.reset(OWN_SCOPE)
    return "a memory was written and read, and the vector index answers"


def _keeps_a_transcript(connection: Connection) -> str:
    from crewai_mongodb_memory import ConversationMemory

    transcript = ConversationMemory(connection.backend, session_id=OWN_SESSION)
    try:
        transcript.add_exchange("Say aaah.", "Aaah.")
        return f"{transcript.count()} turns were written and counted"
    finally:
        transcript.clear()


def _speaks(connection: Connection) -> str:
    connection.llm.call([{"role": "user", "content": "Answer with one word: ready"}])
    return f"{connection.llm.model} answered"


CHECKS: tuple[tuple[str, Callable[[Connection], str]], ...] = (
    ("embedder", _embeds),
    ("memory", _remembers),
    ("transcript", _keeps_a_transcript),
    ("LLM", _speaks),
)


def check_contract(database_name: str | None = None) -> Finding:
    """Verify every document of a database against the data contract; see `workbook.invariants`.

    Args:
        database_name: The database; None is the one that `connect()` works in.
    """
    from workbook.connect import connect
    from workbook.invariants import violations

    try:
        with connect(database_name, quiet=True) as connection:
            database = connection.backend.database
            broken = list(violations(database))
    except Exception as error:
        return Finding(f"contract in {database_name!r}", False, embedded.mask(str(error)))
    seen = "\n".join(broken) or "every memory and every bucket is as EDD.md says"
    return Finding(f"contract in {database.name!r}", not broken, seen)


def report(found: Finding) -> str:
    """Return a finding as a line of plain text."""
    return f"{'ok  ' if found.works else 'FAIL'}  {found.what}: {found.seen}"


def main(argv: list[str]) -> int:
    """Print the findings; return 0 when everything works, 1 otherwise."""
    parser = argparse.ArgumentParser(prog="python -m workbook doctor", description=__doc__)
    parser.add_argument(
        "--check",
        metavar="DATABASE",
        nargs="?",
        const="",
        help="also verify every document of this database against EDD.md; not named, it is the "
        "one that the connection string names, or crewai_memory",
    )
    arguments = parser.parse_args(argv)
    works = True
    for found in findings():
        print(report(found), flush=True)
        works &= found.works
    if arguments.check is not None and works:
        found = check_contract(arguments.check or None)
        print(report(found))
        works &= found.works
    return 0 if works else 1
