"""`MongoDBStorageBackend` beyond the cases: commands, client, fence, indexes, input."""

from __future__ import annotations

import datetime as dt
import logging
import multiprocessing
from typing import Any

import pytest
from backend.support import Commands, all_ids, failure, ids, record, unit
from crewai.memory.storage.factory import resolve_memory_storage, set_memory_storage_factory
from crewai.memory.unified_memory import Memory
from pymongo.collection import Collection
from server import in_database

import crewai_mongodb_memory
from crewai_mongodb_memory import (
    InvalidInputError,
    MongoDBStorageBackend,
    RecordsNotStoredError,
    register,
)

QUERY = unit(1)
DAY = dt.datetime(2026, 1, 1)


def test_each_call_is_one_command(logged: MongoDBStorageBackend, commands: Commands) -> None:
    backend = logged
    calls: dict[str, Any] = {
        "update": [
            lambda: backend.save([record(f"r{n}", "/a/b", categories=["c"]) for n in range(5)]),
            lambda: backend.update(record("r0", "/a/b", categories=["c"])),
            lambda: backend.update(record("new", "/a")),
            lambda: backend.touch_records(["r0", "r1"]),
        ],
        "aggregate": [
            lambda: backend.search(QUERY),
            lambda: backend.search(QUERY, scope_prefix="/a", categories=["c"]),
            lambda: backend.get_scope_info("/a"),
            lambda: backend.list_scopes("/a"),
            lambda: backend.list_categories("/a"),
            lambda: backend.count("/a"),
        ],
        "find": [lambda: backend.get_record("r0"), lambda: backend.list_records("/a")],
        "delete": [
            lambda: backend.delete(record_ids=["r0"], scope_prefix="/a"),
            lambda: backend.reset("/a"),
        ],
    }
    for command, of_this_kind in calls.items():
        for call in of_this_kind:
            assert commands.during(call) == [command]
    assert commands.during(lambda: backend.delete()) == []
    assert commands.during(lambda: backend.save([])) == []


def test_a_summary_of_a_scope_is_a_few_rows(
    logged: MongoDBStorageBackend, commands: Commands
) -> None:
    days = [DAY + dt.timedelta(days=n) for n in range(200)]
    logged.save(
        [
            record(f"r{n}", f"/u/{n % 3}/deep/{n}", categories=[f"c{n % 4}"], created_at=day)
            for n, day in enumerate(days)
        ]
    )
    info = logged.get_scope_info("/u")
    assert info.record_count == 200
    assert info.child_scopes == ["/u/0", "/u/1", "/u/2"]
    assert info.categories == ["c0", "c1", "c2", "c3"]
    assert (info.oldest_record, info.newest_record) == (days[0], days[-1])
    rows = list(logged.collection.aggregate(commands.pipelines()[-1]))
    assert len(rows) == 1
    logged.list_scopes("/")
    assert len(list(logged.collection.aggregate(commands.pipelines()[-1]))) == 1
    assert logged.list_scopes("/u/1/deep/1") == []
    assert logged.list_categories("/u") == {f"c{n}": 50 for n in range(4)}


def test_a_scope_that_is_not_there_is_empty(backend: MongoDBStorageBackend) -> None:
    for state in ["no collection", "no records", "other records"]:
        if state == "no records":
            backend.save([record("a")])
            backend.reset()
        elif state == "other records":
            backend.save([record("a", "/a")])
        info = backend.get_scope_info("nowhere")
        assert (info.path, info.record_count, info.categories) == ("/nowhere", 0, [])
        assert (info.oldest_record, info.newest_record, info.child_scopes) == (None, None, [])
        assert backend.list_scopes("/nowhere") == []
        assert backend.list_categories("/nowhere") == {}
        assert backend.count("/nowhere") == 0
        assert backend.list_records("/nowhere") == []
        assert backend.get_record("nobody") is None
        assert backend.delete(scope_prefix="/nowhere") == 0
        backend.reset("/nowhere")
        backend.touch_records(["nobody"])


def test_a_category_counts_once_for_each_record(backend: MongoDBStorageBackend) -> None:
    backend.save([record("a", categories=["c", "c", "b"]), record("b", categories=["c"])])
    assert list(backend.list_categories().items()) == [("b", 1), ("c", 2)]


