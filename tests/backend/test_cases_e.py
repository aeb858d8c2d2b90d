"""Cases E: the bucket pattern and `ConversationMemory`."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from backend.support import failure, in_threads
from pymongo.collection import Collection
from pymongo.errors import OperationFailure

from crewai_mongodb_memory import ConversationMemory, MongoDBStorageBackend, conversation


def test_E1_eight_writers_never_overrun_a_bucket(backend: MongoDBStorageBackend) -> None:
    session = ConversationMemory(backend, session_id="s", bucket_size=5)
    numbers: list[int] = []

    def write(writer: int) -> None:
        memory = ConversationMemory(backend, session_id="s", bucket_size=5)
        numbers.extend(memory.add_turn("user", f"{writer}-{n}").turn for n in range(25))

    in_threads(8, write)
    assert sorted(numbers) == list(range(1, 201))
    turns = session.turns()
    assert [turn.turn for turn in turns] == list(range(1, 201))
    assert len({turn.content for turn in turns}) == 200
    buckets = list(session.collection.find().sort("bucket_seq", 1))
    assert [bucket["bucket_seq"] for bucket in buckets] == list(range(40))
    assert {bucket["turn_count"] for bucket in buckets} == {5}
    for writer in range(8):
        own = [turn.content for turn in turns if turn.content.startswith(f"{writer}-")]
        assert own == [f"{writer}-{n}" for n in range(25)]


def test_E3_order_is_by_number_and_not_by_time(
    backend: MongoDBStorageBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Frozen(dt.datetime):
        @classmethod
        def now(cls, tz: Any = None) -> dt.datetime:
            return dt.datetime(2026, 1, 1, tzinfo=tz)

    monkeypatch.setattr(conversation, "datetime", Frozen)
    memory = ConversationMemory(backend, bucket_size=2)
    memory.add_exchange("question", "answer")
    for role, content in [("user", "again"), ("assistant", "again"), ("user", "again")]:
        memory.add_turn(role, content)
    memory.add_turn("tool", "result", tool_call_id="c1")
    assert [turn.turn for turn in memory.turns()] == [1, 2, 3, 4, 5, 6]
    assert [turn.role for turn in memory.turns()] == [
        "user", "assistant", "user", "assistant", "user", "tool",
    ]  # fmt: skip
    assert len({turn.ts for turn in memory.turns()}) == 1


def test_E4_the_oldest_turn_comes_first(backend: MongoDBStorageBackend) -> None:
    memory = ConversationMemory(backend, bucket_size=2)
    for n in range(5):
        memory.add_turn("user", str(n))
    assert [turn.content for turn in memory.turns()] == ["0", "1", "2", "3", "4"]
    assert [turn.content for turn in memory.recent_turns(3)] == ["2", "3", "4"]
    assert memory.history_text(2) == "user: 3\nuser: 4"


def test_E5_the_last_turns_are_of_one_session(backend: MongoDBStorageBackend) -> None:
    a = ConversationMemory(backend, session_id="a", bucket_size=4)
    b = ConversationMemory(backend, session_id="b", bucket_size=4)
    for n in range(10):
        a.add_turn("user", f"a{n}")
    for n in range(100):
        b.add_turn("user", f"b{n}")
    assert [turn.content for turn in a.recent_turns(3)] == ["a7", "a8", "a9"]
    assert (a.count(), b.count()) == (10, 100)
    a.clear()
    assert (a.count(), a.turns(), a.recent_turns(3), b.count()) == (0, [], [], 100)
    assert a.add_turn("user", "again").turn == 1


@pytest.mark.parametrize("call", ["turns", "recent_turns", "history_text", "count"])
def test_E8_a_failure_to_read_is_raised(
    backend: MongoDBStorageBackend, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    memory = ConversationMemory(backend)
    memory.add_turn("user", "hello")

    def refuse(*_: Any, **__: Any) -> Any:
        raise failure(8, "the disk is gone")

    for read in ("find", "find_one", "aggregate"):
        monkeypatch.setattr(Collection, read, refuse)
    with pytest.raises(OperationFailure, match="the disk is gone"):
        getattr(memory, call)()


def test_E11_tool_calls_and_their_results_come_back(backend: MongoDBStorageBackend) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"q": 1}'}}
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "look it up"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "found", "tool_call_id": "c1", "name": None},
        {"role": "assistant", "content": "here it is"},
    ]
    memory = ConversationMemory(backend, bucket_size=2)
    added = [memory.add_turn(**message) for message in messages]
    assert memory.turns() == added
    assert [turn.message for turn in memory.turns()] == messages
    stored = [t for b in memory.collection.find().sort("bucket_seq", 1) for t in b["turns"]]
    assert stored[2]["content"] is None
    assert stored[2]["tool_calls"] == [call]
    assert "None" not in memory.history_text(5)
