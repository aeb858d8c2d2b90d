"""Walk a database and verify what EDD.md promises of every document in it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from pymongo.database import Database

from crewai_mongodb_memory import schema

Document = dict[str, Any]


def violations(
    database: Database[Document],
    *,
    memories: str = schema.MEMORIES,
    conversations: str = schema.CONVERSATIONS,
    dimensions: int = schema.DIMENSIONS,
) -> Iterator[str]:
    """Yield one sentence for each broken promise; nothing when the contract holds.

    Args:
        database: The database to walk. It is only read.
        memories: Name of the collection of memories.
        conversations: Name of the collection of transcript buckets.
        dimensions: Length that every stored vector must have.
    """
    for document in database[memories].find():
        yield from _memory(document, dimensions)
    yield from _sessions(
        database[conversations].find().sort([("session_id", 1), ("bucket_seq", 1)])
    )


def _memory(document: Document, dimensions: int) -> Iterator[str]:
    name = f"memory {document['_id']!r}"
    if missing := [field for field in schema.REQUIRED_MEMORY_FIELDS if field not in document]:
        yield f"{name} lacks {', '.join(missing)}"
        return
    scope = document["scope"]
    if scope != schema.normalize_scope(scope):
        yield f"{name} has the scope {scope!r}, which is not normalised"
    if document["scope_ancestors"] != schema.scope_ancestors(scope):
        yield f"{name} has scope_ancestors that do not match its scope {scope!r}"
    vector = document.get("embedding")
    if vector is not None and len(vector) != dimensions:
        yield f"{name} has a vector of {len(vector)} dimensions, not {dimensions}"
    importance = document.get("importance", 0.0)
    if not 0.0 <= importance <= 1.0:
        yield f"{name} has importance {importance}, which is not between 0 and 1"
    for field in ("created_at", "last_accessed"):
        if not isinstance(document[field], datetime):
            yield f"{name} has {field} of type {type(document[field]).__name__}, not a date"


def _sessions(buckets: Iterator[Document]) -> Iterator[str]:
    session, expected_bucket, expected_turn = None, 0, 1
    before: Document | None = None
    for bucket in buckets:
        if bucket["session_id"] != session:
            session, expected_bucket, expected_turn = bucket["session_id"], 0, 1
            before = None
        if before and not before.get("closed"):
            yield (
                f"session {session!r}, bucket {before['bucket_seq']} is not closed, "
                "and another follows it"
            )
        name = f"session {session!r}, bucket {bucket['bucket_seq']}"
        if bucket["bucket_seq"] != expected_bucket:
            yield f"{name} stands where bucket {expected_bucket} should"
        numbers = [turn["turn"] for turn in bucket["turns"]]
        if numbers != list(range(expected_turn, expected_turn + len(numbers))):
            yield f"{name} does not number its turns from {expected_turn} on without a gap"
        if bucket["turn_count"] != len(numbers):
            yield f"{name} says it holds {bucket['turn_count']} turns and holds {len(numbers)}"
        if numbers and (bucket["start_turn"], bucket["end_turn"]) != (numbers[0], numbers[-1]):
            yield f"{name} has a start_turn or end_turn that is not its first or last turn"
        before, expected_bucket = bucket, bucket["bucket_seq"] + 1
        expected_turn = numbers[-1] + 1 if numbers else expected_turn
