"""The life of the indexes: create, compare, wait, and say what is wrong."""

from __future__ import annotations

import re
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
# What keeps searches from working may be a moment's: it is looked at again this soon.
RETRY_SECONDS = 5.0
LACKING_PATH = re.compile(r"[Pp]ath '([^']+)' needs to be indexed")


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

    def look_again(self, collection: Documents) -> None:
        """Prepare once more if searches could not work some seconds ago: they may by now."""
        if self.problem and time.monotonic() >= self._next_look:
            self.problem = None
            self.prepare(collection)

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
                self._next_look = time.monotonic() + RETRY_SECONDS
            log_once(f"{collection.full_name}: {problem}")
            return
        if missing:
            self.filter_paths -= set(missing)
            log_once(
                f"{collection.full_name}: the vector index {self.name!r} has no filter path for "
                f"{', '.join(missing)}; call ensure_vector_index() once to add it"
            )

    def declare(self, collection: Documents) -> bool:
        """Create the index or add the filter paths that it lacks; return whether it lacked any.

        Raises:
            VectorIndexError: If that cannot be.
        """
        missing = self._create_or_compare(collection)
        if missing:
            self._add_filter_paths(collection, missing)
        self.problem = None
        self.filter_paths = frozenset(_filter_paths(self.definition["fields"]))
        return bool(missing)

    def wait(self, collection: Documents, timeout: float) -> None:
        """Wait until the index answers, with every filter path.

        Raises:
            VectorIndexError: If that takes longer than `timeout` seconds, or cannot be.
        """
        deadline = time.monotonic() + timeout
        self._wait(collection, timeout, deadline)
        # Another process that declared its own paths at the same moment may have lost ours.
        while self.declare(collection):
            self._wait(collection, timeout, deadline)
        self._next_look = time.monotonic() + LOOK_AGAIN_SECONDS

    def do_without(self, error: OperationFailure) -> bool:
        """Stop filtering inside the search by a path that the server's index lacks.

        So it is while an updated index is being built, or when another program replaced it.

        Args:
            error: What the server said to a search.

        Returns:
            Whether that was the reason, so that the search can be tried again.
        """
        lacking = LACKING_PATH.search(str(error))
        if not lacking or lacking[1] not in self.filter_paths:
            return False
        self.filter_paths -= {lacking[1]}
        log_once(
            f"The vector index {self.name!r} has no filter path for {lacking[1]} (yet), so it is "
            "filtered after the search, which costs more; call ensure_vector_index() to add it"
        )
        return True

    def is_missing(self, collection: Documents) -> bool:
        """Tell whether a search found nothing since there is no index; log if it is not ready.

        Atlas answers both with an empty result and no error.
        """
        if time.monotonic() < self._next_look:
            return False
        try:
            found = self._find(collection)
        except VectorIndexError:
            return False  # not allowed to look
        if _is_ready(found):
            self._next_look = time.monotonic() + LOOK_AGAIN_SECONDS
        else:
            log_once(
                f"{collection.full_name}: searches find nothing, since the vector index "
                f"{self.name!r} is not ready (status: {_status(found)}); call "
                "ensure_vector_index() before the crew runs"
            )
        return found is None

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
            listed = collection.list_search_indexes(self.name)
            # One that is being deleted lingers in the list for a while.
            return next((one for one in listed if one.get("status") != "DELETING"), None)
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

    def _wait(self, collection: Documents, timeout: float, deadline: float) -> None:
        while not _is_ready(found := self._find(collection)):
            if found is None:
                self._create(collection)
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
