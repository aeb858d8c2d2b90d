"""EDD.md, `schema.py` and what the code creates in a running database agree."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import bson
import pytest
from crewai.memory.storage.backend import StorageBackend
from crewai.memory.types import MemoryRecord

from crewai_mongodb_memory import ConversationMemory, MongoDBStorageBackend, schema

PROJECT = Path(__file__).resolve().parents[2]
EDD = (PROJECT / "EDD.md").read_text()

BSON_NAMES = {
    str: "string", float: "double", int: "int", bool: "bool", dict: "object",
    list: "array", bson.ObjectId: "objectId", type(None): "null",
}  # fmt: skip


def table(after: str) -> list[list[str]]:
    """Return the rows of the first table below a heading, without its header."""
    section = EDD.split(after, 1)[1]
    found = re.search(r"(?:^\|.*\n)+", section, re.M)
    assert found
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in found[0].splitlines()]
    return rows[2:]


def fields(entity: str) -> dict[str, tuple[str, str]]:
    """Return field -> (type, required) as EDD.md states it."""
    stated = {}
    for names, kind, required, _ in table(f"## Entity `{entity}`"):
        for name in re.findall(r"`(\w+)`", names):
            stated[name] = (kind, required)
    return stated


def matches(value: Any, stated: str) -> bool:
    """Return whether a stored value is of the type that EDD.md names."""
    if match := re.fullmatch(r"(\w+)\[(\d*)\]", stated):
        if not isinstance(value, list) or (match[2] and len(value) != int(match[2])):
            return False
        return all(matches(item, match[1]) for item in value)
    name = "date" if hasattr(value, "isoformat") else BSON_NAMES[type(value)]
    return name in stated.split(" or ")


@pytest.mark.parametrize(
    ("entity", "declared"),
    [("memories", schema.MEMORY_FIELDS), ("conversations", schema.CONVERSATION_FIELDS)],
)
def test_the_fields_are_those_of_the_schema(entity: str, declared: dict[str, schema.Field]) -> None:
    stated = fields(entity)
    assert stated == {name: (field.type, field.required) for name, field in declared.items()}


def test_a_stored_memory_has_the_stated_fields_and_types(backend: MongoDBStorageBackend) -> None:
    record = MemoryRecord(
        content="Prefers React.", scope="/users/alex/preferences", categories=["ui"],
        metadata={"k": 1}, importance=1, embedding=[0.1] * 1024, source="alex", private=True,
    )  # fmt: skip
    backend.save([record])
    document = backend.collection.find_one({"_id": record.id})
    assert document is not None
    stated = fields("memories")
    assert set(document) == set(stated)
    assert [name for name in document if not matches(document[name], stated[name][0])] == []


def test_a_stored_bucket_has_the_stated_fields_and_types(backend: MongoDBStorageBackend) -> None:
    ConversationMemory(backend).add_exchange("Who leads it?", "I would ask.")
    (bucket,) = backend.database["conversations"].find()
    stated = fields("conversations")
    assert set(bucket) == {name for name, (_, required) in stated.items() if required == "yes"}
    assert [name for name in bucket if not matches(bucket[name], stated[name][0])] == []
    assert set(bucket["turns"][0]) == set(schema.TURN_FIELDS)


def test_the_server_has_exactly_the_stated_indexes(backend: MongoDBStorageBackend) -> None:
    backend.ensure_vector_index()
    ConversationMemory(backend).add_turn("user", "Hello.")
    backend.count()

    for collection, name, definition, _ in table("## Indexes"):
        if "vectorSearch" in definition:
            continue
        created = backend.database[collection].index_information()[name.strip("`")]
        keys = re.findall(r"(\w+): (-?1)", definition)
        assert created["key"] == [(field, int(direction)) for field, direction in keys]
        assert created.get("unique", False) == ("unique" in definition)

    stated = {(row[0], row[1].strip("`")) for row in table("## Indexes")}
    for collection in ("memories", "conversations"):
        names = set(backend.database[collection].index_information()) - {"_id_"}
        search = {index["name"] for index in backend.database[collection].list_search_indexes()}
        assert names | search == {name for owner, name in stated if owner == collection}


def test_the_vector_index_is_as_stated(backend: MongoDBStorageBackend) -> None:
    backend.ensure_vector_index()
    (index,) = backend.collection.list_search_indexes()
    (definition,) = [row[2] for row in table("## Indexes") if "vectorSearch" in row[2]]
    path, *filters = re.findall(r"`(\w+)`", definition)
    dimensions = re.search(r"(\d+) dimensions", definition)
    assert dimensions
    assert index["type"] == "vectorSearch"
    assert index["latestDefinition"]["fields"] == [
        {
            "type": "vector",
            "path": path,
            "numDimensions": int(dimensions[1]),
            "similarity": "cosine",
        },
        *({"type": "filter", "path": name} for name in filters),
    ]


def test_every_method_of_the_protocol_is_in_the_table() -> None:
    stated = set(re.findall(r"`(\w+)(?:\([^`]*\))?`", " ".join(
        row[0] for row in table("## The StorageBackend protocol on MongoDB")
    )))  # fmt: skip
    protocol = {name for name in vars(StorageBackend) if not name.startswith("_")}
    assert stated == protocol | {"touch_records", "close"}


@pytest.mark.parametrize(
    ("scope", "ancestors"), [(row[0], row[1]) for row in table("**`scope_ancestors`.**")]
)
def test_the_examples_of_ancestors_hold(scope: str, ancestors: str) -> None:
    assert schema.scope_ancestors(scope.strip("`")) == re.findall(r'"([^"]+)"', ancestors)


def test_the_client_names_itself_as_stated(backend: MongoDBStorageBackend) -> None:
    backend.count()
    stated = re.search(r"`appName` is `([^`]+)` and the driver info is `([^`]+)`", EDD)
    assert stated
    options = backend.client.options.pool_options
    assert options.appname == stated[1]
    assert stated[2] in options.metadata["driver"]["name"]


def shown(notebook: str, source: str) -> str:
    """Return what the cell of a committed notebook that holds `source` shows."""
    cells = json.loads((PROJECT / "notebooks" / notebook).read_text())["cells"]
    (cell,) = [cell for cell in cells if source in "".join(cell["source"]) and "outputs" in cell]
    return "".join("".join(output["data"]["text/html"]) for output in cell["outputs"])


@pytest.mark.parametrize(
    ("notebook", "source", "words"),
    [
        ("01_memories.ipynb", "in MEMORY_FIELDS.items()", {
            word for name, field in schema.MEMORY_FIELDS.items() for word in (name, field.type)
        }),
        ("03_indexes.ipynb", "show.table(schema.MEMORY_INDEXES)", {
            word for index in schema.MEMORY_INDEXES for word in (index["name"], *index["key"])
        }),
        ("04_vector_search.ipynb", 'schema.vector_index_definition()["fields"]', {
            field["path"] for field in schema.VECTOR_INDEX_FIELDS
        } | {f"{schema.DIMENSIONS:,}", "cosine"}),
    ],
)  # fmt: skip
def test_the_notebooks_show_the_contract_as_it_is(
    notebook: str, source: str, words: set[str]
) -> None:
    table_shown = shown(notebook, source)
    assert {word for word in words if word not in table_shown} == set()
