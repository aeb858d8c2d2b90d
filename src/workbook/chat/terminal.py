"""`python -m workbook chat`: talk to the concierge, who remembers from one run to the next."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from workbook import paths
from workbook.chat.commands import COMMANDS
from workbook.printable import as_text, is_terminal
from workbook.quiet import hidden_logs
from workbook.show.hits import bar

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession

    from crewai_mongodb_memory import Turn
    from workbook.chat.session import Chat, Found, Reply
    from workbook.connect import Connection

NARROWEST, WIDEST = 40, 100
BAR = 10  # cells at score 1.0
PROMPT = "› "
SHOWN_ID = 8  # characters
INTRODUCTION = (
    "Tell the concierge what matters to you, or ask what it knows. /help lists the commands, "
    "Ctrl-D leaves; what you tell is kept in MongoDB."
)
LEAVE = "Press Ctrl-D or type /quit to leave."
INTERRUPTED = "Interrupted. What the concierge was told may be remembered; the turn was not kept."


def main(argv: list[str] | None = None) -> int:
    """Chat until the input ends; return 0, or 1 after a sentence that says why there is no chat.

    Args:
        argv: `--user`, `--session` and `--database`, each with a default.
    """
    options = _parser().parse_args(argv)
    screen = Console(highlight=False)
    screen.width = max(NARROWEST, min(screen.width, WIDEST))
    with hidden_logs():
        try:
            return _run(options, screen)
        except KeyboardInterrupt:  # before the first prompt, or after the last
            return 130


def _run(options: argparse.Namespace, screen: Console) -> int:
    try:
        with screen.status("Waking the concierge ..."):
            connection, chat = _open(options)
    except Exception as error:
        return _stop(error)
    with connection:
        screen.print(Text(connection.describe(), style="dim"))
        screen.print(Padding(INTRODUCTION, (1, 0)))
        return converse(chat, _lines(screen), screen)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m workbook chat", description=__doc__)
    parser.add_argument("--user", default="guest", help="whose memories (%(default)s)")
    parser.add_argument("--session", default="", help="which transcript (the user's own)")
    parser.add_argument("--database", help="default: the connection string's, or crewai_memory")
    return parser


def _open(options: argparse.Namespace) -> tuple[Connection, Chat]:
    from workbook.chat.session import Chat
    from workbook.connect import connect

    connection = connect(options.database or None, quiet=True)
    return connection, Chat(connection, options.user, options.session)


def _stop(error: Exception) -> int:
    from workbook import embedded

    first = (str(error).strip().splitlines() or [type(error).__name__])[0]
    print(f"The chat stopped: {embedded.mask(first)}", file=sys.stderr)
    return 1


def converse(chat: Chat, lines: Iterable[str], screen: Console) -> int:
    """Answer line by line until the lines or the chat end.

    Args:
        chat: Who answers.
        lines: What is typed.
        screen: Where the replies go.

    Returns:
        The exit code, 0.
    """
    show(chat.greeting(), screen)
    for line in lines:
        try:
            with screen.status("..."):
                reply = chat.answer(line)
        except KeyboardInterrupt:
            screen.print(Text(INTERRUPTED, style="yellow"))
            continue
        show(reply, screen)
        if reply.ends:
            break
    chat.close()
    return 0


# Reading


def _lines(screen: Console) -> Iterator[str]:
    """Return the lines that are typed, or else those that are piped in."""
    if not sys.stdin:  # closed, as by `<&-`
        return iter(())
    return _typed(screen) if is_terminal() else _piped(screen)


def _piped(screen: Console) -> Iterator[str]:
    sys.stdin.reconfigure(errors="replace")  # type: ignore[union-attr]
    for line in sys.stdin:
        screen.print(as_text(f"{PROMPT}{line.rstrip()}", style="bold"))
        yield line


def _typed(screen: Console) -> Iterator[str]:
    session = _prompt()
    while True:
        try:
            yield session.prompt(PROMPT)
        except KeyboardInterrupt:
            screen.print(Text(LEAVE, style="dim"))
            yield ""  # to a question, it means no
        except EOFError:
            screen.print("Goodbye. Everything is kept.", style="dim")
            return


def _prompt() -> PromptSession[str]:
    """Return a prompt with the lines of earlier chats, and the commands on the tab key."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import WordCompleter
    from prompt_toolkit.history import FileHistory, History, InMemoryHistory

    commands = {f"/{name}": does for name, (_, does) in COMMANDS.items()}
    file = paths.home() / paths.CHAT_HISTORY
    history: History
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(mode=0o600)
        history = FileHistory(str(file))
    except OSError:  # a folder that cannot be written is no reason not to talk
        history = InMemoryHistory()
    return PromptSession(
        history=history,
        completer=WordCompleter(list(commands), meta_dict=commands, sentence=True),
        complete_while_typing=False,
    )


# Showing


def show(reply: Reply, screen: Console) -> None:
    """Print a reply.

    Args:
        reply: What the chat answered.
        screen: Where to print it.
    """
    for part in parts(reply):
        screen.print(Padding(part, (0, 0, 0, 2)))
    screen.print()


def parts(reply: Reply) -> Iterator[RenderableType]:
    """Yield what there is to see of a reply, from top to bottom."""
    if reply.error:
        yield as_text(reply.error, style="red")
    if reply.turns:
        yield _turns(reply.turns)
    if reply.tree is not None:
        yield as_text(repr(reply.tree))
    if reply.speaker:
        yield as_text(reply.text)
        yield as_text(footer(reply), style="dim")
    if reply.hits:
        yield _bars(reply.hits)
    if reply.text and not reply.speaker:
        yield as_text(reply.text)
    if reply.note:
        yield as_text(reply.note, style="yellow")


def footer(reply: Reply) -> str:
    """Return who speaks, and what was kept and recalled for it."""
    did = [f"kept {reply.kept}"] if reply.kept else []
    did += ["recalled:"] if reply.hits else []
    return " · ".join([reply.speaker, *did])


def _bars(found: Iterable[Found]) -> Table:
    table = Table.grid(padding=(0, 1))
    for hit in found:
        score, drawn = scored(hit)
        table.add_row(
            score,
            Text(drawn.ljust(BAR) if drawn else "", style="cyan"),
            as_text(hit.content),
            as_text(f"{hit.id[:SHOWN_ID]} {hit.scope}".strip(), style="dim"),
        )
    return table


def scored(hit: Found) -> tuple[str, str]:
    """Return a memory's score and its bar as text, both empty where there is no score."""
    return ("", "") if hit.score is None else (f"{hit.score:.2f}", bar(hit.score, BAR))


def _turns(turns: Iterable[Turn]) -> Table:
    table = Table.grid(padding=(0, 1))
    for turn in turns:
        table.add_row(str(turn.turn), Text(turn.role, style="bold"), as_text(turn.content or ""))
    return table
