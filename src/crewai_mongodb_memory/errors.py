"""What can go wrong, as exceptions that say what to do.

None of them is a `RuntimeError`: CrewAI takes that for the interpreter shutting down and may drop
the save without a word.
"""

from __future__ import annotations

from crewai.memory.storage.backend import (
    EmbeddingDimensionMismatchError as CrewAIEmbeddingDimensionMismatchError,
)


class MongoDBMemoryError(Exception):
    """The base of every error of this package."""


class MemoryConnectionError(MongoDBMemoryError):
    """The server cannot be reached, refuses the credentials, or the backend was closed."""


class InvalidInputError(MongoDBMemoryError, ValueError):
    """A record, a turn or an argument cannot be used. Nothing was written."""


class EmbeddingDimensionMismatchError(InvalidInputError, CrewAIEmbeddingDimensionMismatchError):
    """A vector has another length than the index. Nothing was written.

    CrewAI's error of the same name catches it too.

    Args:
        stored_dim: How many dimensions the index has.
        new_dim: How many the vector has.
        where: The record or argument that holds the vector.
    """

    def __init__(self, stored_dim: int, new_dim: int, where: str = "the vector") -> None:
        super().__init__(stored_dim, new_dim)
        self.where = where

    def __str__(self) -> str:
        return (
            f"{self.where} has {self.new_dim} dimensions, the index has {self.stored_dim}: use the "
            f"embedder that made the stored vectors, and ask it for {self.stored_dim} dimensions, "
            "or change DIMENSIONS in schema.py of your copy before the index is made"
        )

    def __reduce__(self) -> tuple[type, tuple[int, int, str]]:
        return type(self), (self.stored_dim, self.new_dim, self.where)


class RecordsNotStoredError(MongoDBMemoryError):
    """The server refused some records of a batch; the others are stored.

    Args:
        message: What happened and what to do.
        record_ids: The ids of the records that were refused.
    """

    def __init__(self, message: str, record_ids: list[str]) -> None:
        super().__init__(message, record_ids)
        self.message = message
        self.record_ids = record_ids

    def __str__(self) -> str:
        return self.message


class VectorIndexError(MongoDBMemoryError):
    """The vector index is missing, not ready, differs from ours, or cannot exist on this server."""
