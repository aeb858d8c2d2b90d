"""Files of the embedded database's folder: private ones, whole ones, and locks."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import IO


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


class Lock:
    """A lock between processes that ends with the process that holds it, however that ends.

    Args:
        path: The lock's file; it stays when the lock is released.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes] | None = None

    def acquire(self, timeout: float = 0.0) -> bool:
        """Try to take the lock for `timeout` seconds; return whether it is held now."""
        deadline = time.monotonic() + timeout
        file = self._path.open("ab")
        while not _try(file):
            if time.monotonic() >= deadline:
                file.close()
                return False
            time.sleep(0.02)
        self._file = file
        return True

    def release(self) -> None:
        """Give the lock back."""
        if self._file:
            self._file.close()
            self._file = None


if sys.platform == "win32":
    import msvcrt

    def _try(file: IO[bytes]) -> bool:
        try:
            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _try(file: IO[bytes]) -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
