"""MongoDB's wire protocol: frames, OP_MSG, and the legacy handshake."""

from __future__ import annotations

import asyncio
import struct
from dataclasses import dataclass
from typing import Any

import bson
from bson.raw_bson import RawBSONDocument

HEADER = struct.Struct("<iiii")
OP_REPLY, OP_QUERY, OP_MSG = 1, 2004, 2013
CHECKSUM, MORE_TO_COME = 1, 2
MAX_FRAME = 48_000_000 + 16_384


class ProtocolError(Exception):
    """Bytes that are no message of MongoDB's wire protocol."""


@dataclass(frozen=True)
class Frame:
    request_id: int
    response_to: int
    opcode: int
    data: bytes

    @property
    def body(self) -> memoryview:
        return memoryview(self.data)[16:]


async def read_frame(reader: asyncio.StreamReader) -> Frame | None:
    try:
        head = await reader.readexactly(16)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    length, request_id, response_to, opcode = HEADER.unpack(head)
    if not 16 <= length <= MAX_FRAME:
        raise ProtocolError(f"a message of {length} bytes")
    try:
        rest = await reader.readexactly(length - 16)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    return Frame(request_id, response_to, opcode, head + rest)


def command_name(frame: Frame) -> str:
    body = frame.body
    try:
        if frame.opcode == OP_MSG and body[4] == 0:
            end = bytes(body[10:74]).index(0)
            return bytes(body[10 : 10 + end]).decode()
        if frame.opcode == OP_QUERY:
            return "hello"
    except (IndexError, ValueError):
        return ""
    return ""


def parse(frame: Frame) -> tuple[dict[str, Any], dict[str, list[RawBSONDocument]]]:
    body = frame.body
    (flags,) = struct.unpack_from("<I", body)
    end = len(body) - (4 if flags & CHECKSUM else 0)
    at, command, sequences = 4, {}, {}
    while at < end:
        kind = body[at]
        at += 1
        (size,) = struct.unpack_from("<i", body, at)
        chunk = bytes(body[at : at + size])
        if kind == 0:
            command = RawBSONDocument(chunk)
        elif kind == 1:
            name_end = chunk.index(0, 4)
            name = chunk[4:name_end].decode()
            sequences[name] = [RawBSONDocument(d) for d in _split(chunk[name_end + 1 :])]
        else:
            raise ProtocolError(f"a section of kind {kind}")
        at += size
    return command, sequences


def _split(data: bytes) -> list[bytes]:
    at, parts = 0, []
    while at < len(data):
        (size,) = struct.unpack_from("<i", data, at)
        parts.append(data[at : at + size])
        at += size
    return parts


def op_msg(document: Any, *, request_id: int, response_to: int = 0, flags: int = 0) -> bytes:
    payload = document.raw if isinstance(document, RawBSONDocument) else bson.encode(document)
    length = 16 + 4 + 1 + len(payload)
    return HEADER.pack(length, request_id, response_to, OP_MSG) + struct.pack("<IB", flags, 0) + payload
