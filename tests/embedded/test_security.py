"""Who is let in, and what bad bytes do: nothing, to anybody else."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import bson
import pymongo
import pytest
from embedded.support import Documents, found, make_index, stage
from pymongo.errors import OperationFailure
from pymongo.uri_parser import parse_uri


@pytest.fixture
def address(mongodb_uri: str) -> tuple[str, int]:
    host, port = parse_uri(mongodb_uri)["nodelist"][0]
    return host, port or 27017


@pytest.fixture
def stranger(address: tuple[str, int]) -> Iterator[Any]:
    with pymongo.MongoClient(*address, directConnection=True) as client:
        yield client


@pytest.mark.parametrize(
    "command",
    [
        {"find": "documents"},
        {"aggregate": "documents", "pipeline": [stage()], "cursor": {}},
        {"aggregate": "documents", "pipeline": [{"$listSearchIndexes": {}}], "cursor": {}},
        {"createSearchIndexes": "documents", "indexes": []},
        {"updateSearchIndex": "documents", "name": "index", "definition": {}},
        {"dropSearchIndex": "documents", "name": "index"},
        {"explain": {"aggregate": "documents", "pipeline": [stage()], "cursor": {}}},
    ],
    ids=lambda command: next(iter(command)),
)
def test_a_stranger_is_refused(
    stranger: Any, collection: Documents, command: dict[str, Any]
) -> None:
    make_index(collection)
    collection.insert_one({"_id": 1, "v": [1, 0, 0]})
    assert found(collection) == [1]
    with pytest.raises(OperationFailure) as caught:
        stranger[collection.database.name].command(command)
    assert caught.value.code == 13
    assert found(collection) == [1]


def test_a_wrong_password_is_refused(address: tuple[str, int]) -> None:
    client: Any = pymongo.MongoClient(*address, username="workbook", password="wrong")
    with client, pytest.raises(OperationFailure) as caught:
        client.admin.command("ping")
    assert caught.value.code == 18


def test_only_this_machine_can_connect(address: tuple[str, int]) -> None:
    assert address[0] == "127.0.0.1"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        own = probe.getsockname()[0]
    if own == "127.0.0.1":
        pytest.skip("this machine has no other address")
    with socket.socket() as elsewhere:
        elsewhere.settimeout(2)
        assert elsewhere.connect_ex((own, address[1])) != 0


def message(body: bytes, opcode: int = 2013, length: int | None = None) -> bytes:
    size = 16 + len(body) if length is None else length
    return struct.pack("<iiii", size, 1, 0, opcode) + body


def op_msg(document: dict[str, Any], flags: int = 0) -> bytes:
    return message(struct.pack("<i", flags) + b"\0" + bson.encode(document))


PING = op_msg({"ping": 1, "$db": "admin"})
SEARCH = op_msg({"aggregate": "c", "pipeline": [stage()], "cursor": {}, "$db": "d"})
BAD = {
    "nothing": b"",
    "half a header": PING[:7],
    "half a message": PING[:-3],
    "a length of zero": message(b"", length=0),
    "a negative length": message(b"", length=-1),
    "a huge length": message(b"", length=2**31 - 1),
    "an unknown operation": message(b"abcd", opcode=999),
    "a compressed message": message(b"\0" * 20, opcode=2012),
    "an empty message": message(b""),
    "an empty query": message(b"", opcode=2004),
    "a query without a document": message(b"\0" * 4 + b"admin.$cmd\0", opcode=2004),
    "a section of an unknown kind": message(b"\0\0\0\0\7" + bson.encode({"ping": 1})),
    "a document that is too long": message(b"\0\0\0\0\0\xff\xff\0\0\2aggregate\0"),
    "a document that is cut": SEARCH[:40],
    "a search with garbage": message(
        b"\0\0\0\0\0" + bson.encode({"aggregate": "c", "$vectorSearch": b"x"})[:-4] + b"zzzz"
    ),
    "a sequence without a name": op_msg({"insert": "c"})[:-1] + b"\1\5\0\0\0",
    "another protocol": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a handshake of garbage": message(b"\0\0\0\0\0\x20\0\0\0\2hello\0compression\0" + b"x" * 9),
}


def send(address: tuple[str, int], data: bytes) -> bytes:
    with socket.create_connection(address, 10) as connection:
        connection.settimeout(10)
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            answer = b""
            while part := connection.recv(65536):
                answer += part
        except ConnectionError:
            return b""
        return answer


@pytest.mark.parametrize("name", BAD)
def test_bad_bytes_end_their_own_connection_alone(
    address: tuple[str, int], client: Any, name: str
) -> None:
    cursor = client.admin.command("ping")
    send(address, BAD[name])
    assert cursor["ok"]
    assert client.admin.command("ping")["ok"]


def mutated(chance: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.randrange(1, 8)):
        at = chance.randrange(len(changed))
        kind = chance.randrange(4)
        if kind == 0:
            changed[at] = chance.randrange(256)
        elif kind == 1:
            del changed[at : at + chance.randrange(1, 9)]
        elif kind == 2:
            changed[at:at] = chance.randbytes(chance.randrange(1, 9))
        else:
            changed[at : at + 4] = struct.pack("<i", chance.choice((-1, 0, 4, 2**31 - 1)))
        changed = changed or bytearray(b"\0")
    return bytes(changed)


def fuzz(address: tuple[str, int], count: int, seed: int = 1) -> None:
    """Send random and mutated messages, each on a connection of its own."""
    chance = random.Random(seed)
    hello = op_msg({"hello": 1, "compression": ["zlib"], "$db": "admin"})
    create = op_msg({"createSearchIndexes": "c", "indexes": [{"name": 1}], "$db": "d"})
    insert = op_msg({"insert": "c", "documents": [{"_id": 1}], "$db": "d"})
    seeds = [PING, SEARCH, hello, create, insert, *BAD.values()]
    tries = [
        mutated(chance, chance.choice(seeds) or b"\0")
        if chance.random() < 0.8
        else chance.randbytes(chance.randrange(1, 300))
        for _ in range(count)
    ]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda data: send(address, data), tries))


def test_random_messages_do_no_harm(address: tuple[str, int], client: Any) -> None:
    fuzz(address, 400)
    assert client.admin.command("ping")["ok"]
