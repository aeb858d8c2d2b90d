"""The handshake: clients must see the address they connected to, and must not compress."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import bson

from workbook.embedded import wire
from workbook.embedded.wire import HEADER, INT, Header, WireError

COMMANDS = {"hello", "isMaster", "ismaster"}

REPLY_PREFIX = 20


def request(data: bytes) -> bytes:
    """Return an `OP_MSG` handshake without an offer of compression."""
    if b"compression\0" not in data:
        return data
    header = wire.parse_header(data)
    message = wire.parse(data)
    body = {key: value for key, value in message.body.items() if key != "compression"}
    return wire.build(body, header.request_id, flags=message.flags & ~wire.CHECKSUM_PRESENT)


def legacy_request(data: bytes) -> bytes:
    """Return an `OP_QUERY` handshake without an offer of compression."""
    if b"compression\0" not in data:
        return data
    start = data.find(b"\0", HEADER.size + 4) + 1 + 8
    if start < HEADER.size + 13 or start >= len(data):
        raise WireError("a query that is cut off")
    body = {key: value for key, value in wire.decode(data[start:]).items() if key != "compression"}
    return _framed(data[:start], body)


def reply(header: Header, data: bytes, address: str) -> bytes:
    """Return the answer to a handshake, naming `address` wherever it names the server."""
    if header.opcode == wire.OP_MSG:
        message = wire.parse(data)
        body = addressed(wire.decode(message.body), address)
        flags = message.flags & ~wire.CHECKSUM_PRESENT
        return wire.build(body, header.request_id, header.response_to, flags)
    if header.opcode == wire.OP_REPLY:
        start = HEADER.size + REPLY_PREFIX
        return _framed(data[:start], addressed(wire.decode(data[start:]), address))
    return data


def addressed(body: Mapping[str, Any], address: str) -> dict[str, Any]:
    """Return a handshake's answer as if the server listened at `address`."""
    changed = dict(body)
    changed.pop("compression", None)
    for name in ("me", "primary"):
        if name in changed:
            changed[name] = address
    if "hosts" in changed:
        changed["hosts"] = [address]
    for name in ("passives", "arbiters"):
        if name in changed:
            changed[name] = []
    return changed


def _framed(start: bytes, body: Mapping[str, Any]) -> bytes:
    encoded = bson.encode(body)
    return INT.pack(len(start) + len(encoded)) + start[4:] + encoded
