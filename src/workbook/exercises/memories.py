"""Checks of the notebook 01_memories: fields, vectors, and a memory written by hand."""

from __future__ import annotations

from typing import Any

from pymongo.collection import Collection

from crewai_mongodb_memory import MongoDBStorageBackend
from crewai_mongodb_memory.schema import to_record
from workbook.exercises import exercise, expect

MARA = "/users/mara"
Document = dict[str, Any]


@exercise(hint="A dotted path compares one key inside metadata, and leaves the others alone.")
def about_booking(answer: Document, memories: Collection[Document]) -> str:
    """The filter for the memories about the project `booking`."""
    found = _ids(memories, answer)
    wanted = _ids(memories, {"metadata.project": "booking"})
    expect(found >= wanted, f"It should find {_names(wanted)}; it finds {_names(found)}.")
    expect(
        found == wanted, f"It also finds {_names(found - wanted)}, which are about other things."
    )
    return "It compares that one key, so metadata may hold whatever else it likes."


@exercise(hint="A memory without a vector has no such field at all. Which operator asks for that?")
def without_vector(answer: Document, memories: Collection[Document]) -> str:
    """The filter for the memories that no search by meaning can find."""
    lost = {d["_id"] for d in memories.find({"scope_ancestors": MARA}) if "embedding" not in d}
    expect(bool(lost), "Every memory has a vector now: run the cell above that imports two, first.")
    found = _ids(memories, answer)
    wrongly = found - lost
    expect(not wrongly, f"It finds {_names(wrongly)}, and these have a vector.")
    expect(found == lost, f"It should find {_names(lost)}; it finds {_names(found)}.")
    return f"No search will ever find {_names(lost)}, until you embed what they say."


@exercise(hint="Every prefix of the scope, the whole path included, the root `/` left out.")
def complete(answer: Document, backend: MongoDBStorageBackend) -> str:
    """A document complete enough that the backend's scoped searches find it."""
    ancestors, scope = answer["scope_ancestors"], answer["scope"]
    expect(isinstance(ancestors, list), "It must be an array: a scope has several prefixes.")
    backend.collection.replace_one({"_id": answer["_id"]}, answer, upsert=True)
    for prefix in (scope, scope.rsplit("/", 1)[0], MARA):
        found = backend.collection.find_one({"_id": answer["_id"], "scope_ancestors": prefix})
        expect(found is not None, f"It is stored, and no search in {prefix} will ever find it.")
    expect("/" not in ancestors, "The root is in no list but its own: leave `/` out.")
    extra = [path for path in ancestors if not f"{scope}/".startswith(f"{path}/")]
    expect(not extra, f"{extra[:1]} is no prefix of {scope}.")
    expect("/users" in ancestors, "A search in /users would miss it: that is a prefix, too.")
    backend.wait_until_searchable(to_record(answer))
    near = backend.search(answer["embedding"], scope_prefix=MARA, limit=1)
    expect(
        near[0][0].id == answer["_id"], "It is stored, but a search for its own words misses it."
    )
    return "Written with pymongo alone, and found by the backend's search from /users/mara."


def _ids(memories: Collection[Document], answer: Document) -> set[str]:
    ours = {"$and": [answer, {"scope_ancestors": MARA}]}
    return {document["_id"] for document in memories.find(ours, {"_id": 1})}


def _names(ids: set[str]) -> str:
    return ", ".join(sorted(ids)) or "nothing"
