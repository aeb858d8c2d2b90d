"""The doctor says what works and what does not, and finds every broken promise of EDD.md."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from crewai.memory.types import MemoryRecord
from server import in_database

from crewai_mongodb_memory import ConversationMemory, MongoDBStorageBackend
from workbook import doctor
from workbook.invariants import violations


@pytest.fixture
def filled(backend: MongoDBStorageBackend) -> MongoDBStorageBackend:
    """Return a backend with two memories and a transcript of three buckets."""
    backend.save(
        [
            MemoryRecord(id="a", content="one", scope="/users/alex", embedding=[0.1] * 1024),
            MemoryRecord(id="b", content="two"),
        ]
    )
    transcript = ConversationMemory(backend, bucket_size=2)
    for n in range(5):
        transcript.add_turn("user", str(n))
    return backend


def test_what_the_code_writes_keeps_every_promise(filled: MongoDBStorageBackend) -> None:
    assert list(violations(filled.database)) == []


def memory(change: dict[str, Any]) -> Callable[[MongoDBStorageBackend], None]:
    return lambda backend: backend.collection.update_one({"_id": "a"}, change) and None


def bucket(sequence: int, change: dict[str, Any]) -> Callable[[MongoDBStorageBackend], None]:
    def apply(backend: MongoDBStorageBackend) -> None:
        backend.database["conversations"].update_one({"bucket_seq": sequence}, change)

    return apply


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (memory({"$unset": {"content": 1}}), "memory 'a' lacks content"),
        (memory({"$set": {"scope": "/users/bea"}}), "scope_ancestors that do not match"),
        (memory({"$set": {"scope": "users/alex/"}}), "not normalised"),
        (memory({"$set": {"embedding": [0.1] * 512}}), "512 dimensions, not 1024"),
        (memory({"$set": {"importance": 7.0}}), "importance 7.0"),
        (memory({"$set": {"created_at": "yesterday"}}), "created_at of type str"),
        (bucket(1, {"$set": {"turn_count": 9}}), "says it holds 9 turns and holds 2"),
        (bucket(1, {"$set": {"bucket_seq": 7}}), "bucket 2 stands where bucket 1 should"),
        (bucket(1, {"$set": {"turns.0.turn": 99}}), "does not number its turns from 3 on"),
        (bucket(2, {"$set": {"end_turn": 99}}), "start_turn or end_turn"),
        (bucket(1, {"$unset": {"closed": 1}}), "bucket 1 is not closed"),
    ],
)
def test_every_kind_of_damage_is_found(
    filled: MongoDBStorageBackend, damage: Callable[[MongoDBStorageBackend], None], said: str
) -> None:
    damage(filled)
    found = list(violations(filled.database))
    assert any(said in each for each in found), found


def test_the_doctor_finds_a_working_workbook_and_leaves_nothing_in_it(
    mongodb_uri: str,
    database_name: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("MONGODB_URI", in_database(mongodb_uri, database_name))
    assert doctor.main([]) == 0
    with MongoDBStorageBackend(mongodb_uri, database_name=database_name) as backend:
        assert backend.count() == 0
        assert backend.database["conversations"].count_documents({}) == 0
    said = capsys.readouterr().out
    assert "FAIL" not in said
    for what in ("Python", "packages", "database", "embedder", "memory", "transcript", "LLM"):
        assert f"  {what}: " in said
    if "@" in mongodb_uri:
        assert mongodb_uri.split("@")[0].rsplit(":", 1)[1] not in said


def test_the_doctor_says_what_is_wrong_without_a_secret(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(
        "MONGODB_URI", "mongodb://alex:s3cretpw@127.0.0.1:1/?serverSelectionTimeoutMS=500"
    )
    assert doctor.main([]) == 1
    said = capsys.readouterr().out
    assert "FAIL" in said
    assert "access list" in said
    assert "s3cretpw" not in said


def test_a_broken_database_is_reported_with_its_damage(
    filled: MongoDBStorageBackend,
    database_name: str,
    mongodb_uri: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MONGODB_URI", mongodb_uri)
    assert doctor.check_contract(database_name).works
    memory({"$set": {"importance": 7.0}})(filled)
    found = doctor.check_contract(database_name)
    assert not found.works
    assert "importance 7.0" in found.seen


def test_a_name_that_no_database_can_have_is_a_finding(
    mongodb_uri: str, database_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MONGODB_URI", in_database(mongodb_uri, database_name))
    found = doctor.check_contract("a b")
    assert not found.works
    assert "'a b'" in found.what
