"""A search sees every write that was acknowledged before it, whatever kind of write it was."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import pymongo
import pytest
from embedded.support import Documents, filter_field, found, make_index, search, vector_field
from pymongo import DeleteMany, InsertOne, ReplaceOne, UpdateMany, UpdateOne, WriteConcern

FAR = [0, 1, 0]
NEAR = [1, 0, 0]


@pytest.fixture
def loaded(collection: Documents) -> Documents:
    """Documents 0 to 5, far from (1, 0, 0), that have been searched once."""
    make_index(collection, vector_field(), filter_field("tag"), filter_field("n"))
    collection.insert_many([{"_id": n, "v": FAR, "tag": "old", "n": n} for n in range(6)])
    assert len(found(collection)) == 6
    return collection


def near(collection: Documents) -> list[Any]:
    hits = search(collection, NEAR, {"$set": {"score": {"$meta": "vectorSearchScore"}}})
    return sorted((hit["_id"] for hit in hits if hit["score"] > 0.9), key=str)


def in_transaction(write: Callable[[Any], Any]) -> Callable[[Documents], None]:
    def run(c: Documents) -> None:
        with c.database.client.start_session() as session, session.start_transaction():
            write((c, session))
            # Read in between: what the commit brings must still be seen after it.
            assert near(c) == []

    return run


WRITES: dict[str, tuple[Callable[[Documents], Any], list[Any]]] = {
    "insert_one": (lambda c: c.insert_one({"_id": 9, "v": NEAR}), [9]),
    "insert_many": (lambda c: c.insert_many([{"_id": n, "v": NEAR} for n in (7, 8)]), [7, 8]),
    "replace_one": (lambda c: c.replace_one({"_id": 1}, {"v": NEAR}), [1]),
    "replace by condition": (lambda c: c.replace_one({"n": 1}, {"v": NEAR}), [1]),
    "upsert": (lambda c: c.replace_one({"_id": 9}, {"v": NEAR}, upsert=True), [9]),
    "upsert by condition": (
        lambda c: c.update_one({"n": 9}, {"$set": {"v": NEAR, "_id": 9}}, upsert=True),
        [9],
    ),
    "update_one": (lambda c: c.update_one({"_id": 1}, {"$set": {"v": NEAR}}), [1]),
    "update_one by $eq": (lambda c: c.update_one({"_id": {"$eq": 1}}, {"$set": {"v": NEAR}}), [1]),
    "update_many by $in": (
        lambda c: c.update_many({"_id": {"$in": [1, 2]}}, {"$set": {"v": NEAR}}),
        [1, 2],
    ),
    "update_many": (lambda c: c.update_many({"n": {"$lt": 2}}, {"$set": {"v": NEAR}}), [0, 1]),
    "update by position": (lambda c: c.update_one({"n": 1}, {"$set": {"v.0": 1, "v.1": 0}}), [1]),
    "pipeline": (lambda c: c.update_one({"n": 1}, [{"$set": {"v": NEAR}}]), [1]),
    "rename": (
        lambda c: (
            c.update_one({"n": 1}, {"$set": {"w": NEAR}}),
            c.update_one({"n": 1}, {"$rename": {"w": "v"}}),
        ),
        [1],
    ),
    "find_one_and_update": (
        lambda c: c.find_one_and_update({"n": 1}, {"$set": {"v": NEAR}}),
        [1],
    ),
    "find_one_and_replace": (lambda c: c.find_one_and_replace({"_id": 1}, {"v": NEAR}), [1]),
    "find_one_and_update, upsert": (
        lambda c: c.find_one_and_update({"n": 9}, {"$set": {"v": NEAR, "_id": 9}}, upsert=True),
        [9],
    ),
    "bulk_write": (
        lambda c: c.bulk_write(
            [
                InsertOne({"_id": 9, "v": NEAR, "n": 9}),
                UpdateOne({"_id": 0}, {"$set": {"n": 77}}),
                UpdateMany({"n": 77}, {"$set": {"v": NEAR}}),
                ReplaceOne({"_id": 5}, {"v": NEAR}),
                DeleteMany({"n": 9}),
            ]
        ),
        [0, 5],
    ),
    "client.bulk_write": (
        lambda c: c.database.client.bulk_write(
            [
                InsertOne({"_id": 9, "v": NEAR}, namespace=c.full_name),
                UpdateMany({"n": 1}, {"$set": {"v": NEAR}}, namespace=c.full_name),
            ]
        ),
        [1, 9],
    ),
    "merge": (
        lambda c: c.aggregate([{"$match": {"n": 1}}, {"$set": {"v": NEAR}}, {"$merge": c.name}]),
        [1],
    ),
    "out": (
        lambda c: c.aggregate([{"$match": {"n": 1}}, {"$set": {"v": NEAR}}, {"$out": c.name}]),
        [1],
    ),
    "transaction": (
        in_transaction(lambda x: x[0].insert_one({"_id": 9, "v": NEAR}, session=x[1])),
        [9],
    ),
    "transaction by condition": (
        in_transaction(
            lambda x: x[0].update_many({"n": {"$lt": 2}}, {"$set": {"v": NEAR}}, session=x[1])
        ),
        [0, 1],
    ),
}


@pytest.mark.parametrize("name", WRITES)
def test_a_search_sees_the_write(loaded: Documents, name: str) -> None:
    write, expected = WRITES[name]
    if name == "client.bulk_write" and not _takes_bulk_write(loaded):
        pytest.skip("the storage server has no bulkWrite command")
    write(loaded)
    assert near(loaded) == expected


def _takes_bulk_write(collection: Documents) -> bool:
    try:
        collection.database.client.bulk_write(
            [InsertOne({"_id": "probe"}, namespace=f"{collection.database.name}.probe")]
        )
    except pymongo.errors.PyMongoError:
        return False
    return True


@pytest.mark.parametrize(
    ("delete", "left"),
    [
        (lambda c: c.delete_one({"_id": 0}), [1, 2, 3, 4, 5]),
        (lambda c: c.delete_many({"n": {"$gt": 1}}), [0, 1]),
        (lambda c: c.delete_many({}), []),
        (lambda c: c.find_one_and_delete({"n": 5}), [0, 1, 2, 3, 4]),
        (lambda c: c.update_many({"n": {"$gt": 0}}, {"$unset": {"v": 1}}), [0]),
        (lambda c: c.update_one({"_id": 3}, {"$set": {"v": [1, 2]}}), [0, 1, 2, 4, 5]),
        (lambda c: c.drop(), []),
    ],
)
def test_a_search_does_not_see_what_is_gone(
    loaded: Documents, delete: Callable[[Documents], Any], left: list[int]
) -> None:
    delete(loaded)
    assert sorted(found(loaded)) == left


def test_an_aborted_transaction_leaves_nothing(loaded: Documents) -> None:
    with loaded.database.client.start_session() as session:
        session.start_transaction()
        loaded.insert_one({"_id": 9, "v": NEAR}, session=session)
        session.abort_transaction()
    assert near(loaded) == []


def test_a_changed_filter_value_is_seen(loaded: Documents) -> None:
    loaded.update_one({"n": 2}, {"$set": {"tag": "new"}})
    assert found(loaded, filter={"tag": "new"}) == [2]
    loaded.update_many({}, {"$set": {"tag": "newer"}})
    assert found(loaded, filter={"tag": "new"}) == []
    assert len(found(loaded, filter={"tag": "newer"})) == 6


def test_a_write_that_is_not_acknowledged_is_seen_once_it_is_applied(loaded: Documents) -> None:
    silent = loaded.with_options(write_concern=WriteConcern(w=0))
    for n in range(20):
        silent.insert_one({"_id": 100 + n, "v": NEAR})
    while loaded.count_documents({"_id": {"$gte": 100}}) < 20:
        pass
    # Its connection has answered what was asked after it, or is about to.
    loaded.database.client.admin.command("ping")
    for _ in range(1000):
        if len(found(loaded, limit=50)) == 26:
            return
    assert len(found(loaded, limit=50)) == 26


def test_a_write_and_a_search_race(loaded: Documents, mongodb_uri: str) -> None:
    """Each thread's own acknowledged writes are in its next search, while others write."""
    missed: list[Any] = []

    def work(number: int) -> None:
        chance = random.Random(number)
        with pymongo.MongoClient(mongodb_uri) as client:
            mine = client[loaded.database.name][loaded.name]
            for turn in range(12):
                key, tag = f"{number}-{turn}", f"t{number}"
                mine.insert_one({"_id": key, "v": NEAR, "tag": tag, "n": chance.random()})
                if key not in found(mine, NEAR, limit=100, filter={"tag": tag}):
                    missed.append(key)
                if turn % 3 == 2:
                    mine.update_many({"tag": tag}, {"$set": {"tag": f"{tag}x"}})
                    if found(mine, NEAR, limit=100, filter={"tag": tag}):
                        missed.append(f"{key} updated")
                    mine.update_many({"tag": f"{tag}x"}, {"$set": {"tag": tag}})

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert missed == []


