"""Watch the commands that a client sends to MongoDB.

pymongo takes its listeners when a client is created, so `connect()` gives every client the one
`recorder` of this module, which does nothing until a `recording()` block is open.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pymongo.monitoring import (
    CommandFailedEvent,
    CommandListener,
    CommandStartedEvent,
    CommandSucceededEvent,
)

ENVELOPE = {
    *("lsid", "txnNumber", "$db", "$clusterTime"),
    *("$readPreference", "readConcern", "apiVersion"),
}
HOUSEKEEPING = {"hello", "ismaster", "isMaster", "ping", "endSessions", "killCursors"}
SECRET = {
    *("authenticate", "saslStart", "saslContinue", "getnonce", "createUser", "updateUser"),
    *("copydb", "copydbgetnonce", "copydbsaslstart"),
}


@dataclass
class Sent:
    """One command as it went to the server.

    Attributes:
        name: The command, such as `find` or `aggregate`.
        database: The database it was sent to.
        collection: The collection it names, or `""` for a command on the database.
        body: The command's document without the envelope that the driver adds.
        returned: Documents in the answer's first batch, or the count that a write reports;
            `None` until the answer is there, and for answers that count nothing.
        error: What the server said when it refused, else `None`.
    """

    name: str
    database: str
    collection: str
    body: dict[str, Any]
    returned: int | None = None
    error: str | None = None


@dataclass
class Recording:
    """The commands of one `recording()` block, in the order in which they were sent."""

    sent: list[Sent] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.sent)

    def __iter__(self) -> Iterator[Sent]:
        return iter(self.sent)


class Recorder(CommandListener):
    """Hands each command to the recordings that are open, from whatever thread it comes.

    The driver's own housekeeping and every command that carries a credential are left out.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: list[Recording] = []
        self._waiting: dict[int, Sent] = {}

    def started(self, event: CommandStartedEvent) -> None:
        """Record a command that is about to be sent."""
        if event.command_name in HOUSEKEEPING | SECRET:
            return
        with self._lock:
            if not self._open:
                return
            sent = _sent(event)
            self._waiting[event.request_id] = sent
            for recording in self._open:
                recording.sent.append(sent)

    def succeeded(self, event: CommandSucceededEvent) -> None:
        """Add what came back."""
        with self._lock:
            sent = self._waiting.pop(event.request_id, None)
        if sent is not None:
            sent.returned = _returned(event.reply)

    def failed(self, event: CommandFailedEvent) -> None:
        """Add why the server refused."""
        with self._lock:
            sent = self._waiting.pop(event.request_id, None)
        if sent is not None:
            sent.error = str(event.failure.get("errmsg", event.failure))

    @contextmanager
    def recording(self) -> Iterator[Recording]:
        """Record every command that is sent inside the block."""
        recording = Recording()
        with self._lock:
            self._open.append(recording)
        try:
            yield recording
        finally:
            with self._lock:
                # By identity: two recordings that hold the same commands are equal.
                self._open = [each for each in self._open if each is not recording]


def _sent(event: CommandStartedEvent) -> Sent:
    body = {key: value for key, value in event.command.items() if key not in ENVELOPE}
    target = body.get(event.command_name)
    inner = target if isinstance(target, Mapping) else {}
    collection = target if isinstance(target, str) else next(iter(inner.values()), "")
    if event.command_name == "getMore":
        collection = body.get("collection", "")
    return Sent(event.command_name, event.database_name, str(collection), body)


def _returned(reply: Mapping[str, Any]) -> int | None:
    cursor = reply.get("cursor", {})
    batch = cursor.get("firstBatch", cursor.get("nextBatch"))
    if batch is not None:
        return len(batch)
    if "values" in reply:
        return len(reply["values"])
    if "lastErrorObject" in reply:  # of findAndModify: whether it found a document
        return int(reply["lastErrorObject"]["n"])
    return reply["n"] if isinstance(reply.get("n"), int) else None


recorder = Recorder()