def test_lists_are_newest_first_and_paged(backend: MongoDBStorageBackend) -> None:
    moments = [DAY + dt.timedelta(hours=n) for n in range(6)]
    backend.save([record(f"r{n}", "/l", created_at=moment) for n, moment in enumerate(moments)])

    def listed(**arguments: int) -> str:
        return "".join(found.id[1] for found in backend.list_records("/l", **arguments))

    assert listed() == "543210"
    assert listed(limit=2) == "54"
    assert listed(limit=2, offset=2) == "32"
    assert listed(limit=10, offset=4) == "10"
    assert listed(offset=6) == ""
    assert listed(limit=0) == listed(limit=-1) == ""
    assert listed(limit=2, offset=-3) == "54"
    assert backend.search(QUERY, limit=0) == backend.search(QUERY, limit=-5) == []


def test_older_than_is_strict(backend: MongoDBStorageBackend) -> None:
    backend.save([record("a", created_at=DAY)])
    assert backend.delete(older_than=DAY) == 0
    assert backend.delete(older_than=DAY + dt.timedelta(milliseconds=1)) == 1


def test_an_update_of_an_unknown_id_inserts(backend: MongoDBStorageBackend) -> None:
    backend.update(record("a", "/x", metadata={"$set": {"a.b": 1}}))
    assert backend.get_record("a").metadata == {"$set": {"a.b": 1}}
    assert ids(backend.search(QUERY, scope_prefix="/x")) == {"a"}


def test_touching_changes_the_access_time_alone(backend: MongoDBStorageBackend) -> None:
    backend.save([record("a", last_accessed=DAY), record("b", last_accessed=DAY)])
    backend.touch_records([])
    assert backend.get_record("a").last_accessed == DAY
    before = backend.get_record("a")
    backend.touch_records(["a", "unknown"])
    after = backend.get_record("a")
    assert after.last_accessed > DAY
    assert after.model_copy(update={"last_accessed": DAY}) == before
    assert backend.get_record("b").last_accessed == DAY
    assert backend.count() == 2


def test_reset_keeps_the_collection_and_its_indexes(backend: MongoDBStorageBackend) -> None:
    backend.ensure_vector_index()
    backend.save([record("a")])
    backend.collection.create_index("owner")
    backend.reset()
    assert len(backend.collection.index_information()) == 5
    assert len(list(backend.collection.list_search_indexes())) == 1
    backend.save([record("b")])
    assert ids(backend.search(QUERY)) == {"b"}


NOT_IDS: list[Any] = [{"$gt": ""}, {"$ne": None}, None, 7, ["a"], "\ud800"]


@pytest.mark.parametrize("value", NOT_IDS)
def test_an_id_is_never_an_operator(backend: MongoDBStorageBackend, value: Any) -> None:
    backend.save([record("a")])
    for call in [
        lambda: backend.get_record(value),
        lambda: backend.delete(record_ids=[value]),
        lambda: backend.touch_records([value]),
        lambda: backend.delete(categories=[value]),
        lambda: backend.search(QUERY, categories=[value]),
    ]:
        with pytest.raises(InvalidInputError):
            call()
    assert backend.count() == 1


@pytest.mark.parametrize("scope", [{"$gt": ""}, 7, ["/a"], "/\ud800"])
def test_a_scope_is_never_an_operator(backend: MongoDBStorageBackend, scope: Any) -> None:
    backend.save([record("a", "/a")])
    for method in ["count", "list_records", "list_scopes", "list_categories", "get_scope_info"]:
        with pytest.raises(InvalidInputError):
            getattr(backend, method)(scope)
    for call in [backend.reset, lambda s: backend.delete(scope_prefix=s)]:
        with pytest.raises(InvalidInputError):
            call(scope)
    with pytest.raises(InvalidInputError):
        backend.search(QUERY, scope_prefix=scope)
    assert backend.count() == 1


@pytest.mark.parametrize(
    "criteria",
    [
        {"record_ids": "abc"},
        {"categories": "abc"},
        {"older_than": "yesterday"},
        {"metadata_filter": "k"},
        {"metadata_filter": {"k": {1, 2}}},
        {"metadata_filter": {"k": [[1]]}},
        {"metadata_filter": {"k": [{"$gt": 0}]}},
    ],
)
def test_a_criterion_of_the_wrong_type_is_refused(
    backend: MongoDBStorageBackend, criteria: dict[str, Any]
) -> None:
    backend.save([record("a"), record("b"), record("c")])
    with pytest.raises(InvalidInputError):
        backend.delete(**criteria)
    assert backend.count() == 3


# The client


