"""What a call costs, where that is promised: how often the server is asked, and how much it says.

The commands of each method are in `test_backend.py` and `test_conversation.py`; `make bench` shows
what all of it amounts to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from backend.support import Commands, record, unit
from benchmarks.counting import Cost, Meter

from crewai_mongodb_memory import MongoDBStorageBackend

QUERY = unit(1)
VECTOR_BYTES = 13_000
Call = Callable[[], Any]


@pytest.fixture
def meter() -> Meter:
    return Meter()


@pytest.fixture
def metered(make_ready: Any, meter: Meter) -> MongoDBStorageBackend:
    """Return a backend whose calls `meter` can count, its indexes created."""
    return make_ready(event_listeners=[meter])


@pytest.fixture
def lean(make_ready: Any, meter: Meter) -> MongoDBStorageBackend:
    """Return the same one, with results that leave the vectors out."""
    return make_ready(event_listeners=[meter], vectors_in_results=False)


def cost(meter: Meter, call: Call) -> Cost:
    with meter.counting() as counted:
        call()
    return counted


def test_a_save_of_any_number_is_one_bulk_write_split_by_size_alone(
    metered: MongoDBStorageBackend, meter: Meter
) -> None:
    for number in (1, 150):
        batch = [record(f"r{n}") for n in range(number)]
        assert cost(meter, lambda batch=batch: metered.save(batch)).names == ["update"]
    big = [record(f"big{n}", content="x" * 13_000_000, embedding=None) for n in range(4)]
    assert cost(meter, lambda: metered.save(big)).names == ["update", "update"]  # 48 MB each


def test_a_summary_of_a_scope_is_as_large_for_many_records_as_for_few(
    metered: MongoDBStorageBackend, meter: Meter
) -> None:
    def fill(number: int) -> None:
        metered.save(
            [record(f"r{n}", f"/u/{n % 3}", categories=[f"c{n % 4}"]) for n in range(number)]
        )

    calls: list[Call] = [
        lambda: metered.get_scope_info("/u"),
        lambda: metered.list_scopes("/u"),
        lambda: metered.list_categories("/u"),
        lambda: metered.count("/u"),
    ]
    fill(12)
    few = [cost(meter, call).received for call in calls]
    fill(120)
    assert [cost(meter, call).received for call in calls] == few


def test_results_can_leave_out_the_vectors(
    metered: MongoDBStorageBackend, lean: MongoDBStorageBackend, meter: Meter
) -> None:
    saved = [record(f"r{n}", "/a") for n in range(5)]
    metered.save(saved)
    pairs: list[tuple[Call, Call]] = [
        (lambda: metered.search(QUERY, "/a"), lambda: lean.search(QUERY, "/a")),
        (lambda: metered.list_records("/a"), lambda: lean.list_records("/a")),
    ]
    for with_vectors, without in pairs:
        more, less = cost(meter, with_vectors).received, cost(meter, without).received
        assert more - less > len(saved) * VECTOR_BYTES
        assert less < len(saved) * 1000
    (found, score), *_ = lean.search(QUERY, "/a")
    assert (found.embedding, score) == (None, 1.0)
    assert lean.list_records("/a")[0].embedding is None

    lean.update(found.model_copy(update={"content": "changed"}))
    kept = lean.get_record(found.id)
    assert kept is not None
    assert (kept.content, kept.embedding) == ("changed", saved[0].embedding)


def test_waiting_for_a_record_fetches_no_vectors(
    metered: MongoDBStorageBackend, meter: Meter
) -> None:
    saved = [record(f"r{n}", "/a") for n in range(30)]
    metered.save(saved)
    waited = cost(meter, lambda: metered.wait_until_searchable(saved[7]))
    assert waited.received < VECTOR_BYTES * len(waited.commands)


def test_a_search_that_is_widened_fetches_no_document_twice(
    logged: MongoDBStorageBackend, commands: Commands
) -> None:
    hidden = [record(f"n{n}", embedding=unit(1, 0.1)) for n in range(120)]
    wanted = [record(f"w{n}", metadata={"k": 1}, embedding=unit(1, n)) for n in range(4)]
    logged.save([*hidden, *wanted])
    commands.sent.clear()
    found = logged.search(QUERY, metadata_filter={"k": 1}, limit=4)
    assert [near.id for near, _ in found] == ["w0", "w1", "w2", "w3"]
    pages = [list(logged.collection.aggregate(pipeline)) for pipeline in commands.pipelines()]
    assert [[document["_id"] for document in page] for page in pages] == [
        ["w0"],
        ["w1", "w2", "w3"],
    ]
