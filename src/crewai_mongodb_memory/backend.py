"""`MongoDBStorageBackend`: CrewAI's memory storage on MongoDB."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Self

from crewai.memory.types import MemoryRecord, ScopeInfo
from pymongo import MongoClient, ReplaceOne, UpdateOne
from pymongo.collection import Collection
from pymongo.database import Database

from crewai_mongodb_memory import filters, pipelines, schema, search
from crewai_mongodb_memory.connection import Connection
from crewai_mongodb_memory.errors import InvalidInputError, MongoDBMemoryError, VectorIndexError
from crewai_mongodb_memory.filters import Filter
from crewai_mongodb_memory.indexes import (
    POLL_SECONDS,
    VectorIndex,
    try_create_indexes,
)
from crewai_mongodb_memory.locks import ProcessLock
from crewai_mongodb_memory.log import log_once
from crewai_mongodb_memory.values import text, utc, vector, whole
from crewai_mongodb_memory.writes import upsert


class MongoDBStorageBackend:
    """Stores CrewAI's memories in MongoDB and finds them by `$vectorSearch`.

    Give it to `Memory(storage=...)` with an embedder that gives 1,024 numbers (`dimensions`). It
    satisfies `crewai.memory.storage.backend.StorageBackend`, is safe to share between threads, and
    connects at the first call. The first write or search creates the indexes;
    `ensure_vector_index()` also waits until search works and is the health check to run before a
    crew. A copied or unpickled backend opens a client of its own.

    Every method raises `MemoryConnectionError` if the server cannot be reached, refuses the
    credentials, or `close()` was called, and `InvalidInputError` for an argument that cannot be
    compared or stored. Other errors of pymongo come through unchanged.

    Args:
        connection_string: Where the database is: `mongodb+srv://...` or `mongodb://...`.
        database_name: The database, whatever the connection string names.
        collection_name: The collection of the memories.
        vector_search_index: The name of the vector index.
        metadata_filter_fields: Metadata keys (dotted paths) that searches often filter by. They
            become filter paths of the vector index; other keys are filtered after the search.
        scope_root: The subtree to which every read, write and delete is confined, whatever scope
            the caller or an LLM names: a scope elsewhere is taken as relative to it. The boundary
            between tenants that share a collection.
        vectors_in_results: Whether the records that `search` and `list_records` return bring
            their vectors. CrewAI does not look at those, and False makes an answer 25 times
            smaller. Write such a record back by `update`, which keeps the stored vector; `save`
            replaces the whole record. `get_record` brings it always.
        **client_kwargs: Passed to `MongoClient`, such as timeouts or TLS settings. `appname` and
            `driver` are fixed. Unless given, an unreachable server fails within 10 s.

    Raises:
        MemoryConnectionError: If the connection string is not one.
        InvalidInputError: If `scope_root` or a metadata field cannot be used.
    """

    def __init__(
        self,
        connection_string: str,
        *,
        database_name: str = schema.DATABASE,
        collection_name: str = schema.MEMORIES,
        vector_search_index: str = schema.VECTOR_INDEX,
        metadata_filter_fields: Iterable[str] = (),
        scope_root: str = schema.ROOT,
        vectors_in_results: bool = True,
        **client_kwargs: Any,
    ) -> None:
        fields = filters.metadata_paths(metadata_filter_fields)
        self.connection = Connection(connection_string, client_kwargs)
        self._database_name = database_name
        self._collection_name = collection_name
        self._scope_root = schema.normalize_scope(scope_root)
        self._vectors_in_results = vectors_in_results
        self._index = VectorIndex(vector_search_index, fields)
        self.indexed: set[str] = set()  # the collections whose indexes are known to be there
        self._lock = ProcessLock()
        self._again = functools.partial(
            type(self),
            connection_string,
            database_name=database_name,
            collection_name=collection_name,
            vector_search_index=vector_search_index,
            metadata_filter_fields=fields,
            scope_root=scope_root,
            vectors_in_results=vectors_in_results,
            **client_kwargs,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return self._again, ()

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.connection.masked_uri!r}, "
            f"{self._database_name}.{self._collection_name}, scope_root={self._scope_root!r})"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def client(self) -> MongoClient[dict[str, Any]]:
        """The `MongoClient` that this backend built and owns."""
        return self.connection.client

    @property
    def database(self) -> Database[dict[str, Any]]:
        """The database; it gives back naive UTC dates and UUIDs whatever the client's codec is."""
        return self.client.get_database(self._database_name, codec_options=schema.CODEC)

    @property
    def collection(self) -> Collection[dict[str, Any]]:
        """The collection of the memories."""
        return self.database[self._collection_name]

    @property
    def vector_search_index(self) -> str:
        """The name of the vector index."""
        return self._index.name

    @property
    def scope_root(self) -> str:
        """The subtree that every call is confined to; `/` where there is no fence."""
        return self._scope_root

    @property
    def dimensions(self) -> int:
        """How many numbers a vector has."""
        return schema.DIMENSIONS

    def close(self) -> None:
        """Close the client. Calling it again does nothing; any other call then raises."""
        self.connection.close()

    # Writing

    def save(self, records: list[MemoryRecord]) -> None:
        """Store records in one bulk write, each replacing the one of the same id.

        Everything is checked before the first write, so a record that cannot be stored leaves
        nothing of its batch behind. Of two records with one id in a batch the later wins.

        Args:
            records: The records; one without an embedding is stored and never found by search.

        Raises:
            InvalidInputError: If a record cannot be stored; the message names record and key.
            EmbeddingDimensionMismatchError: If a vector has the wrong length.
            RecordsNotStoredError: If the server refused some; it names them.
        """
        documents = [schema.to_document(each, self._scope_root) for each in _checked(records)]
        if not documents:
            return
        upserts = {d["_id"]: ReplaceOne(self._by_id(d["_id"]), d, upsert=True) for d in documents}
        with self._memories(prepare=True) as memories:
            upsert(memories, upserts)

    def update(self, record: MemoryRecord) -> None:
        """Store a record under its id, which need not exist, in one upsert.

        The record's fields are replaced. Two things that replacing the whole document would lose
        are kept: the stored vector if `record.embedding` is None, and top-level fields that the
        application added on its own.

        Args:
            record: The record as it shall be.

        Raises:
            InvalidInputError: If the record cannot be stored; nothing is changed then.
            EmbeddingDimensionMismatchError: If its vector has the wrong length.
            RecordsNotStoredError: If the server refused it.
        """
        _checked([record])
        document = schema.to_document(record, self._scope_root)
        match = self._by_id(document.pop("_id"))
        with self._memories(prepare=True) as memories:
            upsert(memories, {record.id: UpdateOne(match, {"$set": document}, upsert=True)})

    def touch_records(self, record_ids: list[str]) -> None:
        """Set `last_accessed` of the records to now. Ids that are not there are passed over.

        Args:
            record_ids: The records' ids.
        """
        match = {**filters.any_id(record_ids), **self._subtree(None)}
        now = utc(datetime.now(UTC), "now")
        with self._memories() as memories:
            memories.update_many(match, {"$set": {"last_accessed": now}})

    def delete(
        self,
        scope_prefix: str | None = None,
        categories: list[str] | None = None,
        record_ids: list[str] | None = None,
        older_than: datetime | None = None,
        metadata_filter: dict[str, Any] | None = None,
    ) -> int:
        """Delete the records that meet every criterion given.

        None is not given, and so are `scope_prefix=""` and `metadata_filter={}`: with nothing
        given, nothing is deleted. An empty list of ids or categories matches nothing.
        `scope_prefix="/"` is everything.

        Args:
            scope_prefix: A scope; its whole subtree is meant.
            categories: Records with at least one of these.
            record_ids: Records with one of these ids.
            older_than: Records whose `created_at` is before this moment; naive means UTC.
            metadata_filter: Records whose metadata has these values; see `search`.

        Returns:
            How many records were deleted.
        """
        criteria: Filter = {}
        if categories is not None:
            criteria |= filters.any_category(categories)
        if record_ids is not None:
            criteria |= filters.any_id(record_ids)
        if older_than is not None:
            criteria |= filters.older(older_than)
        if metadata_filter:
            criteria |= filters.metadata(metadata_filter)
        if not criteria and not scope_prefix:
            return 0
        with self._memories() as memories:
            return memories.delete_many({**criteria, **self._subtree(scope_prefix)}).deleted_count

    def reset(self, scope_prefix: str | None = None) -> None:
        """Delete everything in a scope. The collection and its indexes stay.

        Args:
            scope_prefix: The scope; None is everything (below `scope_root`).
        """
        with self._memories() as memories:
            memories.delete_many(self._subtree(scope_prefix))

    # Reading

    def search(
        self,
        query_embedding: list[float],
        scope_prefix: str | None = None,
        categories: list[str] | None = None,
        metadata_filter: dict[str, Any] | None = None,
        limit: int = 10,
        min_score: float = 0.0,
    ) -> list[tuple[MemoryRecord, float]]:
        """Return the records nearest in meaning, the nearest first, with their cosine similarity.

        Scope, categories and the metadata declared in `metadata_filter_fields` are filtered inside
        the search. Other metadata is filtered after it, and the search widened until `limit`
        records are found or the 10,000 nearest were looked at, as far as Atlas goes; that costs
        more, and one log line names the field to declare.

        Args:
            query_embedding: The query's vector, of `dimensions` numbers.
            scope_prefix: Only this scope and what is below it; None, `""` and `"/"` are all.
            categories: Only records with at least one of these; None and `[]` are all.
            metadata_filter: Only records whose metadata has these values. A key is one of the
                metadata (`"lang"`) or a dotted path into it (`"address.city"`), so a key that has
                a dot in its name cannot be filtered by. 1 equals 1.0 but not `"1"` or True; None
                means null or missing; a list means any of its values. Values are never run as
                operators.
            limit: How many records at most; no search returns more than 10,000.
            min_score: Only records at least this similar, on the scale of the result.

        Returns:
            Records and scores from 0 (unrelated or opposite) to 1 (same direction): the scale that
            CrewAI's thresholds mean, where Atlas has (1 + cosine) / 2.

        Raises:
            EmbeddingDimensionMismatchError: If the query's vector has the wrong length.
            VectorIndexError: If the server has no vector search, or refuses this one.
        """
        match: Filter = filters.metadata(metadata_filter or {})
        if categories:
            match |= filters.any_category(categories)
        found = self._nearest(
            query_embedding, scope_prefix, match, limit, with_vectors=self._vectors_in_results
        )
        scored = ((d, search.cosine(d[pipelines.SCORE_FIELD])) for d in found)
        near = [(_readable(d), score) for d, score in scored if score >= min_score]
        return [(record, score) for record, score in near if record]

    def get_record(self, record_id: str) -> MemoryRecord | None:
        """Return the record of that id with its vector, or None if there is none.

        Args:
            record_id: The record's id.
        """
        match = self._by_id(text(record_id, "record_id"))
        with self._memories() as memories:
            document = memories.find_one(match)
        return schema.to_record(document) if document else None

    def list_records(
        self, scope_prefix: str | None = None, limit: int = 200, offset: int = 0
    ) -> list[MemoryRecord]:
        """Return the records of a scope, newest first.

        Records of the same millisecond come in no particular order: a tie-break would take the
        sort away from the index. Paging by `offset` may therefore show one of them twice, or not.

        Args:
            scope_prefix: The scope; its whole subtree is meant. None is everything.
            limit: How many records at most; below 1 there are none.
            offset: How many of the newest to leave out.
        """
        limit, offset = whole(limit, "limit"), whole(offset, "offset")
        if limit < 1:
            return []
        with self._memories() as memories:
            fields = None if self._vectors_in_results else {"embedding": 0}
            found = memories.find(self._subtree(scope_prefix), fields).sort("created_at", -1)
            return [schema.to_record(d) for d in found.skip(max(offset, 0)).limit(limit)]

    def get_scope_info(self, scope: str) -> ScopeInfo:
        """Return what a scope holds, its whole subtree counted.

        Args:
            scope: The scope path.

        Returns:
            The normalised path, how many records, their categories in order, the dates of the
            oldest and newest, and the full paths of the immediate child scopes.
        """
        path = self._path(scope)
        with self._memories() as memories:
            (found,) = memories.aggregate(pipelines.scope_info(self._subtree(scope), path))
        totals = found["totals"][0] if found["totals"] else {}
        return ScopeInfo(
            path=path,
            record_count=totals.get("count", 0),
            categories=[row["_id"] for row in found["categories"]],
            oldest_record=totals.get("oldest"),
            newest_record=totals.get("newest"),
            child_scopes=[row["_id"] for row in found["children"]],
        )

    def list_scopes(self, parent: str = "/") -> list[str]:
        """Return the full paths of the immediate child scopes, in order.

        Args:
            parent: The scope above them.
        """
        pipeline = pipelines.child_scopes(self._subtree(parent), self._path(parent))
        with self._memories() as memories:
            return [row["_id"] for row in memories.aggregate(pipeline)]

    def list_categories(self, scope_prefix: str | None = None) -> dict[str, int]:
        """Return each category of a scope and how many records have it, in order of the names.

        Args:
            scope_prefix: The scope; its whole subtree is meant. None is everything.
        """
        pipeline = pipelines.categories(self._subtree(scope_prefix))
        with self._memories() as memories:
            return {row["_id"]: row["count"] for row in memories.aggregate(pipeline)}

    def count(self, scope_prefix: str | None = None) -> int:
        """Return how many records a scope holds.

        Args:
            scope_prefix: The scope; its whole subtree is meant. None is everything.
        """
        with self._memories() as memories:
            return memories.count_documents(self._subtree(scope_prefix))

    # The same off the event loop, in a thread: it works from any loop, and several in turn

    async def asave(self, records: list[MemoryRecord]) -> None:
        """Do what `save` does without blocking the event loop."""
        await asyncio.to_thread(self.save, records)

    async def asearch(
        self,
        query_embedding: list[float],
        scope_prefix: str | None = None,
        categories: list[str] | None = None,
        metadata_filter: dict[str, Any] | None = None,
        limit: int = 10,
        min_score: float = 0.0,
    ) -> list[tuple[MemoryRecord, float]]:
        """Do what `search` does without blocking the event loop."""
        return await asyncio.to_thread(
            self.search,
            query_embedding,
            scope_prefix=scope_prefix,
            categories=categories,
            metadata_filter=metadata_filter,
            limit=limit,
            min_score=min_score,
        )

    async def adelete(
        self,
        scope_prefix: str | None = None,
        categories: list[str] | None = None,
        record_ids: list[str] | None = None,
        older_than: datetime | None = None,
        metadata_filter: dict[str, Any] | None = None,
    ) -> int:
        """Do what `delete` does without blocking the event loop."""
        return await asyncio.to_thread(
            self.delete,
            scope_prefix=scope_prefix,
            categories=categories,
            record_ids=record_ids,
            older_than=older_than,
            metadata_filter=metadata_filter,
        )

    # Indexes

    def ensure_vector_index(self, wait: bool = True, timeout: float = 180.0) -> None:
        """Create what is missing of the indexes and make sure that search works.

        Run it once before a crew does: CrewAI hides the errors of a search. An index that lacks
        filter paths is updated; one with other dimensions or another similarity is left alone and
        reported.

        Args:
            wait: Whether to wait until the index answers searches.
            timeout: How many seconds to wait at most.

        Raises:
            VectorIndexError: If the server has no vector search or no room for the index, the
                index there is another, or it is not ready in time; the message has its status.
        """
        with self.connection.explained():
            with self._lock:
                try_create_indexes(self.collection, schema.MEMORY_INDEXES)
                self._index.declare(self.collection)
                self.indexed.add(self._collection_name)
            if wait:
                self._index.wait(self.collection, timeout)

    def wait_until_searchable(self, record: MemoryRecord, timeout: float = 60.0) -> None:
        """Return when search finds a saved record: on Atlas it follows the writes with a delay.

        Args:
            record: The record.
            timeout: How many seconds to wait at most.

        Raises:
            VectorIndexError: If it is not found in time.
            InvalidInputError: If neither the record nor what is stored has an embedding.
        """
        deadline = time.monotonic() + timeout
        query = record.embedding or self._stored_vector(record.id)
        if not query:
            raise InvalidInputError(f"Record {record.id!r} has no embedding: no search finds it")
        while True:
            if self._nearest(query, record.scope, {"_id": {"$eq": record.id}}, 1, False):
                return
            if time.monotonic() >= deadline:
                raise VectorIndexError(
                    f"Search does not find record {record.id!r} after {timeout:g} s: check that it "
                    f"was saved and that the index {self.vector_search_index!r} is ready"
                )
            time.sleep(POLL_SECONDS)

    def _nearest(
        self,
        query_embedding: Any,
        scope_prefix: str | None,
        match: Filter,
        limit: int,
        with_vectors: bool,
    ) -> list[dict[str, Any]]:
        query = vector(query_embedding, schema.DIMENSIONS, "query_embedding")
        if (path := self._path(scope_prefix)) != schema.ROOT:
            match = {**match, "scope_ancestors": {"$eq": path}}
        if (limit := whole(limit, "limit")) < 1:
            return []
        with self._memories(prepare=True) as memories:
            self._index.look_again(memories)
            if self._index.problem:
                raise VectorIndexError(self._index.problem)
            found = search.run(memories, self._index, query, match, limit, with_vectors)
            if not found and self._index.is_missing(memories):
                self.indexed.discard(self._collection_name)  # dropped since, with its collection
                self._prepare()
        return found

    def _stored_vector(self, record_id: str) -> list[float]:
        stored = self.get_record(record_id)
        return (stored.embedding if stored else None) or []

    @contextmanager
    def _memories(self, prepare: bool = False) -> Iterator[Collection[dict[str, Any]]]:
        with self.connection.explained():
            if prepare and self._collection_name not in self.indexed:
                self._prepare()
            yield self.collection

    def _prepare(self) -> None:
        with self._lock:
            if self._collection_name in self.indexed:
                return
            try_create_indexes(self.collection, schema.MEMORY_INDEXES)
            self._index.prepare(self.collection)
            self.indexed.add(self._collection_name)

    # Helpers

    def _path(self, scope: str | None) -> str:
        return schema.confine_scope(scope, self._scope_root)

    def _subtree(self, scope: str | None) -> Filter:
        return filters.subtree(self._path(scope))

    def _by_id(self, record_id: str) -> Filter:
        return {"_id": record_id, **self._subtree(None)}


def _checked(records: Any) -> list[MemoryRecord]:
    is_list = isinstance(records, list | tuple)
    wrong = (
        [each for each in records if not isinstance(each, MemoryRecord)] if is_list else [records]
    )
    if wrong:
        raise InvalidInputError(
            f"save() takes a list of MemoryRecord, and update() one, not {type(wrong[0]).__name__}"
        )
    return list(records)


def _readable(document: dict[str, Any]) -> MemoryRecord | None:
    """Return a document as a record, or log why not: CrewAI takes a failed search for no memory."""
    try:
        return schema.to_record(document)
    except MongoDBMemoryError as error:
        log_once(str(error))
        return None
