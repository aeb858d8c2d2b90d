"""What is measured: the same records, the same transcript and the same calls for every storage."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from crewai.memory.types import MemoryRecord

from crewai_mongodb_memory import schema

CREWS, TEAMS, CATEGORIES = 10, 5, 7
SCOPE = "/crew3"  # a tenth of the records, in TEAMS child scopes
NEW_SCOPE = "/new"
BATCH = 1000
BUCKET_SIZE = 50
START = dt.datetime(2026, 1, 1)
NAMES = uuid.UUID("5b4a3cf0-0f0e-4c0a-9d27-0c1f6f1d9a11")

Call = Callable[[Any], Any]


def records(first: int, count: int, scope: str | None = None) -> list[MemoryRecord]:
    """Return records, always the same ones for a number; spread over the scopes unless told."""
    vectors = np.random.default_rng(first).standard_normal((count, schema.DIMENSIONS))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return [_record(first + n, scope, vector.tolist()) for n, vector in enumerate(vectors.round(7))]


def batches(total: int) -> Iterator[list[MemoryRecord]]:
    """Yield the records that a storage is loaded with."""
    for first in range(0, total, BATCH):
        yield records(first, min(BATCH, total - first))


def record_id(number: int) -> str:
    return str(uuid.uuid5(NAMES, str(number)))


def turns(count: int) -> list[dict[str, Any]]:
    """Return the turns of a transcript as they are stored."""
    return [
        {
            "turn": n,
            "role": "user" if n % 2 else "assistant",
            "content": f"What was said in turn {n}: " + "word " * 30,
            "ts": START + dt.timedelta(seconds=n),
        }
        for n in range(1, count + 1)
    ]


def _record(number: int, scope: str | None, vector: list[float]) -> MemoryRecord:
    made = START + dt.timedelta(seconds=number)
    return MemoryRecord(
        id=record_id(number),
        content=f"Memory {number}: " + "something worth keeping, " * 8,
        scope=scope or f"/crew{number % CREWS}/team{number // CREWS % TEAMS}",
        categories=[f"category{number % CATEGORIES}"],
        metadata={"number": number},
        importance=0.5,
        created_at=made,
        last_accessed=made,
        embedding=vector,
        source="bench",
    )


@dataclass(frozen=True)
class Measured:
    """A call, and what has to be done before each run of it.

    Attributes:
        name: What the tables call it.
        run: The call, on a storage or a transcript.
        prepare: Undoes what an earlier run did.
    """

    name: str
    run: Call
    prepare: Call = lambda _: None


def memory_calls() -> list[Measured]:
    """Return the calls on a storage that holds the records 0 to n: the last leaves it as it was."""
    new = records(10**9, 100, f"{NEW_SCOPE}/here")
    new_ids = [record.id for record in new]
    known = [record_id(n) for n in range(10)]
    (old,) = records(0, 1)
    (query,) = [record.embedding for record in records(10**9 + 500, 1)]

    def without_new(storage: Any) -> None:
        storage.delete(record_ids=new_ids)

    def with_new(storage: Any) -> None:
        without_new(storage)
        storage.save(new)

    category = ["category2"]
    return [
        Measured("search", lambda s: s.search(query)),
        Measured("search, scope and category", lambda s: s.search(query, SCOPE, category)),
        Measured("get_record", lambda s: s.get_record(known[0])),
        Measured("list_records, 20", lambda s: s.list_records(limit=20)),
        Measured("list_records, 20 of a scope", lambda s: s.list_records(SCOPE, limit=20)),
        Measured("get_scope_info", lambda s: s.get_scope_info(SCOPE)),
        Measured("list_scopes", lambda s: s.list_scopes(SCOPE)),
        Measured("list_categories", lambda s: s.list_categories(SCOPE)),
        Measured("count of a scope", lambda s: s.count(SCOPE)),
        Measured("update", lambda s: s.update(old)),
        Measured("touch_records, 10", lambda s: s.touch_records(known)),
        Measured("save, 100 new", lambda s: s.save(new), without_new),
        Measured("delete, 10 ids", lambda s: s.delete(record_ids=new_ids[:10]), with_new),
        Measured("delete, scope of 100", lambda s: s.delete(NEW_SCOPE), with_new),
        Measured("reset, scope of 100", lambda s: s.reset(NEW_SCOPE), with_new),
    ]


def transcript_calls() -> list[Measured]:
    """Return the calls on a transcript whose last bucket is full; `reload` puts it back."""

    def with_room(transcript: Any) -> None:
        transcript.reload()
        transcript.add_turn("user", "opens a bucket")

    def add(transcript: Any) -> None:
        transcript.add_turn("user", "a turn")

    return [
        Measured("add_turn", add, with_room),
        Measured("add_turn, bucket full", add, lambda t: t.reload()),
        Measured("add_exchange", lambda t: t.add_exchange("q", "a"), with_room),
        Measured("recent_turns, 6", lambda t: t.recent_turns(6), lambda t: t.reload()),
        Measured("recent_turns, 80", lambda t: t.recent_turns(80)),
        Measured("history_text", lambda t: t.history_text()),
        Measured("turns", lambda t: t.turns()),
        Measured("count", lambda t: t.count()),
        Measured("clear", lambda t: t.clear(), lambda t: t.reload()),
    ]
