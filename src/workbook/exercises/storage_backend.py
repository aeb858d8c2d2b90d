"""Checks for `05_storage_backend`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from crewai.memory.types import MemoryRecord
from crewai.memory.unified_memory import Memory

from crewai_mongodb_memory import MongoDBStorageBackend, schema
from workbook.connect import Connection
from workbook.exercises import exercise, expect

TENANTS = ("acme", "globex")
WEIGHTS = ("semantic_weight", "recency_weight", "importance_weight")
QUESTION = "What may Alex not eat?"
OLD, FRESH = "Alex is allergic to peanuts.", "Alex prefers short answers, as bullet points."


@exercise(hint="Two criteria: whose memories, and from when. A scope means whole path segments.")
def forget(criteria: Mapping[str, Any], connection: Connection) -> str:
    """The criteria for `delete` that remove Alex's memories from before February."""
    old, new = datetime(2026, 1, 15), datetime(2026, 2, 15)
    made = {
        "alex, January": ("/practice/alex", old),
        "alex, January, below": ("/practice/alex/diet", old),
        "alex, February": ("/practice/alex", new),
        "alexandra, January": ("/practice/alexandra", old),
    }
    records = [
        MemoryRecord(id=f"practice {name}", content=name, scope=scope, created_at=date)
        for name, (scope, date) in made.items()
    ]
    with _practice(connection, records) as backend:
        backend.delete(**{"scope_prefix": "/practice", **criteria})
        left = {record.content for record in backend.list_records("/practice")}
    expect("alexandra, January" in left, "Alexandra's memory is gone, and she is not Alex.")
    expect("alex, February" in left, "Alex's memory from February is gone, and it is new.")
    expect("alex, January" not in left, "Alex's memory from January is still there.")
    expect("alex, January, below" not in left, "What lies below Alex's scope is still there.")
    return "Two are gone, two are left: criteria narrow each other."


@exercise(hint="Which of the three parts knows what the question is?")
def weigh(weights: Mapping[str, float], connection: Connection) -> str:
    """The weights with which an old memory that answers comes before a fresh one."""
    expect(set(weights) == set(WEIGHTS), f"Give all three weights: {', '.join(WEIGHTS)}.")
    expect(abs(sum(weights.values()) - 1) < 1e-6, "The three weights should add up to 1.")
    now = datetime.now(UTC).replace(tzinfo=None)
    vectors = connection.embedder([OLD, FRESH])
    records = [
        MemoryRecord(
            id=f"practice {name}",
            content=content,
            scope="/practice/weights",
            importance=importance,
            created_at=now - timedelta(days=days),
            embedding=vector,
        )
        for (name, content, importance, days), vector in zip(
            [("old", OLD, 0.3, 120), ("fresh", FRESH, 1.0, 0)], vectors, strict=True
        )
    ]
    with _practice(connection, records) as backend:
        backend.wait_until_searchable(records[0])
        backend.wait_until_searchable(records[1])
        parts: dict[str, Any] = {"embedder": connection.embedder, "llm": connection.llm, **weights}
        memory = Memory(storage=backend, **parts)
        first, second = memory.recall(QUESTION, scope="/practice/weights", depth="shallow")
    expect(
        first.record.content == OLD,
        f"{first.record.content!r} comes first with {first.score:.2f}, and the answer second with "
        f"{second.score:.2f}.",
    )
    return (
        f"The answer comes first with {first.score:.2f}, the fresh remark has {second.score:.2f}."
    )


@exercise(hint="Which argument of the backend confines everything to a subtree? And to which one?")
def fence(settings: Mapping[str, Any], connection: Connection) -> str:
    """The settings of a backend with which one tenant cannot reset the other."""
    collection = connection.backend.database["practice_tenants"]
    records = [
        MemoryRecord(id=name, content=f"{name} pays in advance.", scope=f"/tenants/{name}/billing")
        for name in TENANTS
    ]
    collection.drop()
    collection.insert_many([schema.to_document(record) for record in records])
    place = {
        "database_name": connection.backend.database.name,
        "collection_name": collection.name,
    }
    try:
        with MongoDBStorageBackend(connection.uri, **{**settings, **place}) as backend:
            foreign = backend.count("/tenants/globex")
            Memory(storage=backend, root_scope="/tenants/acme").reset_all()
        left = {document["_id"] for document in collection.find()}
    finally:
        collection.drop()
    expect("globex" in left, "When acme resets its memory, globex loses its own too.")
    expect("acme" not in left, "acme's own memory is still there: the fence is somewhere else.")
    expect(not foreign, "acme's backend can still count the memories of globex.")
    return "acme erased everything it could reach, and that was its own."


@contextmanager
def _practice(
    connection: Connection, records: list[MemoryRecord]
) -> Iterator[MongoDBStorageBackend]:
    """Lend the backend with these records below `/practice`, and take them away afterwards."""
    backend = connection.backend
    backend.reset("/practice")
    backend.save(records)
    try:
        yield backend
    finally:
        backend.reset("/practice")
