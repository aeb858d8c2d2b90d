"""Cases D: the driver and BSON."""

from __future__ import annotations

import asyncio
import datetime as dt
import threading
import time
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from backend.support import all_ids, ids, record, unit
from bson import Decimal128, ObjectId
from pymongo.collection import Collection

from crewai_mongodb_memory import (
    InvalidInputError,
    MemoryConnectionError,
    MongoDBStorageBackend,
    RecordsNotStoredError,
)
from crewai_mongodb_memory.connection import mask

QUERY = unit(1)
INDIA = dt.timezone(dt.timedelta(hours=5, minutes=30))
MOMENT = dt.datetime(2026, 1, 2, 3, 4, 5, 678901)


@pytest.mark.parametrize("tz_aware", [False, True])
@pytest.mark.parametrize("zone", [None, dt.UTC, INDIA])
def test_D1_one_convention_for_dates_both_ways(
    make_backend: Any, zone: Any, tz_aware: bool
) -> None:
    backend = make_backend(tz_aware=tz_aware, scope_root="/d")
    given = MOMENT.replace(tzinfo=zone)
    expected = (given.astimezone(dt.UTC) if zone else given).replace(
        tzinfo=None, microsecond=678000
    )
    backend.save([record("a", created_at=given, last_accessed=given, metadata={"at": given})])
    found = backend.get_record("a")
    assert found.created_at == found.last_accessed == found.metadata["at"] == expected
    info = backend.get_scope_info("/")
    assert info.oldest_record == info.newest_record == expected
    assert backend.list_records()[0].created_at == backend.search(QUERY)[0][0].created_at
    assert ids(backend.search(QUERY, metadata_filter={"at": given})) == {"a"}
    second = dt.timedelta(seconds=1)
    assert backend.delete(older_than=given - second) == 0
    assert backend.delete(older_than=given + second) == 1


def test_D3_numpy_values_are_stored_as_plain_ones(backend: MongoDBStorageBackend) -> None:
    metadata = {
        "n": np.int64(1),
        "ok": np.bool_(True),
        "s": np.float32(0.5),
        "a": np.array([[1, 2], [3, 4]]),
        "deep": [{"x": np.float64(2.5)}],
    }
    saved = record("a", metadata=metadata).model_copy(
        update={"embedding": np.ones(1024, dtype="float32")}
    )
    backend.save([saved, record("b", embedding=list(np.full(1024, 0.5, dtype="float32")))])
    plain = {"n": 1, "ok": True, "s": 0.5, "a": [[1, 2], [3, 4]], "deep": [{"x": 2.5}]}
    assert backend.get_record("a").metadata == plain
    stored = backend.collection.find_one({"_id": "a"})["embedding"]
    assert stored == [1.0] * 1024
    assert all(type(number) is float for number in stored)
    for query in [np.ones(1024, dtype="float32"), list(np.ones(1024, dtype="float32"))]:
        assert [score for _, score in backend.search(query)] == [1.0, 1.0]
    assert ids(backend.search(QUERY, metadata_filter={"n": np.int64(1)})) == {"a"}


@pytest.mark.parametrize("unit_of_time", ["D", "s", "ms", "us", "ns"])
def test_D3_dates_of_numpy_and_pandas_are_stored_as_dates(
    backend: MongoDBStorageBackend, unit_of_time: str
) -> None:
    day = dt.datetime(2026, 1, 2)
    given = np.array([day], f"M8[{unit_of_time}]")
    metadata = {
        "one": given[0],
        "all": given,
        "series": pd.Series(given),
        "stamp": pd.Timestamp(day),
    }
    backend.save([record("a", metadata=metadata)])
    found = backend.get_record("a").metadata
    assert found == {"one": day, "all": [day], "series": [day], "stamp": day}
    assert ids(backend.search(QUERY, metadata_filter={"one": given[0]})) == {"a"}


