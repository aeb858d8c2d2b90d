"""Decides about each request: pass it, note the write, or answer it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from workbook.embedded import handshake, search_commands, wire, writes
from workbook.embedded.proxy import Link, Passing, Refused
from workbook.embedded.search_commands import CommandError, SearchService
from workbook.embedded.wire import Header, Message

log = logging.getLogger(__name__)

Answer = Callable[[Link, Header, Message, str], Awaitable[Mapping[str, Any] | bytes]]


class Dispatcher:
    """Handles the `OP_MSG` requests of all connections.

    Args:
        service: Answers the search commands.
    """

    def __init__(self, service: SearchService) -> None:
        self._service = service
        self._transactions: dict[Any, list[writes.Change]] = {}
        self._answers: dict[str, Answer] = {
            "createSearchIndexes": service.create,
            "updateSearchIndex": service.update,
            "dropSearchIndex": service.drop,
        }

    async def handle(self, link: Link, header: Header, data: bytes) -> bool:
        """Deal with a request; return False when it is to be passed on unseen."""
        name = wire.command_name(data)
        if name in handshake.COMMANDS:
            await link.forward(handshake.request(data), Passing(header, is_handshake=True))
            return True
        if name in self._answers:
            await self._answer(self._answers[name], link, header, data)
            return True
        if name == "aggregate" and search_commands.SEARCH_STAGE(data):
            await self._answer(self._service.aggregate, link, header, data)
            return True
        if name in writes.WRITES and self._service.has_indexes:
            await self._write(name, link, header, data)
            return True
        return False

    async def _answer(self, answer: Answer, link: Link, header: Header, data: bytes) -> None:
        message = wire.parse(data)
        database = str(message.body.get("$db", ""))
        try:
            reply = await answer(link, header, message, database)
        except Refused as error:
            reply = error.reply
        except CommandError as error:
            reply = error.reply()
        if isinstance(reply, bytes):
            await link.forward(reply)
        elif not message.flags & wire.MORE_TO_COME:
            await link.answer(header, reply)

    async def _write(self, name: str, link: Link, header: Header, data: bytes) -> None:
        message = wire.parse(data)
        database = str(message.body.get("$db", ""))
        done = self._effect(name, database, message)
        if done is None:
            await link.forward(data)
            return
        if message.flags & wire.MORE_TO_COME:
            # Nothing will be answered: the write is noted before and, for good, by what follows.
            done(None)
        await link.forward(data, Passing(header, on_reply=done))

    def _effect(
        self, name: str, database: str, message: Message
    ) -> Callable[[bytes | None], None] | None:
        """Return what to do once a write has been answered, None when it concerns no index."""
        body, service = message.body, self._service
        if name == "dropDatabase":
            return lambda reply: service.dropped(database, None) if _worked(reply) else None
        if name == "drop":
            collection = str(body.get(name))
            return lambda reply: service.dropped(database, collection) if _worked(reply) else None
        if name == "renameCollection":
            source, target = str(body.get(name)), str(body.get("to"))
            return lambda reply: service.renamed(source, target) if _worked(reply) else None
        if name == "commitTransaction":
            key = _transaction(body)
            return lambda reply: self._apply(self._transactions.pop(key, []))
        changed = [
            change
            for change in writes.changes(name, database, message)
            if service.is_indexed(change.namespace)
        ]
        if not changed:
            return None
        if body.get("autocommit") is False:
            self._transactions.setdefault(_transaction(body), []).extend(changed)
        return lambda reply: self._apply(changed)

    def _apply(self, changed: list[writes.Change]) -> None:
        for change in changed:
            self._service.touch(change.namespace, change.ids)


def _worked(reply: bytes | None) -> bool:
    return reply is not None and bool(wire.parse(reply).body.get("ok"))


def _transaction(body: Mapping[str, Any]) -> Any:
    session = body.get("lsid", {})
    identifier = session.get("id") if isinstance(session, Mapping) else None
    return bytes(identifier or b""), body.get("txnNumber")
