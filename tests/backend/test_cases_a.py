"""Cases A: CrewAI's memory contract, at the storage's own methods."""

from __future__ import annotations

import asyncio
import copy
import datetime as dt
import pickle
from typing import Any

import pytest
from backend.support import all_ids, ids, record, unit
from crewai.memory.storage.backend import (
    EmbeddingDimensionMismatchError as CrewAIEmbeddingDimensionMismatchError,
)
from crewai.memory.types import MemoryConfig, compute_composite_score
from pymongo import MongoClient

from crewai_mongodb_memory import (
    EmbeddingDimensionMismatchError,
    MemoryConnectionError,
    MongoDBMemoryError,
    MongoDBStorageBackend,
    errors,
)

QUERY = unit(1)
EVERY_SPELLING_OF_APP = ["/app", "app", "/app/", "//app//", "app/"]
EVERYTHING = [None, "", "/", "//"]


def test_A1_a_prefix_matches_whole_segments(f5: MongoDBStorageBackend) -> None:
    inside = {"app", "appsub"}
    assert ids(f5.search(QUERY, scope_prefix="/app")) == inside
    assert f5.count("/app") == 2
    assert ids(f5.list_records("/app")) == inside
    assert f5.list_categories("/app") == {"x": 2}
    info = f5.get_scope_info("/app")
    assert (info.record_count, info.categories, info.child_scopes) == (2, ["x"], ["/app/sub"])


def test_A2_delete_by_scope_spares_root_and_siblings(f5: MongoDBStorageBackend) -> None:
    assert f5.delete(scope_prefix="/app") == 2
    assert all_ids(f5) == {"root", "apple", "appb"}


def test_A3_reset_of_a_scope_spares_siblings(f5: MongoDBStorageBackend) -> None:
    f5.reset("/app")
    assert all_ids(f5) == {"root", "apple", "appb"}


def test_A4_delete_needs_every_criterion(f5: MongoDBStorageBackend) -> None:
    assert f5.delete(record_ids=["app"], categories=["x"]) == 1
    assert f5.delete(record_ids=["root"], categories=["x"]) == 0
    assert f5.delete(scope_prefix="/apple", record_ids=["appb"]) == 0
    assert f5.delete(older_than=dt.datetime(2000, 1, 1), categories=["x"]) == 0
    assert f5.delete(metadata_filter={"k": 1}, categories=["x"]) == 0
    assert all_ids(f5) == {"root", "appsub", "apple", "appb"}


def test_A6_an_empty_criterion_never_empties_the_store(f5: MongoDBStorageBackend) -> None:
    assert f5.delete() == 0
    assert f5.delete(record_ids=[]) == 0
    assert f5.delete(categories=[]) == 0
    assert f5.delete(scope_prefix="") == 0
    assert f5.delete(metadata_filter={}) == 0
    assert f5.delete(scope_prefix="/", record_ids=[]) == 0
    assert f5.delete(scope_prefix="/app", categories=[]) == 0
    assert f5.count() == 5
    assert f5.delete(scope_prefix="/") == 5


ODD_NAMES = ["a_b", "axb", "100%", "o'brien", "a.b", "a+b(c)[d]^$", "a\\b", "*", "a b", "a\n", "ä"]
ODD_NAMES += ["$gt", "..", "%", "😀", "a-b", "a0", "0"]


def test_A7_a_scope_is_a_name_and_no_pattern(backend: MongoDBStorageBackend) -> None:
    backend.save([record(name, f"/u/{name}") for name in ODD_NAMES])
    for name in ODD_NAMES:
        scope = f"/u/{name}"
        assert ids(backend.search(QUERY, scope_prefix=scope)) == {name}
        assert ids(backend.list_records(scope)) == {name}
        assert backend.count(scope) == 1
        assert backend.get_scope_info(scope).record_count == 1
    assert backend.list_scopes("/u") == sorted(f"/u/{name}" for name in ODD_NAMES)
    for left, name in enumerate(reversed(ODD_NAMES[1:]), 1):
        if left % 2:
            assert backend.delete(scope_prefix=f"/u/{name}") == 1
        else:
            backend.reset(f"/u/{name}")
        assert backend.count() == len(ODD_NAMES) - left
    assert all_ids(backend) == {ODD_NAMES[0]}


