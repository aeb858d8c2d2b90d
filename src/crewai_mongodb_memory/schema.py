"""The data contract as code: names, fields, indexes, scope paths, record <-> document.

`EDD.md` says the same in words, and a test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import bson
from bson.binary import UuidRepresentation
from bson.codec_options import CodecOptions
from crewai.memory.types import MemoryRecord

from crewai_mongodb_memory.errors import InvalidInputError, MongoDBMemoryError
from crewai_mongodb_memory.values import storable, text, utc, vector

DATABASE = "crewai_memory"
MEMORIES = "memories"
CONVERSATIONS = "conversations"
VECTOR_INDEX = "idx_crewai_memory"
DIMENSIONS = 1024
ROOT = "/"

# Whatever codec options the client has: dates come back as naive UTC, UUIDs as UUIDs.
CODEC: CodecOptions[dict[str, Any]] = CodecOptions(
    tz_aware=False, uuid_representation=UuidRepresentation.STANDARD
)
# Every prefix of a scope is stored, so a long one with many names would take megabytes.
MAX_SCOPE_LENGTH = 2_000
MAX_SCOPE_DEPTH = 100

MAX_DOCUMENT_BYTES = 16 * 1024 * 1024


class Field(NamedTuple):
    """One line of a field table: the type as MongoDB names it, and when the field is there."""

    type: str
    required: str


MEMORY_FIELDS = {
    "_id": Field("string", "yes"),
    "content": Field("string", "yes"),
    "scope": Field("string", "yes"),
    "scope_ancestors": Field("string[]", "yes"),
    "categories": Field("string[]", "no"),
    "metadata": Field("object", "no"),
    "importance": Field("double", "no"),
    "created_at": Field("date", "yes"),
    "last_accessed": Field("date", "yes"),
    "embedding": Field(f"double[{DIMENSIONS}]", "for `search()`"),
    "source": Field("string or null", "no"),
    "private": Field("bool", "no"),
}

REQUIRED_MEMORY_FIELDS = [name for name, f in MEMORY_FIELDS.items() if f.required == "yes"]

CONVERSATION_FIELDS = {
    "_id": Field("objectId", "yes"),
    "session_id": Field("string", "yes"),
    "bucket_seq": Field("int", "yes"),
    "turn_count": Field("int", "yes"),
    "start_turn": Field("int", "yes"),
    "end_turn": Field("int", "yes"),
    "turns": Field("object[]", "yes"),
    "created_at": Field("date", "yes"),
    "updated_at": Field("date", "yes"),
    "closed": Field("bool", "no"),
}

TURN_FIELDS = {
    "turn": Field("int", "yes"),
    "role": Field("string", "yes"),
    "content": Field("string", "yes"),
    "ts": Field("date", "yes"),
}

# In the form that the createIndexes command takes.
MEMORY_INDEXES: tuple[dict[str, Any], ...] = (
    {"name": "scope_1", "key": {"scope": 1}},
    {"name": "categories_1", "key": {"categories": 1}},
    {"name": "created_at_-1", "key": {"created_at": -1}},
)

CONVERSATION_INDEXES: tuple[dict[str, Any], ...] = (
    {"name": "session_bucket", "key": {"session_id": 1, "bucket_seq": 1}, "unique": True},
)

VECTOR_INDEX_FIELDS: tuple[dict[str, Any], ...] = (
    {
        "type": "vector",
        "path": "embedding",
        "numDimensions": DIMENSIONS,
        "similarity": "cosine",
    },
    {"type": "filter", "path": "scope_ancestors"},
    {"type": "filter", "path": "categories"},
)


def vector_index_definition(metadata_filter_fields: Iterable[str] = ()) -> dict[str, Any]:
    """Return the definition of the vector index, as `createSearchIndexes` takes it.

    Args:
        metadata_filter_fields: Metadata keys, or dotted paths inside metadata, to declare as
            filter paths besides `scope_ancestors` and `categories`.
    """
    declared = [{"type": "filter", "path": f"metadata.{key}"} for key in metadata_filter_fields]
    return {"fields": [*(dict(field) for field in VECTOR_INDEX_FIELDS), *declared]}


def normalize_scope(scope: str | None) -> str:
    """Return the one spelling of a scope path: leading slash, no trailing and no double slash.

    Args:
        scope: A path such as `"/app/sub"`, `"app//sub/"`; None, `""` and `"/"` are the root.

    Raises:
        InvalidInputError: If it is no text that MongoDB can store, or longer than 2,000
            characters or 100 names: every prefix of it is stored.
    """
    if scope is None:
        return ROOT
    if len(text(scope, "the scope")) > MAX_SCOPE_LENGTH:
        raise InvalidInputError(
            f"the scope has {len(scope):,} characters, and may have {MAX_SCOPE_LENGTH:,}: put what "
            "is long into the content or the metadata"
        )
    segments = scope_segments(scope)
    if len(segments) > MAX_SCOPE_DEPTH:
        raise InvalidInputError(
            f"the scope is {len(segments):,} names deep, and may be {MAX_SCOPE_DEPTH}: {scope[:50]}"
        )
    return ROOT + "/".join(segments)


def scope_segments(scope: str) -> list[str]:
    """Return the names along a path: `["app", "sub"]` for `"/app/sub"`, `[]` for the root."""
    return [segment for segment in scope.split("/") if segment]


def scope_ancestors(scope: str) -> list[str]:
    """Return every prefix of a scope, itself included, so that a filter can name a subtree.

    `/users/alex` gives `["/users", "/users/alex"]`; the root gives `["/"]` and is in no other
    scope's list.
    """
    segments = scope_segments(scope)
    return [ROOT + "/".join(segments[: n + 1]) for n in range(len(segments))] or [ROOT]


def confine_scope(scope: str | None, scope_root: str) -> str:
    """Return the normalised scope, moved below `scope_root` if it lies elsewhere.

    With the root `/tenants/a`, `/notes` and `/tenants/b` become `/tenants/a/notes` and
    `/tenants/a/tenants/b`; `/tenants/a/notes` stays as it is.
    """
    path = normalize_scope(scope)
    if scope_root == ROOT or f"{path}/".startswith(f"{scope_root}/"):
        return path
    return normalize_scope(f"{scope_root}/{path}")


def sanitize_scope_name(name: str) -> str:
    """Return a name as one segment of a scope path, so that no name reaches another's scope.

    Use it for every id that you put into a path: `f"/users/{sanitize_scope_name(user_id)}"`. A
    slash is written `%2F` and a percent sign `%25`, so two names never become one.

    Raises:
        InvalidInputError: If the name is empty or no text that MongoDB can store.
    """
    if not text(name, "the scope name"):
        raise InvalidInputError("the scope name is empty: it would name the parent scope")
    return name.replace("%", "%25").replace("/", "%2F")


def to_document(record: MemoryRecord, scope_root: str = ROOT) -> dict[str, Any]:
    """Return the document of the collection `memories` that holds a record.

    `embedding` is stored explicitly, since `MemoryRecord.model_dump()` leaves it out. Without a
    vector the field is absent, so that no search finds the record.

    Args:
        record: The record. Its metadata may hold text, numbers, booleans, None, bytes, dates,
            UUIDs, numpy values (stored as plain ones), and lists and dicts of these.
        scope_root: The subtree to confine the record's scope to.

    Raises:
        InvalidInputError: If a value cannot be stored or the document is over 16 MB; the message
            names the record and the key.
        EmbeddingDimensionMismatchError: If the vector has not `DIMENSIONS` numbers.
    """
    where = f"record {record.id!r}"
    scope = confine_scope(record.scope, scope_root)
    document: dict[str, Any] = {
        "_id": text(record.id, "the record's id"),
        "content": text(record.content, f"{where}: content"),
        "scope": scope,
        "scope_ancestors": scope_ancestors(scope),
        "categories": [text(category, f"{where}: a category") for category in record.categories],
        "metadata": storable(record.metadata, f"{where}: metadata"),
        "importance": float(record.importance),
        "created_at": utc(record.created_at, f"{where}: created_at"),
        "last_accessed": utc(record.last_accessed, f"{where}: last_accessed"),
        "source": None if record.source is None else text(record.source, f"{where}: source"),
        "private": bool(record.private),
    }
    if record.embedding is not None and len(record.embedding) > 0:
        document["embedding"] = vector(record.embedding, DIMENSIONS, f"{where}: embedding")
    if (size := document_bytes(document)) > MAX_DOCUMENT_BYTES:
        raise InvalidInputError(
            f"{where} takes {size:,} bytes, and MongoDB stores at most {MAX_DOCUMENT_BYTES:,} in "
            "one document: store the large part elsewhere and a reference to it here"
        )
    return document


def to_record(document: dict[str, Any]) -> MemoryRecord:
    """Return the record that a document of the collection `memories` holds, its vector included.

    Raises:
        MongoDBMemoryError: If a required field is missing or another type than it must be, as in a
            document that other code wrote.
    """
    if missing := [name for name in REQUIRED_MEMORY_FIELDS if name not in document]:
        raise MongoDBMemoryError(
            f"The document {document.get('_id')!r} is no memory: it lacks {', '.join(missing)}. "
            "Other code wrote it: give it those fields, or delete it"
        )
    try:
        return MemoryRecord(
            id=document["_id"],
            content=document["content"],
            scope=document["scope"],
            categories=document.get("categories") or [],
            metadata=document.get("metadata") or {},
            importance=document.get("importance", 0.5),
            created_at=document["created_at"],
            last_accessed=document["last_accessed"],
            embedding=document.get("embedding"),
            source=document.get("source"),
            private=document.get("private", False),
        )
    except ValueError as error:  # pydantic's is one
        raise MongoDBMemoryError(
            f"The document {document['_id']!r} is no memory. Other code wrote it: mend or delete "
            f"it. {' '.join(str(error).split())}"
        ) from error


def document_bytes(document: dict[str, Any]) -> int:
    """Return how many bytes a document takes in MongoDB."""
    return len(bson.encode(document, codec_options=CODEC))
