"""Choose this run's database, embedder and LLM, and say which they are."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from workbook import embedded, keys, llm_failures
from workbook.capabilities import Capabilities
from workbook.quiet import hide_panels

if TYPE_CHECKING:
    from crewai.llms.base_llm import BaseLLM

    from crewai_mongodb_memory import MongoDBStorageBackend
    from workbook.embedder import Embedder


DATABASE = "crewai_memory"


class ConnectError(Exception):
    """Something this run was told to use cannot be used; the message says what to change."""


@dataclass
class Connection:
    """Everything a notebook starts from.

    Attributes:
        uri: The connection string, credentials included; left out of the `repr`.
        backend: The `MongoDBStorageBackend` on that database.
        embedder: Turns texts into vectors of 1024 dimensions.
        llm: The model that speaks, for `Agent(llm=...)` and `Memory(llm=...)`.
        capabilities: What this run can do, and what differs on Atlas.
    """

    uri: str = field(repr=False)
    backend: MongoDBStorageBackend
    embedder: Embedder
    llm: BaseLLM
    capabilities: Capabilities

    def describe(self) -> str:
        """Return three lines: the database, the embedder and the LLM of this run."""
        made = self.capabilities
        database = (
            "an embedded MongoDB server on this machine"
            if made.database == "embedded"
            else f"{made.database} at {embedded.mask(self.uri)}"
        )
        return "\n".join(
            [
                f"database   {database}, database {self.backend.database.name!r}",
                f"embedder   {made.embedder}",
                f"LLM        {made.llm}",
            ]
        )

    def close(self) -> None:
        """Close the client. An embedded database goes on, and stops by itself when idle."""
        self.backend.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def connect(database_name: str | None = None, *, quiet: bool = False) -> Connection:
    """Connect to a database, choose an embedder and an LLM, and print what was chosen.

    The database is `MONGODB_URI` (or `ATLAS_URI`); with neither set, the embedded one, started if
    it does not run yet. The embedder is Voyage with `VOYAGE_API_KEY`, else the local model. The
    LLM is `MODEL` with its key, else the scripted one. Settings come from the environment, then
    from Colab's secrets.

    Args:
        database_name: The database to work in. Not given, it is the one that the connection string
            names (`mongodb+srv://host/workshop_alex`), and `crewai_memory` where that names none.
        quiet: Whether to print nothing.

    Returns:
        A `Connection`, already tried: the server has answered.

    Raises:
        ConnectError: When `MODEL` names a model that cannot be used, or CrewAI's folder cannot be
            written.
        workbook.embedded.EmbeddedError: When the embedded database cannot be started.
        crewai_mongodb_memory.MemoryConnectionError: When the connection string is malformed, or
            its server is unreachable (after 10 seconds at most) or refuses the credentials.
    """
    uri = _uri_while_importing()
    backend = _backend(uri, database_name)
    embedder, llm = _embedder(), _llm()
    hide_panels()
    llm_failures.shorten_tracebacks()
    connection = Connection(
        uri=uri,
        backend=backend,
        embedder=embedder,
        llm=llm,
        capabilities=_capabilities(named_uri(), backend, embedder, llm),
    )
    if not quiet:
        print(connection.describe())
    return connection


def named_uri() -> str | None:
    """Return the connection string that `MONGODB_URI` or `ATLAS_URI` names, or None."""
    return keys.read("MONGODB_URI") or keys.read("ATLAS_URI")


def database_uri() -> str:
    """Return the connection string of this run's database, the embedded one started if need be.

    Raises:
        workbook.embedded.EmbeddedError: When the embedded database cannot be started.
    """
    return named_uri() or embedded.start().uri


def _uri_while_importing() -> str:
    """Return what `database_uri` does; CrewAI is imported while an embedded database starts."""
    with ThreadPoolExecutor(1) as background:
        # Colab gives out its secrets on the main thread alone: look there for a named one.
        starting = None if named_uri() else background.submit(embedded.start)
        try:
            import crewai_mongodb_memory  # noqa: F401 - takes seconds
        except OSError as error:  # CrewAI makes its folder, in the workbook's, at import
            if starting:
                starting.result()  # says the same of that folder, and what to do
            raise ConnectError(
                f"CrewAI's folder cannot be made ({error}): set WORKBOOK_HOME to a folder that "
                "can be written."
            ) from error

        return starting.result().uri if starting else database_uri()


def _backend(uri: str, database_name: str | None) -> MongoDBStorageBackend:
    from crewai_mongodb_memory import MongoDBStorageBackend
    from crewai_mongodb_memory.connection import named_database
    from workbook.commands import recorder

    backend = MongoDBStorageBackend(
        uri,
        database_name=database_name or named_database(uri) or DATABASE,
        event_listeners=[recorder],
    )
    with backend.connection.explained():
        backend.client.admin.command("ping")
    return backend


def _embedder() -> Embedder:
    if keys.read("VOYAGE_API_KEY"):
        from crewai_mongodb_memory import VoyageEmbedder

        return VoyageEmbedder()
    from workbook.embedder import LocalEmbedder

    return LocalEmbedder()


def _llm() -> BaseLLM:
    model = keys.read(keys.MODEL)
    if model is None:
        from workbook.scripted_llm import ScriptedLLM

        return ScriptedLLM()
    return _real_llm(model, base_url=keys.read(keys.MODEL_BASE_URL))


def _real_llm(model: str, *, base_url: str | None) -> BaseLLM:
    from crewai import LLM

    key = keys.PROVIDER_KEYS.get(model.split("/")[0] if "/" in model else "openai")
    if key and not keys.read(key) and not base_url:
        raise ConnectError(
            f"MODEL={model} needs {key}: set it in the environment or in Colab's secrets, "
            "or unset MODEL to use the scripted model."
        )
    # A server of one's own asks for no key, but the client that speaks to it does.
    api_key = (key and keys.read(key)) or ("none" if base_url else None)
    try:
        return LLM(model=model, base_url=base_url, api_key=api_key)
    except ImportError as error:
        raise ConnectError(
            f"CrewAI cannot use MODEL={model} here: {str(error).splitlines()[0]} "
            "Or unset MODEL to use the scripted model."
        ) from error


def _capabilities(
    named: str | None, backend: MongoDBStorageBackend, embedder: Embedder, llm: BaseLLM
) -> Capabilities:
    is_embedded = named is None
    return Capabilities(
        database="embedded" if named is None else "Atlas" if ".mongodb.net" in named else "MongoDB",
        vector_search=is_embedded or _answers_search(backend),
        searchable_at_once=is_embedded,
        exact_search=is_embedded,
        full_planner=not is_embedded,
        embedder=embedder.model,
        llm=str(llm.model),
    )


def _answers_search(backend: MongoDBStorageBackend) -> bool:
    from pymongo.errors import OperationFailure

    try:
        backend.collection.list_search_indexes().to_list()
    except OperationFailure:
        return False
    return True
