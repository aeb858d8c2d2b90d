"""Fixtures of the backend's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from backend.support import Commands, save_f5
from pymongo import MongoClient
from server import chosen_uri, wait_until_settled

from crewai_mongodb_memory import MongoDBStorageBackend, search
from workbook.invariants import violations

MakeBackend = Callable[..., MongoDBStorageBackend]


@pytest.fixture
def make_backend(mongodb_uri: str, database_name: str) -> Iterator[MakeBackend]:
    """Return a function that makes further backends on the test's database."""
    with ExitStack() as stack:

        def make(**settings: Any) -> MongoDBStorageBackend:
            settings = {"database_name": database_name, **settings}
            return stack.enter_context(MongoDBStorageBackend(mongodb_uri, **settings))

        yield make


@pytest.fixture(autouse=True)
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each search of a test wait for the writes before it, where search follows them."""
    if (uri := chosen_uri()) is None:
        return
    real = search.run

    def run(memories: Any, *arguments: Any) -> Any:
        wait_until_settled(uri, memories.database.name, memories.name)
        return real(memories, *arguments)

    monkeypatch.setattr(search, "run", run)


@pytest.fixture
def contract_kept(mongodb_uri: str, database_name: str) -> Iterator[None]:
    """Verify in the end that every document of the test's database is as EDD.md says."""
    yield
    with MongoClient[Any](mongodb_uri) as client:
        assert list(violations(client[database_name])) == []


@pytest.fixture
def f5(backend: MongoDBStorageBackend) -> MongoDBStorageBackend:
    """Return a backend that holds the records called F5."""
    save_f5(backend)
    return backend


@pytest.fixture
def commands() -> Commands:
    """Return an empty command log."""
    return Commands()


@pytest.fixture
def make_ready(make_backend: MakeBackend) -> MakeBackend:
    """Return a function that makes further backends, their indexes created."""

    def make(**settings: Any) -> MongoDBStorageBackend:
        backend = make_backend(**settings)
        backend.ensure_vector_index()
        return backend

    return make


@pytest.fixture
def logged(make_ready: MakeBackend, commands: Commands) -> MongoDBStorageBackend:
    """Return a backend whose commands are in `commands`, its indexes created."""
    backend = make_ready(event_listeners=[commands])
    commands.sent.clear()
    return backend
