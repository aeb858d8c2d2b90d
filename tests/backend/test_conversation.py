"""`ConversationMemory` beyond the cases: buckets, bytes, exchanges, input."""

from __future__ import annotations

import copy
import datetime as dt
import pickle
from typing import Any

import pytest
from backend.support import Commands, in_threads
from pymongo.collection import Collection
from pymongo.errors import DuplicateKeyError, OperationFailure

from crewai_mongodb_memory import (
    ConversationMemory,
    InvalidInputError,
    MongoDBMemoryError,
    MongoDBStorageBackend,
    Turn,
    conversation,
)


def buckets(memory: ConversationMemory) -> list[dict[str, Any]]:
    """Return the session's buckets in order."""
    return list(memory.collection.find({"session_id": memory.session_id}).sort("bucket_seq", 1))


def shape(memory: ConversationMemory) -> list[tuple[int, int, int, int]]:
    """Return number, first turn, last turn and size of each bucket."""
    return [
        (b["bucket_seq"], b["start_turn"], b["end_turn"], b["turn_count"]) for b in buckets(memory)
    ]


def test_buckets_follow_one_another(backend: MongoDBStorageBackend) -> None:
    memory = ConversationMemory(backend, session_id="s", bucket_size=3)
    added = [memory.add_turn("user" if n % 2 else "assistant", f"t{n}") for n in range(7)]
    assert shape(memory) == [(0, 1, 3, 3), (1, 4, 6, 3), (2, 7, 7, 1)]
    assert memory.turns() == added
    assert memory.count() == 7
    for bucket in buckets(memory):
        numbers = [turn["turn"] for turn in bucket["turns"]]
        assert numbers == list(range(bucket["start_turn"], bucket["end_turn"] + 1))
        assert bucket["created_at"] == bucket["turns"][0]["ts"]
        assert bucket["updated_at"] == bucket["turns"][-1]["ts"]


@pytest.mark.parametrize("bucket_size", [1, 2, 5, 50])
def test_recent_turns_are_the_last_ones_whatever_the_buckets(
    backend: MongoDBStorageBackend, bucket_size: int
) -> None:
    memory = ConversationMemory(backend, bucket_size=bucket_size, max_turns=4)
    for n in range(11):
        memory.add_turn("user", str(n))
    everything = memory.turns()
    assert [turn.content for turn in everything] == [str(n) for n in range(11)]
    for n in [1, 2, 3, 10, 11, 12, 500]:
        assert memory.recent_turns(n) == everything[-n:]
    assert memory.recent_turns() == everything[-4:]
    assert memory.recent_turns(0) == memory.recent_turns(-1) == []
    assert memory.history_text() == "user: 7\nuser: 8\nuser: 9\nuser: 10"


def test_an_empty_session_is_empty(backend: MongoDBStorageBackend) -> None:
    memory = ConversationMemory(backend, session_id="nobody")
    assert (memory.turns(), memory.recent_turns(), memory.count()) == ([], [], 0)
    assert memory.history_text() == ""
    memory.clear()


def test_adding_and_reading_are_one_command_each(make_backend: Any, commands: Commands) -> None:
    memory = ConversationMemory(make_backend(event_listeners=[commands]), bucket_size=20)
    memory.add_turn("user", "first")
    for n in range(10):
        assert commands.during(lambda n=n: memory.add_turn("user", str(n))) == ["findAndModify"]
    assert commands.during(lambda: memory.add_exchange("q", "a")) == ["findAndModify"]
    assert commands.during(memory.turns) == ["find"]
    for call in [memory.count, memory.recent_turns, memory.history_text]:
        assert commands.during(call) == ["aggregate"]
    for n in range(7):
        memory.add_turn("user", str(n))
    assert commands.during(lambda: memory.add_turn("user", "next bucket")) == [
        "findAndModify",
        "insert",
    ]
    again = ConversationMemory(memory._backend, bucket_size=20)
    assert commands.during(lambda: again.add_turn("user", "x")) == ["findAndModify"]
    assert commands.during(memory.clear) == ["delete"]


def test_reading_the_last_turns_does_not_read_the_rest(
    make_backend: Any, commands: Commands
) -> None:
    memory = ConversationMemory(make_backend(event_listeners=[commands]), bucket_size=10)
    for n in range(95):
        memory.add_turn("user", str(n))
    for n, buckets in [(3, 2), (25, 4)]:
        commands.sent.clear()
        assert [turn.turn for turn in memory.recent_turns(n)] == list(range(96 - n, 96))
        (pipeline,) = commands.pipelines()
        answer = list(memory.collection.aggregate(pipeline))
        assert len(answer) == n
        assert {"$limit": buckets} in pipeline[:3]


