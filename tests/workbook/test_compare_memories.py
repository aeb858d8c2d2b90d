"""The same crew on CrewAI's default storage and on MongoDB."""

from __future__ import annotations

import asyncio

import pytest

from crewai_mongodb_memory import MongoDBStorageBackend
from workbook import crew
from workbook.capabilities import Capabilities
from workbook.compare_memories import QUERIES, SCOPE, compare
from workbook.connect import Connection
from workbook.embedder import LocalEmbedder
from workbook.scripted_llm import ScriptedLLM, language


@pytest.fixture
def connection(mongodb_uri: str, backend: MongoDBStorageBackend) -> Connection:
    embedder = LocalEmbedder()
    made = Capabilities("embedded", True, True, True, False, embedder.model, "scripted")
    connection = Connection(mongodb_uri, backend, embedder, ScriptedLLM(), made)
    crew.prepare(connection)
    return connection


def test_both_keep_the_same_and_name_the_same_closeness_by_different_numbers(
    connection: Connection,
) -> None:
    compared = asyncio.run(compare(connection))

    kept = compared.kept
    assert set(language.statements(crew.MESSAGE)) < set(kept["memory"])
    assert list(kept["scope in LanceDB"]) == list(kept["scope in MongoDB"])

    recalled = compared.recalled
    assert list(dict.fromkeys(recalled["query"])) == list(QUERIES)
    cosine = recalled["similarity, MongoDB"]
    assert list(recalled["similarity, LanceDB"]) == pytest.approx(
        list(1 / (3 - 2 * cosine)), abs=1e-4
    )
    assert (recalled["score, LanceDB"] != recalled["score, MongoDB"]).all()


def test_a_second_comparison_replaces_the_first(connection: Connection) -> None:
    first, second = (asyncio.run(compare(connection, queries=["When?"])) for _ in range(2))

    assert len(second.kept) == len(first.kept) == connection.backend.count(SCOPE)
