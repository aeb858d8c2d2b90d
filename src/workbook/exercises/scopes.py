"""Checks of the notebook 02_scopes: a subtree, a scope for every user, and a fence."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any

from crewai.memory.types import MemoryRecord
from pymongo.collection import Collection

from crewai_mongodb_memory import MongoDBStorageBackend
from crewai_mongodb_memory.errors import InvalidInputError
from crewai_mongodb_memory.schema import normalize_scope, scope_ancestors, scope_segments
from workbook.exercises import call, exercise, expect

Document = dict[str, Any]

USER_24 = "/users/u24"
PEOPLE = [
    *(("acme", "mara"), ("acme", "jonas"), ("zeta", "mara")),
    *(("acme", "mara/jonas"), ("acme", "Mara"), ("acme", "Ana Li"), ("acme", "ana-li")),
    *(("acme/users", "mara"), ("ac", "memara"), ("acme", "李娜"), ("acme", "王芳")),
]


@exercise(hint="The range makes it fast, the equality makes it right: it takes both.")
def one_subtree(answer: Document, many: Collection[Document]) -> str:
    """The filter for user 24's subtree, served by the index on `scope`."""
    found = {document["scope"] for document in many.find(answer)}
    missing = {USER_24, f"{USER_24}/notes", f"{USER_24}/projects/a"} - found
    expect(not missing, f"It misses {', '.join(sorted(missing))}.")
    strangers = sorted(scope for scope in found if USER_24 not in scope_ancestors(scope))
    expect(not strangers, f"It also finds {', '.join(strangers[:3])}: begins with, not lies below.")
    served = {"scope": answer["scope"]} if "scope" in answer else {}
    read, total = many.count_documents(served), many.count_documents({})
    expect(
        read < total,
        f"Exactly the right ones, but without a condition on scope the index on scope is no help: "
        f"all {total:,} documents are read.",
    )
    return f"Of {total:,} documents, the condition on scope lets {read} through. Exact, and cheap."


@exercise(hint="Every id, the tenant's too, must become exactly one segment of the path.")
def scope_of(answer: Callable[[str, str], str]) -> str:
    """A user's scope, which no other user of any tenant can share or enter."""
    scopes = {person: normalize_scope(call(answer, *person)) for person in PEOPLE}
    for (tenant, user), scope in scopes.items():
        below = scope_segments(scope)[:1] == ["tenants"]
        expect(
            below, f"{user!r} of tenant {tenant!r} lies at {scope}, which is not below /tenants."
        )
    for one, other in permutations(PEOPLE, 2):
        inside = scopes[one] in scope_ancestors(scopes[other])
        expect(not inside, _sharing(one, other, scopes[one], scopes[other]))
    for one, other in permutations(PEOPLE, 2):
        together = scope_ancestors(scopes[one])[1] == scope_ancestors(scopes[other])[1]
        says = f"{one} and {other} lie at {scopes[one]} and {scopes[other]}"
        expect(together == (one[0] == other[0]), f"One tenant, one subtree of /tenants: {says}.")
    expect(_refuses_nobody(answer), "An empty user id is accepted: whose memories are those?")
    return f"{len(PEOPLE)} people in 4 tenants, and nobody can enter another's scope."


@exercise(hint="The scope is neither followed nor refused. It is taken as relative to the fence.")
def lands_at(answer: str, open_backend: Callable[..., MongoDBStorageBackend]) -> str:
    """Where a memory lies that a fenced backend was told to save to another tenant."""
    record = MemoryRecord(id="exercise-3", content="To tenant B.", scope="/tenants/b/notes")
    with open_backend(scope_root="/tenants/a") as fenced:
        fenced.save([record])
        stored = fenced.collection.find_one({"_id": record.id}) or {}
        fenced.delete(record_ids=[record.id])
    expect(
        "/tenants/a" in scope_ancestors(normalize_scope(answer)),
        f"{answer} is outside the fence at /tenants/a, and nothing is ever written there.",
    )
    expect(
        answer == stored["scope"],
        f"Inside the fence, but the database has it elsewhere than at {answer}: nothing of the "
        "path that was asked for is thrown away.",
    )
    return f"The database says so too: {stored['scope']}."


def _sharing(one: tuple[str, str], other: tuple[str, str], scope: str, others: str) -> str:
    if scope == others:
        return f"{one} and {other} share the scope {scope}."
    return f"{other} lies at {others}, inside {scope}, which is {one}'s."


def _refuses_nobody(answer: Callable[[str, str], str]) -> bool:
    try:
        return len(scope_segments(answer("acme", ""))) == len(scope_segments(answer("acme", "x")))
    except InvalidInputError:
        return True
