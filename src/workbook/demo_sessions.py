"""The two sessions of the demo, each run in its own process by `workbook.demo`."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from typing import NoReturn

from crewai import CrewOutput
from rich.console import Console
from rich.panel import Panel
from rich.table import Table

from crewai_mongodb_memory import MongoDBMemoryError
from workbook import crew, demo, embedded, llm_failures, steps
from workbook.connect import ConnectError, Connection, connect
from workbook.corpus import CorpusError
from workbook.embedded import EmbeddedError
from workbook.printable import as_text
from workbook.quiet import hidden_logs
from workbook.scripted_llm import LABEL, ScriptedLLM
from workbook.scripted_llm.prompt import Hit, hits

BAR_CELLS = 20


class DemoError(Exception):
    """The demo cannot go on; the message says why."""


class LostError(DemoError):
    """The embedded database is gone; the message says how to go on."""


def main(session: int, database: str | None) -> int:
    """Run one session and return its exit code.

    Args:
        session: 1 or 2.
        database: The database to work in; None is the connection string's, or `crewai_memory`.
    """
    screen = demo.console()
    try:
        with hidden_logs(), connect(database, quiet=True) as connection:
            asyncio.run(SESSIONS[session](connection, screen))
    except Exception as error:
        return _stop(error)
    return 0


def _stop(error: Exception) -> int:
    if isinstance(error, LostError):
        return demo.stop(str(error))
    return demo.stop(f"{_sentence(error)} Run it again when that is solved.")


def _leave(error: Exception) -> NoReturn:
    """Stop, and end this process with what runs in it.

    A crew cannot be stopped from outside, and goes on when its memory fails: each further call
    would wait for a lost database, for minutes in all.
    """
    code = _stop(error)
    sys.stdout.flush()
    os._exit(code)


def _sentence(error: Exception) -> str:
    if said := llm_failures.explain(error):
        return said
    known = (DemoError, ConnectError, EmbeddedError, CorpusError, MongoDBMemoryError)
    first = str(error).strip().splitlines()[0] if str(error).strip() else ""
    text = first if isinstance(error, known) else f"{type(error).__name__}: {first}"
    return text if text.endswith(".") else f"{text}."


async def first_session(connection: Connection, screen: Console) -> None:
    """Store the team, then let a crew learn what the requester tells."""
    screen.rule("Session 1: the crew learns")
    screen.print(connection.describe())
    count = crew.prepare(connection)
    screen.print(f"corpus     {count} team members stored under {crew.TEAM_SCOPE}\n")
    screen.print(Panel(crew.MESSAGE.strip(), title=f"{crew.REQUESTER} writes"))
    await _run(connection, screen, lambda: crew.learn(connection))
    show_memories(connection, screen)


async def second_session(connection: Connection, screen: Console) -> None:
    """Ask a brand-new crew, without memory and with it, and replay the transcript."""
    screen.rule("Session 2: another process, a brand-new crew")
    screen.print(Panel(crew.REQUEST, title=f"{crew.REQUESTER} asks"))
    forgetful = await crew.propose(connection, with_memory=False)
    screen.print(
        Panel(
            as_text(forgetful.raw), title="For contrast: the same crew without memory", style="dim"
        )
    )
    await _run(connection, screen, lambda: crew.propose(connection))
    show_transcript(connection, screen)


SESSIONS = {1: first_session, 2: second_session}


async def _run(
    connection: Connection, screen: Console, kickoff: Callable[[], Awaitable[CrewOutput]]
) -> None:
    """Run a crew and print its steps; a step that failed ends the session at once."""
    label = LABEL if isinstance(connection.llm, ScriptedLLM) else connection.llm.model

    def tell(step: steps.Step) -> None:
        show_step(step, screen, label)
        if step.kind == "failure":
            _leave(_reason(connection, step))

    with steps.listening(tell):
        await kickoff()


def _reason(connection: Connection, failed: steps.Step) -> DemoError:
    if connection.capabilities.database == "embedded" and embedded.status() is None:
        return LostError(
            "The embedded database has stopped. Run it again, and it starts too; what was "
            "acknowledged is still there."
        )
    return DemoError(failed.text)


# Printing


def show_step(step: steps.Step, screen: Console, label: str) -> None:
    """Print one step of a crew.

    Args:
        step: What happened.
        screen: Where to print.
        label: Who speaks in an answer: the LLM's name.
    """
    if step.kind == "answer":
        title = f"{step.agent} answers ({label})"
        screen.print(Panel(as_text(step.text), title=title, title_align="left"))
    elif step.kind == "tool":
        screen.print(f"[bold]{step.agent}[/] calls [bold]{step.name}[/]")
        found = [hit for hit in hits(step.text) if hit.score is not None]
        rows = [("·", text) for text in _texts(step)]
        screen.print(_listed(rows if found else [*rows, ("→", step.text)]))
        if found:
            screen.print(_bars(found))
    elif step.kind == "prompted" and step.text:
        count = len(hits(step.text.partition("\n")[2]))
        screen.print(f"[bold]{step.agent}[/]: CrewAI adds {count} memories to the prompt by itself")
    elif step.kind == "refused":
        screen.print(as_text(step.text, style="yellow"))


def _texts(step: steps.Step) -> list[str]:
    """Return the texts a tool was called with."""
    values = step.arguments.values()
    return [str(t) for value in values for t in (value if isinstance(value, list) else [value])]


def _listed(rows: list[tuple[str, str]]) -> Table:
    """Return texts as an indented list, each with its mark."""
    table = Table.grid(padding=(0, 1))
    for mark, text in rows:
        table.add_row(f"  {mark}", as_text(text))
    return table


def _bars(found: list[Hit]) -> Table:
    """Return hits as rows: a bar as long as the score, the score, the text."""
    table = Table.grid(padding=(0, 1))
    for hit in found:
        cells = round((hit.score or 0) * BAR_CELLS)
        bar = "█" * cells + "░" * (BAR_CELLS - cells)
        table.add_row(f"  {bar}", f"{hit.score:.2f}", as_text(hit.text))
    return table


def show_memories(connection: Connection, screen: Console) -> None:
    """Print what the crew stored, read back from the database."""
    records = connection.backend.list_records(crew.MEMORY_SCOPE)
    if not records:
        raise DemoError("The crew stored no memory; with another MODEL it may.")
    table = Table(title=f"{len(records)} memories stored", title_justify="left", expand=True)
    for column in ("scope", "importance", "content"):
        table.add_column(column, overflow="fold")
    for record in sorted(records, key=lambda record: (record.scope, record.content)):
        table.add_row(record.scope, f"{record.importance:.1f}", as_text(record.content))
    screen.print(table)


def show_transcript(connection: Connection, screen: Console) -> None:
    """Print every turn of both sessions, oldest first."""
    turns = crew.transcript(connection).turns()
    table = Table(title="The transcript, both sessions", title_justify="left", expand=True)
    for column in ("turn", "role", "content"):
        table.add_column(column)
    for turn in turns:
        first, *rest = (turn.content or "").splitlines()
        more = f" … {len(rest)} more lines" if rest else ""
        table.add_row(str(turn.turn), turn.role, as_text(f"{first}{more}"))
    screen.print(table)
