"""`ConversationMemory`: a session's transcript in MongoDB, in buckets of turns."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pymongo import ReturnDocument
from pymongo.collection import Collection
from pymongo.errors import DuplicateKeyError

from crewai_mongodb_memory.backend import MongoDBStorageBackend
from crewai_mongodb_memory.errors import InvalidInputError, MongoDBMemoryError
from crewai_mongodb_memory.indexes import create_indexes
from crewai_mongodb_memory.schema import (
    CONVERSATION_INDEXES,
    CONVERSATIONS,
    TURN_FIELDS,
    document_bytes,
)
from crewai_mongodb_memory.values import storable, text, utc, whole

ROLES = ("user", "assistant", "system", "tool")
# Half of what MongoDB stores in one document.
MAX_BUCKET_BYTES = 8 * 1024 * 1024
# One of the writers that race for a new bucket always wins, so a loser soon finds room.
APPEND_ATTEMPTS = 1000
NEWEST_FIRST = [("bucket_seq", -1)]


@dataclass(frozen=True)
class Turn:
    """One message of a conversation.

    Attributes:
        turn: Its number in the session: 1, 2, 3, ...
        role: `user` or `assistant`; `system` and `tool` for what agents exchange besides.
        content: The text; None for a message that is told by its fields alone, a tool call.
        ts: When it was added, naive UTC.
        fields: What the message has besides, such as `tool_calls`, `tool_call_id` or `name`.
    """

    turn: int
    role: str
    content: str | None
    ts: datetime
    fields: dict[str, Any] = field(default_factory=dict)

    @property
    def message(self) -> dict[str, Any]:
        """The message as chat models take it: role, content and the further fields."""
        return {"role": self.role, "content": self.content, **self.fields}


class ConversationMemory:
    """Keeps the transcript of a session: turns in the order in which they were added.

    One document holds up to `bucket_size` turns. A turn is added to the session's newest bucket by
    one atomic `find_one_and_update`; when the bucket is full, the next one is inserted. Any number
    of writers, in any number of processes, may share a session: each turn gets its own number and
    none is lost.

    Nothing is kept in this object, so a new one with the same `session_id` goes on where another
    ended. The backend's `scope_root` is about memories: keep tenants apart by session ids that
    they cannot choose.

    Every method raises `MemoryConnectionError` if the server cannot be reached; errors of pymongo
    come through unchanged.

    Args:
        backend: The storage backend, whose database and client are used.
        session_id: Which conversation.
        collection_name: The collection of the buckets.
        bucket_size: How many turns a bucket holds at most.
        max_turns: How many turns `recent_turns` and `history_text` give unless told.

    Raises:
        InvalidInputError: If an argument is empty or below 1.
    """

    def __init__(
        self,
        backend: MongoDBStorageBackend,
        *,
        session_id: str = "default",
        collection_name: str = CONVERSATIONS,
        bucket_size: int = 50,
        max_turns: int = 6,
    ) -> None:
        if not text(session_id, "session_id"):
            raise InvalidInputError("session_id is empty: give each conversation its own id")
        if bucket_size < 1 or max_turns < 1:
            raise InvalidInputError("bucket_size and max_turns must be at least 1")
        self.session_id = session_id
        self.bucket_size = bucket_size
        self.max_turns = max_turns
        self._backend = backend
        self._collection_name = collection_name

    @property
    def collection(self) -> Collection[dict[str, Any]]:
        """The collection of the buckets."""
        return self._backend.database[self._collection_name]

    def add_turn(self, role: str, content: str | None, **fields: Any) -> Turn:
        """Add one turn at the end. A chat message can be given as `add_turn(**message)`.

        Args:
            role: `user`, `assistant`, `system` or `tool`.
            content: The text; None only for a message that has further fields.
            **fields: What the message has besides, such as `tool_calls`.

        Returns:
            The turn with its number and time.

        Raises:
            InvalidInputError: If the role is another, or the turn cannot be stored.
        """
        (turn,) = self._append([_turn_document(role, content, fields)])
        return turn

    def add_exchange(self, user: str, assistant: str) -> tuple[Turn, Turn]:
        """Add a question and its answer in one write: both or neither, and nothing between them.

        A bucket with room for only one of them is closed, and both go into the next.

        Args:
            user: What the user said.
            assistant: What the assistant answered.

        Raises:
            InvalidInputError: If one of them cannot be stored, or `bucket_size` is 1.
        """
        if self.bucket_size < 2:
            raise InvalidInputError("an exchange needs a bucket_size of at least 2")
        question, answer = self._append(
            [_turn_document("user", user, {}), _turn_document("assistant", assistant, {})]
        )
        return question, answer

    def turns(self) -> list[Turn]:
        """Return the whole transcript, the oldest turn first."""
        with self._backend.connection.explained():
            buckets = self.collection.find(self._session).sort("bucket_seq", 1)
            return [_to_turn(turn) for bucket in buckets for turn in bucket["turns"]]

    def recent_turns(self, n: int | None = None) -> list[Turn]:
        """Return the last turns, the oldest of them first, and read no more buckets than it takes.

        One command, and only these turns travel; another for each time that buckets closed with
        slots left make it come short.

        Args:
            n: How many; `max_turns` if not given. Below 1 there are none.
        """
        wanted = self.max_turns if n is None else whole(n, "n")
        newest_first: list[dict[str, Any]] = []
        match = self._session
        with self._backend.connection.explained():
            while len(newest_first) < wanted:
                found = list(self.collection.aggregate(self._backwards(match, wanted)))
                newest_first += found
                if not found or found[-1]["turn"] == 1:
                    break
                match = {**self._session, "end_turn": {"$lt": found[-1]["turn"]}}
        return [_to_turn(turn) for turn in reversed(newest_first[:wanted])]

    def history_text(self, max_turns: int | None = None) -> str:
        """Return the last turns as text for a prompt, one `role: content` per turn.

        Turns without content (tool calls) are left out. Further lines of a turn are indented, so
        that no text can pass for a turn of another role.

        Args:
            max_turns: How many of the last turns; the object's `max_turns` if not given.
        """
        turns = self.recent_turns(max_turns)
        told = [f"{t.role}: {t.content}" for t in turns if t.content is not None]
        return "\n".join("\n  ".join(turn.splitlines()) for turn in told)

    def count(self) -> int:
        """Return how many turns the session has, reading its first and its last bucket."""
        with self._backend.connection.explained():
            ends = list(self.collection.aggregate(self._ends()))
        return ends[0]["last"] - ends[0]["first"] + 1 if ends else 0

    def clear(self) -> None:
        """Delete the session's transcript. Other sessions stay.

        A turn that another writer is adding meanwhile may stay, with the number that it had.
        """
        with self._backend.connection.explained():
            self.collection.delete_many(self._session)

    @property
    def _session(self) -> dict[str, Any]:
        return {"session_id": self.session_id}

    def _append(self, turns: list[dict[str, Any]]) -> list[Turn]:
        size = sum(document_bytes(turn) for turn in turns)
        if size > MAX_BUCKET_BYTES:
            raise InvalidInputError(
                f"a turn of {size:,} bytes is too big: at most {MAX_BUCKET_BYTES:,} fit into a "
                "bucket, so store the text elsewhere and say in the turn where"
            )
        with self._backend.connection.explained():
            for _ in range(APPEND_ATTEMPTS):
                newest = self._append_to_newest(turns, size)
                if newest and not newest.get("closed"):
                    return _numbered(turns, newest["end_turn"] - len(turns) + 1)
                try:
                    return self._insert_after(newest, turns)
                except DuplicateKeyError:  # another writer made that bucket: it has room, or had
                    time.sleep(random.uniform(0, 0.005))
        raise MongoDBMemoryError(
            f"The turn was not added to session {self.session_id!r}: other writers took each of "
            f"{APPEND_ATTEMPTS} buckets first. Use a larger bucket_size"
        )

    def _append_to_newest(self, turns: list[dict[str, Any]], size: int) -> dict[str, Any] | None:
        """Append to the newest bucket, or close it if it has no room; return what it is then.

        The condition is in the update and not in the query, which would pass over a full bucket
        and append to an older one. Closing in the same step tells a refusal from an append, and
        keeps a writer that is on its way to this bucket, with a larger `bucket_size` or a smaller
        turn, from using a number that the next bucket begins with.
        """
        room = {
            "$and": [
                {"$ne": ["$closed", True]},
                {"$lte": [{"$add": ["$turn_count", len(turns)]}, self.bucket_size]},
                {"$lte": [{"$add": [{"$bsonSize": "$$ROOT"}, size]}, MAX_BUCKET_BYTES]},
            ]
        }
        numbered = [
            {"$mergeObjects": [{"turn": {"$add": ["$end_turn", n]}}, {"$literal": turn}]}
            for n, turn in enumerate(turns, 1)
        ]
        appended = {
            "turn_count": {"$add": ["$turn_count", len(turns)]},
            "end_turn": {"$add": ["$end_turn", len(turns)]},
            "turns": {"$concatArrays": ["$turns", numbered]},
            "updated_at": turns[-1]["ts"],
        }
        change = {"$cond": [room, appended, {"closed": True}]}
        return self.collection.find_one_and_update(
            self._session,
            [{"$replaceWith": {"$mergeObjects": ["$$ROOT", change]}}],
            sort=NEWEST_FIRST,
            projection={"_id": 0, "bucket_seq": 1, "end_turn": 1, "closed": 1},
            return_document=ReturnDocument.AFTER,
        )

    def _insert_after(
        self, newest: dict[str, Any] | None, turns: list[dict[str, Any]]
    ) -> list[Turn]:
        if newest is None:
            # For each session's first bucket anew: the collection may have been dropped meanwhile,
            # and without its unique index two writers make the same bucket.
            create_indexes(self.collection, CONVERSATION_INDEXES)
        last = newest or {"bucket_seq": -1, "end_turn": 0}
        start = last["end_turn"] + 1
        numbers = range(start, start + len(turns))
        self.collection.insert_one(
            {
                **self._session,
                "bucket_seq": last["bucket_seq"] + 1,
                "turn_count": len(turns),
                "start_turn": start,
                "end_turn": numbers[-1],
                "turns": [{"turn": n, **turn} for n, turn in zip(numbers, turns, strict=True)],
                "created_at": turns[0]["ts"],
                "updated_at": turns[-1]["ts"],
            }
        )
        return _numbered(turns, start)

    def _backwards(self, match: dict[str, Any], wanted: int) -> list[dict[str, Any]]:
        """Return the pipeline whose rows are the last turns of the buckets, the newest first.

        It reads the buckets that hold them if all are full but the newest. One that was closed
        with slots left makes the answer short, and the caller asks for what lies before it.
        """
        buckets = -(-wanted // self.bucket_size) + 1  # the newest may hold a single turn
        return [
            {"$match": match},
            {"$sort": {"bucket_seq": -1}},
            {"$limit": buckets},
            {"$project": {"turns": {"$reverseArray": "$turns"}}},
            {"$unwind": "$turns"},
            {"$limit": wanted},
            {"$replaceWith": "$turns"},
        ]

    def _ends(self) -> list[dict[str, Any]]:
        """Return the pipeline whose one row has the numbers of the first and of the last turn."""

        def end(direction: int) -> list[dict[str, Any]]:
            return [{"$match": self._session}, {"$sort": {"bucket_seq": direction}}, {"$limit": 1}]

        first = {"coll": self._collection_name, "pipeline": end(1)}
        ends = {"first": {"$min": "$start_turn"}, "last": {"$max": "$end_turn"}}
        return [*end(-1), {"$unionWith": first}, {"$group": {"_id": None, **ends}}]


def _turn_document(role: str, content: str | None, fields: dict[str, Any]) -> dict[str, Any]:
    if role not in ROLES:
        raise InvalidInputError(f"role is {role!r}, and must be one of {', '.join(ROLES)}")
    if taken := TURN_FIELDS.keys() & fields.keys():
        raise InvalidInputError(f"a turn sets {', '.join(sorted(taken))} itself: leave it out")
    if content is None and not fields:
        raise InvalidInputError("content is None: a turn needs text, or fields such as tool_calls")
    return {
        "role": role,
        "content": None if content is None else text(content, "content"),
        "ts": utc(datetime.now(UTC), "now"),
        **storable(fields, "the turn"),
    }


def _numbered(turns: list[dict[str, Any]], start: int) -> list[Turn]:
    return [_to_turn({"turn": n, **turn}) for n, turn in enumerate(turns, start)]


def _to_turn(document: dict[str, Any]) -> Turn:
    fields = {name: value for name, value in document.items() if name not in TURN_FIELDS}
    return Turn(document["turn"], document["role"], document["content"], document["ts"], fields)
