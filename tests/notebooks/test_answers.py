"""Each exercise: unsolved it says so, its solution passes, its wrong answers are told why.

They run as in a workshop: on a server that `MONGODB_URI` names, in a database of one's own that all
notebooks share, the last one first, as with a reader who goes back.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pymongo
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell
from server import chosen_uri, in_database

from workbook import embedded
from workbook.notebooks.homes import environment, own_home
from workbook.notebooks.run import CELL_TIMEOUT, late_first


def solution(cell: Any) -> str:
    found = re.search(r"```python\n(.*?)\n```", cell.source, re.S)
    assert found
    return found[1]


def said(client: NotebookClient, source: str, number: int) -> str:
    """Run a cell in the notebook's kernel and return what it shows last, as text."""
    cell = client.execute_cell(new_code_cell(source), number, store_history=False)
    return str(cell.outputs[-1].data["text/plain"])


@pytest.fixture(scope="module")
def room() -> Iterator[dict[str, str]]:
    """Return a participant's settings; in the end, nothing but their database has been written."""
    name = f"room_{uuid.uuid4().hex[:8]}"
    with own_home() as home:
        uri = chosen_uri() or embedded.start(home).uri
        yield environment(home) | {"MONGODB_URI": in_database(uri, name)}
        with pymongo.MongoClient[Any](uri) as client:
            found = set(client.list_database_names())
            client.drop_database(name)
        assert chosen_uri() or found - {"admin", "config", "local"} <= {name}


@pytest.mark.parametrize("path", late_first(), ids=lambda path: path.stem)
def test_exercises(path: Path, room: dict[str, str]) -> None:
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(path.parent)}}
    client = NotebookClient(notebook, timeout=CELL_TIMEOUT, resources=resources)
    with client.setup_kernel(env=os.environ | room):
        for number, cell in enumerate(notebook.cells):
            if "exercise" in cell.metadata.get("tags", []):
                assert said(client, cell.source, number).startswith("Unsolved."), cell.source
                for wrong in cell.metadata.wrong:
                    answer = said(client, cell.source.replace("...", wrong), number)
                    assert answer.startswith("Not yet. "), (wrong, answer)
                answer = said(client, solution(notebook.cells[number + 1]), number)
                assert answer.startswith("Solved."), answer
            elif cell.cell_type == "code":
                client.execute_cell(cell, number)
