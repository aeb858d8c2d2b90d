"""Many threads and several processes on one store and one transcript."""

from __future__ import annotations

import itertools
import multiprocessing
from typing import Any

import pytest
from backend.support import all_ids, in_threads, record, unit

from crewai_mongodb_memory import ConversationMemory, MongoDBStorageBackend

pytestmark = pytest.mark.usefixtures("contract_kept")


def numbers(memory: ConversationMemory) -> list[int]:
    """Return the numbers of a session's turns, having checked that no bucket is over its size."""
    assert all(b["turn_count"] <= memory.bucket_size for b in memory.collection.find())
    return [turn.turn for turn in memory.turns()]


def test_writers_of_turns_and_exchanges_do_not_come_between(
    backend: MongoDBStorageBackend,
) -> None:
    memory = ConversationMemory(backend, session_id="s", bucket_size=5)

    def write(writer: int) -> None:
        for n in range(10):
            question, answer = memory.add_exchange(f"q{writer}-{n}", f"a{writer}-{n}")
            assert answer.turn == question.turn + 1
            memory.add_turn("tool", f"t{writer}-{n}")

    in_threads(8, write)
    assert numbers(memory) == [*range(1, 241)]
    turns = memory.turns()
    for question, answer in itertools.pairwise(turns):
        if question.role == "user":
            assert answer.content == "a" + question.content[1:]
    assert len({turn.content for turn in turns}) == 240


def test_writers_with_different_bucket_sizes_keep_the_numbers_right(
    backend: MongoDBStorageBackend,
) -> None:
    sizes = [2, 3, 5, 9, 2, 3, 5, 9]

    def write(writer: int) -> None:
        memory = ConversationMemory(backend, session_id="s", bucket_size=sizes[writer])
        for n in range(15):
            memory.add_turn("user", f"{writer}-{n}")

    in_threads(8, write)
    largest = ConversationMemory(backend, session_id="s", bucket_size=9)
    assert numbers(largest) == [*range(1, 121)]


def test_readers_see_whole_turns_while_others_write(backend: MongoDBStorageBackend) -> None:
    memory = ConversationMemory(backend, session_id="s", bucket_size=4)
    memory.add_turn("user", "first")

    def work(number: int) -> None:
        for n in range(20):
            if number % 2:
                memory.add_turn("user", f"{number}-{n}")
                continue
            recent = [turn.turn for turn in memory.recent_turns(7)]
            assert recent == list(range(recent[0], recent[-1] + 1))
            assert memory.count() >= recent[-1]

    in_threads(8, work)
    assert numbers(memory) == [*range(1, 82)]


def test_sixteen_threads_of_mixed_work(make_backend: Any) -> None:
    backend = make_backend(metadata_filter_fields=("writer",))
    backend.save([record("base", "/base")])

    def work(number: int) -> None:
        scope, query = f"/w/{number}", unit(1, number + 1)
        for n in range(6):
            kept, dropped = f"{number}-{n}", f"{number}-{n}-dropped"
            metadata = {"writer": number}
            backend.save(
                [record(i, scope, embedding=query, metadata=metadata) for i in (kept, dropped)]
            )
            backend.update(record(kept, f"{scope}/updated", embedding=query, metadata=metadata))
            backend.touch_records([kept, "base"])
            found = backend.search(query, scope_prefix=scope, metadata_filter=metadata, limit=50)
            assert {r.scope.split("/")[2] for r, _ in found} == {str(number)}
            assert backend.get_record(kept).scope == f"{scope}/updated"
            assert backend.delete(record_ids=[dropped], scope_prefix=scope) == 1
            assert backend.get_scope_info(scope).record_count == n + 1
            assert f"{scope}" in backend.list_scopes("/w")
        backend.list_records("/w")

    in_threads(16, work)
    expected = {f"{number}-{n}" for number in range(16) for n in range(6)}
    assert all_ids(backend) == expected | {"base"}


def test_writers_of_one_id_leave_one_whole_record(backend: MongoDBStorageBackend) -> None:
    for attempt in range(5):
        name = f"r{attempt}"
        in_threads(
            8,
            lambda n, name=name: backend.save(
                [record(name, f"/w{n}", content=str(n), metadata={"n": n})]
            ),
        )
        found = backend.get_record(name)
        assert found.scope == f"/w{found.content}"
        assert found.metadata == {"n": int(found.content)}
    assert backend.count() == 5


def test_a_fence_holds_under_races(make_backend: Any) -> None:
    plain = make_backend()
    fenced = [make_backend(scope_root="/t/a") for _ in range(4)]
    plain.save([record("theirs", "/t/b")])

    def work(number: int) -> None:
        for n in range(5):
            fenced[number % 4].save([record(f"r{n}", content=str(number))])
            fenced[number % 4].update(record(f"u{n}", content=str(number)))

    in_threads(8, work)
    assert fenced[0].count() == 10
    assert plain.get_record("theirs").content == "content of theirs"


def test_several_processes_share_a_transcript_and_a_store(
    backend: MongoDBStorageBackend,
) -> None:
    def work(name: int) -> None:
        memory = ConversationMemory(backend, session_id="s", bucket_size=3)
        for n in range(20):
            memory.add_turn("user", f"{name}-{n}")
            backend.save([record(f"{name}-{n}", f"/p/{name}")])
        backend.close()

    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=work, args=(name,)) for name in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    memory = ConversationMemory(backend, session_id="s", bucket_size=3)
    assert numbers(memory) == [*range(1, 61)]
    expected = {f"{number}-{n}" for number in range(3) for n in range(20)}
    assert {turn.content for turn in memory.turns()} == expected
    assert all_ids(backend) == expected
    assert backend.list_scopes("/p") == ["/p/0", "/p/1", "/p/2"]
