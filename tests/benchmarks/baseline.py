"""The straightforward way to keep memories and a transcript in MongoDB, to compare with.

It is what one writes first: a write for each record, whatever is asked about a scope computed on
the client, and a transcript in one document that is read before a turn is pushed. Its answers are
those of the backend.
"""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime
from typing import Any

from crewai.memory.types import MemoryRecord, ScopeInfo
from pymongo.collection import Collection

from crewai_mongodb_memory import schema

Documents = Collection[dict[str, Any]]


class StraightforwardStorage:
    """CrewAI's storage protocol on the collection of a backend, as far as it is measured."""

    def __init__(self, memories: Documents) -> None:
        self.memories = memories

    def save(self, records: list[MemoryRecord]) -> None:
        for record in records:
            self.update(record)

    def update(self, record: MemoryRecord) -> None:
        self.memories.replace_one({"_id": record.id}, schema.to_document(record), upsert=True)

    def touch_records(self, record_ids: list[str]) -> None:
        for record_id in record_ids:
            self.memories.update_one({"_id": record_id}, {"$set": {"last_accessed": _now()}})

    def search(
        self, query: list[float], scope: str = "/", categories: list[str] | None = None
    ) -> list[tuple[MemoryRecord, float]]:
        """Search everything and filter the hits afterwards."""
        wanted = 100 if categories else 10
        stage = {
            "index": schema.VECTOR_INDEX,
            "path": "embedding",
            "queryVector": query,
            "numCandidates": 200,
            "limit": wanted,
        }
        score = {"$set": {"score": {"$meta": "vectorSearchScore"}}}
        hits = self.memories.aggregate([{"$vectorSearch": stage}, score])
        found = [(schema.to_record(hit), hit["score"]) for hit in hits]
        return [(r, s) for r, s in found if _fits(r, scope, categories)][:10]

    def get_record(self, record_id: str) -> MemoryRecord | None:
        found = self.memories.find_one({"_id": record_id})
        return schema.to_record(found) if found else None

    def list_records(self, scope: str = "/", limit: int = 200) -> list[MemoryRecord]:
        newest_first = self.memories.find(_below(scope)).sort("created_at", -1).limit(limit)
        return [schema.to_record(document) for document in newest_first]

    def get_scope_info(self, scope: str) -> ScopeInfo:
        held = [schema.to_record(document) for document in self.memories.find(_below(scope))]
        dates = [record.created_at for record in held]
        return ScopeInfo(
            path=scope,
            record_count=len(held),
            categories=sorted({category for record in held for category in record.categories}),
            oldest_record=min(dates, default=None),
            newest_record=max(dates, default=None),
            child_scopes=_children(scope, [record.scope for record in held]),
        )

    def list_scopes(self, parent: str) -> list[str]:
        return _children(parent, [document["scope"] for document in self._all(parent)])

    def list_categories(self, scope: str) -> dict[str, int]:
        counted = Counter(c for document in self._all(scope) for c in document["categories"])
        return dict(sorted(counted.items()))

    def count(self, scope: str) -> int:
        return len(self._all(scope))

    def delete(self, scope: str | None = None, record_ids: list[str] | None = None) -> int:
        """Delete a scope, or one record after the other."""
        if record_ids is None:
            return self.memories.delete_many(_below(scope or "/")).deleted_count
        return sum(self.memories.delete_one({"_id": i}).deleted_count for i in record_ids)

    def reset(self, scope: str) -> None:
        self.delete(scope)

    def _all(self, scope: str) -> list[dict[str, Any]]:
        return list(self.memories.find(_below(scope)))


class StraightforwardTranscript:
    """A session in one document, which is read before a turn is pushed."""

    def __init__(self, sessions: Documents, session_id: str, max_turns: int = 6) -> None:
        self.sessions = sessions
        self.max_turns = max_turns
        self._session = {"session_id": session_id}
        sessions.create_index("session_id")

    def load(self, turns: list[dict[str, Any]]) -> None:
        self.sessions.insert_one({**self._session, "turns": turns})

    def add_turn(self, role: str, content: str) -> None:
        turn = {"turn": self.count() + 1, "role": role, "content": content, "ts": _now()}
        self.sessions.update_one(self._session, {"$push": {"turns": turn}}, upsert=True)

    def add_exchange(self, user: str, assistant: str) -> None:
        self.add_turn("user", user)
        self.add_turn("assistant", assistant)

    def turns(self) -> list[dict[str, Any]]:
        found = self.sessions.find_one(self._session)
        return found["turns"] if found else []

    def recent_turns(self, n: int) -> list[dict[str, Any]]:
        return self.turns()[-n:]

    def history_text(self) -> str:
        return "\n".join(f"{t['role']}: {t['content']}" for t in self.recent_turns(self.max_turns))

    def count(self) -> int:
        return len(self.turns())

    def clear(self) -> None:
        self.sessions.delete_one(self._session)


def _fits(record: MemoryRecord, scope: str, categories: list[str] | None) -> bool:
    inside = f"{record.scope}/".startswith(f"{scope.rstrip('/')}/")
    return inside and (not categories or bool(set(categories) & {*record.categories}))


def _below(scope: str) -> dict[str, Any]:
    return {} if scope == "/" else {"scope": {"$regex": f"^{re.escape(scope)}(/|$)"}}


def _children(parent: str, scopes: list[str]) -> list[str]:
    depth = len(schema.scope_segments(parent))
    deeper = [segments for segments in map(schema.scope_segments, scopes) if len(segments) > depth]
    return sorted({"/" + "/".join(segments[: depth + 1]) for segments in deeper})


def _now() -> datetime:
    return datetime.now(UTC).replace(tzinfo=None)
