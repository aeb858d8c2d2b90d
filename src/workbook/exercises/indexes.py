"""Checks of notebook 03: which index, in which order, and what it costs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pymongo.collection import Collection

from workbook.exercises import exercise, expect

Documents = Collection[dict[str, Any]]

USER = "/users/u042"
IMPORTANT = 0.3
WANTED = 10


@exercise(hint="Ask for each condition alone with show.plan(): how many keys does its index read?")
def cheapest(answer: str, question: Mapping[str, Any], lab: Documents) -> str:
    """The name of the index that reads the fewest keys for the question."""
    names = {index["name"]: next(iter(index["key"])) for index in lab.list_indexes()}
    expect(answer in names, f"There is no index {answer!r}; there are {', '.join(names)}.")
    # An index that the question says nothing about is read from end to end.
    read = {
        name: lab.count_documents({field: question[field]} if field in question else {})
        for name, field in names.items()
    }
    best = min(read, key=lambda name: read[name])
    expect(
        answer == best,
        f"{answer} reads {read[answer]:,} keys before the other condition is checked; "
        "another index reads far fewer.",
    )
    return f"{answer} reads {read[answer]:,} keys, and the date is checked on those only."


@exercise(hint="Equality, then sort, then range. Which of the three fields is which?")
def in_order(answer: Sequence[tuple[str, int]], lab: Documents) -> str:
    """The fields of the index for a user's important memories, newest first."""
    fields = [field for field, _ in answer]
    wrong_direction = "An index sorts by 1 (ascending) or -1 (descending)."
    expect(all(direction in (1, -1) for _, direction in answer), wrong_direction)
    expect(
        fields[:1] == ["scope_ancestors"],
        "With that beginning, the keys of all users are mixed: user 42's are no block. "
        "Which field does the question compare for equality?",
    )
    every = [document["importance"] for document in _newest_first(lab)]
    walked = _walked(every)
    if fields[1:] == ["importance", "created_at"]:
        gathered = sum(importance >= IMPORTANT for importance in every)
        expect(
            False,
            f"Then dates are in order only within one importance: the server gathers {gathered} "
            f"keys and sorts them to keep {WANTED}.",
        )
    expect(
        fields != ["scope_ancestors", "created_at"],
        f"Close: nothing is sorted, but to check the importance {walked} documents are opened for "
        f"{WANTED} that are kept. With the importance in the key they are skipped unopened.",
    )
    expect(
        fields == ["scope_ancestors", "created_at", "importance"],
        f"It should have the question's three fields, once each; it has {', '.join(fields)}.",
    )
    return f"{walked} keys are read, {WANTED} documents opened, and nothing is sorted."


@exercise(hint="An array gives one entry for each item. How many ancestors has that scope?")
def entries_written(
    answer: int, document: Mapping[str, Any], indexes: Mapping[str, Sequence[str]]
) -> str:
    """How many index entries inserting the document writes."""
    each = {name: _entries(document, fields) for name, fields in indexes.items()}
    expect(
        answer != len(each),
        f"That is one entry for each of the {len(each)} indexes. "
        "Two of them are over a field that holds an array.",
    )
    total = sum(each.values())
    expect(answer == total, f"It is not {answer}: go through {', '.join(each)} one by one.")
    return " + ".join(f"{count} in {name}" for name, count in each.items()) + f" = {total}."


def _newest_first(lab: Documents) -> Iterable[dict[str, Any]]:
    return lab.find({"scope_ancestors": USER}).sort("created_at", -1)


def _walked(importances: Sequence[float]) -> int:
    """Return how many keys are passed until enough important ones are found."""
    found = [n for n, importance in enumerate(importances, 1) if importance >= IMPORTANT]
    return found[WANTED - 1]


def _entries(document: Mapping[str, Any], fields: Iterable[str]) -> int:
    values = [document[field] for field in fields]
    return math.prod(len(set(value)) if isinstance(value, list) else 1 for value in values)
