"""What follows a search runs on the storage server, and sees the score only as metadata."""

from __future__ import annotations

from typing import Any

import pytest
from embedded.support import SCORE, Documents, make_index, search, stage, vector_field
from pymongo.errors import OperationFailure

META = {"$meta": "vectorSearchScore"}


@pytest.fixture
def people(collection: Documents) -> Documents:
    make_index(collection)
    collection.insert_many(
        [{"_id": n, "v": [1, n, 0], "team": n % 2, "sub": {"n": n}} for n in range(6)]
    )
    return collection


def run(collection: Documents, *rest: dict[str, Any], **more: Any) -> list[Any]:
    return search(collection, (1, 0, 0), *rest, **more)


def test_documents_come_as_they_are_stored(people: Documents) -> None:
    assert run(people) == list(people.find().sort("_id", 1))


def test_a_projection_with_the_score(people: Documents) -> None:
    hits = run(people, {"$project": {"team": 1, "score": META}}, limit=2)
    assert [set(hit) for hit in hits] == [{"_id", "team", "score"}] * 2
    assert hits[0]["score"] == 1.0


def test_a_projection_that_leaves_fields_out(people: Documents) -> None:
    hits = run(people, {"$project": {"v": 0, "sub": 0}}, SCORE, limit=1)
    assert hits == [{"_id": 0, "team": 0, "score": 1.0}]


def test_the_score_outlives_a_projection(people: Documents) -> None:
    hits = run(people, {"$project": {"team": 1}}, SCORE, {"$project": {"team": 1, "score": 1}})
    assert [set(hit) for hit in hits] == [{"_id", "team", "score"}] * 6


def test_the_score_in_conditions_and_sorts(people: Documents) -> None:
    far = run(people, SCORE, {"$match": {"score": {"$lt": 0.7}}}, {"$sort": {"score": 1}})
    assert [hit["_id"] for hit in far] == [5, 4, 3]
    close = run(people, {"$match": {"$expr": {"$gt": [META, 0.9]}}})
    assert [hit["_id"] for hit in close] == [0]
    by_score = run(people, {"$sort": {"team": 1, "score": META}}, {"$project": {"_id": 1}})
    assert [hit["_id"] for hit in by_score] == [0, 2, 4, 1, 3, 5]


def test_the_score_in_a_group(people: Documents) -> None:
    group = {"$group": {"_id": "$team", "best": {"$max": META}, "ids": {"$push": "$_id"}}}
    hits = {hit["_id"]: hit for hit in run(people, group)}
    assert hits[0]["best"] == 1.0
    assert hits[1]["ids"] == [1, 3, 5]


def test_the_score_is_gone_after_a_group(people: Documents) -> None:
    with pytest.raises(OperationFailure, match="metadata") as caught:
        run(people, {"$group": {"_id": "$team"}}, SCORE)
    assert caught.value.code == 40218


@pytest.mark.parametrize(
    "rest",
    [
        [{"$set": {"whole": "$$ROOT"}}, SCORE],
        [{"$set": {"whole": "$$CURRENT"}}, SCORE],
        [{"$project": {"whole": "$$ROOT", "score": META}}],
        [{"$group": {"_id": None, "best": {"$max": META}, "all": {"$push": "$$ROOT"}}}],
        [{"$replaceRoot": {"newRoot": "$sub"}}, SCORE],
        [{"$replaceWith": "$$ROOT"}, SCORE],
        [{"$facet": {"a": [SCORE], "b": [{"$count": "n"}], "c": [{"$project": {"v": 1}}]}}],
        [{"$facet": {"a": [{"$limit": 1}]}}],
        [{"$unwind": "$v"}, SCORE],
        [{"$set": {"keys": {"$objectToArray": "$$ROOT"}, "score": META}}],
        [SCORE, {"$set": {"again": META}}, {"$unset": "v"}],
        [{"$sort": {"score": META}}],
        [],
    ],
    ids=str,
)
def test_the_field_that_carries_the_score_is_never_seen(people: Documents, rest: Any) -> None:
    hits = run(people, *rest)
    assert hits
    assert "__vectorSearchScore" not in str(hits)


