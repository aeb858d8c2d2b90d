"""Cases C: what neighbouring stores met."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from backend.support import ids, record, unit
from crewai.memory.storage.backend import StorageBackend

from crewai_mongodb_memory import InvalidInputError, MongoDBStorageBackend, sanitize_scope_name

QUERY = unit(1)


def test_C2_a_name_with_a_separator_stays_one_segment(backend: MongoDBStorageBackend) -> None:
    names = ["a/b", "a", "a%2Fb", "a-b", "A/B", "a//b", "/a", "a/", "a b", "%"]
    backend.save([record(name, f"/users/{sanitize_scope_name(name)}") for name in names])
    backend.save([record("real", "/users/a/b")])
    for name in names:
        scope = f"/users/{sanitize_scope_name(name)}"
        expected = {"a", "real"} if name == "a" else {name}
        assert ids(backend.list_records(scope)) == expected
    with pytest.raises(InvalidInputError, match="empty"):
        sanitize_scope_name("")


def test_C3_an_update_keeps_what_the_application_added(backend: MongoDBStorageBackend) -> None:
    backend.save([record("a", metadata={"k": 1, "old": True}, categories=["x"])])
    backend.collection.update_one({"_id": "a"}, {"$set": {"owner": "ops"}})
    before = backend.get_record("a")
    backend.update(
        before.model_copy(update={"content": "new", "metadata": {"k": 2}, "categories": []})
    )
    stored = backend.collection.find_one({"_id": "a"})
    assert stored["owner"] == "ops"
    assert (stored["content"], stored["metadata"]) == ("new", {"k": 2})
    assert stored["categories"] == []
    assert stored["created_at"] == before.created_at


def test_C4_every_match_is_deleted(backend: MongoDBStorageBackend) -> None:
    backend.save([record(f"r{n}", categories=["c"]) for n in range(3)])
    assert backend.delete(categories=["c"]) == 3
    assert backend.count() == 0


def test_C7_signatures_are_the_protocols(backend: MongoDBStorageBackend) -> None:
    assert isinstance(backend, StorageBackend)
    protocol = {n: f for n, f in vars(StorageBackend).items() if inspect.isfunction(f)}
    methods = {name: f for name, f in protocol.items() if not name.startswith("_")}
    assert len(methods) == 14
    for name, method in methods.items():
        ours = getattr(MongoDBStorageBackend, name)
        assert _parameters(ours) == _parameters(method), name
        assert inspect.iscoroutinefunction(ours) == inspect.iscoroutinefunction(method), name


def _parameters(function: Any) -> list[tuple[str, Any, Any]]:
    parameters = inspect.signature(function).parameters.values()
    return [(p.name, p.kind, p.default) for p in parameters]


def test_C7_every_method_is_called_by_keyword(backend: MongoDBStorageBackend) -> None:
    backend.save(records=[record("a", "/x", categories=["c"])])
    found = backend.search(
        query_embedding=QUERY,
        scope_prefix="/x",
        categories=["c"],
        metadata_filter=None,
        limit=5,
        min_score=0.0,
    )
    assert ids(found) == {"a"}
    backend.update(record=record("a", "/x", categories=["c"]))
    assert backend.get_record(record_id="a").scope == "/x"
    assert ids(backend.list_records(scope_prefix="/x", limit=5, offset=0)) == {"a"}
    assert backend.get_scope_info(scope="/x").record_count == 1
    assert backend.list_scopes(parent="/") == ["/x"]
    assert backend.list_categories(scope_prefix="/x") == {"c": 1}
    assert backend.count(scope_prefix="/x") == 1
    backend.touch_records(record_ids=["a"])
    criteria: dict[str, Any] = {"older_than": None, "metadata_filter": None}
    assert backend.delete(scope_prefix="/x", categories=None, record_ids=["a"], **criteria) == 1
    backend.reset(scope_prefix="/x")