@pytest.mark.parametrize("scope", EVERY_SPELLING_OF_APP)
def test_A8_every_spelling_of_a_scope_is_the_same(f5: MongoDBStorageBackend, scope: str) -> None:
    f5.save([record("slash", "app/", categories=["y"])])
    assert f5.get_record("slash").scope == "/app"
    inside = {"app", "appsub", "slash"}
    assert ids(f5.search(QUERY, scope_prefix=scope)) == inside
    assert ids(f5.list_records(scope)) == inside
    assert f5.count(scope) == 3
    assert f5.list_scopes(scope) == ["/app/sub"]
    assert f5.list_categories(scope) == {"x": 2, "y": 1}
    info = f5.get_scope_info(scope)
    assert (info.path, info.record_count, info.child_scopes) == ("/app", 3, ["/app/sub"])
    assert f5.delete(scope_prefix=scope, categories=["y"]) == 1
    f5.reset(scope)
    assert all_ids(f5) == {"root", "apple", "appb"}


@pytest.mark.parametrize("scope", EVERYTHING)
def test_A8_the_root_is_everything_when_reading(f5: MongoDBStorageBackend, scope: Any) -> None:
    assert len(f5.search(QUERY, scope_prefix=scope)) == 5
    assert len(f5.list_records(scope)) == f5.count(scope) == 5
    assert f5.list_categories(scope) == {"x": 4}
    assert f5.list_scopes(scope) == ["/app", "/app-b", "/apple"]
    assert f5.get_scope_info(scope).path == "/"
    assert f5.get_scope_info(scope).record_count == 5
    f5.reset(scope)
    assert f5.count() == 0


@pytest.mark.parametrize("settings", [{}, {"tz_aware": True}])
def test_A10_dates_come_back_as_naive_utc(make_backend: Any, settings: dict[str, Any]) -> None:
    backend = make_backend(**settings)
    india = dt.timezone(dt.timedelta(hours=5, minutes=30))
    moment = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=india)
    backend.save([record("a", created_at=moment)])
    found = backend.get_record("a")
    assert found.created_at == dt.datetime(2026, 1, 1, 21, 34, 5)
    assert found.created_at.tzinfo is None
    assert compute_composite_score(found, 0.8, MemoryConfig())[0] > 0


def test_A14_an_update_without_a_vector_keeps_the_stored_one(
    backend: MongoDBStorageBackend,
) -> None:
    vector = unit(3, 4)
    backend.save([record("a", embedding=vector)])
    sources = {
        "get": lambda: backend.get_record("a"),
        "search": lambda: backend.search(vector, limit=1)[0][0],
        "list": lambda: backend.list_records()[0],
        "without": lambda: backend.get_record("a").model_copy(update={"embedding": None}),
        "dumped": lambda: type(backend.get_record("a"))(**backend.get_record("a").model_dump()),
    }
    for name, fetch in sources.items():
        backend.update(fetch().model_copy(update={"scope": f"/{name}"}))
        stored = backend.collection.find_one({"_id": "a"})
        assert stored["embedding"] == vector
        assert (stored["scope"], stored["scope_ancestors"]) == (f"/{name}", [f"/{name}"])
        assert ids(backend.search(vector, scope_prefix=f"/{name}")) == {"a"}


def test_A17_one_id_is_one_record(backend: MongoDBStorageBackend) -> None:
    backend.save([record("a", content="1")])
    backend.save([record("a", content="2")])
    assert (backend.count(), backend.get_record("a").content) == (1, "2")
    backend.save([record("b", content="1"), record("b", content="2")])
    assert (backend.count(), backend.get_record("b").content) == (2, "2")


@pytest.mark.parametrize("embedding", [None, []])
def test_A19_a_record_without_a_vector_is_never_found_by_search(
    backend: MongoDBStorageBackend, embedding: Any
) -> None:
    backend.save([record("a", embedding=embedding), record("b")])
    assert ids(backend.search(QUERY, limit=10)) == {"b"}
    assert ids(backend.list_records()) == {"a", "b"}
    assert backend.count() == 2
    assert backend.get_record("a").embedding is None
    assert "embedding" not in backend.collection.find_one({"_id": "a"})


