"""CrewAI's memory on MongoDB: a storage backend, a transcript, an embedder.

Copy this folder into a project of your own; it needs crewai and pymongo.
"""

from crewai_mongodb_memory import schema
from crewai_mongodb_memory.backend import MongoDBStorageBackend
from crewai_mongodb_memory.conversation import ConversationMemory, Turn
from crewai_mongodb_memory.embeddings import EmbeddingServiceError, VoyageEmbedder
from crewai_mongodb_memory.errors import (
    EmbeddingDimensionMismatchError,
    InvalidInputError,
    MemoryConnectionError,
    MongoDBMemoryError,
    RecordsNotStoredError,
    VectorIndexError,
)
from crewai_mongodb_memory.factory import register
from crewai_mongodb_memory.schema import sanitize_scope_name

__all__ = [
    "ConversationMemory",
    "EmbeddingDimensionMismatchError",
    "EmbeddingServiceError",
    "InvalidInputError",
    "MemoryConnectionError",
    "MongoDBMemoryError",
    "MongoDBStorageBackend",
    "RecordsNotStoredError",
    "Turn",
    "VectorIndexError",
    "VoyageEmbedder",
    "register",
    "sanitize_scope_name",
    "schema",
]