UNSTORABLE = {
    "a set": ({"k": {1, 2}}, r"metadata\.k .*set"),
    "a decimal": ({"k": Decimal("1.5")}, r"metadata\.k .*Decimal"),
    "an object": ({"k": [object()]}, r"metadata\.k\[0\] .*object"),
    "a big integer": ({"a": {"b": 2**63}}, r"metadata\.a\.b .*64 bits"),
    "half a character": ({"k": "a\ud800"}, r"metadata\.k .*lone surrogate"),
    "half a character in a key": ({"\udfff": 1}, "key of .*metadata has a lone surrogate"),
    "NUL in a key": ({"a\0b": 1}, "NUL"),
    "a key that is no text": ({1: "x"}, "must be text"),
    "a date without time": ({"k": dt.date(2026, 1, 1)}, r"metadata\.k .*date"),
    "no date of numpy": ({"k": [np.datetime64("NaT")]}, r"metadata\.k\[0\] is NaT"),
    "no date in an array": ({"k": np.array(["NaT"], "M8[ns]")}, r"metadata\.k\[0\] is NaT"),
    "no date of pandas": ({"k": pd.NaT}, r"metadata\.k is NaT"),
    "a date too late": ({"k": np.datetime64("20000-01-01")}, r"metadata\.k .* years 1 to 9999"),
    "a duration": ({"k": np.timedelta64(1, "ns")}, r"metadata\.k .*timedelta64"),
    "a reference": ({"k": [{"$id": 1, "$ref": "#/a"}]}, r"metadata\.k\[0\] holds both \$ref"),
    "a reference as a whole": ({"$ref": "#/a", "$id": 1}, r"metadata holds both \$ref"),
}


@pytest.mark.parametrize("what", UNSTORABLE)
def test_D3_what_cannot_be_stored_is_named_before_any_write(
    backend: MongoDBStorageBackend, what: str
) -> None:
    metadata, message = UNSTORABLE[what]
    bad = record("bad").model_copy(update={"metadata": metadata})
    with pytest.raises(InvalidInputError, match=message) as caught:
        backend.save([record("a"), bad, record("c")])
    assert "record 'bad'" in str(caught.value)
    assert backend.count() == 0
    backend.save([record("bad", metadata={"k": "old"})])
    with pytest.raises(InvalidInputError, match=message):
        backend.update(bad)
    assert backend.get_record("bad").metadata == {"k": "old"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"content": "a\ud800"}, "content .*lone surrogate"),
        ({"content": None}, "content must be text"),
        ({"scope": "/a\ud800"}, "scope .*lone surrogate"),
        ({"categories": ["ok", "\ud800"]}, "category .*lone surrogate"),
        ({"source": "\ud800"}, "source .*lone surrogate"),
        ({"id": 7}, "id must be text"),
        ({"created_at": "today"}, "created_at must be a datetime"),
        ({"created_at": pd.NaT}, "created_at is NaT"),
        ({"embedding": [float("nan")] * 1024}, "NaN"),
        ({"embedding": [float("inf")] * 1024}, "infinity"),
        ({"embedding": [0.0] * 1024}, "all zeros"),
        ({"embedding": ["x"] * 1024}, "flat list of numbers"),
        ({"embedding": ["1"] * 1024}, "flat list of numbers"),
        ({"embedding": "1" * 1024}, "flat list of numbers"),
        ({"embedding": b"1" * 1024}, "flat list of numbers"),
        ({"embedding": set(range(1024))}, "flat list of numbers"),
        ({"embedding": [10**400] * 1024}, "flat list of numbers"),
        ({"embedding": [1e-200] * 1024}, r"norm 3\.2e-199"),
        ({"embedding": [1e300] * 1024}, r"norm 3\.2e\+301"),
        ({"embedding": [1e20] * 1024}, r"norm 3\.2e\+21"),
        ({"embedding": np.ones((1, 1024))}, "flat list of numbers"),
        ({"content": "x" * 17_000_000}, "bytes"),
    ],
)
def test_D3_no_field_is_written_half(
    backend: MongoDBStorageBackend, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message):
        backend.save([record("a"), record("bad").model_copy(update=change)])
    assert backend.count() == 0


def test_D3_metadata_nested_too_deep_is_refused(backend: MongoDBStorageBackend) -> None:
    endless: dict[str, Any] = {}
    endless["again"] = endless
    with pytest.raises(InvalidInputError, match="nested deeper"):
        backend.save([record("a").model_copy(update={"metadata": endless})])
    deep: Any = 1
    for _ in range(80):
        deep = [deep]
    backend.save([record("deep", metadata={"k": deep})])
    assert backend.get_record("deep").metadata == {"k": deep}


