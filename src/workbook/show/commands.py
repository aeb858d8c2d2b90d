"""Show which commands a block of code sent to MongoDB."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from workbook.commands import Recording, Sent, recorder
from workbook.show.documents import abbreviate
from workbook.show.tables import Table, table

LONGEST = 320  # characters of a command's body that a row shows
PIPELINES = {"pipeline", "update"}  # one stage on each line
BATCHES = {"documents", "updates", "deletes"}  # what a write carries: the first one stands for all
DEFAULTS = {"ordered": True, "multi": False, "upsert": False, "singleBatch": True, "cursor": {}}


class Commands:
    """The commands of a block, as a table: command, collection, what it said, what came back."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    def __len__(self) -> int:
        return len(self._recording)

    def __iter__(self) -> Iterator[Sent]:
        return iter(self._recording)

    def table(self) -> Table:
        """Return the commands as a pandas frame, in the order in which they were sent."""
        rows = [(each.name, each.collection, _said(each), each.returned) for each in self]
        return table(rows, columns=("command", "collection", "what it said", "returned"))

    def __repr__(self) -> str:
        return repr(self.table()) if len(self) else "(no commands)"

    def _repr_html_(self) -> str:
        return self.table()._repr_html_() if len(self) else "<p>(no commands)</p>"


@contextmanager
def commands() -> Iterator[Commands]:
    """Record the commands that the block sends, on any client that `connect()` has made.

    Background writes count when they are sent before the block ends: drain a crew's memory inside
    the block. Sign-in commands and the driver's own housekeeping are never recorded.

    Yields:
        What was sent: `len()` counts it, and as a cell's last expression it is a table.
    """
    with recorder.recording() as recording:
        yield Commands(recording)


def _said(sent: Sent) -> str:
    body = {key: value for key, value in sent.body.items() if key not in {sent.name, "collection"}}
    said = ", ".join(_part(key, value) for key, value in _telling(body).items())
    said = said if len(said) <= LONGEST else said[: LONGEST - 1] + "…"
    return f"{said} (refused: {sent.error})" if sent.error else said


def _telling(body: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what says only that the default holds."""
    return {k: v for k, v in body.items() if not (k in DEFAULTS and DEFAULTS[k] == v)}


def _part(key: str, value: Any) -> str:
    if key in PIPELINES and isinstance(value, list):
        stages = ",\n".join(map(abbreviate, value))
        return f"{key}: [{stages}]"
    if key in BATCHES:
        rest = f", … {len(value):,} in all" if len(value) > 1 else ""
        return f"{key}: [{abbreviate(_ends_with_document(value[0]))}{rest}]"
    return f"{key}: {abbreviate(value)}"


def _ends_with_document(write: Mapping[str, Any]) -> Mapping[str, Any]:
    """Say what is done with a write before the document that it carries, which may be long."""
    return dict(sorted(_telling(write).items(), key=lambda item: item[0] == "u"))
