"""Known cases of notebooks and event loops that no other test of this folder holds."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from crewai_mongodb_memory import MongoDBStorageBackend
from workbook import paths
from workbook.notebooks.run import CELL_TIMEOUT, execute

FLOW = """
import workbook
from crewai.flow.flow import Flow, start

class Greeting(Flow):
    @start()
    def greet(self):
        return "hello"

print(await Greeting().kickoff_async())
"""
ASYNC_STORAGE = """
from crewai.memory.types import MemoryRecord
from crewai_mongodb_memory import MongoDBStorageBackend

backend = MongoDBStorageBackend({uri!r}, database_name={database!r})
await backend.asave([MemoryRecord(content="saved from a cell", embedding=[0.1] * 1024)])
backend.ensure_vector_index()
print([record.content for record, _ in await backend.asearch([0.1] * 1024)])
backend.close()
"""


def printed(notebook: nbformat.NotebookNode) -> list[str]:
    outputs = [output for cell in notebook.cells for output in cell.outputs]
    return [output.text.strip() for output in outputs if output.get("name") == "stdout"]


@pytest.mark.parametrize("before", ["", "import uvloop; uvloop.install()"])
def test_F8_flows_and_async_storage_run_in_a_cell(
    before: str, mongodb_uri: str, database_name: str, tmp_path: Path
) -> None:
    find = f"import sys; sys.path.insert(0, {str(paths.PROJECT / 'src')!r}); {before}"
    storage = ASYNC_STORAGE.format(uri=mongodb_uri, database=database_name)
    cells = [new_code_cell(source) for source in (find, FLOW, storage)]
    notebook = new_notebook(cells=cells)
    execute(notebook, tmp_path, tmp_path)
    assert printed(notebook) == ["hello", "['saved from a cell']"]


def test_F3_every_wait_for_an_index_ends_before_the_cell_does() -> None:
    for waits in ("ensure_vector_index", "wait_until_searchable"):
        method = getattr(MongoDBStorageBackend, waits)
        assert inspect.signature(method).parameters["timeout"].default < CELL_TIMEOUT


def test_F11_importing_crewai_in_a_thread_says_nothing() -> None:
    source = (
        "import workbook, threading; "
        "t = threading.Thread(target=__import__, args=('crewai',)); t.start(); t.join()"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", source],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(paths.PROJECT / "src")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout + done.stderr == ""
