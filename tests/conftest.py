"""What every test shares: a database server, and a fresh database on it for each test."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from server import chosen_uri, keep_chosen

keep_chosen()
for name in ("VOYAGE_API_KEY", "OPENAI_API_KEY", "MODEL"):
    os.environ.pop(name, None)

import workbook  # noqa: E402, F401 - silences CrewAI before anything imports it


@pytest.fixture(scope="session")
def mongodb_uri(request: pytest.FixtureRequest) -> str:
    """Return a connection string: the server named from outside, else an embedded one."""
    return chosen_uri() or request.getfixturevalue("embedded_uri")


@pytest.fixture(scope="session")
def embedded_uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the connection string of an embedded server."""
    from workbook import embedded

    home: Path = tmp_path_factory.mktemp("workbook-home")
    server = embedded.start(home)
    yield server.uri
    embedded.stop(home)


@pytest.fixture
def database_name(mongodb_uri: str) -> Iterator[str]:
    """Return the name of a database that exists for this test only."""
    import pymongo

    name = f"test_{uuid.uuid4().hex[:12]}"
    yield name
    with pymongo.MongoClient(mongodb_uri) as client:
        client.drop_database(name)


@pytest.fixture
def backend(mongodb_uri: str, database_name: str) -> Iterator[object]:
    """Return a `MongoDBStorageBackend` on a fresh database."""
    from crewai_mongodb_memory import MongoDBStorageBackend

    with MongoDBStorageBackend(mongodb_uri, database_name=database_name) as storage:
        yield storage
