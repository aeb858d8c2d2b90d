"""Rules of search index definitions and their life cycle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from embedded.support import Documents, filter_field, found, make_index, vector_field
from pymongo.errors import OperationFailure
from pymongo.operations import SearchIndexModel


def test_an_index_is_listed_with_its_definition(collection: Documents) -> None:
    fields = [vector_field(quantization="scalar"), filter_field("tags")]
    assert make_index(collection, *fields) == "index"
    (listed,) = collection.list_search_indexes()
    assert listed["name"] == "index"
    assert listed["type"] == "vectorSearch"
    assert listed["status"] == "READY"
    assert listed["queryable"] is True
    assert listed["latestDefinition"] == {"fields": fields}
    assert len(listed["id"]) == 24


@pytest.mark.parametrize("similarity", ["cosine", "dotProduct", "euclidean"])
@pytest.mark.parametrize("dimensions", [1, 8192])
def test_every_similarity_and_bound_is_accepted(
    collection: Documents, similarity: str, dimensions: int
) -> None:
    make_index(collection, vector_field(dimensions=dimensions, similarity=similarity))
    assert len(list(collection.list_search_indexes())) == 1


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ([], "cannot be empty"),
        ([vector_field(dimensions=0)], "numDimensions"),
        ([vector_field(dimensions=8193)], "8192"),
        ([{"type": "vector", "path": "v", "similarity": "cosine"}], "numDimensions"),
        ([{"type": "vector", "path": "v", "numDimensions": 3}], "similarity"),
        ([vector_field(similarity="manhattan")], "dotProduct"),
        ([vector_field(quantization="half")], "quantization"),
        ([vector_field(path="")], "path"),
        ([{"type": "vector", "numDimensions": 3, "similarity": "cosine"}], "path"),
        ([{"path": "v", "numDimensions": 3, "similarity": "cosine"}], "type"),
        ([{"type": "knnVector", "path": "v"}], "type"),
        ([{"type": "token", "path": "v"}], "type"),
        ([vector_field(dimensions="3")], "integer"),  # type: ignore[arg-type]
        ([vector_field(), vector_field()], "distinct paths"),
        ([vector_field(), filter_field("v")], "distinct paths"),
        ([filter_field("a")], "vector"),
        ([vector_field(colour="red")], "colour"),
        (["v"], "document"),
    ],
)
def test_a_bad_definition_is_refused(collection: Documents, fields: list[Any], says: str) -> None:
    collection.database.create_collection(collection.name)
    model = SearchIndexModel({"fields": fields}, name="index", type="vectorSearch")
    with pytest.raises(OperationFailure, match=says):
        collection.create_search_index(model)
    assert list(collection.list_search_indexes()) == []


def test_a_missing_collection_has_no_index_and_takes_none(collection: Documents) -> None:
    assert list(collection.list_search_indexes()) == []
    model = SearchIndexModel({"fields": [vector_field()]}, name="index", type="vectorSearch")
    with pytest.raises(OperationFailure, match="does not exist") as caught:
        collection.create_search_index(model)
    assert caught.value.code == 26


def test_the_same_index_again_is_no_error_and_another_is(collection: Documents) -> None:
    make_index(collection)
    before = list(collection.list_search_indexes())
    make_index(collection)
    assert list(collection.list_search_indexes()) == before
    with pytest.raises(OperationFailure, match="different definition") as caught:
        make_index(collection, vector_field(dimensions=4))
    assert caught.value.code == 68
    assert list(collection.list_search_indexes()) == before


def test_of_several_indexes_all_or_none_are_made(collection: Documents) -> None:
    collection.database.create_collection(collection.name)
    good = SearchIndexModel({"fields": [vector_field()]}, name="good", type="vectorSearch")
    bad = SearchIndexModel({"fields": []}, name="bad", type="vectorSearch")
    with pytest.raises(OperationFailure):
        collection.create_search_indexes([good, bad])
    assert list(collection.list_search_indexes()) == []


def test_an_update_changes_what_is_searched(collection: Documents) -> None:
    make_index(collection)
    collection.insert_many([{"_id": 1, "v": [1, 0, 0]}, {"_id": 2, "w": [1, 0, 0]}])
    assert found(collection) == [1]
    collection.update_search_index("index", {"fields": [vector_field("w")]})
    assert found(collection, path="w") == [2]
    (listed,) = collection.list_search_indexes()
    assert listed["latestDefinition"]["fields"][0]["path"] == "w"
    assert listed["latestDefinitionVersion"]["version"] == 1


def test_a_dropped_index_finds_nothing_and_can_be_made_anew(collection: Documents) -> None:
    make_index(collection)
    collection.insert_one({"_id": 1, "v": [1, 0, 0]})
    assert found(collection) == [1]
    collection.drop_search_index("index")
    assert found(collection) == []
    assert list(collection.list_search_indexes()) == []
    make_index(collection)
    assert found(collection) == [1]


@pytest.mark.parametrize(
    "command",
    [
        lambda c: c.drop_search_index("nope"),
        lambda c: c.update_search_index("nope", {"fields": [vector_field()]}),
    ],
    ids=["drop", "update"],
)
def test_an_unknown_index_is_named(
    collection: Documents, command: Callable[[Documents], None]
) -> None:
    collection.database.create_collection(collection.name)
    with pytest.raises(OperationFailure, match="No index with name nope") as caught:
        command(collection)
    assert caught.value.code == 27


def test_an_index_is_listed_by_name_and_by_id(collection: Documents) -> None:
    make_index(collection, name="one")
    make_index(collection, name="two")
    assert [i["name"] for i in collection.list_search_indexes()] == ["one", "two"]
    (two,) = collection.list_search_indexes("two")
    (by_id,) = collection.aggregate([{"$listSearchIndexes": {"id": two["id"]}}])
    assert by_id == two
    assert list(collection.list_search_indexes("three")) == []
    names = collection.aggregate([{"$listSearchIndexes": {}}, {"$project": {"name": 1}}])
    assert [set(i) for i in names] == [{"name"}, {"name"}]
    with pytest.raises(OperationFailure):
        list(collection.aggregate([{"$listSearchIndexes": {"colour": 1}}]))


def test_a_full_text_index_is_refused_with_what_to_do(collection: Documents) -> None:
    collection.database.create_collection(collection.name)
    with pytest.raises(OperationFailure, match="vectorSearch"):
        collection.create_search_index({"definition": {"mappings": {"dynamic": True}}})


def test_dropping_the_collection_drops_its_indexes(collection: Documents) -> None:
    make_index(collection)
    collection.insert_one({"_id": 1, "v": [1, 0, 0]})
    assert found(collection) == [1]
    collection.drop()
    collection.insert_one({"_id": 2, "v": [1, 0, 0]})
    assert list(collection.list_search_indexes()) == []
    assert found(collection) == []


def test_dropping_the_database_drops_its_indexes(collection: Documents) -> None:
    make_index(collection)
    collection.database.client.drop_database(collection.database.name)
    collection.insert_one({"_id": 2, "v": [1, 0, 0]})
    assert list(collection.list_search_indexes()) == []


def test_a_renamed_collection_keeps_its_indexes(collection: Documents) -> None:
    make_index(collection)
    collection.insert_one({"_id": 1, "v": [1, 0, 0]})
    assert found(collection) == [1]
    renamed = collection.database["renamed"]
    collection.rename("renamed")
    assert [i["name"] for i in renamed.list_search_indexes()] == ["index"]
    assert found(renamed) == [1]
    assert found(collection) == []


def test_several_vector_fields_are_searched_by_path(collection: Documents) -> None:
    make_index(collection, vector_field("a"), vector_field("b.c", 2, "euclidean"))
    collection.insert_many(
        [{"_id": 1, "a": [1, 0, 0]}, {"_id": 2, "b": {"c": [1, 0]}}, {"_id": 3, "c": [1, 0]}]
    )
    assert found(collection, path="a") == [1]
    assert found(collection, (1, 0), path="b.c") == [2]


@pytest.mark.parametrize("bad", [5, None, "text", [5], [{"name": 5}], [{"name": ""}]])
def test_a_malformed_command_is_answered(collection: Documents, bad: Any) -> None:
    collection.database.create_collection(collection.name)
    with pytest.raises(OperationFailure):
        collection.database.command({"createSearchIndexes": collection.name, "indexes": bad})
    assert collection.database.command("ping")["ok"]