def test_A20_a_vector_of_another_length_is_refused_before_any_write(
    backend: MongoDBStorageBackend,
) -> None:
    wrong = record("bad", embedding=[0.1] * 1536)
    with pytest.raises(EmbeddingDimensionMismatchError, match=r"'bad'.*1536.*1024"):
        backend.save([wrong])
    with pytest.raises(CrewAIEmbeddingDimensionMismatchError) as caught:
        backend.save([record("a"), wrong, record("c")])
    assert isinstance(caught.value, ValueError)
    assert not isinstance(caught.value, RuntimeError)
    assert (caught.value.stored_dim, caught.value.new_dim) == (1024, 1536)
    assert backend.count() == 0
    with pytest.raises(EmbeddingDimensionMismatchError, match="query_embedding"):
        backend.search([0.1] * 512)
    with pytest.raises(EmbeddingDimensionMismatchError):
        backend.search([])
    backend.save([record("a")])
    with pytest.raises(EmbeddingDimensionMismatchError):
        backend.update(record("a", content="new", embedding=[0.1] * 768))
    assert backend.get_record("a").content == "content of a"


def test_A21_no_error_of_ours_is_a_runtime_error() -> None:
    ours = [value for value in vars(errors).values() if isinstance(value, type)]
    assert len(ours) >= 6
    assert not [error for error in ours if issubclass(error, RuntimeError)]


@pytest.mark.parametrize("source", [None, "", "bea"])
@pytest.mark.parametrize("private", [True, False])
def test_A22_source_and_private_come_back_as_they_were(
    backend: MongoDBStorageBackend, source: str | None, private: bool
) -> None:
    backend.save([record("a", source=source, private=private)])
    found = backend.get_record("a")
    assert (found.source, found.private) == (source, private)
    backend.update(found)
    assert backend.collection.find_one({"_id": "a"})["source"] == source


def test_A24_the_filter_is_applied_before_the_limit(make_backend: Any) -> None:
    hidden = [
        record(f"h{n}", source="bea", private=True, metadata={"user": "bea"}, categories=["often"])
        for n in range(20)
    ]
    shown = record("alex", metadata={"user": "alex"}, categories=["rare"], embedding=unit(1, 2))
    for fields in [(), ("user",)]:
        backend = make_backend(metadata_filter_fields=fields, collection_name=f"m{len(fields)}")
        backend.save([*hidden, shown])
        backend.ensure_vector_index()
        assert ids(backend.search(QUERY, limit=1, metadata_filter={"user": "alex"})) == {"alex"}
        assert ids(backend.search(QUERY, limit=1, categories=["rare"])) == {"alex"}


def test_A27_every_backend_owns_its_client(make_backend: Any, mongodb_uri: str) -> None:
    first, second = make_backend(), make_backend()
    first.save([record("a")])
    assert second.count() == 1
    client = first.client
    first.close()
    first.close()
    assert second.get_record("a") is not None
    with pytest.raises(MemoryConnectionError, match="closed"):
        first.save([record("b")])
    with pytest.raises(MemoryConnectionError, match="closed"):
        first.client  # noqa: B018
    with pytest.raises(Exception, match="close"):
        client.admin.command("ping")
    assert isinstance(second.client, MongoClient)


def test_A27_a_backend_that_was_never_used_can_be_closed() -> None:
    backend = MongoDBStorageBackend("mongodb://127.0.0.1:1/")
    backend.close()
    with pytest.raises(MongoDBMemoryError, match="closed"):
        backend.count()


def test_A27_copies_do_not_share_a_client(make_backend: Any) -> None:
    backend = make_backend(scope_root="/t", metadata_filter_fields=("k",))
    backend.save([record("a", "/t/x")])
    for other in [copy.copy(backend), copy.deepcopy(backend), pickle.loads(pickle.dumps(backend))]:
        assert other.client is not backend.client
        assert (repr(other), other.count()) == (repr(backend), 1)
        other.close()
    assert backend.count() == 1


def test_A27_async_calls_after_close_say_so(make_backend: Any) -> None:
    backend = make_backend()
    backend.close()
    with pytest.raises(MemoryConnectionError, match="closed"):
        asyncio.run(backend.asearch(QUERY))
