"""What this run's database, embedder and LLM can do, and what the same code meets on Atlas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Capabilities:
    """The differences between this run and Atlas with real keys, in one place.

    Teaching cells never branch on these; they are shown as a table, and tests name them when
    something can only be seen on one kind of server.

    Attributes:
        database: `embedded`, `Atlas` or `MongoDB`.
        vector_search: Whether the server answers `$vectorSearch`.
        searchable_at_once: Whether a write is found by the very next search.
        exact_search: Whether every search looks at every vector, whatever `numCandidates` says.
        full_planner: Whether plans come from MongoDB's own query planner.
        embedder: The model that makes the vectors.
        llm: The model that speaks; `scripted` for the offline one.
    """

    database: str
    vector_search: bool
    searchable_at_once: bool
    exact_search: bool
    full_planner: bool
    embedder: str
    llm: str

    def table(self) -> pd.DataFrame:
        """Return a table: what, how it is in this run, how it is on Atlas with real keys."""
        import pandas as pd

        rows = [
            ("database", self.database, "Atlas, or atlas-local in a container"),
            (
                "a new memory is found by search",
                "at once" if self.searchable_at_once else "after a moment",
                "after a moment (the search index follows the writes)",
            ),
            (
                "vector search",
                self._search(),
                "approximate (HNSW), exact when asked with exact: true",
            ),
            (
                "building a vector index",
                "at once" if self.searchable_at_once else "seconds to minutes",
                "seconds to minutes",
            ),
            (
                "sort and limit on one index",
                "stops at the limit" if self.full_planner else "reads the whole index",
                "stops at the limit",
            ),
            (
                "$or, and anchored regular expressions",
                "use an index" if self.full_planner else "scan the collection",
                "use an index",
            ),
            (
                "explain() of two conditions on one index",
                "the plan that runs" if self.full_planner else "may say COLLSCAN for an index",
                "the plan that runs",
            ),
            ("embedder", self.embedder, "voyage-3.5"),
            ("language model", self.llm, "any model that CrewAI knows"),
        ]
        return pd.DataFrame(rows, columns=["what", "this run", "on Atlas with keys"]).set_index(
            "what"
        )

    def _search(self) -> str:
        if not self.vector_search:
            return "not on this server"
        return "exact, always" if self.exact_search else "approximate (HNSW)"
