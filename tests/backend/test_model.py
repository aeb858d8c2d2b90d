"""Random calls on the backend and the transcript, compared with models that are obviously right."""

from __future__ import annotations

import datetime as dt
import math
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from backend.support import DIMENSIONS
from crewai.memory.types import MemoryRecord
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from crewai_mongodb_memory import ConversationMemory, MongoDBStorageBackend
from workbook.invariants import violations

BOUNDED = settings(
    max_examples=25,
    stateful_step_count=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)

SEGMENTS = ["app", "a", "a-b", "a.b", "apple", "x y", "ö", "$gt", "%", "A"]
scopes = st.lists(st.sampled_from(SEGMENTS), max_size=4).flatmap(
    lambda names: st.sampled_from(
        ["/" + "/".join(names), "/".join(names), "//" + "//".join(names) + "/"]
    )
)
prefixes = st.one_of(st.none(), st.just(""), scopes)
identifiers = st.sampled_from([f"id{n}" for n in range(8)])
category_lists = st.lists(st.sampled_from(["x", "y", "$z", ""]), max_size=3)
scalars = st.sampled_from([None, True, False, 0, 1, 1.0, 2.5, "1", "", "$gt", "a"])
values = st.one_of(scalars, st.lists(scalars, max_size=2), st.just({"k": 1}))
metadata = st.dictionaries(st.sampled_from(["k", "m", "nested"]), values, max_size=2)
conditions = st.dictionaries(
    st.sampled_from(["k", "m", "nested.k"]),
    st.one_of(scalars, st.lists(scalars, max_size=2)),
    max_size=2,
)
moments = st.integers(0, 20).map(lambda days: dt.datetime(2026, 1, 1) + dt.timedelta(days=days))
directions = st.tuples(*[st.integers(-2, 2)] * 3).filter(any)
vectors = st.one_of(st.none(), directions)


def padded(direction: tuple[int, ...]) -> list[float]:
    return [float(number) for number in direction] + [0.0] * (DIMENSIONS - len(direction))


def cosine(one: list[float], other: list[float]) -> float:
    dot = sum(a * b for a, b in zip(one[:3], other[:3], strict=True))
    return max(0.0, dot / (math.hypot(*one[:3]) * math.hypot(*other[:3])))


def segments(scope: str | None) -> list[str]:
    return [name for name in (scope or "").split("/") if name]


def inside(scope: str, prefix: str | None) -> bool:
    names = segments(prefix)
    return segments(scope)[: len(names)] == names


def same(stored: Any, wanted: Any) -> bool:
    """Compare scalars as BSON does: True is not 1, and 1 is 1.0."""
    if isinstance(stored, bool) or isinstance(wanted, bool):
        return stored is wanted
    return bool(stored == wanted)


def at_path(document: Any, path: str) -> Any:
    for name in path.split("."):
        document = document.get(name) if isinstance(document, dict) else None
    return document


def meets(stored: dict[str, Any], wanted: dict[str, Any] | None) -> bool:
    for path, value in (wanted or {}).items():
        found = at_path(stored, path)
        candidates = [*found, found] if isinstance(found, list) else [found]
        accepted = value if isinstance(value, list) else [value]
        if not any(same(candidate, one) for candidate in candidates for one in accepted):
            return False
    return True


