"""Checks of notebook 06: buckets, their guard, and the numbers of turns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pymongo.collection import Collection

from crewai_mongodb_memory import ConversationMemory, MongoDBStorageBackend
from workbook.exercises import exercise, expect

SESSION = "exercise"
SIZE = 4


@exercise(hint="Which turns are the last 25? And which turns does each bucket hold?")
def buckets_of_the_last(answer: Sequence[int]) -> str:
    """The `bucket_seq` of the buckets that hold the last 25 of 120 turns."""
    holds = {seq: set(range(50 * seq + 1, min(50 * seq + 50, 120) + 1)) for seq in range(3)}
    given = sorted(answer)
    expect(all(seq in holds for seq in given), "The session has the buckets 0, 1 and 2.")
    wanted = set(range(96, 121))
    missed = sorted(wanted - set().union(*(holds[seq] for seq in given)))
    expect(
        not missed,
        f"{len(missed)} of the 25 turns are in none of these, the first of them {missed[:1]}.",
    )
    idle = [seq for seq in given if not holds[seq] & wanted]
    expect(not idle, f"None of the last 25 turns is in bucket {idle[:1]}: it is read for nothing.")
    return "Turns 96 to 100 end bucket 1, and 101 to 120 are bucket 2."


@exercise(hint="The server compares turn_count as it is before the push.")
def guarded(answer: Mapping[str, Any], races: Collection[dict[str, Any]]) -> str:
    """The condition on `turn_count` under which a bucket of at most four takes a turn."""
    took = [_takes_a_turn(races, answer, count) for count in range(SIZE + 1)]
    expect(
        not took[SIZE],
        f"A bucket that held {SIZE} turns was found, and took one more: it holds {SIZE + 1} now.",
    )
    passed_over = [count for count in range(SIZE) if not took[count]]
    expect(not passed_over, f"A bucket with room was passed over; turns in it: {passed_over[:1]}.")
    return "Buckets with 0 to 3 turns took one, and the full one was left alone."


@exercise(hint="Does the exchange fit into the first bucket? Which number is next?")
def second_bucket(answer: tuple[int, int], backend: MongoDBStorageBackend) -> str:
    """The first turn of the second bucket, and how many turns it holds."""
    bucket = _say_six_turns(backend)
    start, count = answer
    expect(
        start == bucket["start_turn"],
        f"It does not begin with {start}. Three turns were numbered before; a slot that stays "
        "empty has no number.",
    )
    expect(
        count == bucket["turn_count"],
        f"It begins with {start}, but it does not hold {count} turns. Count what was said after "
        "the exchange, too.",
    )
    return f"Bucket 1 holds the turns {bucket['start_turn']} to {bucket['end_turn']}."


def _takes_a_turn(races: Collection[dict[str, Any]], guard: Mapping[str, Any], count: int) -> bool:
    turns = [{"turn": n} for n in range(1, count + 1)]
    bucket = {"_id": SESSION, "turn_count": count, "turns": turns}
    races.replace_one({"_id": SESSION}, bucket, upsert=True)
    change = {"$push": {"turns": {"turn": count + 1}}, "$inc": {"turn_count": 1}}
    result = races.update_one({"_id": SESSION, "turn_count": guard}, change)
    races.delete_one({"_id": SESSION})
    return result.modified_count == 1


def _say_six_turns(backend: MongoDBStorageBackend) -> dict[str, Any]:
    """Do what the exercise says, and return the second bucket."""
    talk = ConversationMemory(backend, session_id=SESSION, bucket_size=SIZE)
    talk.clear()
    for said in ("one", "two", "three"):
        talk.add_turn("user", said)
    talk.add_exchange("four", "five")
    talk.add_turn("user", "six")
    bucket = talk.collection.find_one({"session_id": SESSION, "bucket_seq": 1})
    talk.clear()
    return bucket or {}
