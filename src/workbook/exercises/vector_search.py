"""Checks for `04_vector_search`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pymongo.collection import Collection

from workbook.exercises import exercise, expect

Memories = Collection[dict[str, Any]]

EVERYBODY = 17
LOST = "q-lost"


@exercise(hint="Put the cosine into the formula of MongoDB's score.")
def threshold(least: float, memories: Memories) -> str:
    """The score of `$vectorSearch` at a cosine of 0.85."""
    cosine = 2 * least - 1
    expect(
        abs(cosine - 0.85) < 1e-6,
        f"A score of {least:g} is a cosine of {cosine:.2f}, and 0.85 is wanted.",
    )
    return f"{least:g}: nobody who compares with 0.85 there gets what they mean."


@exercise(hint="Two conditions, both of which must hold; one of them is a choice of two.")
def prefilter(condition: Mapping[str, Any], stage: Mapping[str, Any], memories: Memories) -> str:
    """The filter for engineers in Europe or Africa."""
    inside = {"$and": [{"scope_ancestors": "/search/team"}, condition]}
    found = _search(memories, {**stage, "filter": inside, "limit": EVERYBODY})
    wanted = {
        document["_id"]
        for document in memories.find({"scope_ancestors": "/search/team"})
        if "engineering" in document["categories"]
        and {"europe", "africa"} & set(document["categories"])
    }
    ids = {document["_id"] for document in found}
    wrong = [document for document in found if document["_id"] not in wanted]
    expect(
        not wrong,
        f"It finds {len(found)} people, among them {_described(wrong[0])}." if wrong else "",
    )
    expect(ids == wanted, f"It finds {len(ids)} people, and there are {len(wanted)}.")
    return f"{len(ids)} people, each an engineer and each in Europe or Africa."


@exercise(hint="By which field does the search's filter know where a memory belongs?")
def repair(update: Mapping[str, Any], stage: Mapping[str, Any], memories: Memories) -> str:
    """The update after which a scoped search finds the lost memory."""
    before = memories.find_one({"_id": LOST})
    expect(before is not None, "The memory is gone: run the cell that inserts the four again.")
    memories.update_one({"_id": LOST}, dict(update))
    try:
        for scope in ("/search/quiet", "/search"):
            found = _search(
                memories, {**stage, "filter": {"scope_ancestors": scope}, "limit": 2 * EVERYBODY}
            )
            expect(LOST in {d["_id"] for d in found}, f"A search in {scope} does not find it yet.")
    finally:
        memories.replace_one({"_id": LOST}, before or {})
    return "Both scopes find it: every prefix is an ancestor, the scope itself included."


def _search(memories: Memories, stage: Mapping[str, Any]) -> list[dict[str, Any]]:
    return list(memories.aggregate([{"$vectorSearch": stage}]))


def _described(document: Mapping[str, Any]) -> str:
    return f"{document['metadata']['name']} ({', '.join(document['categories'])})"
