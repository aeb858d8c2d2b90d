"""The contract as code: names, fields, indexes, scope paths, record <-> document."""

from __future__ import annotations

import datetime as dt
from typing import Any

import bson
import pytest
from backend.support import record, unit
from hypothesis import given
from hypothesis import strategies as st

from crewai_mongodb_memory import (
    ConversationMemory,
    InvalidInputError,
    MongoDBMemoryError,
    MongoDBStorageBackend,
    sanitize_scope_name,
    schema,
)

TYPES = {
    str: "string",
    bool: "bool",
    int: "int",
    float: "double",
    dict: "object",
    dt.datetime: "date",
    type(None): "null",
    bson.ObjectId: "objectId",
}


def type_of(value: Any) -> str:
    """Return the type of a stored value as EDD.md names it."""
    if isinstance(value, list):
        (element,) = {TYPES[type(item)] for item in value}
        return f"double[{len(value)}]" if element == "double" else f"{element}[]"
    return TYPES[type(value)]


def test_a_stored_memory_has_the_contracts_fields(backend: MongoDBStorageBackend) -> None:
    backend.save([record("a", "/x/y", categories=["c"], metadata={"k": 1}, importance=1)])
    stored = backend.collection.find_one({"_id": "a"})
    assert stored.keys() == schema.MEMORY_FIELDS.keys()
    for name, field in schema.MEMORY_FIELDS.items():
        assert type_of(stored[name]) in field.type.split(" or "), name
    assert stored["scope_ancestors"] == ["/x", "/x/y"]


def test_only_the_vector_may_be_absent(backend: MongoDBStorageBackend) -> None:
    backend.save([record("a", embedding=None)])
    stored = backend.collection.find_one({"_id": "a"})
    assert schema.MEMORY_FIELDS.keys() - stored.keys() == {"embedding"}


def test_a_stored_bucket_has_the_contracts_fields(backend: MongoDBStorageBackend) -> None:
    memory = ConversationMemory(backend, bucket_size=2)
    for n in range(3):
        memory.add_turn("user", str(n))
    full, newest = memory.collection.find().sort("bucket_seq", 1)
    assert full.keys() == schema.CONVERSATION_FIELDS.keys()
    assert newest.keys() == schema.CONVERSATION_FIELDS.keys() - {"closed"}
    for name, field in schema.CONVERSATION_FIELDS.items():
        assert type_of(full[name]) == field.type, name
    for turn in full["turns"]:
        assert {name: type_of(value) for name, value in turn.items()} == {
            name: field.type for name, field in schema.TURN_FIELDS.items()
        }


def test_the_contracts_indexes_are_created(backend: MongoDBStorageBackend) -> None:
    backend.save([record("a")])
    memory = ConversationMemory(backend)
    memory.add_turn("user", "hello")
    for collection, definitions in [
        (backend.collection, schema.MEMORY_INDEXES),
        (memory.collection, schema.CONVERSATION_INDEXES),
    ]:
        created = collection.index_information()
        assert created.keys() == {"_id_"} | {d["name"] for d in definitions}
        for definition in definitions:
            index = created[definition["name"]]
            assert dict(index["key"]) == definition["key"]
            assert index.get("unique", False) == definition.get("unique", False)


def test_the_vector_index_is_as_the_contract_says() -> None:
    vector, *filters = schema.vector_index_definition(["tenant", "a.b"])["fields"]
    assert vector == {
        "type": "vector",
        "path": "embedding",
        "numDimensions": 1024,
        "similarity": "cosine",
    }
    paths = ["scope_ancestors", "categories", "metadata.tenant", "metadata.a.b"]
    assert filters == [{"type": "filter", "path": path} for path in paths]
    assert len(schema.VECTOR_INDEX_FIELDS) == 3


@pytest.mark.parametrize(
    ("scope", "normal", "ancestors"),
    [
        (None, "/", ["/"]),
        ("", "/", ["/"]),
        ("///", "/", ["/"]),
        ("app", "/app", ["/app"]),
        ("//app//sub/", "/app/sub", ["/app", "/app/sub"]),
        (
            "/users/alex/preferences",
            "/users/alex/preferences",
            ["/users", "/users/alex", "/users/alex/preferences"],
        ),
        ("/ a / b ", "/ a / b ", ["/ a ", "/ a / b "]),
        ("/../.", "/../.", ["/..", "/../."]),
    ],
)
def test_a_scope_has_one_spelling(scope: str | None, normal: str, ancestors: list[str]) -> None:
    assert schema.normalize_scope(scope) == normal
    assert schema.scope_ancestors(normal) == ancestors


@given(st.text())
def test_normalising_twice_is_normalising_once(scope: str) -> None:
    if any("\ud800" <= character <= "\udfff" for character in scope):
        with pytest.raises(InvalidInputError):
            schema.normalize_scope(scope)
        return
    normal = schema.normalize_scope(scope)
    assert schema.normalize_scope(normal) == normal
    assert schema.scope_ancestors(normal)[-1] == normal


@pytest.mark.parametrize(
    ("scope", "confined"),
    [
        (None, "/t/a"),
        ("/", "/t/a"),
        ("/t/a", "/t/a"),
        ("t/a/", "/t/a"),
        ("/t/a/x", "/t/a/x"),
        ("/x", "/t/a/x"),
        ("/t/b", "/t/a/t/b"),
        ("/t/a-b", "/t/a/t/a-b"),
        ("/t", "/t/a/t"),
    ],
)
def test_a_scope_is_confined_to_the_fence(scope: str | None, confined: str) -> None:
    assert schema.confine_scope(scope, "/t/a") == confined
    assert schema.confine_scope(scope, "/") == schema.normalize_scope(scope)


@given(st.text(alphabet="ab/%2F", min_size=1), st.text(alphabet="ab/%2F", min_size=1))
def test_two_names_are_two_segments(one: str, other: str) -> None:
    safe = sanitize_scope_name(one)
    assert "/" not in safe
    assert (safe == sanitize_scope_name(other)) == (one == other)


def test_a_record_comes_back_as_it_was(backend: MongoDBStorageBackend) -> None:
    saved = record(
        "a",
        "/x",
        content="",
        categories=["b", "a", "b"],
        metadata={"k": [1, {"m": None}]},
        importance=0.25,
        source="bea",
        private=True,
        embedding=unit(1, 2, 3),
        created_at=dt.datetime(2026, 1, 2, 3, 4, 5, 678000),
        last_accessed=dt.datetime(2026, 2, 2, 3, 4, 5),
    )
    backend.save([saved])
    found = backend.get_record("a")
    assert found == saved
    assert found.embedding == saved.embedding


def test_a_document_of_another_writer_is_read(backend: MongoDBStorageBackend) -> None:
    now = dt.datetime(2026, 1, 1)
    backend.collection.insert_one(
        {
            "_id": "a",
            "content": "hello",
            "scope": "/x",
            "scope_ancestors": ["/x"],
            "created_at": now,
            "last_accessed": now,
        }
    )
    found = backend.get_record("a")
    assert (found.categories, found.metadata, found.importance) == ([], {}, 0.5)
    assert (found.source, found.private, found.embedding) == (None, False, None)
    assert backend.list_categories() == {}


def test_a_document_that_is_no_memory_is_named(backend: MongoDBStorageBackend) -> None:
    backend.collection.insert_one({"_id": "by hand", "content": "hello", "scope": "/a"})
    with pytest.raises(MongoDBMemoryError, match=r"'by hand' is no memory: it lacks .*created_at"):
        backend.get_record("by hand")
