"""Rules of the `$vectorSearch` stage: its fields, its vectors, its scores."""

from __future__ import annotations

import math
from typing import Any

import pytest
from bson.binary import Binary, BinaryVectorDtype
from bson.int64 import Int64
from embedded.support import (
    SCORE,
    Documents,
    filter_field,
    found,
    make_index,
    random_vectors,
    scores,
    search,
    stage,
    vector_field,
)
from pymongo.errors import OperationFailure


@pytest.fixture
def three(collection: Documents) -> Documents:
    """Three documents at cosine 1, 0 and -1 from (1, 0, 0)."""
    make_index(collection, vector_field(), filter_field("tag"))
    collection.insert_many(
        [
            {"_id": "same", "v": [2, 0, 0], "tag": "a"},
            {"_id": "across", "v": [0, 1, 0], "tag": "b"},
            {"_id": "opposite", "v": [-1, 0, 0], "tag": "a"},
        ]
    )
    return collection


def refused(collection: Documents, says: str, code: int = 8, **settings: Any) -> None:
    query = settings.pop("query", (1, 0, 0))
    with pytest.raises(OperationFailure, match=says) as caught:
        search(collection, query, **settings)
    assert caught.value.code == code


def test_the_nearest_come_first_and_no_more_than_the_limit(three: Documents) -> None:
    assert found(three) == ["same", "across", "opposite"]
    assert found(three, limit=2) == ["same", "across"]


def test_an_unknown_index_gives_nothing(three: Documents) -> None:
    assert found(three, index="nope") == []


