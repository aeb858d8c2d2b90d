"""Everything else passes through: the same answers and errors as from the storage server itself."""

from __future__ import annotations

import asyncio
import datetime
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import bson
import pymongo
import pytest
from bson import Binary, Code, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from bson.raw_bson import RawBSONDocument
from embedded.support import found, make_index
from pymongo.errors import PyMongoError

from workbook import embedded
from workbook.embedded.folder import Folder

Database = Any


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Any]]:
    """Clients of one server: directly, and through the process in front."""
    home: Path = tmp_path_factory.mktemp("differential")
    server = embedded.start(home)
    log = Folder.of(home).storage_log.read_text()
    port = int(log.split("listening on 127.0.0.1:")[1].split()[0])
    direct_uri = server.uri.replace(f":{server.port}/", f":{port}/")
    with pymongo.MongoClient(direct_uri) as direct, pymongo.MongoClient(server.uri) as through:
        yield direct, through
    embedded.stop(home)


VALUES = {
    "double": 1.5,
    "nan": float("inf"),
    "text": "grün ✓",
    "nested": {"a": [{"b": [1, [2, 3]]}], "": None},
    "binary": Binary(b"\0\1", 0),
    "uuid": Binary.from_uuid(uuid.UUID(int=1)),
    "id": ObjectId("6" * 24),
    "true": True,
    "date": datetime.datetime(2026, 1, 2, 3, 4, 5, 678000),
    "null": None,
    "regex": Regex("a.*b", "i"),
    "code": Code("x"),
    "int": 7,
    "long": Int64(2**60),
    "timestamp": Timestamp(1, 2),
    "decimal": Decimal128("1.10"),
    "min": MinKey(),
    "max": MaxKey(),
}


def changes(db: Database) -> Any:
    with db.c.watch(max_await_time_ms=100) as stream:
        db.c.insert_one({"_id": "watched", "n": 1})
        db.c.update_one({"_id": "watched"}, {"$set": {"n": 2}})
        events = [stream.next() for _ in range(2)]
    return [{key: e[key] for key in ("operationType", "documentKey")} for e in events]


def transaction(db: Database, commit: bool) -> Any:
    with db.client.start_session() as session:
        session.start_transaction()
        db.c.insert_one({"_id": f"txn {commit}"}, session=session)
        inside = db.c.count_documents({"_id": f"txn {commit}"}, session=session)
        outside = db.c.count_documents({"_id": f"txn {commit}"})
        session.commit_transaction() if commit else session.abort_transaction()
    return inside, outside, db.c.count_documents({"_id": f"txn {commit}"})


