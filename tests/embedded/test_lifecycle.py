"""One server per home: started once, found again, recovered, ended."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymongo
import pytest
from embedded.processes import SOURCE, alive, children, kill, python, storage_pid, wait_until
from embedded.support import found, make_index

from workbook import embedded
from workbook.__main__ import main
from workbook.embedded import EmbeddedError, cli, mask
from workbook.embedded.files import Lock
from workbook.embedded.folder import Folder

START = (
    "import sys; from pathlib import Path; from workbook import embedded;"
    "s = embedded.start(Path(sys.argv[1]), timeout=90); print(s.port, s.pid)"
)


def documents(server: embedded.Server) -> Any:
    return pymongo.MongoClient(server.uri)["life"]["documents"]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[embedded.Server]:
    """A server that twenty processes have started together."""
    home = tmp_path_factory.mktemp("served")
    starters = [python(START, str(home)) for _ in range(20)]
    answers = [starter.communicate(timeout=120) for starter in starters]
    assert {out for out, _ in answers} == {answers[0][0]}, answers
    running = embedded.status(home)
    assert running is not None
    assert answers[0][0].split() == [str(running.port), str(running.pid)]
    yield embedded.start(home)
    embedded.stop(home)


def test_twenty_processes_starting_together_give_one_server(served: embedded.Server) -> None:
    # The processes that started it are gone; the server serves on.
    assert documents(served).insert_one({"_id": 1}).acknowledged


def test_what_was_acknowledged_outlives_every_end(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (tmp_path / "elsewhere").mkdir()
    server = embedded.start(home)
    first = documents(server)
    make_index(first)
    first.insert_one({"_id": "stop", "v": [1, 0, 0]})
    assert found(first) == ["stop"]

    assert embedded.stop(home)
    assert embedded.status(home) is None
    assert not embedded.stop(home)
    # The folder may have been moved meanwhile.
    shutil.move(home / "database", tmp_path / "elsewhere" / "database")
    home = tmp_path / "elsewhere"
    server = embedded.start(home)
    second = documents(server)
    assert found(second) == ["stop"]

    second.insert_one({"_id": "storage", "v": [1, 0, 0]})
    killed = storage_pid(server.pid)
    kill(killed)
    wait_until(lambda: not alive(killed))
    # The same client goes on: the storage server is started again under it.
    assert second.count_documents({}) == 2
    assert sorted(found(second)) == ["stop", "storage"]

    second.insert_one({"_id": "server", "v": [1, 0, 0]})
    family = children(server.pid)
    kill(server.pid)
    wait_until(lambda: not any(map(alive, family)))
    assert embedded.status(home) is None
    server = embedded.start(home)
    third = documents(server)
    assert sorted(found(third)) == ["server", "stop", "storage"]
    assert [index["name"] for index in third.list_search_indexes()] == ["index"]

    # A power cut leaves the state of a server whose process id is another's now.
    state = json.loads((home / "database" / "server.json").read_text())
    kill(server.pid)
    wait_until(lambda: not any(map(alive, children(server.pid) or [server.pid])))
    (home / "database" / "server.json").write_text(json.dumps({**state, "pid": os.getpid()}))
    assert embedded.status(home) is None
    server = embedded.start(home)
    assert documents(server).count_documents({}) == 3
    embedded.stop(home)


def test_a_server_without_clients_ends(home: Path) -> None:
    server = embedded.start(home, idle_timeout=1.0)
    family = [server.pid, *children(server.pid)]
    client: Any = pymongo.MongoClient(server.uri)
    client.admin.command("ping")
    client.close()
    wait_until(lambda: not any(map(alive, family)))
    assert embedded.status(home) is None


def test_credentials_are_the_owners(served: embedded.Server) -> None:
    files = served.home / "database"
    for name in ("credentials", "server.json"):
        assert stat.S_IMODE((files / name).stat().st_mode) == 0o600
    _, password = (files / "credentials").read_text().split()
    assert len(password) >= 32
    for shown in (repr(served), served.masked_uri, str(embedded.status(served.home))):
        assert password not in shown
    assert "***" in served.masked_uri
    for log in ("server.log", "storage.log"):
        assert password not in (files / log).read_text()


def test_a_taken_port_is_named(home: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(EmbeddedError, match=f"^Port {port} .* taken"):
            embedded.start(home, port=port)
    assert embedded.status(home) is None


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EmbeddedError, match="cannot be written"):
        embedded.start(tmp_path / "file")


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_read_only_folder_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(EmbeddedError, match="cannot be written"):
        embedded.start(tmp_path / "home")


def test_a_data_folder_that_another_process_holds_is_named(
    served: embedded.Server, home: Path
) -> None:
    with pytest.raises(EmbeddedError, match="runs already"):
        embedded.serve(served.home)
    (home / "database").mkdir()
    (home / "database" / "data").symlink_to(served.home / "database" / "data")
    shutil.copy(served.home / "database" / "credentials", home / "database")
    with pytest.raises(EmbeddedError, match="in use by another process"):
        embedded.start(home)
    assert documents(served).find_one({"_id": "nope"}) is None


def test_the_commands_say_what_they_did(home: Path, capsys: Any) -> None:
    where = ["--home", str(home)]
    assert cli.main(["status", *where]) == 0
    assert "does not run" in capsys.readouterr().out
    serving = subprocess.Popen(
        [sys.executable, "-m", "workbook", "serve", *where],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert serving.stdout is not None
    assert "ready on 127.0.0.1:" in serving.stdout.readline()
    assert cli.main(["status", *where]) == 0
    shown = capsys.readouterr().out
    assert "mongodb://workbook:***@127.0.0.1:" in shown
    assert cli.main(["stop", *where]) == 0
    assert capsys.readouterr().out == "Stopped.\n"
    assert serving.wait(20) == 0
    (home / "mine.txt").write_text("kept")
    for _ in range(2):
        assert main(["reset", *where]) == 0
        assert [path.name for path in home.iterdir()] == ["mine.txt"]


def test_a_server_starts_while_somebody_looks_whether_one_lives(home: Path) -> None:
    folder = Folder.of(home)
    folder.make()
    looking = Lock(folder.serve_lock)
    assert looking.acquire()
    threading.Timer(0.2, looking.release).start()
    with pytest.raises(EmbeddedError, match="TLS"):  # it got that far
        embedded.serve(home, behind="mongodb://127.0.0.1:1/?tls=true")


def test_standing_in_front_of_another_server(served: embedded.Server, home: Path) -> None:
    server = embedded.start(home, behind=served.uri)
    assert server.port != served.port
    collection = documents(server)["behind"]
    make_index(collection)
    collection.insert_one({"_id": 1, "v": [1, 0, 0]})
    assert found(collection) == [1]
    embedded.stop(home)
    # The definitions live in the server behind.
    again = documents(embedded.start(home, behind=served.uri))["behind"]
    assert [index["name"] for index in again.list_search_indexes()] == ["index"]
    assert found(again) == [1]
    again.drop()
    again.insert_one({"_id": 2, "v": [1, 0, 0]})
    assert list(again.list_search_indexes()) == []
    status = embedded.status(home)
    assert status is not None
    assert status.behind == mask(served.uri)
    with pytest.raises(EmbeddedError, match="stop it first"):
        embedded.start(home, behind="mongodb://127.0.0.1:1")


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        ("mongodb://u:secret@127.0.0.1:1/", "No MongoDB server answers at 127.0.0.1:1"),
        ("mongodb://u:secret@127.0.0.1:27017/?tls=true", "TLS"),
        ("mongodb+srv://u:secret@cluster.example.net", "MONGODB_URI"),
        ("mongodb://u:secret@:x/", "no connection string"),
    ],
)
def test_a_server_that_cannot_stand_behind_is_named(home: Path, uri: str, says: str) -> None:
    with pytest.raises(EmbeddedError, match=says) as caught:
        embedded.start(home, behind=uri)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("uri", "masked"),
    [
        ("mongodb://u:p@h/", "mongodb://u:***@h/"),
        ("mongodb+srv://u:p%40q@h", "mongodb+srv://u:***@h"),
        ("mongodb://u:p@ss@h/", "mongodb://u:***@h/"),
        ("mongodb://h:1/?a=b", "mongodb://h:1/?a=b"),
        ("no 'mongodb://u:p@h' answers", "no 'mongodb://u:***@h' answers"),
    ],
)
def test_passwords_are_masked(uri: str, masked: str) -> None:
    assert mask(uri) == masked
