"""Runs a program for as long as this process's standard input stays open.

Whoever starts the guard holds the other end of that pipe; when it ends, however it ends, the pipe
closes and the program is stopped. It is run as a script, by path, and imports nothing of ours.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable


def _die_with_parent() -> Callable[[], None] | None:
    """Return what makes a child end with this process even when it is killed (Linux)."""
    if not sys.platform.startswith("linux"):
        return None
    import ctypes

    libc = ctypes.CDLL(None)
    return lambda: libc.prctl(1, signal.SIGKILL)


def main() -> None:
    """Run the command line given as arguments and exit as it exits."""
    child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, preexec_fn=_die_with_parent())
    print(child.pid, flush=True)

    def stop() -> None:
        with contextlib.suppress(OSError):
            sys.stdin.buffer.read()
        # At once, since the next server waits for the folder: what was acknowledged is on disk, and
        # the program by itself takes seconds to end.
        child.kill()

    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    threading.Thread(target=stop, daemon=True).start()
    code = child.wait()
    os._exit(code if code >= 0 else 1)


if __name__ == "__main__":
    main()
