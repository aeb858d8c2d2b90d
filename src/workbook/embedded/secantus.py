"""The storage server, run as a program of its own and started again when it ends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import secrets
import shutil
import signal
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pymongo
from pymongo.errors import OperationFailure, PyMongoError

from workbook.embedded.errors import EmbeddedError
from workbook.embedded.files import write_private
from workbook.embedded.proxy import Address

log = logging.getLogger(__name__)

PROGRAM = "secantusd-py"
GUARD = Path(__file__).with_name("guard.py")
CACHE = "256M"
LISTENING = re.compile(rb"listening on 127\.0\.0\.1:(\d+)")
USER = "workbook"


@dataclass(frozen=True)
class Credentials:
    """The user that clients log in as."""

    user: str
    password: str

    def uri(self, port: int) -> str:
        """Return the connection string for a port of this machine."""
        secret = f"{quote(self.user, '')}:{quote(self.password, '')}"
        return f"mongodb://{secret}@127.0.0.1:{port}/?directConnection=true&authSource=admin"


def credentials(path: Path, *, make: bool = False) -> Credentials:
    """Read the credentials; with `make`, write new ones first when there are none."""
    if make and not path.exists():
        write_private(path, f"{USER}\n{secrets.token_urlsafe(24)}\n")
    user, password = path.read_text().split()
    return Credentials(user, password)


def program() -> str:
    """Return the path of the storage server's program."""
    beside = Path(sysconfig.get_path("scripts")) / PROGRAM
    found = str(beside) if beside.exists() else shutil.which(PROGRAM)
    if not found:
        raise EmbeddedError(
            f"{PROGRAM} is not installed in this Python environment: "
            "run pip install -r requirements.txt"
        )
    return found


class StorageServer:
    """A SecantusDB over a data folder, guarded, and restarted when it dies.

    Args:
        data: The data folder; made if it is missing.
        output: The file for what it prints.
        login: The user that it must know.
    """

    def __init__(self, data: Path, output: Path, login: Credentials) -> None:
        self._data = data
        self._output = output
        self._login = login
        self._process: asyncio.subprocess.Process | None = None
        self._ready = asyncio.Event()
        self._port = 0
        self._pid = 0
        self._watch: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        """Return the program's process id."""
        return self._pid

    async def start(self) -> None:
        """Start the server, make its user if it does not know it yet, and watch over it."""
        if not self._data.exists():
            await self._introduce()
        await self._launch("--auth")
        if not await asyncio.to_thread(self._knows_login):
            await self._end()
            await self._introduce()
            await self._launch("--auth")
            if not await asyncio.to_thread(self._knows_login):
                raise EmbeddedError(f"The storage server over {self._data} refuses its own user.")
        self._ready.set()
        self._watch = asyncio.create_task(self._keep())

    async def address(self) -> Address:
        """Return where it listens, waiting while it restarts."""
        await asyncio.wait_for(self._ready.wait(), 30)
        return ("127.0.0.1", self._port)

    async def stop(self) -> None:
        """Stop it; what it holds has been written by then."""
        if self._watch:
            self._watch.cancel()
        if self._ready.is_set():
            with contextlib.suppress(PyMongoError):
                await asyncio.to_thread(self._checkpoint)
            self._kill()
        await self._end()

    async def _introduce(self) -> None:
        """Make the user: for this moment, on a random port, the server asks for none."""
        await self._launch()
        await asyncio.to_thread(self._make_login)
        self._kill()
        await self._end()

    async def _keep(self) -> None:
        while True:
            assert self._process is not None
            await self._process.wait()
            self._ready.clear()
            log.warning("the storage server ended; starting it again")
            try:
                await self._launch("--auth")
            except EmbeddedError as error:
                log.error("%s", error)
                await asyncio.sleep(1)
                continue
            self._ready.set()

    async def _launch(self, *options: str) -> None:
        self._output.write_bytes(b"")
        with self._output.open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", str(GUARD), program()),
                *("--host", "127.0.0.1", "--port", "0", "--cache-size", CACHE),
                *("--storage-path", str(self._data), *options),
                # Without it a write that was acknowledged just before a kill is lost.
                "--sync-on-commit",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=output,
                cwd=self._data.parent,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                start_new_session=True,
            )
        assert self._process.stdout is not None
        self._pid = int(await self._process.stdout.readline() or b"0")
        while (found := LISTENING.search(self._output.read_bytes())) is None:
            if self._process.returncode is not None:
                raise EmbeddedError(self._failure())
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(asyncio.shield(self._process.wait()), 0.02)
        self._port = int(found[1])

    def _kill(self) -> None:
        """End the program at once, after a checkpoint: by itself it takes seconds to end."""
        with contextlib.suppress(OSError):
            os.kill(self._pid, getattr(signal, "SIGKILL", signal.SIGTERM))

    async def _end(self) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()

    def _failure(self) -> str:
        said = self._output.read_text(errors="replace").strip()
        last = said.splitlines()[-1] if said else "it said nothing"
        if "resource busy" in last:
            return f"The data folder {self._data} is in use by another process: end that one first."
        return f"The storage server did not start over {self._data}: {last} (see {self._output})"

    def _client(self, uri: str) -> pymongo.MongoClient[dict[str, object]]:
        return pymongo.MongoClient(uri, serverSelectionTimeoutMS=5_000)

    def _knows_login(self) -> bool:
        with self._client(self._login.uri(self._port)) as client:
            try:
                client.admin.command("ping")
            except OperationFailure:
                return False
        return True

    def _checkpoint(self) -> None:
        with self._client(self._login.uri(self._port)) as client:
            client.admin.command("fsync")

    def _make_login(self) -> None:
        uri = f"mongodb://127.0.0.1:{self._port}/?directConnection=true"
        given = {"pwd": self._login.password, "roles": ["root"]}
        with self._client(uri) as client:
            try:
                client.admin.command({"createUser": self._login.user, **given})
            except OperationFailure:
                client.admin.command({"updateUser": self._login.user, **given})
            client.admin.command("fsync")
