"""The embedded database's folder inside a home: what lies where."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbook import paths
from workbook.embedded import secantus
from workbook.embedded.errors import EmbeddedError
from workbook.embedded.files import Lock, write_private


@dataclass(frozen=True)
class Folder:
    """Names the files of a home's database.

    Attributes:
        home: The home; everything of ours lies in `database` inside it.
    """

    home: Path

    @classmethod
    def of(cls, home: Path | None) -> Folder:
        """Return the folder of a home, by default the workbook's."""
        return cls((home or paths.home()).absolute())

    @property
    def path(self) -> Path:
        """Return the folder itself."""
        return self.home / "database"

    @property
    def data(self) -> Path:
        """Return the storage server's data folder."""
        return self.path / "data"

    @property
    def credentials(self) -> Path:
        """Return the file with the user and the password."""
        return self.path / "credentials"

    @property
    def indexes(self) -> Path:
        """Return the file with the search index definitions."""
        return self.path / "search_indexes.json"

    @property
    def log(self) -> Path:
        """Return the server's log."""
        return self.path / "server.log"

    @property
    def storage_log(self) -> Path:
        """Return the storage server's log."""
        return self.path / "storage.log"

    @property
    def start_lock(self) -> Path:
        """Return the lock that one starter holds at a time."""
        return self.path / "start.lock"

    @property
    def serve_lock(self) -> Path:
        """Return the lock that the server holds as long as it lives."""
        return self.path / "server.lock"

    @property
    def _state(self) -> Path:
        return self.path / "server.json"

    def make(self) -> None:
        """Make the folder.

        Raises:
            EmbeddedError: If it cannot be written.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            Lock(self.start_lock).acquire()
        except OSError as error:
            raise EmbeddedError(
                f"The folder {self.path} cannot be written ({error.strerror}): make it writable, "
                "or set WORKBOOK_HOME to one that is."
            ) from error

    def is_served(self) -> bool:
        """Tell whether a server lives, ready or not."""
        lock = Lock(self.serve_lock)
        if lock.acquire():
            lock.release()
            return False
        return True

    def state(self) -> dict[str, Any] | None:
        """Return what the living server has written about itself, None without one."""
        try:
            state = json.loads(self._state.read_text())
        except (OSError, ValueError):
            return None
        return state if isinstance(state, dict) and self.is_served() else None

    def write_state(self, state: dict[str, Any]) -> None:
        """Tell others about this server."""
        write_private(self._state, json.dumps(state))

    def clear_state(self) -> None:
        """Tell nothing any more."""
        self._state.unlink(missing_ok=True)

    def uri(self, state: dict[str, Any]) -> str:
        """Return the connection string of the server that wrote a state."""
        if state["uri"]:
            return str(state["uri"])
        return secantus.credentials(self.credentials).uri(state["port"])

    def last_words(self) -> str:
        """Return what a server that could not start said."""
        said = self.log.read_text(errors="replace").strip().splitlines()
        return said[-1] if said else f"The server of {self.home} ended without a word."