@pytest.mark.parametrize("seed", range(3))
def test_random_writes_leave_the_index_as_the_collection_is(
    collection: Documents, seed: int
) -> None:
    make_index(collection, vector_field(), filter_field("n"))
    chance = random.Random(seed)
    for _ in range(40):
        n, v = chance.randrange(8), [chance.random() for _ in range(3)]
        write = chance.choice(
            [
                lambda n=n, v=v: collection.replace_one({"_id": n}, {"v": v, "n": n}, upsert=True),
                lambda n=n, v=v: collection.update_many({"n": {"$gte": n}}, {"$set": {"v": v}}),
                lambda n=n, v=v: collection.update_many({"n": n}, {"$inc": {"n": 1}}),
                lambda n=n, v=v: collection.delete_many({"n": n}),
                lambda n=n, v=v: collection.delete_one({"_id": n}),
                lambda n=n, v=v: collection.update_one({"n": n}, {"$unset": {"v": 1}}),
                lambda n=n, v=v: collection.find_one_and_update({"n": n}, {"$set": {"v": v}}),
            ]
        )
        write()
        n = chance.randrange(8)
        stored = collection.find({"v": {"$exists": True}, "n": {"$gte": n}}, {"_id": 1})
        hits = found(collection, limit=100, filter={"n": {"$gte": n}})
        assert sorted(hits) == sorted(d["_id"] for d in stored)