def test_a_missing_collection_gives_nothing(collection: Documents) -> None:
    assert found(collection) == []


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"limit": ...}, '"limit" is required'),
        ({"limit": 0}, '"limit" must be positive'),
        ({"limit": -1}, '"limit" must be positive'),
        ({"limit": "3"}, '"limit" must be an integer'),
        ({"limit": 2.5}, '"limit" must be an integer'),
        ({"limit": 101}, "limit should be less than or equal to numCandidates"),
        ({"numCandidates": ...}, "numCandidates is required for approximate vector search"),
        ({"numCandidates": ..., "exact": False}, "numCandidates is required"),
        ({"numCandidates": 0}, r'"numCandidates" must be within bounds \[1..10000\]'),
        ({"numCandidates": 10_001}, r'"numCandidates" must be within bounds \[1..10000\]'),
        ({"numCandidates": 100, "exact": True}, '"numCandidates" must be omitted'),
        ({"exact": True, "limit": 10_001}, "limit"),
        ({"exact": "yes", "numCandidates": 100}, '"exact" must be a boolean'),
        ({"path": ...}, '"path" is required'),
        ({"path": "tag"}, "tag is not indexed as vector"),
        ({"path": "nope"}, "nope is not indexed as vector"),
        ({"index": ...}, '"index" is required'),
        ({"index": ""}, '"index" cannot be empty'),
        ({"index": 5}, '"index" must be a string'),
        ({"queryVector": ...}, "one of query and queryVector"),
        ({"queryVector": []}, "indexed with 3 dimensions but queried with 0"),
        ({"queryVector": [1, 0]}, "indexed with 3 dimensions but queried with 2"),
        ({"queryVector": [1, 0, 0, 0]}, "indexed with 3 dimensions but queried with 4"),
        ({"queryVector": [0, 0, 0]}, "zero vector"),
        ({"queryVector": [1, 0, "x"]}, "queryVector"),
        ({"queryVector": [1, 0, math.nan]}, "queryVector"),
        ({"queryVector": [1, 0, math.inf]}, "queryVector"),
        ({"queryVector": "x"}, "queryVector"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_a_field_that_atlas_refuses_is_refused(
    three: Documents, settings: dict[str, Any], says: str
) -> None:
    refused(three, says, **settings)


def test_the_filter_must_be_a_document(three: Documents) -> None:
    refused(three, "expected an object", code=10065, filter=None)
    refused(three, "expected an object", code=10065, filter=[])
    assert len(found(three, filter={})) == 3


def test_the_bounds_themselves_are_accepted(three: Documents) -> None:
    assert len(found(three, limit=10_000, numCandidates=10_000)) == 3
    assert len(found(three, limit=10_000, exact=True)) == 3
    assert found(three, limit=1, numCandidates=1) == ["same"]
    assert found(three, limit=Int64(1), numCandidates=Int64(5)) == ["same"]


@pytest.mark.parametrize(
    "query",
    [
        [1, 0, 0],
        [1.0, 0.0, 0.0],
        [Int64(1), 0.0, 0],
        Binary.from_vector([1.0, 0.0, 0.0], BinaryVectorDtype.FLOAT32),
    ],
    ids=["ints", "floats", "mixed", "float32"],
)
def test_a_query_may_be_numbers_or_bindata(three: Documents, query: Any) -> None:
    assert found(three, query) == ["same", "across", "opposite"]


def test_int8_vectors_meet_int8_vectors_only(collection: Documents) -> None:
    make_index(collection)
    int8 = Binary.from_vector([100, 0, 0], BinaryVectorDtype.INT8)
    collection.insert_many([{"_id": "int8", "v": int8}, {"_id": "float", "v": [1.0, 0, 0]}])
    assert scores(collection, int8) == {"int8": 1.0}
    assert scores(collection, (1, 0, 0)) == {"float": 1.0}


def test_documents_keep_vectors_as_numbers_or_bindata(collection: Documents) -> None:
    make_index(collection)
    collection.insert_many(
        [
            {"_id": 1, "v": [1.0, 2.0, 3.0]},
            {"_id": 2, "v": [1, 2, 3]},
            {"_id": 3, "v": [1, 2.0, Int64(3)]},
            {"_id": 4, "v": Binary.from_vector([1, 2, 3], BinaryVectorDtype.FLOAT32)},
        ]
    )
    assert scores(collection, (1, 2, 3)) == pytest.approx({n: 1.0 for n in (1, 2, 3, 4)})


def test_documents_without_a_usable_vector_are_not_indexed(collection: Documents) -> None:
    make_index(collection)
    unusable: list[Any] = [
        None,
        [],
        [1, 0],
        [1, 0, 0, 0],
        [1, 0, "x"],
        [1, 0, None],
        [True, False, False],
        [[1, 0, 0]],
        [0, 0, 0],
        [1, 0, math.nan],
        [1e300, 0, 0],
        "vector",
        5,
        {"0": 1},
        Binary(b"\x27\x00\x01"),
        Binary(b"", 9),
        Binary(b"\x27\x00\x01", 9),
        Binary(b"\x99\x00\x01\x02\x03", 9),
    ]
    collection.insert_many([{"v": one} for one in unusable] + [{"no": "vector"}])
    collection.insert_one({"_id": "usable", "v": [1, 1, 1]})
    assert found(collection, limit=100) == ["usable"]


def test_cosine_scores(three: Documents) -> None:
    assert scores(three) == pytest.approx({"same": 1.0, "across": 0.5, "opposite": 0.0})


def test_dot_product_scores(collection: Documents) -> None:
    make_index(collection, vector_field(similarity="dotProduct"))
    collection.insert_many([{"_id": n, "v": [n, 0, 0]} for n in (1, 0.5, -1)])
    assert scores(collection) == pytest.approx({1: 1.0, 0.5: 0.75, -1: 0.0})


def test_euclidean_scores(collection: Documents) -> None:
    make_index(collection, vector_field(similarity="euclidean"))
    collection.insert_many([{"_id": n, "v": [n, 0, 0]} for n in (1, 3, 0)])
    assert scores(collection) == pytest.approx({1: 1.0, 3: 1 / 3, 0: 1 / 2})


def test_a_search_finds_what_comparing_all_finds(collection: Documents) -> None:
    make_index(collection, vector_field(dimensions=16))
    vectors = list(random_vectors(200, 16))
    collection.insert_many([{"_id": n, "v": v} for n, v in enumerate(vectors)])
    query = list(next(iter(random_vectors(1, 16, seed=2))))

    def cosine(v: Any) -> float:
        return sum(a * b for a, b in zip(v, query, strict=True)) / math.hypot(*v)

    best = sorted(range(200), key=lambda n: -cosine(vectors[n]))[:10]
    assert found(collection, query) == best
    expected = {n: (1 + cosine(vectors[n]) / math.hypot(*query)) / 2 for n in best}
    assert scores(collection, query) == pytest.approx(expected, abs=1e-6)


def test_the_stage_must_be_first(three: Documents) -> None:
    with pytest.raises(OperationFailure, match="only valid as the first stage") as caught:
        list(three.aggregate([{"$match": {}}, stage()]))
    assert caught.value.code == 40602


def test_no_search_inside_a_facet_or_a_lookup(three: Documents) -> None:
    with pytest.raises(OperationFailure, match=r"\$facet") as caught:
        list(three.aggregate([{"$facet": {"hits": [stage()]}}]))
    assert caught.value.code == 40600
    lookup = {"$lookup": {"from": three.name, "pipeline": [stage()], "as": "hits"}}
    with pytest.raises(OperationFailure, match=r"\$lookup") as caught:
        list(three.aggregate([lookup]))
    assert caught.value.code == 51047


def test_no_search_in_a_view_definition(three: Documents) -> None:
    with pytest.raises(OperationFailure, match="view"):
        three.database.create_collection("view", viewOn=three.name, pipeline=[stage()])
    three.database.create_collection("view", viewOn=three.name, pipeline=[{"$limit": 1}])
    assert len(list(three.database["view"].find())) == 1


def test_no_search_in_a_transaction(three: Documents) -> None:
    client = three.database.client
    with client.start_session() as session:
        session.start_transaction()
        three.insert_one({"_id": 1}, session=session)
        with pytest.raises(OperationFailure, match="transaction") as caught:
            list(three.aggregate([stage()], session=session))
        assert caught.value.code == 263
        session.abort_transaction()


def test_scores_are_there_for_every_hit(three: Documents) -> None:
    hits = search(three, (1, 0, 0), SCORE)
    assert [hit["score"] for hit in hits] == sorted((h["score"] for h in hits), reverse=True)


def test_a_string_that_reads_like_a_stage_is_data(three: Documents) -> None:
    three.insert_one({"_id": 9, "text": "$vectorSearch"})
    assert [d["_id"] for d in three.aggregate([{"$match": {"text": "$vectorSearch"}}])] == [9]
