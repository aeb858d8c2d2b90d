"""Cases B: Atlas Vector Search."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from backend.support import Commands, all_ids, at_cosine, failure, ids, in_threads, record, unit
from pymongo.collection import Collection
from pymongo.operations import SearchIndexModel

from crewai_mongodb_memory import (
    EmbeddingDimensionMismatchError,
    InvalidInputError,
    MongoDBStorageBackend,
    VectorIndexError,
    indexes,
    schema,
)
from crewai_mongodb_memory import search as search_module

QUERY = unit(1)


def paths_in(filter_: Any) -> set[str]:
    """Return every field that a filter names."""
    if isinstance(filter_, list):
        return set().union(*map(paths_in, filter_))
    if not isinstance(filter_, dict):
        return set()
    fields = {key for key in filter_ if not key.startswith("$")}
    return fields.union(*(paths_in(v) for key, v in filter_.items() if key.startswith("$")))


def declared_in(backend: MongoDBStorageBackend) -> set[str]:
    """Return the filter paths that the index on the server has."""
    (index,) = backend.collection.list_search_indexes(backend.vector_search_index)
    fields = index["latestDefinition"]["fields"]
    return {field["path"] for field in fields if field["type"] == "filter"}


def test_B1_every_path_in_the_filter_is_declared(
    make_backend: Any, commands: Commands, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    backend = make_backend(metadata_filter_fields=("country",), event_listeners=[commands])
    backend.save(
        [
            record("a", "/t/a", categories=["x"], metadata={"tenant": "acme", "country": "SE"}),
            record("b", "/t/a", categories=["x"], metadata={"tenant": "other", "country": "SE"}),
            record("c", "/t/a", categories=["x"], metadata={"a": {"b": 1}, "country": "NO"}),
        ]
    )
    backend.ensure_vector_index()
    commands.sent.clear()
    wanted = {"tenant": "acme", "country": "SE"}
    for _ in range(2):
        found = backend.search(QUERY, scope_prefix="/t", categories=["x"], metadata_filter=wanted)
        assert ids(found) == {"a"}
    assert ids(backend.search(QUERY, metadata_filter={"a.b": 1})) == {"c"}
    stages = [p[0]["$vectorSearch"] for p in commands.pipelines() if "$vectorSearch" in p[0]]
    for stage in stages:
        assert paths_in(stage.get("filter", {})) <= declared_in(backend)
    told = [r.getMessage() for r in caplog.records if "metadata_filter_fields" in r.getMessage()]
    assert len([message for message in told if "'tenant'" in message]) == 1


def test_B2_scope_is_filtered_inside_the_search(
    logged: MongoDBStorageBackend, commands: Commands
) -> None:
    near = [record(f"n{n}", f"/t/other{n % 7}") for n in range(100)]
    ours = [record(f"o{n}", "/t/ours", embedding=unit(1, n + 2)) for n in range(3)]
    logged.save([*near, *ours])
    commands.sent.clear()
    assert ids(logged.search(QUERY, limit=3, scope_prefix="/t/ours")) == {"o0", "o1", "o2"}
    (pipeline,) = commands.pipelines()
    assert pipeline[0]["$vectorSearch"]["filter"] == {"scope_ancestors": {"$eq": "/t/ours"}}
    assert not [stage for stage in pipeline if "$match" in stage]


def test_B4_an_approximate_search_says_how_many_candidates(
    logged: MongoDBStorageBackend, commands: Commands
) -> None:
    logged.search(QUERY)
    (pipeline,) = commands.pipelines()
    stage = pipeline[0]["$vectorSearch"]
    assert "exact" not in stage
    assert stage["numCandidates"] >= stage["limit"]


@pytest.mark.parametrize(
    ("limit", "candidates", "asked"),
    [(1, 100, 1), (5, 100, 5), (50, 1000, 50), (9_999, 10_000, 9_999), (20_000, 10_000, 10_000)],
)
def test_B5_candidates_are_many_times_the_limit(
    logged: MongoDBStorageBackend, commands: Commands, limit: int, candidates: int, asked: int
) -> None:
    logged.save([record("a")])
    commands.sent.clear()
    assert ids(logged.search(QUERY, limit=limit)) == {"a"}
    stage = commands.pipelines()[0][0]["$vectorSearch"]
    assert (stage["numCandidates"], stage["limit"]) == (candidates, asked)


@pytest.mark.parametrize(
    "criteria",
    [
        {},
        {"scope_prefix": None, "categories": None, "metadata_filter": None},
        {"metadata_filter": {}},
        {"categories": []},
        {"scope_prefix": "/"},
        {"scope_prefix": ""},
    ],
)
def test_B6_without_criteria_there_is_no_filter(
    logged: MongoDBStorageBackend, commands: Commands, criteria: dict[str, Any]
) -> None:
    logged.save([record("a", "/x", categories=["c"]), record("b")])
    commands.sent.clear()
    assert ids(logged.search(QUERY, **criteria)) == {"a", "b"}
    assert "filter" not in commands.pipelines()[0][0]["$vectorSearch"]


@pytest.mark.parametrize("fields", [(), ("project",)])
def test_B7_none_means_null_or_missing(make_backend: Any, fields: tuple[str, ...]) -> None:
    backend = make_backend(metadata_filter_fields=fields)
    backend.save(
        [
            record("null", metadata={"project": None}),
            record("missing"),
            record("set", metadata={"project": "p"}),
        ]
    )
    backend.ensure_vector_index()
    assert ids(backend.search(QUERY, metadata_filter={"project": None})) == {"null", "missing"}
    either = {"project": [None, "p"]}
    assert ids(backend.search(QUERY, metadata_filter=either)) == {"null", "missing", "set"}
    assert backend.delete(metadata_filter={"project": None}) == 2


def test_B9_scores_are_cosines(backend: MongoDBStorageBackend) -> None:
    backend.save(
        [
            record("same", embedding=unit(1)),
            record("near", embedding=at_cosine(0.6)),
            record("orthogonal", embedding=unit(0, 1)),
            record("opposite", embedding=unit(-1)),
        ]
    )
    scores = {found.id: score for found, score in backend.search(QUERY)}
    assert scores == {"same": 1.0, "near": 0.6, "orthogonal": 0.0, "opposite": 0.0}
    assert [found.id for found, _ in backend.search(QUERY)][:2] == ["same", "near"]
    expected = {0.0: 4, 0.5: 2, 0.6: 2, 0.75: 1, 1.0: 1}
    for min_score, count in expected.items():
        assert len(backend.search(QUERY, min_score=min_score)) == count


def test_B9_a_vector_need_not_be_normalised(backend: MongoDBStorageBackend) -> None:
    backend.save([record("long", embedding=[7.0] + [0.0] * 1023)])
    assert backend.search([0.01] + [0.0] * 1023)[0][1] == 1.0


def test_B10_every_condition_is_in_the_filter(make_backend: Any, commands: Commands) -> None:
    backend = make_backend(metadata_filter_fields=("country", "year"), event_listeners=[commands])
    backend.save(
        [
            record("se", "/t", categories=["a"], metadata={"country": "SE", "year": 2026}),
            record("global", "/t", categories=["b"], metadata={"country": "Global", "year": 2026}),
            record("old", "/t", categories=["a"], metadata={"country": "SE", "year": 2020}),
            record("cat", "/t", categories=["c"], metadata={"country": "SE", "year": 2026}),
            record("scope", "/u", categories=["a"], metadata={"country": "SE", "year": 2026}),
        ]
    )
    backend.ensure_vector_index()
    commands.sent.clear()
    criteria: dict[str, Any] = {"scope_prefix": "/t", "categories": ["a", "b"]}
    exact = {"country": "SE", "year": 2026}
    assert ids(backend.search(QUERY, metadata_filter=exact, **criteria)) == {"se"}
    any_of = {"country": ["SE", "Global"], "year": 2026}
    assert ids(backend.search(QUERY, metadata_filter=any_of, **criteria)) == {"se", "global"}
    conditions = commands.pipelines()[0][0]["$vectorSearch"]["filter"]["$and"]
    assert {"scope_ancestors": {"$eq": "/t"}} in conditions
    assert {"categories": {"$in": ["a", "b"]}} in conditions
    assert {"metadata.country": {"$eq": "SE"}} in conditions
    assert {"metadata.year": {"$eq": 2026}} in conditions
    assert len(conditions) == 4


def test_B11_metadata_is_filtered_by_its_full_path(make_backend: Any, commands: Commands) -> None:
    backend = make_backend(metadata_filter_fields=("genre",), event_listeners=[commands])
    backend.save([record("a", metadata={"genre": "x"}), record("b", metadata={"genre": "y"})])
    backend.ensure_vector_index()
    assert "metadata.genre" in declared_in(backend)
    commands.sent.clear()
    assert ids(backend.search(QUERY, metadata_filter={"genre": "x"})) == {"a"}
    found = asyncio.run(backend.asearch(QUERY, metadata_filter={"genre": "x"}))
    assert ids(found) == {"a"}
    filters = [p[0]["$vectorSearch"]["filter"] for p in commands.pipelines()]
    assert filters == [{"metadata.genre": {"$eq": "x"}}] * 2


# value -> which of the records below it finds
TYPED = {
    "int": {"k": 1},
    "float": {"k": 1.0},
    "text": {"k": "1"},
    "true": {"k": True},
    "false": {"k": False},
    "zero": {"k": 0},
    "list": {"k": [1, "a"]},
    "none": {"k": None},
    "absent": {},
    "nested": {"k": {"d": 1}},
    "operator": {"k": {"$gt": ""}},
}
FINDS: list[tuple[Any, set[str]]] = [
    (1, {"int", "float", "list"}),
    (1.0, {"int", "float", "list"}),
    ("1", {"text"}),
    (True, {"true"}),
    (False, {"false"}),
    (0, {"zero"}),
    (None, {"none", "absent"}),
    ("a", {"list"}),
    ([1, "1"], {"int", "float", "list", "text"}),
    ([], set()),
    ([None, True], {"none", "absent", "true"}),
    ({"d": 1}, {"nested"}),
    ({"$gt": ""}, {"operator"}),
    ({"$ne": None}, set()),
    ({"$exists": True}, set()),
]


@pytest.fixture(params=[(), ("k",)], ids=["after the search", "inside the search"])
def typed(make_backend: Any, request: pytest.FixtureRequest) -> Iterator[MongoDBStorageBackend]:
    backend = make_backend(metadata_filter_fields=request.param)
    backend.save([record(name, metadata=metadata) for name, metadata in TYPED.items()])
    backend.ensure_vector_index()
    return backend


def test_B12_metadata_is_compared_as_values(typed: MongoDBStorageBackend) -> None:
    for value, expected in FINDS:
        found = ids(typed.search(QUERY, metadata_filter={"k": value}, limit=100))
        assert found == expected, value
    left = set(TYPED)
    for value, expected in FINDS:
        assert typed.delete(metadata_filter={"k": value}) == len(expected & left), value
        left -= expected
        assert all_ids(typed) == left


def test_B12_metadata_is_a_document(backend: MongoDBStorageBackend) -> None:
    backend.save([record("a", metadata={"k": 1, "n": {"m": [1]}})])
    assert backend.collection.find_one({"metadata.n.m": 1})["metadata"] == {"k": 1, "n": {"m": [1]}}


def statuses(*answers: Any) -> Callable[..., Iterator[dict[str, Any]]]:
    """Return a `list_search_indexes` that answers in turn, and then with the last for ever."""
    left = list(answers)

    def listed(*_: Any, **__: Any) -> Iterator[dict[str, Any]]:
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, Exception):
            raise answer
        return iter([answer] if answer else [])

    return listed


def index(status: str, queryable: bool, fields: Any = None) -> dict[str, Any]:
    definition = {"fields": fields or schema.vector_index_definition()["fields"]}
    return {
        "name": schema.VECTOR_INDEX,
        "type": "vectorSearch",
        "status": status,
        "queryable": queryable,
        "latestDefinition": definition,
    }


def test_B15_waiting_goes_by_queryable_and_says_the_status(
    backend: MongoDBStorageBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexes, "POLL_SECONDS", 0.01)
    building = [index("PENDING", False), index("BUILDING", False), index("READY", False)]
    listed = statuses(*building, index("READY", True))
    monkeypatch.setattr(Collection, "list_search_indexes", listed)
    backend.ensure_vector_index()
    assert len(list(listed())) == 1

    monkeypatch.setattr(Collection, "list_search_indexes", statuses(index("BUILDING", False)))
    with pytest.raises(VectorIndexError, match=r"idx_crewai_memory.*0\.05 s.*BUILDING.*longer"):
        backend.ensure_vector_index(timeout=0.05)
    backend.ensure_vector_index(wait=False)
    monkeypatch.setattr(Collection, "list_search_indexes", statuses(index("FAILED", False)))
    with pytest.raises(VectorIndexError, match="failed: drop it"):
        backend.ensure_vector_index()


def test_B16_a_saved_record_is_waited_for(
    backend: MongoDBStorageBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = record("a", "/x")
    backend.save([saved])
    backend.wait_until_searchable(saved)
    monkeypatch.setattr("crewai_mongodb_memory.backend.POLL_SECONDS", 0.01)
    with pytest.raises(VectorIndexError, match="'b'"):
        backend.wait_until_searchable(record("b", "/x"), timeout=0.05)


def test_B17_setting_up_twice_and_at_once_is_the_same(make_backend: Any) -> None:
    backends = [make_backend() for _ in range(4)]
    in_threads(4, lambda n: backends[n].ensure_vector_index())
    backends[0].ensure_vector_index()
    found = list(backends[0].collection.list_search_indexes())
    assert [index["name"] for index in found] == ["idx_crewai_memory"]
    names = set(backends[0].collection.index_information())
    assert names == {"_id_", "scope_1", "categories_1", "created_at_-1"}


@pytest.mark.parametrize(
    ("code", "message"), [(31082, "SearchNotEnabled"), (59, "no such command: 'x'")]
)
def test_B18_without_vector_search_the_rest_works(
    make_backend: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    code: int,
    message: str,
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise failure(code, message)

    monkeypatch.setattr(Collection, "list_search_indexes", refuse)
    monkeypatch.setattr(Collection, "create_search_index", refuse)
    backend = make_backend()
    backend.save([record("a", "/x")])
    assert (backend.count(), backend.list_scopes()) == (1, ["/x"])
    assert caplog.text.count("has no vector search") == 1
    with pytest.raises(VectorIndexError, match="needs Atlas"):
        backend.search(QUERY)
    with pytest.raises(VectorIndexError, match="needs Atlas"):
        backend.ensure_vector_index()


def test_B19_no_room_for_another_index(make_backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise failure(20, "The maximum number of FTS indexes has been reached for this instance")

    monkeypatch.setattr(Collection, "create_search_index", refuse)
    backend = make_backend()
    with pytest.raises(VectorIndexError, match="Drop one that is not needed"):
        backend.ensure_vector_index()
    backend.save([record("a")])
    with pytest.raises(VectorIndexError, match="Drop one that is not needed"):
        backend.search(QUERY)


def test_B20_the_index_is_asked_for_as_a_vector_index(
    make_backend: Any, commands: Commands
) -> None:
    backend = make_backend(metadata_filter_fields=("k",), event_listeners=[commands])
    backend.save([record("a")])
    (command,) = [c for c in commands.sent if "createSearchIndexes" in c]
    assert command["indexes"] == [
        {
            "name": "idx_crewai_memory",
            "type": "vectorSearch",
            "definition": {
                "fields": [
                    {
                        "type": "vector",
                        "path": "embedding",
                        "numDimensions": 1024,
                        "similarity": "cosine",
                    },
                    {"type": "filter", "path": "scope_ancestors"},
                    {"type": "filter", "path": "categories"},
                    {"type": "filter", "path": "metadata.k"},
                ]
            },
        }
    ]


@pytest.mark.parametrize(
    "change", [{"numDimensions": 1536}, {"similarity": "euclidean"}, {"path": "vector"}]
)
def test_B21_an_index_over_other_vectors_is_reported(
    make_backend: Any, change: dict[str, Any]
) -> None:
    fields = schema.vector_index_definition()["fields"]
    fields[0] |= change
    backend = make_backend()
    backend.database.create_collection("memories")
    model = SearchIndexModel({"fields": fields}, name="idx_crewai_memory", type="vectorSearch")
    backend.collection.create_search_index(model)
    for call in [backend.ensure_vector_index, lambda: backend.search(QUERY)]:
        with pytest.raises(VectorIndexError, match="is not the one this backend needs"):
            call()
    backend.save([record("a")])
    assert backend.count() == 1


def test_B21_missing_filter_paths_are_added_when_asked(
    make_backend: Any, caplog: pytest.LogCaptureFixture
) -> None:
    make_backend(metadata_filter_fields=("old",)).ensure_vector_index()
    backend = make_backend(metadata_filter_fields=("new",))
    backend.save([record("a", metadata={"new": 1}), record("b", metadata={"new": 2})])
    assert "no filter path for metadata.new" in caplog.text
    assert ids(backend.search(QUERY, metadata_filter={"new": 1})) == {"a"}
    assert "metadata.new" not in declared_in(backend)
    backend.ensure_vector_index()
    assert {"metadata.old", "metadata.new"} < declared_in(backend)
    assert ids(backend.search(QUERY, metadata_filter={"new": 1})) == {"a"}
    assert ids(make_backend().search(QUERY, scope_prefix="/")) == {"a", "b"}


def test_B21_an_old_search_index_of_that_name_is_reported(
    make_backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = {
        "name": "idx_crewai_memory",
        "type": "search",
        "status": "READY",
        "queryable": True,
        "latestDefinition": {"mappings": {"fields": {"embedding": {"type": "knnVector"}}}},
    }
    monkeypatch.setattr(Collection, "list_search_indexes", statuses(old))
    with pytest.raises(VectorIndexError, match="no vector field"):
        make_backend().ensure_vector_index()


def test_B23_the_query_is_checked_before_it_is_sent(
    logged: MongoDBStorageBackend, commands: Commands
) -> None:
    with pytest.raises(EmbeddingDimensionMismatchError, match=r"1536.*1024"):
        logged.search([0.1] * 1536)
    assert commands.names() == []


def test_B24_vector_search_is_the_first_stage(
    logged: MongoDBStorageBackend, commands: Commands
) -> None:
    logged.save([record("a", "/x", categories=["c"], metadata={"k": 1})])
    commands.sent.clear()
    logged.search(QUERY)
    logged.search(QUERY, scope_prefix="/x", categories=["c"], metadata_filter={"k": 1})
    assert len(commands.pipelines()) == 2
    for pipeline in commands.pipelines():
        assert "$vectorSearch" in pipeline[0]
        assert not [s for s in pipeline[1:] if "$vectorSearch" in s or "$facet" in s]


def test_B25_an_overloaded_search_is_tried_again(
    backend: MongoDBStorageBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend.save([record("a")])
    backend.search(QUERY)
    monkeypatch.setattr(search_module.time, "sleep", lambda seconds: None)
    real, calls = Collection.aggregate, []

    def busy(times: int) -> Callable[..., Any]:
        def aggregate(self: Any, *args: Any, **kwargs: Any) -> Any:
            calls.append(args)
            if len(calls) <= times:
                raise failure(489, "search is overloaded")
            return real(self, *args, **kwargs)

        return aggregate

    monkeypatch.setattr(Collection, "aggregate", busy(times=2))
    assert ids(backend.search(QUERY)) == {"a"}
    calls.clear()
    monkeypatch.setattr(Collection, "aggregate", busy(times=99))
    with pytest.raises(VectorIndexError, match="overloaded"):
        backend.search(QUERY)
    assert len(calls) == search_module.ATTEMPTS


def test_B27_a_printed_record_hides_its_vector(backend: MongoDBStorageBackend) -> None:
    backend.save([record("a", embedding=unit(3, 4))])
    for shown in [backend.search(unit(3, 4)), backend.list_records(), backend.get_record("a")]:
        assert "0.6" not in repr(shown)
    assert "embedding" not in backend.get_record("a").model_dump()


def test_B_an_index_that_is_not_there_is_told_once(
    make_backend: Any, caplog: pytest.LogCaptureFixture
) -> None:
    backend = make_backend()
    backend.save([record("a")])
    backend.collection.drop_search_index("idx_crewai_memory")
    assert backend.search(QUERY) == []
    for _ in range(2):
        assert ids(backend.search(QUERY)) == {"a"}  # it has been made anew
    told = [r.getMessage() for r in caplog.records if "find nothing" in r.getMessage()]
    assert len(told) == 1
    assert "'idx_crewai_memory'" in told[0]
    assert "missing" in told[0]
    assert "ensure_vector_index()" in told[0]


@pytest.mark.parametrize(("seconds", "told"), [(0, True), (60, False)])
def test_B_an_index_dropped_after_it_was_ready_is_told_when_looked_at_again(
    make_backend: Any, caplog: pytest.LogCaptureFixture, monkeypatch: Any, seconds: int, told: bool
) -> None:
    monkeypatch.setattr(indexes, "LOOK_AGAIN_SECONDS", seconds)
    backend = make_backend()
    backend.ensure_vector_index()
    backend.collection.drop_search_index("idx_crewai_memory")
    assert backend.search(QUERY) == []
    assert ("find nothing" in caplog.text) == told


@pytest.mark.parametrize("key", ["", ".", "a.", ".a", "$where", "a.$b", "$gt", "a\0b", "\ud800", 1])
def test_B_a_key_that_is_no_path_is_refused(backend: MongoDBStorageBackend, key: Any) -> None:
    with pytest.raises(InvalidInputError):
        backend.search(QUERY, metadata_filter={key: 1})
    with pytest.raises(InvalidInputError):
        backend.delete(metadata_filter={key: 1})
