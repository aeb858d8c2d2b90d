"""Finding and killing the processes of a server."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src"


def children(pid: int) -> list[int]:
    """Return the processes that descend from one, by what the system lists."""
    listed = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True
    )
    pairs = [tuple(map(int, line.split())) for line in listed.stdout.splitlines()]
    found, wanted = [], {pid}
    for child, parent in sorted(pairs):
        if parent in wanted:
            found.append(child)
            wanted.add(child)
    return found


def storage_pid(server: int) -> int:
    """Return the storage server's process: the last in the chain from the server."""
    return children(server)[-1]


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def alive(pid: int) -> bool:
    listed = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True)
    return bool(listed.stdout.strip()) and not listed.stdout.strip().startswith("Z")


def wait_until(what: Callable[[], object], timeout: float = 30.0) -> None:
    deadline = time.monotonic() + timeout
    while not what():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.05)


def python(code: str, *arguments: str) -> subprocess.Popen[str]:
    """Run Python code in another process."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
