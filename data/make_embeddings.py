"""Make data/embeddings.json, the corpus, from data/team.json, the people without vectors.

Run it after a change in team.json: python data/make_embeddings.py
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any

from workbook import corpus, paths
from workbook.embedder import DIMENSIONS, Embedder, LocalEmbedder

TEAM = paths.DATA / "team.json"
SIGNIFICANT_DIGITS = 7  # what a 32-bit float, the model's own precision, is sure to hold


def make(people: list[dict[str, Any]], embedder: Embedder) -> str:
    """Return the text of the corpus file.

    Args:
        people: The members as in team.json.
        embedder: What makes the vectors.

    Returns:
        JSON with a header and one member per line, so that a diff shows who has changed.
    """
    members = [corpus.TeamMember(**person, embedding=[]) for person in people]
    vectors = corpus.embed([member.text for member in members], embedder)
    lines = [
        _compact({**person, "embedding": _rounded(vector)})
        for person, vector in zip(people, vectors, strict=True)
    ]
    header = {
        "model": embedder.model,
        "settings": embedder.settings,
        "dimensions": DIMENSIONS,
        "made_by": corpus.MAKER,
    }
    opening = json.dumps(header, ensure_ascii=False, indent=1).removesuffix("\n}")
    return f'{opening},\n "members": [\n' + ",\n".join(lines) + "\n ]\n}\n"


def _compact(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _rounded(vector: Iterable[float]) -> list[float]:
    return [float(f"{number:.{SIGNIFICANT_DIGITS}g}") for number in vector]


def main() -> None:
    """Write the file, whole or not at all."""
    text = make(json.loads(TEAM.read_text(encoding="utf-8")), LocalEmbedder())
    unfinished = corpus.FILE.with_suffix(".unfinished")
    unfinished.write_text(text, encoding="utf-8")
    os.replace(unfinished, corpus.FILE)


if __name__ == "__main__":
    main()