OPERATIONS: dict[str, Callable[[Database], Any]] = {
    "insert": lambda db: db.c.insert_many([{"_id": n, "n": n % 3} for n in range(20)]).inserted_ids,
    "types": lambda db: (db.types.insert_one({"_id": 1, **VALUES}), db.types.find_one())[1],
    "find": lambda db: list(db.c.find({"n": 1}, {"n": 1}).sort("_id", -1).skip(1).limit(3)),
    "batches": lambda db: list(db.c.find({}, batch_size=3)),
    "raw batches": lambda db: [bson.decode_all(b) for b in db.c.find_raw_batches(batch_size=7)],
    "count": lambda db: (db.c.count_documents({"n": 1}), db.c.estimated_document_count()),
    "distinct": lambda db: db.c.distinct("n"),
    "aggregate": lambda db: list(
        db.c.aggregate([{"$group": {"_id": "$n", "k": {"$sum": 1}}}, {"$sort": {"_id": 1}}])
    ),
    "facet": lambda db: list(db.c.aggregate([{"$facet": {"a": [{"$count": "n"}]}}])),
    "update": lambda db: db.c.update_many({"n": 2}, {"$inc": {"k": 1}}).raw_result,
    "upsert": lambda db: db.c.update_one({"_id": 99}, {"$set": {"n": 9}}, upsert=True).raw_result,
    "pipeline": lambda db: db.c.update_one({"_id": 1}, [{"$set": {"k": "$n"}}]).raw_result,
    "replace": lambda db: db.c.replace_one({"_id": 1}, {"n": 5}).raw_result,
    "find and modify": lambda db: db.c.find_one_and_update(
        {"_id": 2}, {"$set": {"n": 7}}, return_document=True
    ),
    "bulk": lambda db: (
        db.c.bulk_write(
            [
                pymongo.InsertOne({"_id": 50}),
                pymongo.DeleteOne({"_id": 3}),
                pymongo.InsertOne({"_id": 51}),
            ]
        ).bulk_api_result
    ),
    "delete": lambda db: db.c.delete_many({"n": 7}).raw_result,
    "duplicate": lambda db: db.c.insert_one({"_id": 50}),
    "bulk error": lambda db: db.c.insert_many([{"_id": 60}, {"_id": 50}, {"_id": 61}]),
    "unordered error": lambda db: db.c.insert_many([{"_id": 50}, {"_id": 62}], ordered=False),
    "index": lambda db: db.c.create_index([("n", 1), ("k", -1)], name="nk"),
    "indexes": lambda db: db.c.index_information(),
    "unique": lambda db: (
        db.u.create_index("k", unique=True),
        db.u.insert_one({"_id": 1, "k": 1}),
        db.u.insert_one({"_id": 2, "k": 1}),
    ),
    "plan": lambda db: db.c.find({"n": 1}).explain()["queryPlanner"]["winningPlan"],
    "validator": lambda db: (
        db.create_collection("checked", validator={"$jsonSchema": {"required": ["a"]}}),
        db.checked.insert_one({"_id": 1}),
    ),
    "unknown command": lambda db: db.command("nope"),
    "bad operator": lambda db: list(db.c.find({"a": {"$nope": 1}})),
    "bad stage": lambda db: list(db.c.aggregate([{"$nope": {}}])),
    "bad update": lambda db: db.c.update_one({}, {"$nope": {"a": 1}}),
    "missing cursor": lambda db: db.command({"getMore": Int64(12345), "collection": "c"}),
    "large": lambda db: (
        db.large.insert_one({"_id": 1, "x": "y" * 15_000_000}),
        len(db.large.find_one()["x"]),
    )[1],
    "too large": lambda db: db.large.insert_one({"x": "y" * 17_000_000}),
    "many": lambda db: (
        db.many.insert_many([{"_id": n, "x": "y" * 1000} for n in range(3000)]),
        sum(1 for _ in db.many.find({}, batch_size=500)),
    )[1],
    "session": lambda db: [
        list(db.c.find({"_id": 50}, session=session))
        for session in [db.client.start_session(causal_consistency=True)]
    ],
    "commit": lambda db: transaction(db, True),
    "abort": lambda db: transaction(db, False),
    "changes": changes,
    "collections": lambda db: sorted(db.list_collection_names()),
    "rename": lambda db: (db.u.rename("u2"), sorted(db.list_collection_names()))[1],
    "drop": lambda db: (db.drop_collection("u2"), sorted(db.list_collection_names()))[1],
    "cursors": lambda db: [
        next(cursor)["_id"]
        for cursor in [db.many.find({}, batch_size=2).sort("_id", 1) for _ in range(50)]
    ],
    "full text index": lambda db: db.c.create_index([("text", "text")]),
}

VOLATILE = {"$clusterTime", "operationTime", "electionId", "opTime", "localTime", "connectionId"}


def outcome(operation: Callable[[Database], Any], db: Database) -> bytes:
    """Return what an operation gives or raises as bytes, without what differs by the clock."""
    try:
        result = {"result": operation(db)}
    except (PyMongoError, bson.errors.BSONError) as error:
        details = getattr(error, "details", None) or {}
        result = {"raised": type(error).__name__, "details": details}
    return bson.encode(_plain(result, db.name))


def _plain(value: Any, name: str) -> Any:
    if isinstance(value, RawBSONDocument):
        return value
    if isinstance(value, dict):
        kept = {k: v for k, v in value.items() if k not in VOLATILE}
        return {str(k).replace(name, "DB"): _plain(v, name) for k, v in kept.items()}
    if isinstance(value, list | tuple):
        return [_plain(one, name) for one in value]
    if isinstance(value, str):
        return value.replace(name, "DB")
    if value is None or isinstance(value, bool | int | float | bytes | datetime.datetime):
        return value
    try:
        bson.encode({"": value})
    except bson.errors.InvalidDocument:
        return type(value).__name__
    return value