def test_a_replaced_root_keeps_its_score(people: Documents) -> None:
    hits = run(people, {"$replaceRoot": {"newRoot": "$sub"}}, SCORE, limit=1)
    assert hits == [{"n": 0, "score": 1.0}]


def test_facets_and_counts(people: Documents) -> None:
    assert run(people, {"$count": "n"}) == [{"n": 6}]
    (facets,) = run(people, {"$facet": {"top": [{"$limit": 2}, SCORE], "n": [{"$count": "n"}]}})
    assert [hit["_id"] for hit in facets["top"]] == [0, 1]
    assert facets["top"][0]["score"] == 1.0
    assert facets["n"] == [{"n": 6}]


def test_a_lookup_after_a_search(people: Documents) -> None:
    people.database["teams"].insert_many([{"_id": 0, "name": "red"}, {"_id": 1, "name": "blue"}])
    lookup = {"from": "teams", "localField": "team", "foreignField": "_id", "as": "team"}
    hits = run(people, {"$lookup": lookup}, SCORE, limit=2)
    assert [hit["team"][0]["name"] for hit in hits] == ["red", "blue"]
    assert hits[0]["score"] == 1.0


def test_a_union_with_a_search(people: Documents) -> None:
    other = people.database["other"]
    make_index(other, vector_field("w"))
    other.insert_many([{"_id": f"o{n}", "w": [1, n, 0]} for n in range(3)])
    union = {"$unionWith": {"coll": "other", "pipeline": [stage(path="w", limit=2), SCORE]}}
    hits = run(people, SCORE, union, limit=2)
    assert [hit["_id"] for hit in hits] == [0, 1, "o0", "o1"]
    assert hits[2]["score"] == 1.0
    assert "__vectorSearchScore" not in str(hits)
    alone = list(people.aggregate([{"$match": {"_id": 5}}, union]))
    assert [hit["_id"] for hit in alone] == [5, "o0", "o1"]


def test_results_can_be_written(people: Documents) -> None:
    run(people, SCORE, {"$out": "hits"}, limit=2)
    hits = list(people.database["hits"].find().sort("_id", 1))
    assert [hit["_id"] for hit in hits] == [0, 1]
    assert "__vectorSearchScore" not in str(hits)


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_results_come_in_batches(people: Documents, size: int) -> None:
    hits = people.aggregate([stage(), {"$project": {"_id": 1}}], batchSize=size)
    assert [hit["_id"] for hit in hits] == [0, 1, 2, 3, 4, 5]


def test_an_empty_first_batch(people: Documents) -> None:
    reply = people.database.command(
        {"aggregate": people.name, "pipeline": [stage()], "cursor": {"batchSize": 0}}
    )
    assert reply["cursor"]["firstBatch"] == []
    assert reply["cursor"]["id"]


def test_ids_of_every_type(collection: Documents) -> None:
    make_index(collection)
    ids: list[Any] = ["$v", "a.b", 1, 2.5, {"a": "$v"}, True, b"x", ""]
    collection.insert_many([{"_id": one, "v": [1, 0, n / 10]} for n, one in enumerate(ids)])
    assert [hit["_id"] for hit in run(collection)] == ids


def test_an_explain_names_the_search(people: Documents) -> None:
    pipeline = [stage(filter={}), {"$project": {"_id": 1}}]
    command = {"aggregate": people.name, "pipeline": pipeline, "cursor": {}}
    plan = people.database.command("explain", command, verbosity="executionStats")
    assert next(iter(plan["stages"][0])) == "$vectorSearch"
    assert plan["stages"][0]["nReturned"] == 6
    assert plan["stages"][1]["$_internalSearchIdLookup"]["limit"] == 10
    assert plan["stages"][2] == {"$project": {"_id": 1}}
    plan = people.database.command("explain", command, verbosity="queryPlanner")
    assert "nReturned" not in plan["stages"][0]


def test_a_failing_stage_is_the_servers_error(people: Documents) -> None:
    with pytest.raises(OperationFailure, match="nope"):
        run(people, {"$nope": {}})
