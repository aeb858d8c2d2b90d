"""Upserts in one bulk write, with a clear account of what the server refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pymongo import ReplaceOne, UpdateOne
from pymongo.collection import Collection
from pymongo.errors import BulkWriteError

from crewai_mongodb_memory.errors import RecordsNotStoredError

Documents = Collection[dict[str, Any]]
Upsert = ReplaceOne[dict[str, Any]] | UpdateOne

DUPLICATE_KEY = 11000


def upsert(memories: Documents, upserts: Mapping[str, Upsert]) -> None:
    """Send upserts, by record id, in one bulk write; one that is refused stops no other.

    Raises:
        RecordsNotStoredError: If the server refused some.
    """
    refused = _bulk_write(memories, upserts)
    # Two writers that insert one id at once collide: the second finds the record the next time.
    collided = [i for i, error in refused.items() if error["code"] == DUPLICATE_KEY]
    if collided:
        again = _bulk_write(memories, {i: upserts[i] for i in collided})
        refused = {i: e for i, e in refused.items() if i not in collided} | again
    if refused:
        raise _not_stored(refused, len(upserts))


def _bulk_write(memories: Documents, upserts: Mapping[str, Upsert]) -> dict[str, dict[str, Any]]:
    """Write all that can be written; return the server's error for each id that it refused."""
    try:
        memories.bulk_write(list(upserts.values()), ordered=False)
    except BulkWriteError as error:
        refusals = error.details.get("writeErrors")
        if not refusals:  # an unmet write concern is no matter of single records
            raise
        ids = list(upserts)
        return {ids[refusal["index"]]: refusal for refusal in refusals}
    return {}


def _not_stored(refused: Mapping[str, dict[str, Any]], total: int) -> RecordsNotStoredError:
    record_id, error = next(iter(refused.items()))
    outside = error["code"] == DUPLICATE_KEY and "_id" in error.get("keyPattern", {"_id": 1})
    reason = "its id belongs to a record outside scope_root" if outside else error.get("errmsg")
    return RecordsNotStoredError(
        f"{len(refused)} of {total} records were not stored; any others are, and saving again is "
        f"safe. Record {record_id!r}: {reason}",
        list(refused),
    )
