"""Rules of the prefilter: the documented operators and value types, with `$match`'s meaning."""

from __future__ import annotations

import datetime
import uuid
from typing import Any

import pytest
from bson import Decimal128, ObjectId, Regex
from bson.binary import Binary
from bson.int64 import Int64
from embedded.support import Documents, filter_field, found, make_index, search, vector_field
from pymongo.errors import OperationFailure

EARLY = datetime.datetime(2026, 1, 1)
LATE = datetime.datetime(2026, 6, 1, 12, 30)
FIRST, SECOND = ObjectId("6" * 24), ObjectId("7" * 24)
ID = Binary.from_uuid(uuid.UUID(int=7))
VALUES: dict[str, Any] = {
    "int": 1,
    "double": 1.5,
    "long": Int64(2**40),
    "negative": -3,
    "true": True,
    "false": False,
    "text": "a",
    "other text": "b",
    "empty text": "",
    "early": EARLY,
    "late": LATE,
    "first": FIRST,
    "second": SECOND,
    "uuid": ID,
    "null": None,
    "texts": ["a", "c"],
    "numbers": [1, 5],
    "mixed": ["a", 1, True, None],
    "nothing": [],
    "document": {"a": 1},
    "documents": [{"a": 1}],
}


@pytest.fixture(scope="module")
def filled(client: Any) -> Any:
    """A collection with a document for each value, and one without the field."""
    name = f"test_{uuid.uuid4().hex[:12]}"
    collection = client[name]["filters"]
    make_index(collection, vector_field(), *map(filter_field, ("x", "deep.x", "_id")))
    documents: list[dict[str, Any]] = [
        {"_id": key, "v": [1, 0, 0], "x": value, "deep": {"x": value}}
        for key, value in VALUES.items()
    ]
    documents.append({"_id": "missing", "v": [1, 0, 0]})
    documents.append({"_id": "array", "v": [1, 0, 0], "deep": [{"x": "a"}, {"x": 9}, 3]})
    collection.insert_many(documents)
    yield collection
    client.drop_database(name)


SCALARS = ["int", "double", "long", "true", "false", "text", "early", "first", "uuid"]
CONDITIONS: list[Any] = [
    *(VALUES[key] for key in (*SCALARS, "null", "empty text")),
    1.0,
    Int64(1),
    7,
    "z",
    *({"$eq": VALUES[key]} for key in (*SCALARS, "null")),
    *({"$ne": VALUES[key]} for key in (*SCALARS, "null")),
    *(
        {operator: VALUES[key]}
        for operator in ("$gt", "$gte", "$lt", "$lte")
        for key in ("int", "double", "text", "early", "first")
    ),
    {"$gt": 0, "$lt": 2},
    {"$gte": EARLY, "$lt": LATE},
    {"$in": ["a", "z"]},
    {"$in": [1, 5]},
    {"$in": [True, False]},
    {"$in": [EARLY, LATE]},
    {"$in": [FIRST]},
    {"$nin": ["a", "b"]},
    {"$nin": [1, 2.5]},
    {"$exists": True},
    {"$exists": False},
    {"$not": {"$eq": "a"}},
    {"$not": {"$gt": 0}},
    {"$not": {"$in": ["a"]}},
    {"$not": {"$gt": 0, "$lt": 2}},
    {"$ne": "a", "$exists": True},
]


@pytest.mark.parametrize("path", ["x", "deep.x"])
@pytest.mark.parametrize("condition", CONDITIONS, ids=str)
def test_a_condition_means_what_it_means_in_a_match(
    filled: Documents, path: str, condition: Any
) -> None:
    matched = sorted(d["_id"] for d in filled.find({path: condition}, {"_id": 1}))
    assert sorted(found(filled, limit=100, filter={path: condition})) == matched


@pytest.mark.parametrize(
    "condition",
    [
        {"x": "a", "deep.x": "a"},
        {"$and": [{"x": {"$gt": 0}}, {"x": {"$lt": 2}}]},
        {"$or": [{"x": "a"}, {"x": 1}]},
        {"$nor": [{"x": "a"}, {"x": 1}]},
        {"$and": [{"$or": [{"x": "a"}, {"x": True}]}, {"deep.x": {"$ne": 1}}]},
        {"$or": [{"$and": [{"x": "a"}]}], "x": {"$exists": True}},
        {"_id": "text"},
        {"_id": {"$in": ["text", "int"]}},
        {},
    ],
    ids=str,
)
def test_conditions_combine(filled: Documents, condition: dict[str, Any]) -> None:
    matched = sorted(d["_id"] for d in filled.find(condition, {"_id": 1}))
    assert sorted(found(filled, limit=100, filter=condition)) == matched


@pytest.mark.parametrize(
    ("condition", "says"),
    [
        ({"y": 1}, "Path 'y' needs to be indexed as filter"),
        ({"x.y": 1}, "Path 'x.y' needs to be indexed as filter"),
        ({"$and": [{"x": 1}, {"$or": [{"z": 1}]}]}, "Path 'z' needs to be indexed as filter"),
        ({"v": 1}, "Path 'v' needs to be indexed as filter"),
        ({"x": {"$regex": "a"}}, r"\$regex"),
        ({"x": {"$elemMatch": {"$eq": 1}}}, r"\$elemMatch"),
        ({"x": {"$all": ["a"]}}, r"\$all"),
        ({"x": {"$size": 1}}, r"\$size"),
        ({"x": {"$type": "string"}}, r"\$type"),
        ({"x": {"$mod": [2, 0]}}, r"\$mod"),
        ({"$expr": {"$eq": ["$x", 1]}}, r"\$expr"),
        ({"$where": "true"}, r"\$where"),
        ({"$text": {"$search": "a"}}, r"\$text"),
        ({"$not": {"x": 1}}, r"\$not"),
        ({"x": Regex("a")}, "must be a boolean"),
        ({"x": ["a"]}, "must be a boolean"),
        ({"x": {"a": 1}}, "must be a boolean"),
        ({"x": Decimal128("1")}, "must be a boolean"),
        ({"x": Binary(b"a")}, "UUID subtype 4"),
        ({"x": {"$in": []}}, "cannot be empty"),
        ({"x": {"$in": "a"}}, "array"),
        ({"x": {"$in": ["a", 1]}}, "elements of the same type"),
        ({"x": {"$in": ["a", None]}}, "must be a boolean"),
        ({"x": {"$nin": [None]}}, "must be a boolean"),
        ({"x": {"$gt": None}}, "must be a boolean"),
        ({"x": {"$exists": 1}}, "boolean"),
        ({"x": {"$not": "a"}}, "document"),
        ({"x": {"$not": {}}}, "document"),
        ({"$and": []}, "cannot be empty"),
        ({"$or": {"x": 1}}, "cannot be empty"),
        ({"$or": ["x"]}, "document"),
    ],
    ids=str,
)
def test_a_filter_that_atlas_refuses_is_refused(
    filled: Documents, condition: dict[str, Any], says: str
) -> None:
    with pytest.raises(OperationFailure, match=says) as caught:
        search(filled, filter=condition)
    assert caught.value.code == 8


def test_the_filter_comes_before_the_limit(collection: Documents) -> None:
    make_index(collection, vector_field(), filter_field("tenant"))
    collection.insert_many([{"v": [1, 0, n / 1000], "tenant": "theirs"} for n in range(100)])
    collection.insert_many([{"_id": n, "v": [0, 1, n], "tenant": "ours"} for n in range(3)])
    hits = found(collection, limit=3, numCandidates=3, filter={"tenant": "ours"})
    assert sorted(hits) == [0, 1, 2]
