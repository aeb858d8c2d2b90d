"""The folder `src/crewai_mongodb_memory`, copied alone into another project."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "src" / "crewai_mongodb_memory"
ALLOWED = {"crewai", "pymongo", "bson", "crewai_mongodb_memory", *sys.stdlib_module_names}
# What is there is used; neither is needed to import the package.
OPTIONAL = {"embeddings.py": {"voyageai", "tqdm"}}


def imported_by(path: Path) -> set[str]:
    """Return the top-level packages that a module imports anywhere."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names.add((node.module or "").partition(".")[0])
    return names


@pytest.mark.parametrize("module", sorted(path.name for path in FOLDER.glob("*.py")))
def test_it_imports_nothing_but_crewai_and_pymongo(module: str) -> None:
    assert imported_by(FOLDER / module) <= ALLOWED | OPTIONAL.get(module, set())


PROGRAM = textwrap.dedent(
    """
    import sys
    from crewai.memory.types import MemoryRecord
    import crewai_mongodb_memory as memory

    assert "workbook" not in sys.modules and "voyageai" not in sys.modules
    uri, database = sys.stdin.read().split()
    with memory.MongoDBStorageBackend(uri, database_name=database) as backend:
        backend.ensure_vector_index()
        vector = [1.0] + [0.0] * 1023
        record = MemoryRecord(id="a", content="tea, no sugar", scope="/x", embedding=vector)
        backend.save([record])
        backend.wait_until_searchable(record)
        ((found, score),) = backend.search(vector, scope_prefix="/x")
        transcript = memory.ConversationMemory(backend, session_id="s")
        transcript.add_exchange("what do I drink?", found.content)
        print(score, "|", transcript.history_text().replace(chr(10), " / "))
    """
)


def test_it_runs_in_an_empty_project(tmp_path: Path, mongodb_uri: str, database_name: str) -> None:
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(FOLDER, tmp_path / "crewai_mongodb_memory", ignore=ignored)
    kept = ("PATH", "CREWAI_", "OTEL_")
    env = {name: value for name, value in os.environ.items() if name.startswith(kept)}
    env |= {"PYTHONPATH": str(tmp_path), "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=f"{mongodb_uri} {database_name}",
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=env,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ("1.0 | user: what do I drink? / assistant: tea, no sugar")
