"""Count what a call costs: commands, bytes, and the documents and keys that the server examined.

Bytes are those of the BSON of commands and answers, without the 21 bytes of a message's header.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import bson
from pymongo.database import Database
from pymongo.monitoring import (
    CommandFailedEvent,
    CommandListener,
    CommandStartedEvent,
    CommandSucceededEvent,
)

from workbook.commands import ENVELOPE, HOUSEKEEPING
from workbook.show.plans import Step, steps

Command = dict[str, Any]


@dataclass
class Cost:
    """What one call sent, got back and had the server examine; None where it does not say."""

    commands: list[Command] = field(default_factory=list)
    sent: int = 0
    received: int = 0
    documents: int | None = None
    keys: int | None = None
    seconds: float = 0.0

    @property
    def names(self) -> list[str]:
        return [next(iter(command)) for command in self.commands]


class Meter(CommandListener):
    """Counts the commands of a client inside a `counting()` block, and is idle outside."""

    def __init__(self) -> None:
        self._cost: Cost | None = None

    @contextmanager
    def counting(self) -> Iterator[Cost]:
        self._cost = cost = Cost()
        start = time.perf_counter()
        try:
            yield cost
        finally:
            cost.seconds = time.perf_counter() - start
            self._cost = None

    def started(self, event: CommandStartedEvent) -> None:
        if self._cost and event.command_name not in HOUSEKEEPING:
            self._cost.commands.append(dict(event.command))
            self._cost.sent += len(bson.encode(event.command))

    def succeeded(self, event: CommandSucceededEvent) -> None:
        if self._cost and event.command_name not in HOUSEKEEPING:
            self._cost.received += len(bson.encode(event.reply))

    def failed(self, event: CommandFailedEvent) -> None:
        pass


def cost_of(
    run: Callable[[], Any], prepare: Callable[[], Any], meter: Meter, server: Server
) -> Cost:
    """Return a call's cost; `prepare` is run before the call, and again before it is explained."""
    prepare()
    with meter.counting() as cost:
        run()
    prepare()
    examined = [server.examined(q) for command in cost.commands for q in _queries(command)]
    if examined:
        cost.documents = sum(each.documents for each in examined)
        cost.keys = sum(each.keys for each in examined)
    return cost


class Examined(NamedTuple):
    """How many documents and index keys a query read."""

    documents: int
    keys: int


@dataclass(frozen=True)
class Server:
    """A database that explains queries.

    Attributes:
        database: The database.
        full_planner: Whether `explain` tells the truth about two conditions of which one has an
            index. The embedded database uses the index and says COLLSCAN; there each condition is
            explained alone, and the one that reads least is taken, as MongoDB's planner would.
    """

    database: Database[Command]
    full_planner: bool

    def examined(self, query: Command) -> Examined:
        whole = self._explain(query)
        alone = [] if self.full_planner else [self._explain(each) for each in _conditions(query)]
        return min([whole, *alone])

    def _explain(self, query: Command) -> Examined:
        answer = self.database.command("explain", query, verbosity="executionStats")
        read = steps(answer)
        return Examined(_sum(read, "documents"), _sum(read, "keys"))


def _sum(read: list[Step], figure: str) -> int:
    return sum(getattr(step, figure) or 0 for step in read)


def _queries(command: Command) -> Iterator[Command]:
    """Yield the reading part of a command in the form that `explain` takes."""
    name, collection = next(iter(command.items()))
    if "$vectorSearch" in next(iter(command.get("pipeline", [])), {}):
        return  # the search process examines, and counts nothing
    if name in {"find", "aggregate", "count"}:
        yield {key: value for key, value in command.items() if key not in ENVELOPE}
    elif name == "findAndModify":
        yield _find(collection, command["query"], sort=command.get("sort", {}), limit=1)
    for write in command.get("updates", command.get("deletes", [])):
        yield _find(collection, write["q"])


def _find(collection: str, match: Mapping[str, Any], **more: Any) -> Command:
    return {"find": collection, "filter": match, **more}


def _conditions(query: Command) -> list[Command]:
    """Return a query for each of several conditions of a filter."""
    stages = query.get("pipeline") or [{}]
    match = query.get("filter") or query.get("query") or stages[0].get("$match") or {}
    name = next(iter(query))
    if len(match) < 2:
        return []
    return [_find(query[name], {path: condition}) for path, condition in match.items()]