class MemoryMachine(RuleBasedStateMachine):
    """Calls the backend and a dict of records in step."""

    make: Callable[..., MongoDBStorageBackend]
    records = Bundle("records")

    def __init__(self) -> None:
        super().__init__()
        self.backend = self.make(
            collection_name=f"m_{uuid.uuid4().hex[:8]}", metadata_filter_fields=("k",)
        )
        self.backend.ensure_vector_index()
        self.model: dict[str, MemoryRecord] = {}

    def teardown(self) -> None:
        stored = self.backend.collection
        assert list(violations(stored.database, memories=stored.name)) == []
        stored.drop()
        self.backend.close()

    def chosen(self, prefix: str | None) -> list[MemoryRecord]:
        return [record for record in self.model.values() if inside(record.scope, prefix)]

    @rule(
        target=records,
        record_id=identifiers,
        scope=scopes,
        categories=category_lists,
        metadata=metadata,
        created_at=moments,
        direction=vectors,
        private=st.booleans(),
    )
    def make_record(self, record_id: str, direction: Any, **fields: Any) -> MemoryRecord:
        return MemoryRecord(
            id=record_id,
            content=f"about {record_id}",
            embedding=padded(direction) if direction else None,
            **fields,
        )

    @rule(batch=st.lists(records, min_size=1, max_size=4))
    def save(self, batch: list[MemoryRecord]) -> None:
        self.backend.save(batch)
        self.model |= {record.id: record for record in batch}

    @rule(record=records)
    def update(self, record: MemoryRecord) -> None:
        self.backend.update(record)
        old = self.model.get(record.id)
        if old is not None and record.embedding is None:
            record = record.model_copy(update={"embedding": old.embedding})
        self.model[record.id] = record

    @rule(
        scope_prefix=prefixes,
        categories=st.none() | category_lists,
        record_ids=st.none() | st.lists(identifiers, max_size=3),
        older_than=st.none() | moments,
        metadata_filter=st.none() | conditions,
    )
    def delete(self, **criteria: Any) -> None:
        prefix, categories = criteria["scope_prefix"], criteria["categories"]
        wanted_ids, before = criteria["record_ids"], criteria["older_than"]
        given = prefix or criteria["metadata_filter"]
        if not given and categories is None and wanted_ids is None and before is None:
            doomed = []
        else:
            doomed = [
                r.id
                for r in self.chosen(prefix)
                if (categories is None or set(categories) & set(r.categories))
                and (wanted_ids is None or r.id in wanted_ids)
                and (before is None or r.created_at < before)
                and meets(r.metadata, criteria["metadata_filter"])
            ]
        assert self.backend.delete(**criteria) == len(doomed)
        for record_id in doomed:
            del self.model[record_id]

    @rule(prefix=scopes)
    def reset(self, prefix: str) -> None:
        self.backend.reset(prefix)
        for record in self.chosen(prefix):
            del self.model[record.id]

    @rule(record_ids=st.lists(identifiers, max_size=3))
    def touch(self, record_ids: list[str]) -> None:
        self.backend.touch_records(record_ids)
        for record_id in set(record_ids) & set(self.model):
            touched = self.backend.get_record(record_id).last_accessed
            assert touched >= self.model[record_id].last_accessed - dt.timedelta(milliseconds=1)
            self.model[record_id] = self.model[record_id].model_copy(
                update={"last_accessed": touched}
            )

    @rule(
        direction=directions,
        prefix=prefixes,
        categories=st.none() | category_lists,
        wanted=st.none() | conditions,
        limit=st.integers(0, 6),
        min_score=st.sampled_from([0.0, 0.3, 0.9, 1.0]),
    )
    def search(
        self,
        direction: Any,
        prefix: str | None,
        categories: list[str] | None,
        wanted: dict[str, Any] | None,
        limit: int,
        min_score: float,
    ) -> None:
        query = padded(direction)
        scores = {
            r.id: cosine(query, r.embedding)
            for r in self.chosen(prefix)
            if r.embedding
            and (not categories or set(categories) & set(r.categories))
            and meets(r.metadata, wanted)
        }
        best = sorted(scores.values(), reverse=True)[:limit]
        found = self.backend.search(query, prefix, categories, wanted, limit, min_score)
        # What lies on the threshold may fall to either side of it by rounding.
        expected = [score for score in best if round(score, 5) >= min_score]
        assert [round(score, 4) for _, score in found] == [round(score, 4) for score in expected]
        for record, score in found:
            assert score == pytest.approx(scores[record.id], abs=1e-5)
            assert record.embedding == self.model[record.id].embedding

    @rule(prefix=prefixes)
    def look_at_a_scope(self, prefix: str | None) -> None:
        here = self.chosen(prefix)
        depth = len(segments(prefix))
        path = "/" + "/".join(segments(prefix))
        children = sorted(
            {"/" + "/".join(segments(r.scope)[: depth + 1]) for r in here}
            - {"/" + "/".join(segments(r.scope)) for r in here if len(segments(r.scope)) == depth}
        )
        counts = {
            category: sum(category in r.categories for r in here)
            for category in sorted({c for r in here for c in r.categories})
        }
        info = self.backend.get_scope_info(prefix)
        assert (info.path, info.record_count) == (path, len(here))
        assert info.categories == list(counts)
        assert info.oldest_record == min((r.created_at for r in here), default=None)
        assert info.newest_record == max((r.created_at for r in here), default=None)
        assert info.child_scopes == self.backend.list_scopes(prefix) == children
        assert self.backend.list_categories(prefix) == counts
        assert self.backend.count(prefix) == len(here)

    @rule(prefix=prefixes, limit=st.integers(0, 5), offset=st.integers(0, 3))
    def list_records(self, prefix: str | None, limit: int, offset: int) -> None:
        here = self.chosen(prefix)
        newest_first = sorted((r.created_at for r in here), reverse=True)
        found = self.backend.list_records(prefix, limit, offset)
        assert [r.created_at for r in found] == newest_first[offset : offset + limit]
        assert {r.id for r in found} <= {r.id for r in here}

    @invariant()
    def every_record_is_as_the_model_says(self) -> None:
        stored = {r.id: r for r in self.backend.list_records()}
        assert stored.keys() == self.model.keys()
        for record_id, record in self.model.items():
            expected = record.model_copy(
                update={
                    "scope": "/" + "/".join(segments(record.scope)),
                    "last_accessed": stored[record_id].last_accessed,
                }
            )
            assert stored[record_id] == expected