def client_name(backend: MongoDBStorageBackend) -> tuple[str, str]:
    metadata = backend.client.options.pool_options.metadata
    return metadata["application"]["name"], metadata["driver"]["name"]


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ("", {}),
        ("?appName=mine", {}),
        ("?appname=mine", {"appname": "mine"}),
        ("", {"appName": "mine", "APPNAME": "mine", "driver": None}),
    ],
)
def test_the_client_says_who_it_is(options: str, settings: dict[str, Any]) -> None:
    with MongoDBStorageBackend(f"mongodb://localhost:1/{options}", **settings) as backend:
        name, driver = client_name(backend)
        assert name == "devrel-integ-crewai-python"
        assert driver.split("|")[-1] == "crewai-mongodb-memory"


def test_settings_of_the_client_pass_through() -> None:
    uri = "mongodb://localhost:1/?serverselectiontimeoutms=1234"
    with MongoDBStorageBackend(uri, maxPoolSize=7, connecttimeoutms=2345) as backend:
        options = backend.client.options
        assert options.pool_options.max_pool_size == 7
        assert options.server_selection_timeout == 1.234
        assert options.pool_options.connect_timeout == 2.345


def test_nothing_is_connected_before_the_first_call(mongodb_uri: str) -> None:
    backend = MongoDBStorageBackend("mongodb://user:s3cret@localhost:1/")
    assert backend.connection._client is None
    assert "s3cret" not in repr(backend)
    assert "user:***@localhost" in repr(backend)


def test_a_forked_process_opens_its_own_client(make_backend: Any) -> None:
    backend = make_backend()
    backend.save([record("parent")])
    context = multiprocessing.get_context("fork")
    queue = context.Queue()

    def child() -> None:
        backend.save([record("child")])
        queue.put(backend.count())
        backend.close()

    process = context.Process(target=child)
    process.start()
    assert queue.get(timeout=60) == 2
    process.join(60)
    assert process.exitcode == 0
    assert all_ids(backend) == {"parent", "child"}


def test_it_shows_its_parts(backend: MongoDBStorageBackend, database_name: str) -> None:
    assert backend.database.name == database_name
    assert backend.collection.name == "memories"
    assert backend.vector_search_index == "idx_crewai_memory"
    assert backend.dimensions == 1024
    with pytest.raises(AttributeError):
        backend.dimensions = 7  # type: ignore[misc]


# The fence


@pytest.fixture
def tenants(make_backend: Any) -> tuple[MongoDBStorageBackend, MongoDBStorageBackend]:
    backend, fenced = make_backend(), make_backend(scope_root="/t/a")
    backend.save(
        [
            record("root"),
            record("b", "/t/b", categories=["b"]),
            record("ab", "/t/a-b"),
            record("a", "/t/a/x", categories=["a"]),
        ]
    )
    return backend, fenced


@pytest.mark.parametrize("scope", [None, "", "/", "/t/a", "t/a/"])
def test_inside_the_fence_everything_is_one_tenant(tenants: Any, scope: str | None) -> None:
    _, fenced = tenants
    assert fenced.count(scope) == 1
    assert ids(fenced.list_records(scope)) == {"a"}
    assert ids(fenced.search(QUERY, scope_prefix=scope)) == {"a"}
    assert fenced.list_scopes(scope) == ["/t/a/x"]
    assert fenced.list_categories(scope) == {"a": 1}
    info = fenced.get_scope_info(scope)
    assert (info.path, info.record_count) == ("/t/a", 1)


@pytest.mark.parametrize("scope", ["/t", "/t/b", "/t/a-b", "/t/a/../b", "../b"])
def test_no_scope_leads_out_of_the_fence(tenants: Any, scope: str) -> None:
    backend, fenced = tenants
    assert fenced.count(scope) == 0
    assert fenced.list_records(scope) == []
    assert fenced.search(QUERY, scope_prefix=scope) == []
    assert fenced.list_scopes(scope) == []
    assert fenced.list_categories(scope) == {}
    assert fenced.get_scope_info(scope).record_count == 0
    assert fenced.delete(scope_prefix=scope) == 0
    fenced.reset(scope)
    assert backend.count() == 4


def test_no_id_leads_out_of_the_fence(tenants: Any) -> None:
    backend, fenced = tenants
    before = backend.get_record("b")
    assert fenced.get_record("b") is None
    assert fenced.delete(record_ids=["b", "root", "ab"]) == 0
    assert fenced.delete(categories=["b"]) == 0
    assert fenced.delete(older_than=dt.datetime(2100, 1, 1), record_ids=["b"]) == 0
    fenced.touch_records(["b"])
    for write in [fenced.update, lambda r: fenced.save([r, record("c")])]:
        with pytest.raises(RecordsNotStoredError, match=r"'b'.*outside scope_root"):
            write(record("b", content="stolen"))
    assert backend.get_record("b") == before
    assert ids(fenced.list_records()) == {"a", "c"}