def test_D3_what_metadata_can_hold_comes_back(backend: MongoDBStorageBackend) -> None:
    metadata = {
        "text": "naïve \x00\x01 😀",
        "nested": {"list": [1, 2.5, None, True, {"x": []}], "empty": {}},
        "bytes": b"\x00\xff",
        "negative": -(2**63),
        "infinite": float("inf"),
        "a.b": 1,
        "$gt": {"$ne": 1},
        "": "empty key",
        "date": dt.datetime(1969, 7, 20, 20, 17, 40),
        "schema": {"$ref": "#/a"},
        "own": [ObjectId(), Decimal128("1.50")],
    }
    backend.save([record("a", metadata=metadata)])
    assert backend.get_record("a").metadata == metadata
    backend.update(backend.get_record("a"))
    assert backend.get_record("a").metadata == metadata
    backend.save([record("t", metadata={"tuple": (1, (2,))})])
    assert backend.get_record("t").metadata == {"tuple": [1, [2]]}


def test_D5_uuids_are_stored_as_uuids(backend: MongoDBStorageBackend) -> None:
    run, record_id = uuid.uuid4(), str(uuid.uuid4())
    backend.save([record(record_id, metadata={"run": run}), record("other")])
    assert backend.get_record(record_id).metadata == {"run": run}
    assert backend.collection.find_one({"_id": record_id})["_id"] == record_id
    assert ids(backend.search(QUERY, metadata_filter={"run": run})) == {record_id}
    assert ids(backend.search(QUERY, metadata_filter={"run": str(run)})) == set()


def test_D7_an_id_that_is_there_stops_nothing(backend: MongoDBStorageBackend) -> None:
    backend.save([record("r2", content="old")])
    backend.save([record(f"r{n}", content="new") for n in range(5)])
    assert all_ids(backend) == {f"r{n}" for n in range(5)}
    assert {found.content for found in backend.list_records()} == {"new"}


def test_D7_what_the_server_refuses_is_named_and_the_rest_stored(
    backend: MongoDBStorageBackend,
) -> None:
    backend.save([record("first")])
    validator = {"content": {"$ne": "forbidden"}}
    backend.database.command("collMod", "memories", validator=validator)
    batch = [record(f"r{n}", content="forbidden" if n == 2 else "fine") for n in range(5)]
    with pytest.raises(RecordsNotStoredError, match=r"1 of 5 .*'r2'") as caught:
        backend.save(batch)
    assert caught.value.record_ids == ["r2"]
    assert all_ids(backend) == {"first", "r0", "r1", "r3", "r4"}


def test_D11_async_methods_work_from_any_loop(backend: MongoDBStorageBackend) -> None:
    asyncio.run(backend.asave([record("a", "/x")]))
    asyncio.run(backend.asave([record("b", "/x")]))
    assert ids(asyncio.run(backend.asearch(QUERY, scope_prefix="/x", limit=5))) == {"a", "b"}
    deleted: list[int] = []
    thread = threading.Thread(
        target=lambda: deleted.append(asyncio.run(backend.adelete(record_ids=["a"])))
    )
    thread.start()
    thread.join()
    assert deleted == [1]

    async def many() -> int:
        await asyncio.gather(*(backend.asave([record(f"m{n}")]) for n in range(10)))
        return await backend.adelete(scope_prefix="/")

    assert asyncio.run(many()) == 11