class TranscriptMachine(RuleBasedStateMachine):
    """Calls two sessions and two lists in step."""

    make: Callable[..., MongoDBStorageBackend]

    @initialize(sizes=st.tuples(st.integers(1, 5), st.integers(2, 5)))
    def start(self, sizes: tuple[int, int]) -> None:
        self.backend = self.make()
        name = f"c_{uuid.uuid4().hex[:8]}"
        self.sessions = [
            ConversationMemory(
                self.backend, session_id=f"s{n}", collection_name=name, bucket_size=size
            )
            for n, size in enumerate(sizes)
        ]
        self.models: list[list[tuple[str, str | None]]] = [[], []]

    def teardown(self) -> None:
        stored = self.sessions[0].collection
        assert list(violations(stored.database, conversations=stored.name)) == []
        stored.drop()
        self.backend.close()

    @rule(n=st.integers(0, 1), role=st.sampled_from(["user", "assistant"]), content=st.text("ab$"))
    def add_turn(self, n: int, role: str, content: str) -> None:
        turn = self.sessions[n].add_turn(role, content)
        self.models[n].append((role, content))
        assert turn.turn == len(self.models[n])

    @rule(content=st.text("ab$"))
    def add_exchange(self, content: str) -> None:
        question, answer = self.sessions[1].add_exchange(content, "answer")
        self.models[1] += [("user", content), ("assistant", "answer")]
        assert (question.turn, answer.turn) == (len(self.models[1]) - 1, len(self.models[1]))

    @rule(n=st.integers(0, 1), size=st.integers(2, 7))
    def change_the_bucket_size(self, n: int, size: int) -> None:
        self.sessions[n].bucket_size = size

    @rule(n=st.integers(0, 1))
    def clear(self, n: int) -> None:
        self.sessions[n].clear()
        self.models[n] = []

    @rule(n=st.integers(0, 1), wanted=st.integers(0, 12))
    def recent(self, n: int, wanted: int) -> None:
        found = [(turn.role, turn.content) for turn in self.sessions[n].recent_turns(wanted)]
        assert found == (self.models[n][-wanted:] if wanted else [])
        lines = [f"{role}: {content}" for role, content in found]
        assert self.sessions[n].history_text(wanted) == "\n".join(lines)

    @invariant()
    def every_turn_is_as_the_model_says(self) -> None:
        for session, model in zip(self.sessions, self.models, strict=True):
            turns = session.turns()
            assert [(turn.role, turn.content) for turn in turns] == model
            assert [turn.turn for turn in turns] == list(range(1, len(model) + 1))
            assert session.count() == len(model)
            assert all(bucket["turn_count"] <= 7 for bucket in session.collection.find())


@pytest.mark.parametrize("machine", [MemoryMachine, TranscriptMachine])
def test_random_calls_do_what_the_model_does(
    machine: Any, mongodb_uri: str, database_name: str
) -> None:
    def make(**settings: Any) -> MongoDBStorageBackend:
        return MongoDBStorageBackend(mongodb_uri, database_name=database_name, **settings)

    machine.make = staticmethod(make)
    run_state_machine_as_test(machine, settings=BOUNDED)