def test_what_is_written_stays_inside_the_fence(tenants: Any) -> None:
    backend, fenced = tenants
    fenced.save([record("new", "/notes"), record("other", "/t/b/x"), record("deep", "/t/a/y")])
    fenced.update(record("a", "/"))
    fenced.update(record("b2", "/t/b"))
    scopes = {r.id: r.scope for r in backend.list_records("/t/a")}
    assert scopes == {
        "new": "/t/a/notes",
        "other": "/t/a/t/b/x",
        "deep": "/t/a/y",
        "a": "/t/a",
        "b2": "/t/a/t/b",
    }
    assert ids(fenced.list_records("/notes")) == ids(fenced.list_records("/t/a/notes")) == {"new"}
    assert fenced.delete(scope_prefix="/") == 5
    fenced.save([record("again")])
    fenced.reset()
    assert all_ids(backend) == {"root", "b", "ab"}


# Indexes


def test_indexes_are_created_once_by_the_first_write(make_backend: Any, commands: Commands) -> None:
    backend = make_backend(event_listeners=[commands])
    assert commands.during(backend.count) == ["aggregate"]
    first = commands.during(lambda: backend.save([record("a")]))
    assert first.count("createIndexes") == first.count("createSearchIndexes") == 1
    assert commands.during(lambda: backend.save([record("b")])) == ["update"]
    assert commands.during(lambda: backend.search(QUERY)) == ["aggregate"]


def test_the_first_search_creates_them_as_well(make_backend: Any, commands: Commands) -> None:
    backend = make_backend(event_listeners=[commands])
    assert backend.search(QUERY) == []
    assert "createSearchIndexes" in commands.names()


@pytest.mark.parametrize("code", [13, 85, 86])
def test_a_memory_works_without_its_indexes(
    make_backend: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    code: int,
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise failure(code, "not allowed")

    monkeypatch.setattr(Collection, "create_indexes", refuse)
    backend = make_backend()
    backend.save([record("a")])
    backend.save([record("b")])
    assert backend.count() == 2
    assert caplog.text.count("indexes were not created") == 1


def test_an_index_of_another_name_serves_as_well(make_backend: Any) -> None:
    backend = make_backend()
    backend.collection.create_index({"scope": 1}, name="mine")
    backend.save([record("a")])
    assert backend.count() == 1


@pytest.mark.parametrize("field", ["", "a..b", "$k", "\ud800", 7])
def test_a_metadata_field_that_is_no_path_is_refused(field: Any) -> None:
    with pytest.raises(InvalidInputError, match="metadata"):
        MongoDBStorageBackend("mongodb://localhost:1/", metadata_filter_fields=[field])


# The package


def test_a_connection_string_makes_this_backend(mongodb_uri: str, database_name: str) -> None:
    try:
        register(database_name=database_name)
        memory = Memory(storage=mongodb_uri, llm="none/none")
        assert isinstance(memory._storage, MongoDBStorageBackend)
        assert memory._storage.database.name == database_name
        memory._storage.save([record("a")])
        assert memory.info().record_count == 1
        memory.close()
        register()
        for name, used in [("", "crewai_memory"), ("workshop_alex", "workshop_alex")]:
            named = resolve_memory_storage(in_database(mongodb_uri, name))
            assert isinstance(named, MongoDBStorageBackend)
            assert named.database.name == used
        assert resolve_memory_storage("lancedb") is None
        assert resolve_memory_storage("/some/folder") is None
    finally:
        set_memory_storage_factory(None)


def test_the_public_names_are_documented() -> None:
    for name in crewai_mongodb_memory.__all__:
        assert getattr(crewai_mongodb_memory, name).__doc__
    for name, member in vars(MongoDBStorageBackend).items():
        if not name.startswith("_"):
            assert member.__doc__, name


def test_each_thing_is_logged_once(caplog: pytest.LogCaptureFixture, make_backend: Any) -> None:
    caplog.set_level(logging.INFO)
    backend = make_backend()
    backend.save([record("a", metadata={"k": 1})])
    for _ in range(3):
        assert ids(backend.search(QUERY, metadata_filter={"k": 1, "m": None})) == {"a"}
    told = [r for r in caplog.records if r.name == "crewai_mongodb_memory"]
    assert len(told) == len({r.getMessage() for r in told}) == 2
    assert {r.levelno for r in told} == {logging.INFO}
