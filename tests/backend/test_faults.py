"""Connections that break, servers that stall, step down, die or run out of disk.

A write that was acknowledged is there, none is applied twice, and what cannot be mended is told by
one clear error.
"""

from __future__ import annotations

import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from backend.support import all_ids, record, unit
from pymongo import MongoClient
from pymongo.errors import PyMongoError
from pymongo.uri_parser import parse_uri

from crewai_mongodb_memory import (
    ConversationMemory,
    MemoryConnectionError,
    MongoDBMemoryError,
    MongoDBStorageBackend,
)
from workbook.invariants import violations

QUERY = unit(1)


class FaultyNetwork:
    """Passes bytes between clients and a server until it is told to fail.

    Args:
        host: The server's host.
        port: The server's port.
    """

    def __init__(self, host: str, port: int) -> None:
        self.server = (host, port)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.command, self.when, self.times = b"", "", 0
        self.lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def fail(self, command: str, when: str, times: int = 1) -> None:
        """Break connections that carry a command: `before` or `after` it is run, or `stall`."""
        self.command, self.when, self.times = command.encode() + b"\0", when, times

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(self.server) as server:
            try:
                while request := _message(client):
                    fault = self._fault(request)
                    if fault == "before":
                        return
                    if fault == "stall":
                        time.sleep(3)
                        return
                    server.sendall(request)
                    if not (answer := _message(server)) or fault == "after":
                        return
                    client.sendall(answer)
            except OSError:
                return

    def _fault(self, request: bytes) -> str:
        with self.lock:
            # The command's name is the first key of the message's document.
            if not self.times or not request[26:].startswith(self.command):
                return ""
            self.times -= 1
            return self.when

    def close(self) -> None:
        self.listener.close()


def _message(source: socket.socket) -> bytes:
    """Read one message of the wire protocol, or nothing at the end."""
    data = b""
    while len(data) < 4 or len(data) < int.from_bytes(data[:4], "little"):
        wanted = int.from_bytes(data[:4], "little") - len(data) if len(data) >= 4 else 4
        if not (piece := source.recv(wanted)):
            return b""
        data += piece
    return data


@pytest.fixture
def network(mongodb_uri: str) -> Iterator[FaultyNetwork]:
    if "+srv" in mongodb_uri:
        pytest.skip("a faulty network can only be put before one address")
    ((host, port),) = parse_uri(mongodb_uri)["nodelist"]
    yield (made := FaultyNetwork(host, port))
    made.close()


@pytest.fixture
def faulty(
    network: FaultyNetwork, mongodb_uri: str, database_name: str
) -> Iterator[Callable[..., MongoDBStorageBackend]]:
    host, port = network.server
    uri = mongodb_uri.replace(f"{host}:{port}", f"127.0.0.1:{network.port}")
    made: list[MongoDBStorageBackend] = []

    def make(**settings: Any) -> MongoDBStorageBackend:
        made.append(MongoDBStorageBackend(uri, database_name=database_name, **settings))
        made[-1].save([record("first", "/f")])
        ConversationMemory(made[-1], bucket_size=2).add_turn("user", "first")
        return made[-1]

    yield make
    for backend in made:
        backend.close()


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_cut_connection_neither_loses_nor_doubles_a_write(
    faulty: Any, network: FaultyNetwork, when: str
) -> None:
    backend = faulty()
    memory = ConversationMemory(backend, bucket_size=2)
    network.fail("findAndModify", when)
    assert memory.add_turn("assistant", "second").turn == 2
    network.fail("findAndModify", when)
    assert memory.add_turn("user", "third").turn == 3
    network.fail("insert", when)
    assert [turn.turn for turn in memory.add_exchange("fourth", "fifth")] == [4, 5]
    network.fail("update", when)
    backend.save([record("a"), record("b")])
    network.fail("update", when)
    backend.update(record("a", content="new"))
    assert network.times == 0
    contents = [turn.content for turn in memory.turns()]
    assert contents == ["first", "second", "third", "fourth", "fifth"]
    assert all_ids(backend) == {"first", "a", "b"}
    assert backend.get_record("a").content == "new"


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_cut_connection_is_not_seen_by_a_reader(
    faulty: Any, network: FaultyNetwork, when: str
) -> None:
    backend = faulty()
    for command, read in [
        ("find", lambda: backend.get_record("first")),
        ("find", ConversationMemory(backend).turns),
        ("aggregate", lambda: backend.search(QUERY)),
        ("aggregate", lambda: backend.count()),
    ]:
        network.fail(command, when)
        assert read()
        assert network.times == 0