def test_an_exchange_is_two_turns_with_nothing_between(backend: MongoDBStorageBackend) -> None:
    memory = ConversationMemory(backend, bucket_size=3)
    question, answer = memory.add_exchange("q1", "a1")
    assert (question.role, question.turn, answer.role, answer.turn) == ("user", 1, "assistant", 2)
    memory.add_exchange("q2", "a2")  # one slot is left in the first bucket: both go into the next
    assert shape(memory) == [(0, 1, 2, 2), (1, 3, 4, 2)]
    assert buckets(memory)[0]["closed"] is True
    memory.add_turn("user", "t")
    assert shape(memory) == [(0, 1, 2, 2), (1, 3, 5, 3)]
    assert [turn.content for turn in memory.recent_turns(4)] == ["a1", "q2", "a2", "t"]
    with pytest.raises(InvalidInputError, match="bucket_size of at least 2"):
        ConversationMemory(backend, bucket_size=1).add_exchange("q", "a")


def test_an_older_bucket_never_takes_a_turn_again(backend: MongoDBStorageBackend) -> None:
    small = ConversationMemory(backend, bucket_size=2)
    for n in range(3):
        small.add_turn("user", str(n))
    large = ConversationMemory(backend, bucket_size=10)
    large.add_turn("user", "3")
    assert shape(large) == [(0, 1, 2, 2), (1, 3, 4, 2)]
    large.add_turn("user", "4")
    assert shape(large) == [(0, 1, 2, 2), (1, 3, 5, 3)]
    small.add_turn("user", "5")
    large.add_turn("user", "6")
    assert shape(large) == [(0, 1, 2, 2), (1, 3, 5, 3), (2, 6, 7, 2)]


def test_a_bucket_closes_by_bytes(backend: MongoDBStorageBackend) -> None:
    memory = ConversationMemory(backend, bucket_size=50)
    text = "x" * 3_000_000
    for _ in range(3):
        memory.add_turn("user", text)
    memory.add_turn("assistant", "short")
    assert shape(memory) == [(0, 1, 2, 2), (1, 3, 4, 2)]
    memory.collection.update_one({"bucket_seq": 0}, {"$unset": {"closed": 1}})
    memory.add_turn("assistant", "still in the newest")
    assert memory.recent_turns(1)[0].turn == 5
    assert shape(memory)[0] == (0, 1, 2, 2)


def test_a_turn_that_fits_nowhere_is_refused(backend: MongoDBStorageBackend) -> None:
    memory = ConversationMemory(backend)
    memory.add_turn("user", "x" * 8_000_000)
    with pytest.raises(InvalidInputError, match=r"9,000,\d+ bytes is too big"):
        memory.add_turn("user", "x" * 9_000_000)
    with pytest.raises(InvalidInputError, match="too big"):
        memory.add_exchange("x" * 5_000_000, "y" * 5_000_000)
    assert memory.count() == 1


@pytest.mark.parametrize(
    ("role", "content", "fields", "message"),
    [
        ("User", "x", {}, "must be one of user, assistant, system, tool"),
        ("", "x", {}, "must be one of"),
        ({"$gt": ""}, "x", {}, "must be one of"),
        ("user", None, {}, "needs text, or fields"),
        ("user", 7, {}, "content must be text"),
        ("user", ["part"], {}, "content must be text"),
        ("user", "\ud800", {}, "lone surrogate"),
        ("user", "x", {"turn": 1}, "sets turn itself"),
        ("user", "x", {"ts": 1}, "sets ts itself"),
        ("user", "x", {"k": {1}}, r"the turn\.k is of type set"),
    ],
)
def test_a_turn_that_cannot_be_stored_is_refused(
    backend: MongoDBStorageBackend, role: Any, content: Any, fields: dict[str, Any], message: str
) -> None:
    memory = ConversationMemory(backend)
    with pytest.raises(InvalidInputError, match=message):
        memory.add_turn(role, content, **fields)
    assert memory.count() == 0


def test_half_an_exchange_is_never_stored(backend: MongoDBStorageBackend) -> None:
    memory = ConversationMemory(backend)
    with pytest.raises(InvalidInputError):
        memory.add_exchange("question", None)  # type: ignore[arg-type]
    assert memory.count() == 0


