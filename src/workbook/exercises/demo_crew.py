"""Checks of notebook 07: what a session recalled, what it concluded, and for whom."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from crewai.memory.types import MemoryRecord
from pymongo.collection import Collection

from crewai_mongodb_memory import MongoDBStorageBackend, schema
from workbook import crew
from workbook.connect import Connection
from workbook.exercises import call, exercise, expect

Memories = Collection[dict[str, Any]]

PRACTICE = "practice_crew"
ANSWERS = f"{crew.MEMORY_SCOPE}/agent"
DRINKS = {"Mara": "Mara drinks tea.", "Ben": "Ben drinks coffee.", "Mara/Lisbon": "I drink juice."}


def now() -> datetime:
    """Return this moment as the database stores it: UTC, in whole milliseconds."""
    moment = datetime.now(UTC).replace(tzinfo=None)
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


@exercise(hint="Recalling changes one of a memory's two dates. Which one says when it was made?")
def recalled_by_session_2(answer: Mapping[str, Any], began: datetime, memories: Memories) -> str:
    """The filter for the memories that session 2 recalled and did not write itself."""
    below = list(memories.find({"scope_ancestors": crew.MEMORY_SCOPE}))
    old = {d["_id"] for d in below if d["created_at"] < began}
    wanted = {d["_id"] for d in below if d["_id"] in old and d["last_accessed"] >= began}
    found = {d["_id"] for d in memories.find(dict(answer))}
    written = {d["_id"] for d in below} - old
    expect(bool(wanted), "Nothing was recalled since `began`: run session 2 above, first.")
    expect(not found & written, "It also finds what session 2 wrote itself.")
    expect(wanted <= found, f"It misses {len(wanted - found)} of the {len(wanted)} recalled ones.")
    expect(found == wanted, f"It also finds {len(found - wanted)} that session 2 never recalled.")
    return f"{len(wanted)} memories, made before session 2 and touched by it."


@exercise(hint="Look at the tree of scopes: where does CrewAI put what an agent concludes?")
def forget_the_answers(criteria: Mapping[str, Any], connection: Connection) -> str:
    """The criteria for `delete` that remove the crew's own answers and nothing else."""
    records = connection.backend.list_records(crew.MEMORY_SCOPE)
    answers = {r.id for r in records if ANSWERS in schema.scope_ancestors(r.scope)}
    expect(bool(answers), "The crew has concluded nothing yet: run both sessions above, first.")
    with _practice(connection, records) as practice:
        practice.delete(**criteria)
        left = {record.id for record in practice.list_records()}
    told = {record.id for record in records} - answers
    expect(told <= left, f"{len(told - left)} of the {len(told)} sentences of Mara's are gone.")
    expect(not left & answers, f"{len(left & answers)} answers of the crew are still there.")
    return f"{len(answers)} answers are gone, and all {len(told)} sentences are left."


@exercise(hint="A scope for each requester. What does a slash in a name do to a path?")
def own_root(root: Callable[[str], str], connection: Connection) -> str:
    """The root of a requester's memories, below `/demo`, which no other requester reads."""
    roots = {requester: call(root, requester) for requester in DRINKS}
    for requester, path in roots.items():
        expect(
            crew.SCOPE in schema.scope_ancestors(schema.normalize_scope(path)),
            f"{path} is not below {crew.SCOPE}, so the demo would never tidy up after {requester}.",
        )
    records = [
        MemoryRecord(id=requester, content=drink, scope=roots[requester])
        for requester, drink in DRINKS.items()
    ]
    with _practice(connection, records) as storage:
        for requester, path in roots.items():
            seen = {record.id for record in storage.list_records(path)}
            foreign = sorted(seen - {requester})
            expect(
                not foreign,
                f"{requester} recalls what {foreign[:1]} said, from {roots[requester]}.",
            )
    return "Each of the three recalls one memory, and it is their own."


@contextmanager
def _practice(
    connection: Connection, records: list[MemoryRecord]
) -> Iterator[MongoDBStorageBackend]:
    """Lend a backend on a collection that holds these records, and drop it afterwards."""
    collection = connection.backend.database[PRACTICE]
    collection.drop()
    collection.insert_many([schema.to_document(record) for record in records])
    place: dict[str, Any] = {"database_name": collection.database.name, "collection_name": PRACTICE}
    try:
        with MongoDBStorageBackend(connection.uri, **place) as backend:
            yield backend
    finally:
        collection.drop()
