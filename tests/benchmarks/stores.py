"""Build and load what is compared: the backend, the baseline, and CrewAI's own storages."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import workload
from benchmarks.baseline import StraightforwardStorage, StraightforwardTranscript
from tqdm import tqdm

from crewai_mongodb_memory import ConversationMemory, MongoDBStorageBackend, schema

OURS, LEAN, BASELINE = "this backend", "without vectors", "baseline"
LANCEDB, QDRANT = "LanceDB", "Qdrant"
MISSING = {QDRANT: "qdrant-edge-py is not installed: pip install -e '.[bench]'"}


def load_backend(backend: MongoDBStorageBackend, size: int) -> StraightforwardStorage:
    """Fill the backend's collection, its indexes first, and return the baseline on the same one."""
    backend.ensure_vector_index()

    def insert(batch: list[Any]) -> None:
        backend.collection.insert_many([schema.to_document(record) for record in batch])

    _load(insert, size, OURS)
    return StraightforwardStorage(backend.collection)


def load_peer(name: str, folder: Path, size: int) -> Any:
    """Return CrewAI's storage of that name, filled, or None if it is not installed."""
    if name == QDRANT and importlib.util.find_spec("qdrant_edge") is None:
        return None
    storage = _lancedb(folder) if name == LANCEDB else _qdrant(folder)
    _load(storage.save, size, name)
    storage.optimize()
    return storage


def _lancedb(folder: Path) -> Any:
    from crewai.memory.storage.lancedb_storage import LanceDBStorage

    return LanceDBStorage(folder, vector_dim=schema.DIMENSIONS)


def _qdrant(folder: Path) -> Any:
    from crewai.memory.storage.qdrant_edge_storage import QdrantEdgeStorage

    return QdrantEdgeStorage(folder, vector_dim=schema.DIMENSIONS)


def _load(save: Callable[[list[Any]], Any], size: int, name: str) -> None:
    with tqdm(total=size, desc=f"loading {name}", unit=" memories", leave=False) as bar:
        for batch in workload.batches(size):
            save(batch)
            bar.update(len(batch))


class Buckets(ConversationMemory):
    """The transcript under test, which can be put back to a given number of turns."""

    def __init__(self, backend: MongoDBStorageBackend, count: int) -> None:
        super().__init__(backend, session_id="bench", bucket_size=workload.BUCKET_SIZE)
        self._stored = workload.turns(count)
        self.add_turn("user", "creates the index")
        self.reload()

    def reload(self) -> None:
        self.clear()
        size = self.bucket_size
        parts = [self._stored[n : n + size] for n in range(0, len(self._stored), size)]
        self.collection.insert_many([self._bucket(seq, part) for seq, part in enumerate(parts)])

    def _bucket(self, seq: int, part: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "session_id": self.session_id,
            "bucket_seq": seq,
            "turn_count": len(part),
            "start_turn": part[0]["turn"],
            "end_turn": part[-1]["turn"],
            "turns": part,
            "created_at": part[0]["ts"],
            "updated_at": part[-1]["ts"],
        }


class OneDocument(StraightforwardTranscript):
    """The baseline's transcript, which can be put back likewise."""

    def __init__(self, backend: MongoDBStorageBackend, count: int) -> None:
        super().__init__(backend.database["straightforward"], "bench")
        self._stored = workload.turns(count)
        self.reload()

    def reload(self) -> None:
        self.clear()
        self.load(self._stored)
