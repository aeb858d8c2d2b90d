"""`show.plan` reads every shape in which a server explains a query."""

from __future__ import annotations

from typing import Any

import pytest

from workbook import show
from workbook.show.plans import COLUMNS

FETCH: dict[str, Any] = {
    "stage": "FETCH",
    "inputStage": {"stage": "IXSCAN", "indexName": "scope_1"},
}


def rows(explained: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Return a plan's rows, a blank figure as None."""
    frame = show.plan(explained)
    assert list(frame.columns) == list(COLUMNS)
    cells = frame.astype(object).where(frame.notna(), None)
    return list(cells.itertuples(index=False, name=None))


def query(winning: dict[str, Any], execution: dict[str, Any]) -> dict[str, Any]:
    return {"queryPlanner": {"winningPlan": winning}, "executionStats": execution}


CLASSIC = query(
    {"stage": "LIMIT", "inputStage": FETCH},
    {
        "nReturned": 2,
        "totalKeysExamined": 3,
        "totalDocsExamined": 3,
        "executionStages": {
            "stage": "LIMIT",
            "nReturned": 2,
            "inputStage": {
                "stage": "FETCH",
                "nReturned": 2,
                "docsExamined": 3,
                "inputStage": {
                    "stage": "IXSCAN",
                    "nReturned": 3,
                    "keysExamined": 3,
                    "indexName": "scope_1",
                },
            },
        },
    },
)


def test_a_classic_plan_is_read_stage_by_stage() -> None:
    assert rows(CLASSIC) == [
        ("IXSCAN", "scope_1", 3, None, 3),
        ("FETCH", "", None, 3, 2),
        ("LIMIT", "", None, None, 2),
    ]


def test_a_plan_without_figures_by_stage_gets_the_querys_totals() -> None:
    execution = {
        "nReturned": 20,
        "totalKeysExamined": 20,
        "totalDocsExamined": 20,
        "executionStages": {
            "stage": "FETCH",
            "nReturned": 20,
            "inputStage": {"stage": "IXSCAN", "nReturned": 20},
        },
    }
    assert rows(query(FETCH, execution)) == [
        ("IXSCAN", "scope_1", 20, None, 20),
        ("FETCH", "", None, 20, 20),
    ]


def test_a_stage_that_the_server_did_not_report_on_stays_blank() -> None:
    winning = {"stage": "SORT", "inputStage": {"stage": "COLLSCAN"}}
    execution = {
        "totalKeysExamined": 0,
        "totalDocsExamined": 200,
        "executionStages": {"stage": "COLLSCAN", "nReturned": 194},
    }
    assert rows(query(winning, execution)) == [
        ("COLLSCAN", "", None, 200, 194),
        ("SORT", "", None, None, None),
    ]


def test_a_plan_that_was_not_run_has_stages_and_no_figures() -> None:
    assert rows({"queryPlanner": {"winningPlan": FETCH}}) == [
        ("IXSCAN", "scope_1", None, None, None),
        ("FETCH", "", None, None, None),
    ]


def test_branches_of_an_or_come_before_it() -> None:
    branches = [
        {"stage": "IXSCAN", "indexName": name, "keysExamined": keys, "nReturned": keys}
        for name, keys in (("scope_1", 4), ("categories_1", 6))
    ]
    winning = {"stage": "OR", "inputStages": branches}
    execution = {"executionStages": {"stage": "OR", "nReturned": 9, "inputStages": branches}}
    assert rows(query(winning, execution)) == [
        ("IXSCAN", "scope_1", 4, None, 4),
        ("IXSCAN", "categories_1", 6, None, 6),
        ("OR", "", None, None, 9),
    ]


def test_a_slot_based_plan_is_gathered_by_plan_node() -> None:
    winning = {
        "queryPlan": {
            "stage": "FETCH",
            "planNodeId": 2,
            "inputStage": {"stage": "IXSCAN", "planNodeId": 1, "indexName": "scope_1"},
        },
        "slotBasedPlan": {"stages": "..."},
    }
    execution = {
        "nReturned": 5,
        "totalKeysExamined": 7,
        "totalDocsExamined": 5,
        "executionStages": {
            "stage": "nlj",
            "planNodeId": 2,
            "nReturned": 5,
            "outerStage": {
                "stage": "cfilter",
                "planNodeId": 1,
                "nReturned": 5,
                "inputStage": {
                    "stage": "ixseek",
                    "planNodeId": 1,
                    "nReturned": 6,
                    "keysExamined": 7,
                    "numReads": 7,
                },
            },
            "innerStage": {
                "stage": "limit",
                "planNodeId": 2,
                "nReturned": 5,
                "inputStage": {"stage": "seek", "planNodeId": 2, "nReturned": 5, "numReads": 5},
            },
        },
    }
    assert rows(query(winning, execution)) == [
        ("IXSCAN", "scope_1", 7, None, 5),
        ("FETCH", "", None, 5, 5),
    ]


def test_an_express_plan_reads_by_id_in_one_stage() -> None:
    stage = {"stage": "IDHACK", "keysExamined": 1, "docsExamined": 1, "nReturned": 1}
    assert rows(query(stage, {"executionStages": stage})) == [("IDHACK", "_id_", 1, 1, 1)]


def test_an_aggregation_shows_its_cursor_and_then_its_stages() -> None:
    explained = {
        "stages": [
            {"$cursor": CLASSIC, "nReturned": 2},
            {"$group": {"_id": "$scope"}, "nReturned": 1, "executionTimeMillisEstimate": 0},
        ]
    }
    assert [row[0] for row in rows(explained)] == ["IXSCAN", "FETCH", "LIMIT", "$group"]
    assert rows(explained)[-1] == ("$group", "", None, None, 1)


def test_a_match_that_the_cursor_applied_is_not_listed_twice() -> None:
    match = {"$match": {"scope": "/a"}}
    explained = {
        "stages": [{"$cursor": CLASSIC}, match, {"$group": {"_id": None}}],
        "command": {"aggregate": "memories", "pipeline": [match, {"$group": {"_id": None}}]},
        **CLASSIC,
    }
    assert [row[0] for row in rows(explained)] == ["IXSCAN", "FETCH", "LIMIT", "$group"]


VECTOR_STAGES = [
    {
        "$vectorSearch": {
            "index": "idx_crewai_memory",
            "path": "embedding",
            "numCandidates": 100,
            "limit": 5,
            "explain": {"metadata": {"totalLuceneDocs": 17}},
        },
        "nReturned": 5,
    },
    {"$_internalSearchIdLookup": {"limit": 5}, "totalDocsExamined": 5, "nReturned": 5},
    {"$set": {"score": {"$meta": "vectorSearchScore"}}, "nReturned": 5},
]


def test_a_vector_search_names_its_index() -> None:
    assert rows({"stages": VECTOR_STAGES}) == [
        ("$vectorSearch", "idx_crewai_memory", None, None, 5),
        ("$_internalSearchIdLookup", "", None, 5, 5),
        ("$set", "", None, None, 5),
    ]


def test_a_search_that_mongot_answers_names_its_index_too() -> None:
    asked = {"mongotQuery": {"index": "idx_crewai_memory", "path": "embedding"}, "explain": {}}
    explained = {"stages": [{"$_internalSearchMongotRemote": asked, "nReturned": 3}]}
    assert rows(explained) == [("$_internalSearchMongotRemote", "idx_crewai_memory", None, None, 3)]


def test_a_sharded_find_says_what_each_shard_did() -> None:
    ran = CLASSIC["executionStats"]
    explained = query(
        {
            "stage": "SHARD_MERGE",
            "shards": [
                {"shardName": name, "winningPlan": CLASSIC["queryPlanner"]["winningPlan"]}
                for name in ("east", "west")
            ],
        },
        {
            "executionStages": {
                "stage": "SHARD_MERGE",
                "nReturned": 4,
                "shards": [{"shardName": name, **ran} for name in ("east", "west")],
            }
        },
    )
    found = rows(explained)
    assert found[0] == ("IXSCAN on east", "scope_1", 3, None, 3)
    assert found[4] == ("FETCH on west", "", None, 3, 2)
    assert found[-1] == ("SHARD_MERGE", "", None, None, 4)


def test_a_sharded_aggregation_says_what_each_shard_did() -> None:
    explained = {"shards": {"east": {"stages": VECTOR_STAGES}, "west": CLASSIC}}
    stages = [row[0] for row in rows(explained)]
    assert stages[0] == "$vectorSearch on east"
    assert stages[-1] == "LIMIT on west"


def test_several_plans_make_one_row_each() -> None:
    scan = {"stage": "COLLSCAN", "docsExamined": 900, "nReturned": 2}
    without = query(scan, {"executionStages": scan})
    frame = show.plans({"without": without, "with scope_1": CLASSIC})
    assert list(frame["stages"]) == ["COLLSCAN", "IXSCAN → FETCH → LIMIT"]
    assert list(frame["documents examined"]) == [900, 3]
    assert list(frame["index"]) == ["", "scope_1"]


def test_what_cannot_be_explained_is_refused_with_what_can() -> None:
    with pytest.raises(TypeError, match="find cursor, a collection with a pipeline"):
        show.plan(3)  # type: ignore[arg-type]


@pytest.fixture
def numbers(mongodb_uri: str, database_name: str) -> Any:
    """Return a collection of 200 documents with an index on `scope`."""
    import pymongo

    with pymongo.MongoClient(mongodb_uri) as client:
        collection = client[database_name]["numbers"]
        collection.insert_many([{"_id": n, "scope": f"/u/{n % 10}"} for n in range(200)])
        collection.create_index("scope")
        yield collection


def test_a_live_find_with_and_without_its_index(numbers: Any) -> None:
    cursor = numbers.find({"scope": "/u/1"})
    scan = numbers.find({"scope": "/u/1"}).hint([("$natural", 1)])
    frame = show.plans({"with": cursor, "without": scan})
    assert list(frame["index"]) == ["scope_1", ""]
    assert list(frame["documents examined"]) == [20, 200]
    assert len(list(cursor)) == 20  # explaining a cursor does not use it up


def test_a_live_aggregation_reads_through_the_index(numbers: Any) -> None:
    pipeline = [{"$match": {"scope": "/u/1"}}, {"$group": {"_id": None, "n": {"$sum": 1}}}]
    frame = show.plan(numbers, pipeline)
    assert list(frame["stage"][:2]) == ["IXSCAN", "FETCH"]
    assert frame["keys examined"].sum() == 20
    assert frame.equals(show.plan((numbers, pipeline)))


def test_the_last_stage_says_what_the_query_returns(numbers: Any) -> None:
    limited = numbers.find({"scope": "/u/1"}).sort("_id", 1).limit(3)
    filtered = (numbers, [{"$match": {"scope": "/u/1"}}, {"$match": {"_id": {"$lt": 50}}}])
    assert show.plan(limited)["returned"].iloc[-1] == 3
    assert show.plan(filtered)["returned"].iloc[-1] == 5
    assert list(show.plans({"limited": limited, "filtered": filtered})["returned"]) == [3, 5]


def test_a_pipeline_that_writes_is_not_run_to_be_counted(numbers: Any) -> None:
    show.plan(numbers, [{"$match": {"scope": "/u/1"}}, {"$out": "copies"}])
    assert "copies" not in numbers.database.list_collection_names()
