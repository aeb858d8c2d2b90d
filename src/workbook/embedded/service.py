"""The server's process: storage server, proxy, idle stop."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable

from workbook.embedded import secantus
from workbook.embedded.behind import address, fronted
from workbook.embedded.commands import Before, Dispatcher
from workbook.embedded.emptying import empty
from workbook.embedded.errors import EmbeddedError
from workbook.embedded.files import Lock
from workbook.embedded.folder import Folder
from workbook.embedded.indexes import Indexes
from workbook.embedded.masking import mask
from workbook.embedded.proxy import Address, Proxy
from workbook.embedded.search_commands import SearchCommands
from workbook.embedded.secantus import Credentials, StorageServer
from workbook.embedded.stores import CollectionStore, FileStore, Store
from workbook.embedded.warming import warm

log = logging.getLogger(__name__)

SOMEBODY_LOOKS = 1.0  # seconds; whoever asks whether a server lives holds its lock for a moment


def run(folder: Folder, behind: str | None, port: int, idle_timeout: float) -> None:
    """Serve a folder until told to stop, or idle.

    Raises:
        EmbeddedError: If it cannot.
    """
    folder.make()
    lock = Lock(folder.serve_lock)
    if not lock.acquire(SOMEBODY_LOOKS):
        raise EmbeddedError(f"A server of {folder.home} runs already: python -m workbook status")
    try:
        asyncio.run(_serve(folder, behind, port, idle_timeout))
    finally:
        folder.clear_state()
        lock.release()


async def _serve(folder: Folder, behind: str | None, port: int, idle_timeout: float) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(name, stopping.set)
    login: Credentials | None = None
    storage: StorageServer | None = None
    if behind is None:
        login = secantus.credentials(folder.credentials, make=True)
        storage = StorageServer(folder.data, folder.storage_log, login)
        store = FileStore(folder.indexes)
        proxy = _proxy(storage.address, store, empty)
    else:
        where = await asyncio.to_thread(address, behind)
        proxy = _proxy(lambda: _at(where), CollectionStore())
    try:
        await _listen(proxy, port)
        if storage is not None:
            await storage.start()
        state = {
            "port": proxy.port,
            "pid": os.getpid(),
            "behind": behind and mask(behind),
            "uri": behind and fronted(behind, proxy.port),
            "idle_timeout": idle_timeout,
        }
        folder.write_state(state)
        log.info("ready on %s", proxy.address)
        if login is not None and (kept := store.everything()):
            # In a thread that ends when its connection does, at the latest when the proxy closes.
            threading.Thread(target=warm, args=(login.uri(proxy.port), kept), daemon=True).start()
        await _until_idle(proxy, idle_timeout, stopping)
        folder.clear_state()
    finally:
        await proxy.close()
        if storage is not None:
            await storage.stop()


def _proxy(
    upstream: Callable[[], Awaitable[Address]], store: Store, before_structure: Before | None = None
) -> Proxy:
    indexes = Indexes(store)
    dispatcher = Dispatcher(indexes, SearchCommands(indexes), before_structure)
    return Proxy(upstream, dispatcher.handle)


async def _at(where: Address) -> Address:
    return where


async def _listen(proxy: Proxy, port: int) -> None:
    try:
        await proxy.listen(port)
    except (OSError, OverflowError) as error:
        taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        why = "is taken" if taken else f"cannot be used ({error})"
        raise EmbeddedError(
            f"Port {port} of 127.0.0.1 {why}: choose another, or 0 for a free one."
        ) from error


async def _until_idle(proxy: Proxy, idle_timeout: float, stopping: asyncio.Event) -> None:
    used = time.monotonic()
    while not stopping.is_set():
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(stopping.wait(), min(1.0, idle_timeout / 4))
        if proxy.connections:
            used = time.monotonic()
        elif time.monotonic() - used > idle_timeout:
            log.info("no client for %.0f s: stopping", idle_timeout)
            return
