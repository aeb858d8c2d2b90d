"""The embedded database (provisional)."""
from __future__ import annotations
import json, os, re, shutil, signal, socket, subprocess, sys, time
from dataclasses import dataclass, field
from pathlib import Path
from workbook import paths


class EmbeddedError(Exception):
    """The embedded database cannot be used; the message says what to do."""


def mask(uri: str) -> str:
    return re.sub(r"://([^:/@]+):[^@]*@", r"://\1:***@", uri)


@dataclass(frozen=True)
class Server:
    uri: str = field(repr=False)
    port: int
    pid: int
    home: Path

    @property
    def masked_uri(self) -> str:
        return mask(self.uri)


def status(home: Path | None = None) -> Server | None:
    home = home or paths.home()
    try:
        s = json.loads((home / "server.json").read_text()); c = json.loads((home / "credentials.json").read_text())
        socket.create_connection(("127.0.0.1", s["port"]), 1).close()
    except (OSError, ValueError, KeyError):
        return None
    return Server(f"mongodb://{c['user']}:{c['password']}@127.0.0.1:{s['port']}/?directConnection=true&authSource=admin", s["port"], s["pid"], home)


def start(home: Path | None = None, *, behind: str | None = None, port: int = 0, idle_timeout: float = 900.0, timeout: float = 30.0) -> Server:
    home = home or paths.home()
    deadline = time.monotonic() + timeout
    p = None
    while time.monotonic() < deadline:
        if found := status(home): return found
        if p is None or p.poll() is not None:
            home.mkdir(parents=True, exist_ok=True)
            log = open(home / "server.log", "ab")
            env = {**os.environ, "PYTHONPATH": str(paths.PROJECT / "src")}
            p = subprocess.Popen([sys.executable, "-m", "workbook.embedded.server", str(home), str(port), str(idle_timeout)], stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True, env=env)
        time.sleep(0.1)
    raise EmbeddedError("the embedded database did not start")


def stop(home: Path | None = None) -> bool:
    found = status(home)
    if not found: return False
    os.kill(found.pid, signal.SIGTERM)
    for _ in range(200):
        if not (found.home / "server.json").exists(): break
        time.sleep(0.05)
    time.sleep(0.3)
    return True


def reset(home: Path | None = None) -> None:
    stop(home); shutil.rmtree((home or paths.home()) / "data", ignore_errors=True)
