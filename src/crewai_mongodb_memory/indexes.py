"""The life of the indexes: create, compare, wait, and say what is wrong."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from pymongo import IndexModel
from pymongo.collection import Collection
from pymongo.errors import OperationFailure
from pymongo.operations import SearchIndexModel

from crewai_mongodb_memory.errors import VectorIndexError
from crewai_mongodb_memory.log import log_once
from crewai_mongodb_memory.schema import vector_index_definition

Documents = Collection[dict[str, Any]]

UNAUTHORIZED = 13
ATLAS_ERROR = 8000
COMMAND_NOT_FOUND = 59
INDEX_CONFLICTS = (85, 86)
INDEX_ALREADY_EXISTS = 68
SEARCH_NOT_ENABLED = 31082
POLL_SECONDS = 0.5
# An empty search is often just that, so an index that was ready is looked at again this seldom.
LOOK_AGAIN_SECONDS = 60.0


def create_indexes(collection: Documents, definitions: Iterable[Mapping[str, Any]]) -> None:
    """Create indexes, and with them the collection; those that exist are left as they are.

    Args:
        collection: The collection.
        definitions: The indexes, as `schema.MEMORY_INDEXES` has them.
    """
    collection.create_indexes(
        [
            IndexModel(list(d["key"].items()), name=d["name"], unique=d.get("unique", False))
            for d in definitions
        ]
    )


def try_create_indexes(collection: Documents, definitions: Iterable[Mapping[str, Any]]) -> None:
    """Create indexes, or log why not where the memory works without them, only slower.

    That is so for a user that may not create indexes, and where the same keys are indexed under
    another name or with other options.
    """
    try:
        create_indexes(collection, definitions)
    except OperationFailure as error:
        if error.code not in INDEX_CONFLICTS and not _is_forbidden(error):
            raise
        log_once(f"{collection.full_name}: indexes were not created: {error}")


class VectorIndex:
    """The vector index of a backend, and what is known about it.

    Args:
        name: Its name on the server.
        metadata_fields: The metadata keys that it declares as filter paths.

    Attributes:
        name: As given.
        definition: How it shall be defined, as `createSearchIndexes` takes it.
        filter_paths: The paths that a search may filter by inside `$vectorSearch`.
        problem: Why searches cannot work, if that is known.
    """

    def __init__(self, name: str, metadata_fields: Iterable[str] = ()) -> None:
        self.name = name
        self.definition = vector_index_definition(metadata_fields)
        self.filter_paths = frozenset(_filter_paths(self.definition["fields"]))
        self.problem: str | None = None
        self._next_look = 0.0

    def prepare(self, collection: Documents) -> None:
        """Create the index if it is missing, without waiting; never change one that is there.

        What is wrong is logged and kept as `problem`, so that writes go on and searches tell it.
        """
        try:
            missing = self._create_or_compare(collection)
        except VectorIndexError as problem:
            # Who may not look at indexes may still search them.
            if not _is_forbidden(problem.__cause__):
                self.problem = str(problem)
            log_once(f"{collection.full_name}: {problem}")
            return
        if missing:
            self.filter_paths -= set(missing)
            log_once(
                f"{collection.full_name}: the vector index {self.name!r} has no filter path for "
                f"{', '.join(missing)}; call ensure_vector_index() once to add it"
            )

    def ensure(self, collection: Documents, wait: bool, timeout: float) -> None:
        """Create the index or add the filter paths that it lacks, and wait until it answers.

        Raises:
            VectorIndexError: If that cannot be, or takes longer than `timeout` seconds.
        """
        if missing := self._create_or_compare(collection):
            self._add_filter_paths(collection, missing)
        if wait:
            self._wait(collection, timeout)
            self._next_look = time.monotonic() + LOOK_AGAIN_SECONDS
        self.problem = None
        self.filter_paths = frozenset(_filter_paths(self.definition["fields"]))

    def warn_if_not_ready(self, collection: Documents) -> None:
        """Log why a search found nothing, if the index is why: Atlas answers then without error."""
        if time.monotonic() < self._next_look:
            return
        try:
            found = self._find(collection)
        except VectorIndexError:
            return  # not allowed to look
        if _is_ready(found):
            self._next_look = time.monotonic() + LOOK_AGAIN_SECONDS
        else:
            log_once(
                f"{collection.full_name}: searches find nothing, since the vector index "
                f"{self.name!r} is not ready (status: {_status(found)}); call "
                "ensure_vector_index() before the crew runs"
            )

    def explain(self, error: OperationFailure) -> VectorIndexError:
        """Return the server's refusal of a search command as an error that says what to do."""
        told = str((error.details or {}).get("errmsg") or error).partition(", full error:")[0]
        if error.code in (COMMAND_NOT_FOUND, SEARCH_NOT_ENABLED) or "$listSearchIndexes" in told:
            return VectorIndexError(
                "This server has no vector search: search() needs Atlas, the mongodb-atlas-local "
                f"container or the workbook's database. All else works. The server says: {told}"
            )
        if "maximum number of FTS indexes" in told:
            return VectorIndexError(
                f"There is no room for the vector index {self.name!r}: the cluster's tier allows "
                "no more search indexes. Drop one that is not needed, or use a larger tier. The "
                f"server says: {told}"
            )
        return VectorIndexError(
            f"The server refused a search command for the vector index {self.name!r}: call "
            "ensure_vector_index(), which checks that the index exists, is ready and has every "
            f"filter path. The server says: {told}"
        )

    def _create_or_compare(self, collection: Documents) -> list[str]:
        """Create the index if it is missing; return the filter paths that an existing one lacks."""
        found = self._find(collection)
        if found is None:
            self._create(collection)
            return []
        self._check_vectors(found)
        declared = set(_filter_paths(_fields(found)))
        return [path for path in _filter_paths(self.definition["fields"]) if path not in declared]

    def _find(self, collection: Documents) -> Mapping[str, Any] | None:
        try:
            return next(iter(collection.list_search_indexes(self.name)), None)
        except OperationFailure as error:
            raise self.explain(error) from error

    def _create(self, collection: Documents) -> None:
        model = SearchIndexModel(self.definition, name=self.name, type="vectorSearch")
        try:
            collection.create_search_index(model)
        except OperationFailure as error:
            if error.code != INDEX_ALREADY_EXISTS:  # another process was faster
                raise self.explain(error) from error

    def _check_vectors(self, found: Mapping[str, Any]) -> None:
        wanted = next(field for field in self.definition["fields"] if field["type"] == "vector")
        vectors = [field for field in _fields(found) if field.get("type") == "vector"]
        if not any(wanted.items() <= field.items() for field in vectors):
            raise VectorIndexError(
                f"The index {self.name!r} is not the one this backend needs: it has "
                f"{vectors or 'no vector field'}, and must have {wanted}. Drop it, so that it is "
                "made anew, or choose another name (vector_search_index=...)"
            )

    def _add_filter_paths(self, collection: Documents, paths: Iterable[str]) -> None:
        fields = _fields(self._find(collection) or {})
        added = [{"type": "filter", "path": path} for path in paths]
        try:
            collection.update_search_index(self.name, {"fields": [*fields, *added]})
        except OperationFailure as error:
            raise self.explain(error) from error

    def _wait(self, collection: Documents, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while not _is_ready(found := self._find(collection)):
            if _status(found) == "FAILED":
                raise VectorIndexError(
                    f"Building the vector index {self.name!r} failed: drop it and call this again. "
                    f"The server says: {found}"
                )
            if time.monotonic() >= deadline:
                raise VectorIndexError(
                    f"The vector index {self.name!r} is not ready after {timeout:g} s (status: "
                    f"{_status(found)}): building may take minutes, so wait longer (timeout=...), "
                    "or look at the cluster's Search Indexes page"
                )
            time.sleep(POLL_SECONDS)


def _is_forbidden(error: BaseException | None) -> bool:
    if not isinstance(error, OperationFailure):
        return False
    return error.code == UNAUTHORIZED or (
        error.code == ATLAS_ERROR and "not allowed" in str(error).lower()
    )


def _fields(index: Mapping[str, Any]) -> list[dict[str, Any]]:
    return list((index.get("latestDefinition") or {}).get("fields") or [])


def _filter_paths(fields: Iterable[Mapping[str, Any]]) -> list[str]:
    return [field["path"] for field in fields if field.get("type") == "filter"]


def _status(index: Mapping[str, Any] | None) -> str:
    if index is None:
        return "missing"
    return str(index.get("status") or ("READY" if index.get("queryable") else "not queryable"))


def _is_ready(index: Mapping[str, Any] | None) -> bool:
    # While an index is rebuilt its old form stays queryable; ready is the form that we asked for.
    return bool(index and index.get("queryable")) and _status(index) == "READY"
