"""MongoDB's wire protocol: framing, and the two message kinds that drivers use.

The layout follows MongoDB's manual, "MongoDB Wire Protocol": a header of four little-endian
integers (length, request id, the id that is answered, operation code), then the operation.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import bson
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.raw_bson import RawBSONDocument

OP_REPLY = 1
OP_QUERY = 2004
OP_COMPRESSED = 2012
OP_MSG = 2013

CHECKSUM_PRESENT = 1
MORE_TO_COME = 2
EXHAUST_ALLOWED = 1 << 16
KNOWN_REQUIRED_FLAGS = CHECKSUM_PRESENT | MORE_TO_COME

HEADER = struct.Struct("<iiii")
INT = struct.Struct("<i")
MAX_MESSAGE = 48_000_000
MAX_DEPTH = 200

CODEC: CodecOptions[dict[str, Any]] = CodecOptions(
    datetime_conversion=DatetimeConversion.DATETIME_AUTO
)


class WireError(Exception):
    """Bytes that are no message; the connection they came on is closed."""


@dataclass(frozen=True)
class Header:
    """The first 16 bytes of a message."""

    length: int
    request_id: int
    response_to: int
    opcode: int


@dataclass
class Message:
    """A parsed `OP_MSG`.

    Attributes:
        flags: The message's flag bits.
        body: The command or the answer, undecoded.
        sequences: Document sequences by field name, such as an insert's `documents`, undecoded.
    """

    flags: int
    body: RawBSONDocument
    sequences: dict[str, list[RawBSONDocument]] = field(default_factory=dict)

    def documents(self, name: str) -> Sequence[Mapping[str, Any]]:
        """Return a command's documents, sent as a sequence or inside the body."""
        if name in self.sequences:
            return self.sequences[name]
        inside = self.body.get(name)
        return inside if isinstance(inside, list) else []


def parse_header(data: bytes) -> Header:
    """Parse a header; raise `WireError` for a length that no server would accept."""
    header = Header(*HEADER.unpack_from(data))
    if not HEADER.size <= header.length <= MAX_MESSAGE:
        raise WireError(f"a message of {header.length} bytes")
    return header


async def read(reader: asyncio.StreamReader) -> tuple[Header, bytes] | None:
    """Read one message, header included; return None when the stream ends between messages."""
    try:
        start = await reader.readexactly(HEADER.size)
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise WireError("a message that ends in its header") from error
        return None
    header = parse_header(start)
    try:
        rest = await reader.readexactly(header.length - HEADER.size)
    except asyncio.IncompleteReadError as error:
        raise WireError("a message that is cut off") from error
    return header, start + rest


def command_name(data: bytes) -> str:
    """Return the command of an `OP_MSG` without decoding it: its body's first key.

    A body that does not come first (the protocol allows it, no driver does it) gives "".
    """
    name_at = HEADER.size + 4 + 1 + 4 + 1
    if len(data) <= name_at or data[HEADER.size + 4] != 0:
        return ""
    end = data.find(b"\0", name_at, name_at + 64)
    return data[name_at:end].decode("utf-8", "replace") if end > 0 else ""


def parse(data: bytes) -> Message:
    """Parse an `OP_MSG`.

    Raises:
        WireError: If the bytes do not follow the protocol.
    """
    (flags,) = INT.unpack_from(data, HEADER.size)
    end = len(data) - (4 if flags & CHECKSUM_PRESENT else 0)
    position, body = HEADER.size + 4, None
    sequences: dict[str, list[RawBSONDocument]] = {}
    while position < end:
        kind, position = data[position], position + 1
        size = _size(data, position, end)
        if kind == 0:
            body = _document(data, position, size)
        elif kind == 1:
            name_end = data.find(b"\0", position + 4, position + size)
            if name_end < 0:
                raise WireError("a document sequence without a name")
            name = data[position + 4 : name_end].decode("utf-8", "replace")
            sequences[name] = _documents(data, name_end + 1, position + size)
        else:
            raise WireError(f"a section of kind {kind}")
        position += size
    if body is None:
        raise WireError("a message without a body")
    return Message(flags, body, sequences)


def _size(data: bytes, position: int, end: int) -> int:
    if position + 5 > end:
        raise WireError("a section that is cut off")
    (size,) = INT.unpack_from(data, position)
    if size < 5 or position + size > end:
        raise WireError(f"a section of {size} bytes")
    return int(size)


def _document(data: bytes, position: int, size: int) -> RawBSONDocument:
    try:
        return RawBSONDocument(data[position : position + size], RAW)
    except bson.errors.InvalidBSON as error:
        raise WireError("a section that is no BSON document") from error


def _documents(data: bytes, position: int, end: int) -> list[RawBSONDocument]:
    documents = []
    while position < end:
        size = _size(data, position, end)
        documents.append(_document(data, position, size))
        position += size
    return documents


RAW: CodecOptions[RawBSONDocument] = CodecOptions(
    document_class=RawBSONDocument, datetime_conversion=DatetimeConversion.DATETIME_AUTO
)


def decode(document: RawBSONDocument | bytes) -> dict[str, Any]:
    """Decode a document fully, into plain dictionaries that encode to the same bytes again."""
    raw = document.raw if isinstance(document, RawBSONDocument) else document
    try:
        return bson.decode(raw, CODEC)
    except (bson.errors.InvalidBSON, RecursionError) as error:
        raise WireError("a document that is no BSON") from error


def build(body: Mapping[str, Any], request_id: int, response_to: int = 0, flags: int = 0) -> bytes:
    """Build an `OP_MSG` with one body."""
    encoded = bson.encode(body)
    length = HEADER.size + 5 + len(encoded)
    header = HEADER.pack(length, request_id, response_to, OP_MSG)
    return header + INT.pack(flags) + b"\0" + encoded


def with_response_to(data: bytes, response_to: int) -> bytes:
    """Return a message as the answer to another request."""
    return data[:8] + INT.pack(response_to) + data[12:]


def first_string(data: bytes) -> str | None:
    """Return the first value of an `OP_MSG` body, for most commands their collection."""
    at = data.find(b"\0", HEADER.size + 10)
    if at < 0 or len(data) < at + 5 or data[HEADER.size + 9] != 2:
        return None
    (size,) = INT.unpack_from(data, at + 1)
    return data[at + 5 : at + 4 + size].decode("utf-8", "replace")
