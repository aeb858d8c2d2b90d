"""The process in front: passes messages through, and hands the search commands over.

Each client connection has an upstream connection of its own, so that authentication, sessions,
cursors and transactions are the storage server's business. Messages are looked at, not decoded:
only search commands, writes to indexed collections and handshakes are parsed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

import bson
from bson.raw_bson import RawBSONDocument

from workbook.embedded import handshake, wire
from workbook.embedded.definitions import Namespace
from workbook.embedded.wire import Header, WireError

log = logging.getLogger(__name__)

Address = tuple[str, int]


class Refused(Exception):
    """The storage server answered a command of ours with an error; it goes to the client."""

    def __init__(self, reply: Mapping[str, Any]) -> None:
        super().__init__(reply.get("errmsg"))
        self.reply = reply


@dataclass
class Passing:
    """A request that went upstream and waits for its answer.

    Attributes:
        sent: Its header.
        is_handshake: Whether the answer names addresses.
        on_reply: Called with the answer before the client sees it; with None when it never came.
    """

    sent: Header
    is_handshake: bool = False
    on_reply: Callable[[bytes | None], None] | None = None


@dataclass
class Link:
    """One client's connection and its upstream connection.

    Attributes:
        address: Where the client connected to.
        passing: Requests that went upstream and are to be looked at when they are answered.
        asked: Requests of our own.
        tasks: What runs beside the requests.
        cleared: The databases in which the client has been seen to have rights.
    """

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    upstream_reader: asyncio.StreamReader
    upstream_writer: asyncio.StreamWriter
    address: str
    passing: dict[int, Passing] = field(default_factory=dict)
    asked: dict[int, asyncio.Future[bytes]] = field(default_factory=dict)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    cleared: set[str] = field(default_factory=set)
    _next: int = 0

    async def forward(self, data: bytes, passing: Passing | None = None) -> None:
        """Send a client's message upstream."""
        if passing:
            self.passing[passing.sent.request_id] = passing
        self.upstream_writer.write(data)
        await self.upstream_writer.drain()

    async def answer(self, request: Header, body: Mapping[str, Any]) -> None:
        """Answer a client's request ourselves."""
        self.writer.write(wire.build(body, self._request_id(), request.request_id))
        await self.writer.drain()

    def later(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something beside the client's requests; it ends with the connection."""
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def ask(self, database: str, command: Mapping[str, Any]) -> RawBSONDocument:
        """Run a command of ours on the client's upstream connection, with the client's rights.

        Raises:
            Refused: If the server answers with an error.
            ConnectionError: If the server is gone.
        """
        request_id = self._request_id()
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.asked[request_id] = future
        try:
            await self.forward(wire.build({**command, "$db": database}, request_id))
            reply = wire.parse(await future).body
        finally:
            self.asked.pop(request_id, None)
        if not reply.get("ok"):
            raise Refused(wire.decode(reply))
        return reply

    async def find(
        self, namespace: Namespace, condition: Mapping[str, Any], batch: int, **options: Any
    ) -> AsyncIterator[list[RawBSONDocument]]:
        """Yield the documents of a collection that match, undecoded, in batches."""
        database, collection = namespace
        command = {"find": collection, "filter": condition, "batchSize": batch, **options}
        reply = await self.ask(database, command)
        cursor = _cursor(reply)
        yield cursor["firstBatch"]
        while cursor["id"]:
            more = {"getMore": cursor["id"], "collection": collection, "batchSize": batch}
            cursor = _cursor(await self.ask(database, more))
            yield cursor["nextBatch"]

    def _request_id(self) -> int:
        # Drivers count upwards from zero or a random positive number.
        self._next = self._next - 1 if self._next > -(2**31) else -1
        return self._next


def _cursor(reply: RawBSONDocument) -> dict[str, Any]:
    # The batch is decoded one level deep only: its documents stay raw.
    return dict(bson.decode(reply.raw, wire.RAW)["cursor"])


Handler = Callable[[Link, Header, bytes], Awaitable[bool]]


class Proxy:
    """Listens on loopback and serves each connection.

    Args:
        upstream: Returns the storage server's address, waiting while it restarts.
        handler: Looks at each `OP_MSG` request; returns True when it has dealt with it.
    """

    def __init__(self, upstream: Callable[[], Awaitable[Address]], handler: Handler) -> None:
        self._upstream = upstream
        self._handler = handler
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.address = ""
        self.port = 0

    @property
    def connections(self) -> int:
        """Return how many clients are connected."""
        return len(self._tasks)

    async def listen(self, port: int) -> None:
        """Listen on 127.0.0.1; port 0 takes a free one."""
        self._server = await asyncio.start_server(
            self._accept, "127.0.0.1", port, limit=1 << 20, backlog=512
        )
        self.port = self._server.sockets[0].getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"

    async def close(self) -> None:
        """Stop listening and end every connection."""
        if self._server:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._serve(reader, writer)
        except (OSError, WireError) as error:
            log.debug("a connection ended: %s", error)
        except asyncio.CancelledError:
            log.debug("a connection was ended")
        except Exception:
            log.exception("a connection failed")
        finally:
            self._tasks.discard(task)
            await _close(writer)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = await self._upstream()
        up_reader, up_writer = await asyncio.open_connection(host, port, limit=1 << 20)
        link = Link(reader, writer, up_reader, up_writer, self.address)
        pumps = [
            asyncio.create_task(self._requests(link)),
            asyncio.create_task(_replies(link)),
        ]
        try:
            done, _ = await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            for pump in done:
                pump.result()
        finally:
            for task in (*pumps, *link.tasks):
                task.cancel()
            await asyncio.gather(*pumps, *link.tasks, return_exceptions=True)
            _abandon(link)
            await _close(up_writer)

    async def _requests(self, link: Link) -> None:
        while (read := await wire.read(link.reader)) is not None:
            header, data = read
            if header.opcode == wire.OP_MSG:
                if not await self._handler(link, header, data):
                    await link.forward(data)
            elif header.opcode == wire.OP_QUERY:
                passing = Passing(header, is_handshake=True)
                await link.forward(handshake.legacy_request(data), passing)
            else:
                raise WireError(f"an operation of code {header.opcode}")


async def _replies(link: Link) -> None:
    while (read := await wire.read(link.upstream_reader)) is not None:
        header, data = read
        if (future := link.asked.get(header.response_to)) is not None:
            if not future.done():
                future.set_result(data)
            continue
        passing = link.passing.get(header.response_to)
        if passing is not None:
            if not _more_follows(header, data):
                del link.passing[header.response_to]
            if passing.on_reply:
                passing.on_reply(data)
            if passing.is_handshake:
                data = handshake.reply(header, data, link.address)
        link.writer.write(data)
        await link.writer.drain()


def _more_follows(header: Header, data: bytes) -> bool:
    flags = wire.INT.unpack_from(data, wire.HEADER.size)[0] if len(data) >= 20 else 0
    return header.opcode == wire.OP_MSG and bool(flags & wire.MORE_TO_COME)


def _abandon(link: Link) -> None:
    """Tell whoever waits for an answer that none will come."""
    for future in link.asked.values():
        if not future.done():
            future.set_exception(ConnectionResetError("the storage server closed the connection"))
    for passing in link.passing.values():
        if passing.on_reply:
            passing.on_reply(None)
    link.passing.clear()


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError, asyncio.CancelledError):
        await writer.wait_closed()
