"""The chat in a notebook: what was said, a line to type in, a button."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import ipywidgets
from rich.console import Console

from workbook import show
from workbook.chat import terminal
from workbook.chat.session import Chat, Found, Reply
from workbook.connect import Connection
from workbook.show.markup import literal
from workbook.show.pictures import VERMILION

WIDTH = 90  # characters of the plain text
SAYS = "Tell something, ask something, or type /help"
ASKS = "yes or no"
LOG = {"flex_flow": "column-reverse", "max_height": "26em", "overflow": "auto"}
FRAME = {"max_width": "55em", "border": "1px solid #9e9e9e", "padding": "0.5em"}
PARAGRAPH = "margin:0.3em 0; line-height:1.4"


class ChatBox(ipywidgets.VBox):  # type: ignore[misc]
    """A small chat with the concierge, drawn when it is a cell's last expression.

    Where no kernel runs, as on a page that only shows the notebook, the same conversation is seen
    as plain HTML.

    Args:
        connection: The database, embedder and LLM.
        user: Whose memories.
        session_id: Which transcript; the default is one of the user's.
    """

    def __init__(self, connection: Connection, user: str = "guest", session_id: str = "") -> None:
        self.chat = Chat(connection, user, session_id)
        self._said: list[tuple[str, Reply]] = [("", self.chat.greeting())]
        self._shown = ipywidgets.HTML()
        self._line = ipywidgets.Text(placeholder=SAYS, layout={"flex": "1 1 auto"})
        self._send = ipywidgets.Button(description="Send", layout={"width": "6em"})
        # Laid out from its end, a box that overflows shows what was said last.
        log = ipywidgets.Box([self._shown], layout=LOG)
        super().__init__([log, ipywidgets.HBox([self._line, self._send])], layout=FRAME)
        self._send.on_click(self._typed)
        with warnings.catch_warnings():
            # What is recommended instead also sends a line that is left and not finished.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._line.on_submit(self._typed)
        self._draw()

    def say(self, line: str) -> Reply:
        """Send a line as if it had been typed, and return the reply."""
        reply = self.chat.answer(line)
        self._said.append((line, reply))
        self._line.placeholder = ASKS if reply.asks else SAYS
        self._draw()
        return reply

    def _typed(self, _: object) -> None:
        line, self._line.value = self._line.value, ""
        if not line.strip():
            return
        self._draw(waiting=line)
        self.say(line)

    def _draw(self, waiting: str = "") -> None:
        said = [*self._said, (waiting, Reply("…"))] if waiting else self._said
        self._shown.value = _page(said)

    def _repr_mimebundle_(self, **options: Any) -> Any:
        bundle = super()._repr_mimebundle_(**options)
        data, *rest = bundle if isinstance(bundle, tuple) else (bundle,)
        data = {**data, "text/html": _page(self._said), "text/plain": _text(self._said)}
        return (data, *rest) if rest else data


def _page(said: list[tuple[str, Reply]]) -> str:
    """Return a conversation as HTML."""
    return "\n".join(part for line, reply in said for part in _exchange(line, reply))


def _exchange(line: str, reply: Reply) -> Iterator[str]:
    if line:
        yield _paragraph(f"› {line}", "b")
    if reply.error:
        yield _paragraph(reply.error, f'span style="color:{VERMILION}"')
    if reply.turns:
        rows = [(turn.turn, turn.role, turn.content) for turn in reply.turns]
        yield show.table(rows, columns=("turn", "role", "content"))._repr_html_()
    if reply.tree is not None:
        yield reply.tree._repr_html_()
    if reply.speaker:
        yield _paragraph(reply.text) + _paragraph(terminal.footer(reply), "small")
    if reply.hits:
        yield _bars(reply.hits)
    if reply.text and not reply.speaker:
        yield f"<pre>{literal(reply.text)}</pre>" if reply.is_list else _paragraph(reply.text)
    if reply.note:
        yield _paragraph(reply.note, "i")


def _paragraph(text: str, element: str = "span") -> str:
    """Return a text as a paragraph whose lines stay lines where styles are taken away."""
    end = element.partition(" ")[0]
    lines = literal(text).replace("\n", "<br>")
    return f'<p style="{PARAGRAPH}"><{element}>{lines}</{end}></p>'


def _bars(found: Sequence[Found]) -> str:
    """Return memories as a table; where they lie and their ids only if that is known."""
    columns = ("score", "", "memory", "scope", "id")
    rows = [
        (*terminal.scored(hit), hit.content, hit.scope, hit.id[: terminal.SHOWN_ID])
        for hit in found
    ]
    known = 5 if any(hit.id for hit in found) else 3
    return show.table([row[:known] for row in rows], columns[:known])._repr_html_()


def _text(said: list[tuple[str, Reply]]) -> str:
    """Return a conversation as plain text."""
    written = io.StringIO()  # rich would otherwise draw into the notebook by itself
    screen = Console(
        file=written, width=WIDTH, highlight=False, color_system=None, force_jupyter=False
    )
    for line, reply in said:
        if line:
            screen.print(f"{terminal.PROMPT}{line}", markup=False)
        terminal.show(reply, screen)
    return "\n".join(map(str.rstrip, written.getvalue().splitlines()))
