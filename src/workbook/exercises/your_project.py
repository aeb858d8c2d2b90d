"""Checks of notebook 08: a rule, a retention, and a shard key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import WriteError

from crewai_mongodb_memory.schema import DIMENSIONS
from workbook.exercises import exercise, expect

Document = dict[str, Any]

PRACTICE = "practice_project"
TODAY = datetime(2026, 12, 1)
DAY = timedelta(days=1)
KEEP_FOR = 90 * DAY
VECTORS: dict[str, list[float] | None] = {
    "of 384 numbers": [0.5] * 384,
    "of 1,025 numbers": [0.5] * (DIMENSIONS + 1),
    f"of {DIMENSIONS:,} numbers": [0.5] * DIMENSIONS,
}
CALLS = {"list_records of a scope": 60, "count, list_scopes, ... of a scope": 30, "get_record": 10}


@exercise(hint="An array has a type, a least and a largest number of items.")
def vector_rule(rule: Mapping[str, Any], database: Database[Document]) -> str:
    """The `$jsonSchema` rule that lets vectors of the right length in and no others."""
    schema = {"properties": {"embedding": rule}}
    with _practice(database, validator={"$jsonSchema": schema}) as practice:
        took = {what: _takes(practice, {"embedding": vector}) for what, vector in VECTORS.items()}
        takes_none = _takes(practice, {"content": "no vector"})
        takes_text = _takes(practice, {"embedding": "a text"})
    right = f"of {DIMENSIONS:,} numbers"
    for what, taken in took.items():
        expect(taken or what != right, f"It refuses a vector {what}, and that one is right.")
        expect(not taken or what == right, f"It lets a vector {what} in.")
    expect(takes_none, "It refuses a memory without a vector.")
    expect(not takes_text, "It lets a text in as a vector.")
    return "Vectors of 1,024 numbers and memories without one come in, and nothing else."


@exercise(hint="Which date changes when a memory is recalled? And how many seconds has a day?")
def retention(answer: tuple[str, float], database: Database[Document]) -> str:
    """The field and the seconds of a TTL index that forgets what nobody has recalled."""
    field, seconds = answer
    ages = {  # days since a memory was made, and since it was last recalled
        "old, recalled last week": (400, 7),
        "old, recalled in spring": (400, 200),
        "of last week": (7, 7),
        "of last month, recalled then": (30, 30),
    }
    with _practice(database) as practice:
        practice.insert_many(
            {
                "_id": name,
                "created_at": TODAY - made * DAY,
                "last_accessed": TODAY - used * DAY,
                "importance": 0.5,
            }
            for name, (made, used) in ages.items()
        )
        practice.create_index(field, name="retention", expireAfterSeconds=int(seconds))
        index = next(i for i in practice.list_indexes() if i["name"] == "retention")
        # What the server's background task asks for, once a minute.
        due = {next(iter(index["key"])): {"$lt": TODAY - timedelta(seconds=seconds)}}
        gone = {document["_id"] for document in practice.find(due)}
    wanted = {name for name, (_, used) in ages.items() if used * DAY > KEEP_FOR}
    for name in ages:
        expect(name not in gone - wanted, f"The memory “{name}” would be deleted.")
        expect(name not in wanted - gone, f"The memory “{name}” would stay.")
    return f"One of four goes: “{next(iter(gone))}”."


@exercise(hint="A scope and all below it are a range. Which kind of key keeps a range together?")
def reader_key(
    key: Mapping[str, Any],
    filters: Mapping[str, Mapping[str, Any]],
    shards_asked: Callable[[Mapping[str, Any], Mapping[str, Any]], str],
) -> str:
    """The shard key with which the most of a hundred calls spare some shards."""
    expect(bool(key), "A shard key has at least one field.")
    expect(
        "scope_ancestors" not in key,
        "MongoDB refuses that: a shard key's field holds one value, and this one is an array.",
    )
    spared = sum(n for call, n in CALLS.items() if shards_asked(filters[call], key) != "all")
    expect(spared >= 90, f"With that key {spared} of the 100 calls spare a shard.")
    expect(
        len(key) > 1,
        "Close: but all memories of one scope then stand under a single key value, and a large "
        "scope can never be split. Put a second field behind it.",
    )
    return f"{spared} of the 100 calls go only where that subtree lies."


@contextmanager
def _practice(database: Database[Document], **options: Any) -> Iterator[Collection[Document]]:
    """Lend an empty collection and drop it afterwards."""
    database.drop_collection(PRACTICE)
    try:
        yield database.create_collection(PRACTICE, **options)
    finally:
        database.drop_collection(PRACTICE)


def _takes(collection: Collection[Document], document: Document) -> bool:
    try:
        collection.insert_one(document)
    except WriteError:
        return False
    return True
