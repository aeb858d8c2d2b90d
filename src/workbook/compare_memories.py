"""Run the same crew on CrewAI's default storage and on MongoDB, and compare what each remembers.

CrewAI's default is LanceDB, files in a folder; here the folder is a temporary one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any

from crewai.memory.storage.backend import StorageBackend
from crewai.memory.storage.lancedb_storage import LanceDBStorage
from crewai.memory.types import MemoryMatch, MemoryRecord
from crewai.memory.unified_memory import Memory

from workbook import crew
from workbook.connect import Connection
from workbook.show.tables import Table, table

SCOPE = f"{crew.SCOPE}/compare"
DEFAULT, OURS = "LanceDB", "MongoDB"
QUERIES = (
    "When does the project begin?",
    "Who cannot use a mouse?",
    "Which experience is wanted?",
)
LIMIT = 2  # memories for each query
ALL = 1_000


@dataclass(frozen=True)
class Remembered:
    """What one memory holds after the crew has run, and what it recalls.

    Attributes:
        kept: Every record.
        similar: For each query what the storage's own search finds: record, similarity.
        recalled: For each query what `Memory.recall` makes of it.
    """

    kept: list[MemoryRecord]
    similar: dict[str, list[tuple[MemoryRecord, float]]]
    recalled: dict[str, list[MemoryMatch]]


@dataclass(frozen=True)
class Comparison:
    """Two memories after the same crew.

    Attributes:
        kept: A row for each text that either of them holds, and its scope in both.
        recalled: A row for each query and memory found: its similarity and recall's score in both.
    """

    kept: Table
    recalled: Table


async def compare(
    connection: Connection, message: str = crew.MESSAGE, queries: Sequence[str] = QUERIES
) -> Comparison:
    """Run the demo's first session on both storages and ask both the same.

    Both memories have the same embedder, LLM and scope; only the storage differs. What an earlier
    comparison left in MongoDB is deleted first.

    Args:
        connection: The database, embedder and LLM; the team must be stored (`crew.prepare`).
        message: What the crew is told.
        queries: What both are asked afterwards.
    """
    connection.backend.reset(SCOPE)
    with TemporaryDirectory(prefix="crewai-memory-") as folder:
        files = LanceDBStorage(path=folder)  # what Memory() makes by itself, elsewhere
        default = await _remembered(connection, files, message, queries)
        ours = await _remembered(connection, connection.backend, message, queries)
    return Comparison(_kept(default, ours), _recalled(default, ours, queries))


async def _remembered(
    connection: Connection, storage: StorageBackend, message: str, queries: Sequence[str]
) -> Remembered:
    memory = Memory(
        storage=storage,
        embedder=connection.embedder,
        llm=connection.llm,
        root_scope=SCOPE,
    )
    await crew.run(crew.build_crew(crew.listening_tasks(connection, message), memory))
    memory.drain_writes()
    vectors = dict(zip(queries, connection.embedder.for_queries()(list(queries)), strict=True))
    return Remembered(
        kept=memory.list_records(limit=ALL),
        similar={q: storage.search(v, SCOPE, limit=ALL) for q, v in vectors.items()},
        recalled={q: memory.recall(q, limit=LIMIT, depth="shallow") for q in queries},
    )


def _kept(default: Remembered, ours: Remembered) -> Table:
    sides = [{record.content: record.scope for record in side.kept} for side in (default, ours)]
    contents = sorted(sides[0].keys() | sides[1].keys())
    rows = [(content, *(side.get(content, "") for side in sides)) for content in contents]
    return table(rows, columns=("memory", f"scope in {DEFAULT}", f"scope in {OURS}"))


def _recalled(default: Remembered, ours: Remembered, queries: Sequence[str]) -> Table:
    sides = (default, ours)
    rows: list[dict[str, Any]] = []
    for query in queries:
        similar = [{r.content: score for r, score in side.similar[query]} for side in sides]
        recalled = [{m.record.content: m.score for m in side.recalled[query]} for side in sides]
        for content in {**recalled[1], **recalled[0]}:
            row: dict[str, Any] = {"query": query, "recalled": content}
            for name, scores in ((DEFAULT, 0), (OURS, 1)):
                row[f"similarity, {name}"] = similar[scores].get(content)
                row[f"score, {name}"] = recalled[scores].get(content)
            rows.append(row)
    return table(rows)