def test_a_connection_that_stays_broken_is_one_clear_error(
    faulty: Any, network: FaultyNetwork
) -> None:
    backend = faulty()
    memory = ConversationMemory(backend)
    for command, call in [
        ("update", lambda: backend.save([record("a")])),
        ("find", lambda: backend.get_record("a")),
        ("delete", lambda: backend.delete(record_ids=["a"])),
        ("findAndModify", lambda: memory.add_turn("user", "x")),
    ]:
        network.fail(command, "before", times=99)
        with pytest.raises(MemoryConnectionError, match=r"broke: whether .* is not known"):
            call()
        network.fail("", "")
        assert backend.count() == 1
    backend.save([record("a")])
    assert backend.count() == 2


def test_a_server_that_stalls_is_given_up(faulty: Any, network: FaultyNetwork) -> None:
    backend = faulty(socketTimeoutMS=300)
    network.fail("find", "stall", times=99)
    with pytest.raises(MemoryConnectionError, match="timed out"):
        backend.get_record("first")


# As the workbook starts it: without it a write that was acknowledged just before a kill is lost.
SYNC = "--sync-on-commit"


class Server:
    """The storage server in a folder of its own, to be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.uri = f"mongodb://127.0.0.1:{self.port}/?directConnection=true"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, largest_file: int | None = None) -> None:
        program = Path(sys.executable).parent / "secantusd-py"
        if not program.exists():
            pytest.skip("needs the storage server's program")

        def limit() -> None:
            if largest_file:
                resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))

        arguments = ["--host", "127.0.0.1", "--port", str(self.port), "--cache-size", "128M"]
        self.process = subprocess.Popen(
            [program, *arguments, "--storage-path", self.folder, "--enable-test-commands", SYNC],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=limit,
        )
        with MongoClient(self.uri, serverSelectionTimeoutMS=60_000) as client:
            client.admin.command("ping")

    def kill(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path / "data")
    made.folder.mkdir()
    yield made
    made.kill()


def write_until_it_fails(backend: MongoDBStorageBackend) -> tuple[set[str], list[str], Exception]:
    """Save batches and add turns until a call raises; return what was acknowledged."""
    memory = ConversationMemory(backend, bucket_size=4)
    saved: set[str] = set()
    said: list[str] = []
    for n in range(100_000):
        batch = [record(f"{n}-{i}", f"/w/{n % 5}", content="x" * 1000) for i in range(20)]
        try:
            backend.save(batch)
            saved |= {each.id for each in batch}
            memory.add_turn("user", f"turn {n}")
            said.append(f"turn {n}")
        except (MongoDBMemoryError, PyMongoError) as error:
            return saved, said, error
    raise AssertionError("the server never failed")


def assert_all_is_there(server: Server, saved: set[str], said: list[str]) -> None:
    """Check that what was acknowledged is there once, and nothing is half there."""
    with MongoDBStorageBackend(server.uri) as backend:
        assert saved <= all_ids(backend)
        assert list(violations(backend.database)) == []
        assert all("embedding" in document for document in backend.collection.find())
        memory = ConversationMemory(backend, bucket_size=4)
        turns = memory.turns()
        assert [turn.content for turn in turns][: len(said)] == said
        assert len(turns) <= len(said) + 1
        assert all(bucket["turn_count"] <= 4 for bucket in memory.collection.find())
        assert memory.add_turn("user", "after").turn == len(turns) + 1


def test_a_killed_server_keeps_what_it_acknowledged(server: Server) -> None:
    server.start()
    with MongoDBStorageBackend(server.uri, serverSelectionTimeoutMS=500) as backend:
        threading.Timer(1.5, server.kill).start()
        saved, said, error = write_until_it_fails(backend)
    assert isinstance(error, MemoryConnectionError)
    assert saved
    server.start()
    assert_all_is_there(server, saved, said)


def test_a_full_disk_is_told_and_loses_nothing(server: Server) -> None:
    server.start(largest_file=12_000_000)
    with MongoDBStorageBackend(server.uri, serverSelectionTimeoutMS=500) as backend:
        saved, said, error = write_until_it_fails(backend)
    assert str(error)
    assert saved
    server.kill()
    server.start()
    assert_all_is_there(server, saved, said)


@pytest.mark.parametrize("code", [10107, 91])
def test_a_primary_that_steps_down_is_waited_for(server: Server, code: int) -> None:
    server.start()
    # A real step-down wakes the driver's monitor; this one does not, so let the monitor look.
    with MongoDBStorageBackend(server.uri, serverMonitoringMode="poll") as backend:
        memory = ConversationMemory(backend, bucket_size=2)
        memory.add_turn("user", "first")
        for number, command in enumerate(["findAndModify", "insert", "update"], 2):
            backend.client.admin.command(
                {
                    "configureFailPoint": "failCommand",
                    "mode": {"times": 1},
                    "data": {
                        "failCommands": [command],
                        "errorCode": code,
                        "errorLabels": ["RetryableWriteError"],
                    },
                }
            )
            memory.add_turn("user", f"turn {number}")
            backend.save([record(f"r{number}")])
        assert [turn.turn for turn in memory.turns()] == [1, 2, 3, 4]
        assert backend.count() == 3
