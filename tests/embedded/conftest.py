from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymongo
import pytest

from workbook import embedded

Client = pymongo.MongoClient[dict[str, Any]]


@pytest.fixture(scope="session")
def mongodb_uri(embedded_uri: str) -> str:
    """Return the embedded server, which is what these tests are about, whatever was chosen."""
    return embedded_uri


@pytest.fixture(scope="session")
def client(mongodb_uri: str) -> Iterator[Client]:
    with pymongo.MongoClient(mongodb_uri) as client:
        yield client


@pytest.fixture
def collection(client: Client, database_name: str) -> Any:
    """Return a collection of a fresh database; it does not exist yet."""
    return client[database_name]["documents"]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """Return a home for a server of the test's own."""
    yield tmp_path
    embedded.stop(tmp_path)
