"""One `MongoClient`, built when it is first needed and owned by its backend."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

from pymongo import MongoClient
from pymongo.driver_info import DriverInfo
from pymongo.errors import (
    ConfigurationError,
    ConnectionFailure,
    InvalidOperation,
    OperationFailure,
    PyMongoError,
    ServerSelectionTimeoutError,
)

from crewai_mongodb_memory.errors import MemoryConnectionError
from crewai_mongodb_memory.locks import ProcessLock

APP_NAME = "devrel-integ-crewai-python"
DRIVER_NAME = "crewai-mongodb-memory"
SYSTEM_DATABASES = frozenset({"", "admin", "config", "local"})

# An agent that waits half a minute for a wrong address looks hung; together these stay under 10 s.
DEFAULT_TIMEOUTS = {"serverSelectionTimeoutMS": 8_000, "connectTimeoutMS": 5_000}

SECRET_OPTIONS = re.compile(r"(?i)(authMechanismProperties|tlsCertificateKeyFilePassword)=[^&]*")

AUTHENTICATION_FAILED = 18
ATLAS_ERROR = 8000
REFUSED_LOGIN = re.compile(r"(?i)bad auth|authentication ?failed")
CLOSED = "This backend is closed: make a new MongoDBStorageBackend, or close it later"


class Connection:
    """A lazy, thread-safe `MongoClient` that knows how to explain why it failed.

    A copy, an unpickled one, and one used after a fork each open a client of their own.

    Args:
        uri: The connection string.
        client_kwargs: Further arguments for `MongoClient`. The application name and the driver
            name are ours, and win over the caller's and the connection string's.
    """

    def __init__(self, uri: str, client_kwargs: dict[str, Any]) -> None:
        if not isinstance(uri, str) or not uri.startswith(("mongodb://", "mongodb+srv://")):
            raise MemoryConnectionError(
                "The connection string must begin with mongodb:// or mongodb+srv://: copy it from "
                "Atlas (Connect, Drivers), and check that the variable that holds it is set"
            )
        self.masked_uri = mask(uri)
        self._uri = uri
        self._client_kwargs = client_kwargs
        self._client: MongoClient[dict[str, Any]] | None = None
        self._owner = os.getpid()
        self._closed = False
        self._lock = ProcessLock()

    def __reduce__(self) -> tuple[type[Connection], tuple[str, dict[str, Any]]]:
        return Connection, (self._uri, self._client_kwargs)

    @property
    def client(self) -> MongoClient[dict[str, Any]]:
        """The client; built at the first call.

        Raises:
            MemoryConnectionError: If the connection string or an option is malformed, or `close()`
                was called.
        """
        with self._lock:
            if self._closed:
                raise MemoryConnectionError(CLOSED)
            if self._client is None or self._owner != os.getpid():
                self._client, self._owner = self._build(), os.getpid()
            return self._client

    def close(self) -> None:
        """Close the client. Calling it again does nothing."""
        with self._lock:
            if self._client is not None and self._owner == os.getpid():
                self._client.close()
            self._client, self._closed = None, True

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Turn failures of the connection into one sentence that says what to check.

        Raises:
            MemoryConnectionError: If the server cannot be reached or refuses the credentials.
        """
        try:
            yield
        except InvalidOperation:
            if not self._closed:
                raise
            raise MemoryConnectionError(CLOSED) from None
        except ServerSelectionTimeoutError as error:
            # The driver's monitor logs in too, and what it is told hides behind a timeout.
            if REFUSED_LOGIN.search(str(error)):
                raise self._refused() from error
            raise MemoryConnectionError(
                f"Cannot reach MongoDB at {self.masked_uri}: check the address and that the server "
                "runs, and on Atlas that this machine's IP address is on the access list (Network "
                f"Access). {_cause(error)}"
            ) from error
        except ConfigurationError as error:
            raise self._unusable(error) from None
        except ConnectionFailure as error:
            raise MemoryConnectionError(
                f"The connection to {self.masked_uri} broke: whether the server applied this call "
                f"is not known. Reads, save() and update() are safe to repeat. {error}"
            ) from error
        except OperationFailure as error:
            if not _is_refused_login(error):
                raise
            raise self._refused() from error

    def _refused(self) -> MemoryConnectionError:
        return MemoryConnectionError(
            f"MongoDB at {self.masked_uri} refuses the credentials: check the user name, the "
            "password (special characters percent-encoded) and authSource"
        )

    def _build(self) -> MongoClient[dict[str, Any]]:
        ours = {"appname", "driver"}
        options = {k: v for k, v in self._client_kwargs.items() if k.lower() not in ours}
        given = {name.lower() for name in options} | _options_in(self._uri)
        options |= {k: v for k, v in DEFAULT_TIMEOUTS.items() if k.lower() not in given}
        try:
            return MongoClient(
                self._uri, appname=APP_NAME, driver=DriverInfo(DRIVER_NAME), **options
            )
        except (PyMongoError, ValueError, TypeError, OSError) as error:
            # A connection string with an unknown option is only warned about.
            if unknown := [name for name in options if f"option: {name}." in str(error)]:
                raise MemoryConnectionError(
                    f"Unknown option {unknown[0]!r}: MongoDBStorageBackend passes it to "
                    "MongoClient, which does not know it. Check its spelling, or leave it out"
                ) from None
            raise self._unusable(error) from None

    def _unusable(self, error: Exception) -> MemoryConnectionError:
        # The parser may quote a piece of a password that it took for a host or a port: its words
        # are shown only if none is in them, and the error itself never (hence `from None`).
        password = self._uri.partition("://")[2].rpartition("@")[0].partition(":")[2]
        pieces = [piece for piece in re.split(r"[:/@?,%]", password) if piece]
        detail = "" if any(piece in str(error) for piece in pieces) else f" ({error})"
        return MemoryConnectionError(
            f"Cannot use the connection string {self.masked_uri}: check the address and the "
            "options, that this machine can resolve the name, and that special characters in the "
            f"user name and password are percent-encoded (urllib.parse.quote_plus){detail}"
        )


def named_database(uri: str) -> str | None:
    """Return the database that a connection string names, or None where it names none.

    `admin` says where a user is known, and not where memories shall lie.
    """
    path = uri.partition("://")[2].partition("?")[0].partition("/")[2]
    name = unquote(path)
    return None if name in SYSTEM_DATABASES else name


def mask(uri: str) -> str:
    """Return a connection string in which `***` stands for the password and other secrets."""
    scheme, _, rest = uri.partition("://")
    rest = SECRET_OPTIONS.sub(r"\1=***", rest)  # first, since a secret may hold an @ too
    userinfo, at, address = rest.rpartition("@")
    if at:
        userinfo = userinfo.partition(":")[0] + (":***" if ":" in userinfo else "")
    return f"{scheme}://{userinfo}{at}{address}"


def _cause(error: ServerSelectionTimeoutError) -> str:
    return str(error).partition(", Timeout:")[0].partition(" (configured timeouts:")[0]


def _options_in(uri: str) -> set[str]:
    return {option.partition("=")[0].lower() for option in uri.rpartition("?")[2].split("&")}


def _is_refused_login(error: OperationFailure) -> bool:
    if error.code == ATLAS_ERROR:
        return bool(REFUSED_LOGIN.search(str(error)))
    return error.code == AUTHENTICATION_FAILED