@pytest.mark.parametrize(
    "settings",
    [
        {"session_id": ""},
        {"session_id": None},
        {"session_id": {"$gt": ""}},
        {"bucket_size": 0},
        {"max_turns": 0},
    ],
)
def test_settings_that_make_no_sense_are_refused(
    backend: MongoDBStorageBackend, settings: dict[str, Any]
) -> None:
    with pytest.raises(InvalidInputError):
        ConversationMemory(backend, **settings)


ODD = ["$role", "$$ROOT", "", " \n", "\x00\x01", "😀" * 1000, '{"$gt": 1}', "x" * 1_000_000]


def test_content_of_any_kind_comes_back(backend: MongoDBStorageBackend) -> None:
    memory = ConversationMemory(backend, session_id="$session", bucket_size=3)
    fields = {"a.b": 1, "$set": {"$inc": 1}, "at": dt.datetime(2026, 1, 1), "": None}
    for content in ODD:
        memory.add_turn("user", content, **fields)
        memory.add_exchange(content, content)
    assert [turn.content for turn in memory.turns()] == [c for c in ODD for _ in range(3)]
    assert memory.turns()[0].fields == memory.turns()[-3].fields == fields


def test_times_are_naive_utc_in_milliseconds(make_backend: Any) -> None:
    memory = ConversationMemory(make_backend(tz_aware=True), bucket_size=1)
    before = dt.datetime.now(dt.UTC).replace(tzinfo=None)
    added = [memory.add_turn("user", "x") for _ in range(2)]
    assert memory.turns() == added
    for turn in added:
        assert turn.ts.tzinfo is None
        assert abs(turn.ts - before) < dt.timedelta(minutes=1)
        assert turn.ts.microsecond % 1000 == 0


def test_a_new_object_goes_on_where_another_ended(make_backend: Any) -> None:
    ConversationMemory(make_backend(), session_id="s").add_turn("user", "one")
    memory = ConversationMemory(make_backend(), session_id="s")
    assert memory.add_turn("assistant", "two").turn == 2
    for other in [copy.deepcopy(memory), pickle.loads(pickle.dumps(memory))]:
        assert other.turns() == memory.turns()
        other._backend.close()
    assert memory.count() == 2


def test_turns_are_values() -> None:
    turn = Turn(1, "user", "x", dt.datetime(2026, 1, 1))
    assert turn == Turn(1, "user", "x", dt.datetime(2026, 1, 1), {})
    assert turn.message == {"role": "user", "content": "x"}
    with pytest.raises(AttributeError):
        turn.content = "y"  # type: ignore[misc]


def test_a_lost_race_for_a_bucket_is_tried_again(
    backend: MongoDBStorageBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = ConversationMemory(backend, bucket_size=1)
    rival = ConversationMemory(copy.copy(backend), bucket_size=1)
    real, raced = Collection.insert_one, []

    def insert_one(self: Any, document: Any) -> Any:
        if not raced:
            raced.append(True)
            rival.add_turn("assistant", "first")
        return real(self, document)

    monkeypatch.setattr(Collection, "insert_one", insert_one)
    assert mine.add_turn("user", "second").turn == 2
    assert [turn.content for turn in mine.turns()] == ["first", "second"]
    rival._backend.close()


def test_a_race_that_is_always_lost_ends(
    backend: MongoDBStorageBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = ConversationMemory(backend)

    def taken(*_: Any, **__: Any) -> Any:
        raise DuplicateKeyError("taken")

    monkeypatch.setattr(conversation, "APPEND_ATTEMPTS", 3)
    monkeypatch.setattr(Collection, "insert_one", taken)
    with pytest.raises(MongoDBMemoryError, match="larger bucket_size"):
        memory.add_turn("user", "x")


def test_an_index_that_is_not_unique_is_reported(backend: MongoDBStorageBackend) -> None:
    memory = ConversationMemory(backend)
    keys = [("session_id", 1), ("bucket_seq", 1)]
    memory.collection.create_index(keys, name="session_bucket")
    with pytest.raises(OperationFailure, match="session_bucket"):
        memory.add_turn("user", "x")


def test_first_writers_of_a_session_share_one_bucket(backend: MongoDBStorageBackend) -> None:
    for session in range(5):
        memories = [ConversationMemory(backend, session_id=f"s{session}") for _ in range(8)]
        in_threads(8, lambda n, memories=memories: memories[n].add_turn("user", str(n)))
        assert shape(memories[0]) == [(0, 1, 8, 8)]
        assert {turn.content for turn in memories[0].turns()} == {str(n) for n in range(8)}
