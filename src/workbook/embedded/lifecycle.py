"""Starting, finding, stopping: one server per home."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbook.embedded.errors import EmbeddedError
from workbook.embedded.files import Lock
from workbook.embedded.folder import Folder
from workbook.embedded.masking import mask

IDLE_TIMEOUT = 900.0
START_TIMEOUT = 30.0
# numpy's threads, which wait for each other by spinning: beside the storage server, the kernel and
# the client, searches of 2 ms took 10 ms at times. Read when numpy is imported.
THREADS = ("OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


@dataclass(frozen=True)
class Server:
    """A running server.

    Attributes:
        uri: Its connection string, credentials included; left out of the `repr`.
        port: Its port on 127.0.0.1.
        pid: Its process.
        home: The folder that it serves.
    """

    uri: str = field(repr=False)
    port: int
    pid: int
    home: Path

    @property
    def masked_uri(self) -> str:
        """Return the connection string without the password."""
        return mask(self.uri)


@dataclass(frozen=True)
class Status(Server):
    """A running server, with what else is worth knowing.

    Attributes:
        behind: The server it stands in front of (no credentials), None for its own storage.
        idle_timeout: After how many seconds without a client it stops.
    """

    behind: str | None = None
    idle_timeout: float = IDLE_TIMEOUT


def start(
    home: Path | None = None,
    *,
    behind: str | None = None,
    port: int = 0,
    idle_timeout: float = IDLE_TIMEOUT,
    timeout: float = START_TIMEOUT,
) -> Server:
    """Return the server of a home, starting it when it does not run.

    Args:
        home: The folder for its data; `workbook.paths.home()` by default.
        behind: Connection string of a MongoDB server to stand in front of, instead of starting
            a storage server.
        port: The port to listen on; 0 takes a free one. A server that runs keeps its own.
        idle_timeout: Seconds without a client after which a server started here stops.
        timeout: Seconds to wait until it is ready.

    Raises:
        EmbeddedError: If it cannot be started; the message says what to do.
    """
    folder = Folder.of(home)
    folder.make()
    deadline = time.monotonic() + timeout
    lock = Lock(folder.start_lock)
    if not lock.acquire(timeout):
        raise EmbeddedError(
            f"Another process has been starting the server of {folder.home} for {timeout:.0f} s: "
            "try again, or end it."
        )
    try:
        running = status(folder.home)
        if running is None:
            _spawn(folder, behind, port, idle_timeout, deadline)
            running = status(folder.home)
    finally:
        lock.release()
    if running is None:
        raise EmbeddedError(f"The server of {folder.home} ended at once; see {folder.log}")
    if behind is not None and running.behind != mask(behind):
        raise EmbeddedError(
            f"The server of {folder.home} stands in front of {running.behind or 'its own storage'};"
            " stop it first: python -m workbook stop"
        )
    return Server(running.uri, running.port, running.pid, running.home)


def status(home: Path | None = None) -> Status | None:
    """Return the server that runs for a home and answers, None when there is none."""
    folder = Folder.of(home)
    state = folder.state()
    if state is None or not _listens(state["port"]):
        return None
    return Status(
        uri=folder.uri(state),
        port=state["port"],
        pid=state["pid"],
        home=folder.home,
        behind=state["behind"],
        idle_timeout=state["idle_timeout"],
    )


def stop(home: Path | None = None, timeout: float = 20.0) -> bool:
    """Stop the server of a home; return whether one ran.

    Raises:
        EmbeddedError: If it does not end in time.
    """
    folder = Folder.of(home)
    if not folder.path.exists() or not folder.is_served():
        return False
    deadline = time.monotonic() + timeout
    while folder.is_served():
        state = folder.state()
        if state is not None:
            _end(state["pid"])
        if time.monotonic() > deadline:
            raise EmbeddedError(f"The server of {folder.home} does not end; see {folder.log}")
        time.sleep(0.05)
    return True


def reset(home: Path | None = None) -> None:
    """Stop the server of a home and delete everything that it keeps."""
    stop(home)
    folder = Folder.of(home)
    if folder.path.exists():
        shutil.rmtree(folder.path)


def serve(
    home: Path | None = None,
    behind: str | None = None,
    port: int = 0,
    idle_timeout: float = IDLE_TIMEOUT,
) -> None:
    """Run the server in this process until it is stopped or idle; see `start`.

    Raises:
        EmbeddedError: If it cannot run.
    """
    for name in THREADS:
        os.environ.setdefault(name, "1")
    from workbook.embedded import service

    service.run(Folder.of(home), behind, port, idle_timeout)


def _spawn(
    folder: Folder, behind: str | None, port: int, idle_timeout: float, deadline: float
) -> None:
    command = [sys.executable, "-m", "workbook.embedded", str(folder.home)]
    settings = {"behind": behind, "port": port, "idle_timeout": idle_timeout}
    source = str(Path(__file__).parents[2])
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")])),
    }
    with folder.log.open("ab") as log:
        log.truncate(0)
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=log,
            env=environment,
            **_detached(),
        )
    assert process.stdin is not None
    # By a pipe: a connection string on a command line could be read by every user.
    process.stdin.write(json.dumps(settings).encode())
    process.stdin.close()
    while status(folder.home) is None:
        if process.poll() is not None:
            raise EmbeddedError(folder.last_words())
        if time.monotonic() > deadline:
            process.terminate()
            raise EmbeddedError(f"The server of {folder.home} is not ready yet; see {folder.log}")
        time.sleep(0.02)


def _detached() -> dict[str, Any]:
    if sys.platform == "win32":
        flags = subprocess.DETACHED_PROCESS | subprocess.CREATE_NEW_PROCESS_GROUP
        return {"creationflags": flags}
    return {"start_new_session": True}


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def _end(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGTERM)
    except OSError:
        return