def test_D12_async_methods_leave_the_loop_free(
    backend: MongoDBStorageBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend.save([record("a")])
    backend.search(QUERY)
    slow = threading.Event()
    real = {name: getattr(Collection, name) for name in ("aggregate", "bulk_write", "delete_many")}

    def waiting(name: str) -> Any:
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            assert slow.wait(30)
            return real[name](self, *args, **kwargs)

        return call

    for name in real:
        monkeypatch.setattr(Collection, name, waiting(name))

    async def heartbeat_during(call: Any) -> int:
        slow.clear()
        task, beats = asyncio.ensure_future(call), 0
        while beats < 20:
            await asyncio.sleep(0.001)
            beats += 1
        assert not task.done()
        slow.set()
        await task
        return beats

    for call in [
        lambda: backend.asearch(QUERY),
        lambda: backend.asave([record("b")]),
        lambda: backend.adelete(record_ids=["a"]),
    ]:
        assert asyncio.run(heartbeat_during(call())) == 20


def test_D13_an_unreachable_server_fails_soon_with_a_hint(tmp_path: Any) -> None:
    uri = "mongodb://user:s3cret@127.0.0.1:1/?authSource=admin"
    backend = MongoDBStorageBackend(uri)
    assert backend.client.options.server_selection_timeout <= 10
    assert backend.client.options.pool_options.connect_timeout <= 10
    started = time.monotonic()
    with pytest.raises(MemoryConnectionError, match=r"user:\*\*\*@127.*address.*access list") as e:
        backend.count()
    assert time.monotonic() - started < 10
    assert "s3cret" not in str(e.value)
    backend.close()


@pytest.mark.parametrize(
    "uri",
    [
        "mongodb+srv://user:s3cret@no-such-cluster.invalid/",
        "mongodb://user:s3cret@host:99999/",
        "mongodb://user:s3/cret@host/",
        "mongodb://user:s3cret:x@host/",
        "mongodb://user:s3@cret@host/",
        "mongodb://user:s3cret@a,b/?directConnection=true",
    ],
)
def test_D13_a_malformed_address_is_told_without_the_password(uri: str) -> None:
    with pytest.raises(MemoryConnectionError, match=r"mongodb.*user:\*\*\*@.*percent-encoded") as e:
        MongoDBStorageBackend(uri).count()
    assert "s3cret" not in str(e.value).partition("?")[0]
    assert "s3" not in str(e.value).partition("?")[0]
    assert e.value.__suppress_context__


@pytest.mark.parametrize(
    ("uri", "masked"),
    [
        ("mongodb://h/?x=1", "mongodb://h/?x=1"),
        ("mongodb://u@h/", "mongodb://u@h/"),
        ("mongodb://u:p?q=1&r@h/?x=1", "mongodb://u:***@h/?x=1"),
        ("mongodb://u:p/?@h/?x=a", "mongodb://u:***@h/?x=a"),
        (
            "mongodb://u:p@h/?tlsCertificateKeyFilePassword=a@b&x=1",
            "mongodb://u:***@h/?tlsCertificateKeyFilePassword=***&x=1",
        ),
        (
            "mongodb://h/?x=1&authmechanismproperties=AWS_SESSION_TOKEN:a?b@c",
            "mongodb://h/?x=1&authmechanismproperties=***",
        ),
    ],
)
def test_D13_secrets_are_masked(uri: str, masked: str) -> None:
    assert mask(uri) == masked


@pytest.mark.parametrize("option", ["dimensions", "maxPoolSizes"])
def test_D13_an_unknown_option_is_named(option: str) -> None:
    backend = MongoDBStorageBackend("mongodb://u:s3cret@h/", **{option: 1536})
    with pytest.raises(
        MemoryConnectionError, match=f"Unknown option '{option}': .*MongoClient"
    ) as e:
        backend.count()
    assert "s3cret" not in str(e.value)
    assert e.value.__suppress_context__


def test_D13_a_certificate_that_is_not_there_is_told(tmp_path: Path) -> None:
    absent = tmp_path / "absent.pem"
    backend = MongoDBStorageBackend(
        "mongodb://u:s3cret@h/",
        tlsCertificateKeyFile=str(absent),
        tlsCertificateKeyFilePassword="s3cret",
    )
    with pytest.raises(
        MemoryConnectionError, match=r"check the address and the options.*absent"
    ) as e:
        backend.count()
    assert "s3cret" not in str(e.value)


@pytest.mark.parametrize("uri", ["", "localhost:27017", "http://host", None, 7])
def test_D13_what_is_no_connection_string_is_refused_at_once(uri: Any) -> None:
    with pytest.raises(MemoryConnectionError, match=r"begin with mongodb://"):
        MongoDBStorageBackend(uri)


def test_D13_wrong_credentials_are_told_as_such(mongodb_uri: str) -> None:
    _, _, address = mongodb_uri.partition("@")
    if not address:
        pytest.skip("this server asks for no credentials")
    with pytest.raises(MemoryConnectionError, match=r"refuses the credentials.*authSource") as e:
        MongoDBStorageBackend(f"mongodb://nobody:s3cret@{address}").count()
    assert "s3cret" not in str(e.value)
