"""Fixtures of the benchmarks: everything that is compared, loaded once for each size."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from benchmarks import stores
from benchmarks.counting import Meter, Server
from server import chosen_uri

from crewai_mongodb_memory import MongoDBStorageBackend

SIZES = [int(size) for size in os.environ.get("SIZES", "1000,10000").split(",")]
TURNS_PER_MEMORY = 10  # 1,000 memories go with a transcript of 100 turns


@dataclass
class Bench:
    """What is compared at one size.

    Attributes:
        size: How many memories each storage holds.
        meter: Counts the commands of the two that use MongoDB.
        server: Explains them.
        storages: By name; None for one that is not installed.
        transcripts: By name.
    """

    size: int
    meter: Meter
    server: Server
    storages: dict[str, Any]
    transcripts: dict[str, Any]


def open_bench(uri: str, name: str, folder: Path, size: int) -> Iterator[Bench]:
    """Yield what is compared, loaded; delete it from the server afterwards."""
    meter = Meter()
    settings: dict[str, Any] = {
        "database_name": name,
        "event_listeners": [meter],
        # A server that scans 100,000 memories may answer the driver's heartbeat late.
        "connectTimeoutMS": 120_000,
        "serverSelectionTimeoutMS": 120_000,
    }
    with (
        MongoDBStorageBackend(uri, **settings) as backend,
        MongoDBStorageBackend(uri, **settings, vectors_in_results=False) as lean,
    ):
        baseline = stores.load_backend(backend, size)
        lean.ensure_vector_index()
        peers = {
            peer: stores.load_peer(peer, folder / peer.lower(), size)
            for peer in (stores.LANCEDB, stores.QDRANT)
        }
        turns = size // TURNS_PER_MEMORY
        yield Bench(
            size,
            meter,
            Server(backend.database, full_planner=chosen_uri() is not None),
            {stores.OURS: backend, stores.LEAN: lean, stores.BASELINE: baseline, **peers},
            {
                stores.OURS: stores.Buckets(backend, turns),
                stores.BASELINE: stores.OneDocument(backend, turns),
            },
        )
        backend.reset()  # the embedded database drops a full collection slowly
        backend.client.drop_database(name)


@pytest.fixture(scope="session", params=SIZES)
def bench(
    request: pytest.FixtureRequest, mongodb_uri: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bench]:
    """Return what is compared at one of the sizes."""
    size = request.param
    # The name has one length for all sizes, since it is part of every command's bytes.
    yield from open_bench(mongodb_uri, f"bench_{size:07}", tmp_path_factory.mktemp("peers"), size)
