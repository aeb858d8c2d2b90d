"""`python -m workbook demo`: one session learns, another remembers, each in a process of its own.

This module is the parent of both. It starts the database, runs the two sessions, and then reads
with pymongo alone what they left behind; CrewAI takes seconds to import and is not needed for it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from pymongo import MongoClient
from pymongo.errors import PyMongoError
from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from workbook import embedded, paths
from workbook.connect import DATABASE, database_uri

NARROWEST, WIDEST = 60, 100
SERVER_SELECTION_TIMEOUT_MS = 8_000
VECTOR_START = 3
LONGEST_TEXT = 100
SYSTEM_DATABASES = frozenset({"admin", "config", "local"})

# The names of the data contract (EDD.md) and of the demo's scope, written out so that this module
# needs no CrewAI; a test compares them with the code that writes them.
MEMORIES, CONVERSATIONS = "memories", "conversations"
SCOPE, SESSION_ID = "/demo", "demo"


class UnreachableError(Exception):
    """The database does not answer; the message says what to check."""


def main(argv: list[str] | None = None) -> int:
    """Run the demo and return its exit code: 0, or 1 after a sentence that says what went wrong.

    Args:
        argv: `--session 1` or `--session 2` runs one session alone, in this process; `--database`
            names another database than the connection string does.
    """
    options = _parser().parse_args(argv)
    if options.session:
        from workbook import demo_sessions

        return demo_sessions.main(options.session, options.database or None)
    try:
        return _run(options.database)
    except (embedded.EmbeddedError, UnreachableError, PyMongoError) as error:
        return stop(error)
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m workbook demo", description=__doc__)
    parser.add_argument("--session", type=int, choices=(1, 2), help="run one session alone")
    parser.add_argument("--database", help="default: the connection string's, or crewai_memory")
    return parser


def _run(database: str | None) -> int:
    _reach(database_uri())
    screen = console()
    screen.print(Panel(INTRODUCTION, title="The demo crew"))
    for session in (1, 2):
        code = _run_session(session, database)
        if code:
            return stop(f"session {session} was killed by signal {-code}") if code < 0 else 1
    with MongoClient[dict[str, Any]](
        database_uri(), serverSelectionTimeoutMS=SERVER_SELECTION_TIMEOUT_MS
    ) as client:
        show_documents(screen, client[database or _named(client)])
    screen.print(Panel(Text(NEXT_STEPS), title="What to do next"))
    return 0


def _named(client: MongoClient[dict[str, Any]]) -> str:
    """Return the database that the sessions chose, by the rule of `named_database`.

    That function is not called, since its package imports CrewAI; a test compares the two.
    """
    name = client.get_default_database(DATABASE).name
    return DATABASE if name in SYSTEM_DATABASES else name


def _reach(uri: str) -> None:
    """Make sure that the database answers before the seconds of two sessions are spent."""
    try:
        with MongoClient[dict[str, Any]](
            uri, serverSelectionTimeoutMS=SERVER_SELECTION_TIMEOUT_MS
        ) as client:
            client.admin.command("ping")
    except (PyMongoError, ValueError) as error:
        raise UnreachableError(
            f"MongoDB at {embedded.mask(uri)} does not answer: check the address, the user and "
            "password, and on Atlas the IP access list (Network Access)."
        ) from error


def _run_session(session: int, database: str | None) -> int:
    """Run a session in a new Python process that shares nothing with this one but the database."""
    command = [sys.executable, "-m", "workbook", "demo"]
    path = os.pathsep.join(filter(None, [str(paths.PROJECT / "src"), os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [*command, "--session", str(session), "--database", database or ""],
        env={**os.environ, "PYTHONPATH": path},
        check=False,
    ).returncode


def stop(reason: object) -> int:
    """Say in one sentence why the demo stops, and return exit code 1."""
    print(f"The demo stopped: {str(reason).strip()}", file=sys.stderr)
    return 1


def console() -> Console:
    """Return a console of a readable width; without a terminal it writes plain text."""
    screen = Console(highlight=False)
    return Console(highlight=False, width=max(NARROWEST, min(screen.width, WIDEST)))


# What lies in the database


def show_documents(screen: Console, database: Any) -> None:
    """Show one memory, one team member and the transcript as they lie in MongoDB."""
    memories = database[MEMORIES]
    screen.rule("In MongoDB, read with pymongo alone")
    samples = [
        ("a memory", memories, {"scope_ancestors": f"{SCOPE}/memory"}),
        ("a team member", memories, {"scope_ancestors": f"{SCOPE}/team"}),
        ("the transcript's bucket", database[CONVERSATIONS], {"session_id": SESSION_ID}),
    ]
    for what, collection, query in samples:
        count = collection.count_documents(query)
        document = collection.find_one(query, sort=[("importance", -1), ("content", 1)])
        screen.print(
            Panel(
                Text("\n".join(lines(document or {}))),
                title=f"{what}: {collection.name}.find_one({query})",
                subtitle=f"{count} like this; ‹…› differs from run to run",
                title_align="left",
                subtitle_align="right",
            )
        )


def lines(document: Mapping[str, Any], indent: int = 0) -> list[str]:
    """Return a document as `key: value` lines, vectors cut short, volatile values by type.

    Args:
        document: A document as pymongo returns it.
        indent: Spaces before each line.
    """
    shown = []
    for key, value in document.items():
        if isinstance(value, Mapping):
            shown += [f"{' ' * indent}{key}:", *lines(value, indent + 2)]
        elif isinstance(value, list) and value and isinstance(value[0], Mapping):
            shown.append(f"{' ' * indent}{key}:")
            for item in value:
                first, *rest = lines(item, indent + 4)
                shown += [f"{' ' * indent}  - {first.strip()}", *rest]
        else:
            shown.append(f"{' ' * indent}{key}: {abbreviated(key, value)}")
    return shown


def abbreviated(key: str, value: Any) -> str:
    """Return a value as text: long ones cut short, of what differs in each run its type."""
    if isinstance(value, list) and value and isinstance(value[0], float):
        start = ", ".join(f"{number:.4f}" for number in value[:VECTOR_START])
        return f"[{start}, … {len(value)} doubles]"
    if key == "_id":
        return f"‹{type(value).__name__}›"
    if isinstance(value, str):
        return repr(value if len(value) <= LONGEST_TEXT else f"{value[:LONGEST_TEXT]}…")
    return "‹date›" if hasattr(value, "isoformat") else repr(value)


INTRODUCTION = (
    "A requester tells a crew what matters to her. Later, in a new process, a brand-new crew is "
    "asked who should lead her project. The only thing the two share is MongoDB."
)

NEXT_STEPS = """\
make lab                                     build all of this step by step
notebooks/07_demo_crew.ipynb                 this crew, cell by cell
MONGODB_URI="mongodb+srv://..." make demo    the same on Atlas
MODEL="openai/..." make demo                 the same with a real language model"""
