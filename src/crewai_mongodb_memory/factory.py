"""Let CrewAI build the backend from a connection string."""

from __future__ import annotations

from typing import Any

from crewai.memory.storage.factory import set_memory_storage_factory

from crewai_mongodb_memory.backend import MongoDBStorageBackend
from crewai_mongodb_memory.connection import named_database


def register(**settings: Any) -> None:
    """Make `Memory(storage="mongodb://...")` and `"mongodb+srv://..."` use this backend.

    Without it CrewAI takes such a string for a LanceDB folder. Other strings stay CrewAI's own.
    A database that the string names is the one that is used, unless a setting names another.

    Args:
        **settings: Arguments for every `MongoDBStorageBackend` built so, such as `database_name`.
    """

    def build(spec: str) -> MongoDBStorageBackend | None:
        if spec.startswith(("mongodb://", "mongodb+srv://")):
            named = {"database_name": name} if (name := named_database(spec)) else {}
            return MongoDBStorageBackend(spec, **(named | settings))
        return None

    set_memory_storage_factory(build)
