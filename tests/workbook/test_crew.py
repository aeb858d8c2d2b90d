"""The demo crew on a real database: what it stores, what it finds, and what it depends on."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from typing import Any

import pytest
from crewai import LLM
from crewai.memory.types import MemoryRecord
from openai_server import serving

from crewai_mongodb_memory import MongoDBStorageBackend
from workbook import crew, steps
from workbook.capabilities import Capabilities
from workbook.connect import Connection
from workbook.embedder import LocalEmbedder
from workbook.scripted_llm import ScriptedLLM, language, prompt

LEAD = "Linnea Sandström"


@pytest.fixture(scope="module")
def embedder() -> LocalEmbedder:
    return LocalEmbedder()


@pytest.fixture
def connection(
    mongodb_uri: str, backend: MongoDBStorageBackend, embedder: LocalEmbedder
) -> Connection:
    capabilities = Capabilities("embedded", True, True, True, False, embedder.model, "scripted")
    return Connection(mongodb_uri, backend, embedder, ScriptedLLM(), capabilities)


@pytest.fixture
def told(connection: Connection) -> Connection:
    """Return a connection on whose database the first session has run."""
    crew.prepare(connection)
    asyncio.run(crew.learn(connection))
    return connection


def facts() -> list[str]:
    return language.statements(crew.MESSAGE)


def chosen(answer: str) -> str:
    """Return the name of the person that a proposal puts first."""
    return answer.partition("”: ")[2].partition(",")[0]


def memories(connection: Connection) -> list[MemoryRecord]:
    return connection.backend.list_records(crew.MEMORY_SCOPE)


def test_every_told_fact_is_stored_once_and_both_turns(told: Connection) -> None:
    stored = [record.content for record in memories(told)]

    assert len(facts()) >= 4
    assert [stored.count(fact) for fact in facts()] == [1] * len(facts())
    turns = crew.transcript(told).turns()
    assert [(turn.turn, turn.role) for turn in turns] == [(1, "user"), (2, "assistant")]
    assert turns[0].content == crew.MESSAGE


def test_a_new_crew_answers_from_what_another_was_told(told: Connection) -> None:
    answer = asyncio.run(crew.propose(told)).raw

    assert chosen(answer) == LEAD
    assert all(fact in answer for fact in facts())
    assert "availability: " in answer
    assert crew.transcript(told).count() == 4


def test_without_memory_the_same_crew_knows_nothing_of_it(told: Connection) -> None:
    answer = asyncio.run(crew.propose(told, with_memory=False)).raw

    assert not [fact for fact in facts() if fact in answer]
    assert chosen(answer) != LEAD
    assert crew.transcript(told).count() == 2


def test_the_answer_follows_the_corpus(told: Connection) -> None:
    """With the chosen member gone another is named; who is given that profile is named next."""
    everyone = told.backend.list_records(crew.TEAM_SCOPE)
    (lead,) = [member for member in everyone if member.metadata["name"] == LEAD]
    told.backend.delete(record_ids=[lead.id])

    second = chosen(asyncio.run(crew.propose(told)).raw)
    assert second in {member.metadata["name"] for member in everyone} - {LEAD}

    heir = next(m for m in everyone if m.metadata["name"] not in {LEAD, second})
    update = {"content": lead.content, "embedding": lead.embedding}
    told.backend.update(heir.model_copy(update=update))

    assert chosen(asyncio.run(crew.propose(told)).raw) == heir.metadata["name"]


def test_the_answer_follows_what_was_told(connection: Connection) -> None:
    crew.prepare(connection)
    message = "I lead a project. We need someone who cares for hospital devices and regulators."
    asyncio.run(crew.learn(connection, message))

    assert chosen(asyncio.run(crew.propose(connection)).raw) != LEAD


def test_a_second_preparation_replaces_the_first(told: Connection) -> None:
    team = crew.prepare(told)

    assert memories(told) == []
    assert crew.transcript(told).count() == 0
    assert told.backend.count(crew.SCOPE) == team == 17


def test_nothing_outside_the_demo_s_scope_is_touched(connection: Connection) -> None:
    own = MemoryRecord(id="mine", content="Not the demo's.", scope="/demonstration")
    connection.backend.save([own])
    crew.prepare(connection)
    asyncio.run(crew.learn(connection))

    assert [record.id for record in connection.backend.list_records("/demonstration")] == ["mine"]


# The search tool


def test_the_score_is_the_cosine_of_the_profile_to_all_needs_as_one_text(told: Connection) -> None:
    query = told.embedder.embed_query(" ".join(facts()))

    found = crew.find_members(told, facts(), limit=17)

    assert len(found) == 17
    assert [c.score for c in found] == sorted((c.score for c in found), reverse=True)
    for candidate in found:
        vector = candidate.record.embedding or []
        dot = sum(a * b for a, b in zip(query, vector, strict=True))
        cosine = dot / (math.hypot(*query) * math.hypot(*vector))
        assert candidate.score == pytest.approx(max(cosine, 0), abs=1e-4)


def test_evidence_quotes_the_profile_for_every_need(told: Connection) -> None:
    (best,) = crew.find_members(told, facts(), limit=1)

    assert [evidence.need for evidence in best.evidence] == facts()
    profile = language.sentences(best.record.content)
    assert all(evidence.sentence in profile for evidence in best.evidence)


def test_the_tool_s_answer_carries_scores_and_is_the_scripted_llm_s_to_read(
    told: Connection,
) -> None:
    found = crew.find_members(told, facts())
    answer = crew.search_tool(told).run(needs=facts())

    hits = prompt.hits(answer)
    assert [hit.score for hit in hits] == [round(c.score, 2) for c in found]
    assert [hit.text.split(",")[0] for hit in hits] == [c.record.metadata["name"] for c in found]


def test_an_empty_team_is_said_to_be_empty(connection: Connection) -> None:
    crew.prepare(connection)
    connection.backend.reset(crew.TEAM_SCOPE)

    assert crew.search_tool(connection).run(needs=["Someone."]) == "Nobody was found."


# The steps, and another LLM


def test_the_steps_tell_what_happened_in_order(told: Connection) -> None:
    seen: list[steps.Step] = []
    with steps.listening(seen.append):
        asyncio.run(crew.propose(told))
    asyncio.run(crew.propose(told, with_memory=False))

    told_of = [(s.kind, s.agent, s.name) for s in seen if s.kind != "prompted"]
    assert told_of == [
        ("tool", "Concierge", "search_memory"),
        ("answer", "Concierge", ""),
        ("tool", "Staffing analyst", "search_team"),
        ("answer", "Staffing analyst", ""),
    ]
    assert seen[-2].arguments["needs"][1:] != []


def test_a_failing_tool_is_a_step_of_its_own(told: Connection) -> None:
    seen: list[steps.Step] = []
    told.backend.close()
    with steps.listening(seen.append), pytest.raises(Exception, match=r"(?i)clos"):
        asyncio.run(crew.propose(told))

    assert [step for step in seen if step.kind == "failure"]


@pytest.fixture
def served() -> Iterator[tuple[LLM, list[dict[str, Any]]]]:
    """Return CrewAI's OpenAI client on a local server, and the requests it sent."""
    with serving() as (url, requests):
        yield LLM(model="openai/local", base_url=url, api_key="none"), requests


def test_the_same_crew_runs_through_crewai_s_openai_client(
    connection: Connection, served: tuple[LLM, list[dict[str, Any]]]
) -> None:
    connection.llm, requests = served
    crew.prepare(connection)
    asyncio.run(crew.learn(connection))

    assert chosen(asyncio.run(crew.propose(connection)).raw) == LEAD
    assert {
        tool["function"]["name"] for request in requests for tool in request.get("tools", [])
    } == {
        "search_memory",
        "save_to_memory",
        "search_team",
    }
    assert {
        request["response_format"]["json_schema"]["name"]
        for request in requests
        if "response_format" in request
    } >= {"ExtractedMemories", "MemoryAnalysis", "QueryAnalysis"}
