"""Decides about each request: pass it, note the write, or answer it."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from typing import Any

from workbook.embedded import handshake, wire, writes
from workbook.embedded.errors import CommandError
from workbook.embedded.indexes import Indexes
from workbook.embedded.proxy import Link, Passing, Refused
from workbook.embedded.search_commands import Request, SearchCommands
from workbook.embedded.wire import Header, Message

log = logging.getLogger(__name__)

Answer = Callable[[Request], Awaitable[Mapping[str, Any] | bytes | None]]
Before = Callable[[Link, str, Mapping[str, Any]], Awaitable[None]]
Done = Callable[[bytes | None], None]

MAX_TRANSACTIONS = 10_000
SEARCH_STAGES = (b"$vectorSearch\0", b"$listSearchIndexes\0")


class _AnyField(set[str]):
    def __contains__(self, _: object) -> bool:
        return True


class Dispatcher:
    """Handles the `OP_MSG` requests of all connections.

    Args:
        indexes: What is kept in memory.
        search: Answers the search commands.
        before_structure: Called with each change of collections before it is passed on.
    """

    def __init__(
        self, indexes: Indexes, search: SearchCommands, before_structure: Before | None = None
    ) -> None:
        self._indexes = indexes
        self._before_structure = before_structure
        self._transactions: OrderedDict[Any, list[writes.Change]] = OrderedDict()
        self._answers: dict[str, Answer] = {
            "createSearchIndexes": search.create,
            "updateSearchIndex": search.update,
            "dropSearchIndex": search.drop,
            "aggregate": search.aggregate,
            "explain": search.explain,
            "create": search.create_view,
            "collMod": search.create_view,
        }

    async def handle(self, link: Link, header: Header, data: bytes) -> bool:
        """Deal with a request; return False when it is to be passed on unseen."""
        name = wire.command_name(data)
        if name in handshake.COMMANDS:
            await link.forward(handshake.request(data), Passing(header, is_handshake=True))
        elif name in self._answers and (
            name.endswith(("SearchIndexes", "SearchIndex"))
            or any(stage in data for stage in SEARCH_STAGES)
        ):
            await self._answer(self._answers[name], link, header, data)
        elif name == "aggregate" and (b"$out\0" in data or b"$merge\0" in data):
            await link.forward(data, Passing(header, on_reply=self._output(wire.parse(data))))
        elif name in writes.DOCUMENTS or name in writes.WHOLE:
            await self._write(name, link, header, data)
        elif name in writes.STRUCTURE:
            message = wire.parse(data)
            if self._before_structure:
                await self._before_structure(link, name, message.body)
            done = self._structure(name, message)
            await link.forward(data, Passing(header, on_reply=done))
        elif name in writes.INDEXES and self._indexes.any_loaded:
            await link.forward(data, Passing(header, on_reply=self._reindexed(name, data)))
        else:
            return False
        return True

    async def _answer(self, answer: Answer, link: Link, header: Header, data: bytes) -> None:
        message = wire.parse(data)
        request = Request(link, header, message)
        try:
            reply = await answer(request)
        except Refused as error:
            reply = error.reply
        except CommandError as error:
            reply = error.reply()
        if reply is None:
            await link.forward(data)
        elif isinstance(reply, bytes):
            await link.forward(reply, Passing(header, on_reply=self._output(message)))
        elif not message.flags & wire.MORE_TO_COME:
            await link.answer(header, reply)

    def _output(self, message: Message) -> Done | None:
        found = writes.output(str(message.body.get("$db")), message.body.get("pipeline"))
        return (lambda reply: self._apply(found)) if found else None

    async def _write(self, name: str, link: Link, header: Header, data: bytes) -> None:
        """Pass a write on and note, when it is answered, what it may have changed."""
        clock, target = self._indexes.clock, wire.first_string(data)
        changed: list[writes.Change] = []
        flags = wire.INT.unpack_from(data, wire.HEADER.size)[0]
        in_transaction = b"\x08autocommit\0" in data
        if in_transaction or self._indexes.any_loaded:
            message = wire.parse(data)
            database = str(message.body.get("$db"))
            roots = _anything if in_transaction else self._indexes.roots
            changed = writes.changes(name, database, message, roots)
        if in_transaction:
            self._remember(message.body, changed)
        watching = ExitStack()
        met: list[Any] = []
        for change in changed:
            if change.conditions and not in_transaction:
                met.append((change, watching.enter_context(self._indexes.watch(change.namespace))))
                await _find(link, change)

        def done(reply: bytes | None) -> None:
            watching.close()
            for change, touched in met:
                change.ids.extend(touched.values())
            self._apply(changed, reply)
            self._indexes.arrived(target, clock)

        if flags & wire.MORE_TO_COME:
            # Nothing will be answered to it; what is asked after it is answered after it.
            await link.forward(data)
            link.later(_after(link, done))
        else:
            await link.forward(data, Passing(header, on_reply=done))

    def _reindexed(self, name: str, data: bytes) -> Done:
        body = wire.parse(data).body
        collection = self._indexes.loaded((str(body.get("$db")), str(body.get(name))))
        return lambda reply: collection.indexes_changed() if collection else None

    def _structure(self, name: str, message: Message) -> Done | None:
        """Return what to do once a change of collections or a transaction's end is answered."""
        body, indexes = message.body, self._indexes
        database, target = str(body.get("$db")), str(body.get(name))
        if name == "dropDatabase":
            return lambda reply: indexes.dropped(database, None) if _worked(reply) else None
        if name == "drop":
            return lambda reply: indexes.dropped(database, target) if _worked(reply) else None
        if name == "renameCollection":
            to = str(body.get("to"))
            return lambda reply: indexes.renamed(target, to) if _worked(reply) else None
        changed = self._transactions.pop(_transaction(body), [])
        if name == "abortTransaction" or not changed:
            return None
        return lambda reply: self._apply(changed)

    def _remember(self, body: Mapping[str, Any], changed: list[writes.Change]) -> None:
        self._transactions.setdefault(_transaction(body), []).extend(changed)
        if len(self._transactions) > MAX_TRANSACTIONS:
            self._transactions.popitem(last=False)

    def _apply(self, changed: list[writes.Change], reply: bytes | None = None) -> None:
        for change in changed:
            collection = self._indexes.loaded(change.namespace)
            if collection is None:
                continue
            if change.everything or change.conditions:
                collection.touch_everything()
            collection.touch(change.ids)
            if reply is not None:
                collection.touch(writes.upserted(wire.parse(reply).body))


async def _find(link: Link, change: writes.Change) -> None:
    """Turn a change's conditions into the documents they choose."""
    conditions, change.conditions = change.conditions, []
    for one in conditions:
        condition, options = one.pop("filter"), {"projection": {"_id": 1}, **one}
        try:
            async for batch in link.find(change.namespace, condition, 10_000, **options):
                change.ids.extend(document["_id"] for document in batch)
        except Refused:
            change.everything = True


async def _after(link: Link, done: Done) -> None:
    try:
        await link.ask("admin", {"ping": 1})
    except Refused as error:
        log.debug("a ping was refused: %s", error)
    finally:
        done(None)


def _worked(reply: bytes | None) -> bool:
    return reply is not None and bool(wire.parse(reply).body.get("ok"))


def _anything(namespace: object) -> set[str]:
    return _AnyField()


def _transaction(body: Mapping[str, Any]) -> Any:
    session = body.get("lsid", {})
    identifier = session.get("id") if isinstance(session, Mapping) else None
    return bytes(identifier or b""), body.get("txnNumber")