def test_every_operation_answers_as_the_storage_server_does(two: tuple[Any, Any]) -> None:
    direct, through = (
        client["differential_" + side] for client, side in zip(two, "ab", strict=True)
    )
    different = {
        name: (plain, passed)
        for name, operation in OPERATIONS.items()
        if (plain := outcome(operation, direct)) != (passed := outcome(operation, through))
    }
    assert different == {}


def test_a_handshake_names_the_address_that_was_called(two: tuple[Any, Any]) -> None:
    direct, through = two
    plain, passed = direct.admin.command("hello"), through.admin.command("hello")
    host = f"127.0.0.1:{through.address[1]}"
    assert passed["hosts"] == [host]
    assert passed["me"] == passed["primary"] == host
    assert set(plain) == set(passed)


@pytest.mark.parametrize("options", ["", "&compressors=zlib", "&appName=x&maxPoolSize=1"])
def test_a_client_without_direct_connection_stays_in_front(
    two: tuple[Any, Any], options: str, mongodb_uri: str
) -> None:
    uri = mongodb_uri.replace("directConnection=true&", "") + options
    with pymongo.MongoClient(uri) as client:
        assert client.admin.command("ping")["ok"]
        assert client.nodes == {client.address}
        assert f":{client.address[1]}/" in uri


def test_an_async_client(mongodb_uri: str, database_name: str) -> None:
    async def run() -> list[Any]:
        async with pymongo.AsyncMongoClient(mongodb_uri) as client:
            collection = client[database_name]["c"]
            await asyncio.gather(*(collection.insert_one({"_id": n}) for n in range(50)))
            return [d["_id"] async for d in collection.find({}, batch_size=7).sort("_id", 1)]

    assert asyncio.run(run()) == list(range(50))


def test_a_storm_of_two_hundred_connections(mongodb_uri: str) -> None:
    def once(number: int) -> float:
        with pymongo.MongoClient(mongodb_uri, serverSelectionTimeoutMS=60_000) as client:
            return float(client.admin.command("ping")["ok"])

    with ThreadPoolExecutor(50) as pool:
        assert list(pool.map(once, range(200))) == [1.0] * 200


def test_what_a_ttl_index_deleted_takes_no_place_among_the_hits(two: tuple[Any, Any]) -> None:
    direct, through = two
    documents = through["ttl"]["documents"]
    make_index(documents)
    documents.insert_many([{"_id": n, "v": [1, n / 10, 0]} for n in range(6)])
    assert found(documents, limit=2) == [0, 1]
    # The server's TTL monitor deletes once a minute, unseen; so does this client.
    documents.create_index("at", expireAfterSeconds=3600)
    direct["ttl"]["documents"].delete_many({"_id": {"$in": [0, 2]}})
    assert found(documents, limit=3) == [1, 3, 4]
    documents.drop_index("at_1")
    assert found(documents, limit=3) == [1, 3, 4]


@pytest.mark.parametrize("more", [{}, {"nonsense": 1}, {"writeConcern": {"w": 99}}])
def test_a_drop_drops_all_or_deletes_nothing(two: tuple[Any, Any], more: dict[str, Any]) -> None:
    database = two[1]["drops"]
    database.full.insert_many([{"_id": n} for n in range(3)])
    try:
        database.command({"drop": "full", **more})
    except pymongo.errors.OperationFailure:
        assert database.full.count_documents({}) == 3
    assert two[0]["drops"].full.count_documents({}) in {0, 3}
    assert ("full" in database.list_collection_names()) == bool(database.full.count_documents({}))
    two[1].drop_database("drops")
    assert "drops" not in two[0].list_database_names()


def test_who_may_delete_and_not_drop_loses_nothing(two: tuple[Any, Any]) -> None:
    client = two[1]
    client["victim"]["full"].insert_many([{"_id": n} for n in range(5)])
    roles = [{"role": "readWrite", "db": "victim"}]
    client["victim"].command("createUser", "reader", pwd="secret", roles=roles)
    address = client.address
    with pymongo.MongoClient(
        *address, username="reader", password="secret", authSource="victim", directConnection=True
    ) as reader:
        assert reader["victim"]["full"].count_documents({}) == 5
        with pytest.raises(pymongo.errors.OperationFailure, match="not authorized"):
            reader.drop_database("victim")
    assert client["victim"]["full"].count_documents({}) == 5
