"""Run notebooks and keep their outputs in place, the same bytes for the same results."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from workbook import keys, paths
from workbook.notebooks.homes import environment, own_home

CELL_TIMEOUT = 300  # seconds; longer than any wait for an index
SETTINGS = {*keys.DATABASE, keys.EMBEDDER, keys.MODEL, keys.MODEL_BASE_URL}
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
WIDGET = "application/vnd.jupyter.widget-view+json"
KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}


def all_notebooks() -> list[Path]:
    """Return the notebooks in the order of the progression."""
    return sorted(paths.NOTEBOOKS.glob("*.ipynb"))


def late_first() -> list[Path]:
    """Return the notebooks with the last one first: the order in which nothing is prepared."""
    return all_notebooks()[::-1]


def run(notebooks: Sequence[Path], jobs: int = 2) -> dict[Path, str]:
    """Run notebooks, each with an empty database of its own, and write their outputs into them.

    A notebook that fails keeps the outputs that it had.

    Args:
        notebooks: The files.
        jobs: How many to run at once.

    Returns:
        The files that failed, each with the error's last line; empty when all went well.
    """
    with ThreadPoolExecutor(jobs) as pool:
        errors = pool.map(_run_one, notebooks)
        return {path: error for path, error in zip(notebooks, errors, strict=True) if error}


def _run_one(path: Path) -> str | None:
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    with own_home() as home:
        try:
            execute(notebook, path.parent, home)
        except CellExecutionError as error:
            return COLOURS.sub("", str(error)).strip().splitlines()[-1]
    nbformat.write(tidy(notebook), path)  # type: ignore[no-untyped-call]
    return None


def execute(notebook: Any, folder: Path, home: Path) -> Any:
    """Run a notebook's cells in a fresh kernel, with a workbook folder of its own.

    Args:
        notebook: The notebook; its outputs are replaced.
        folder: Where its kernel stands.
        home: The workbook folder (`WORKBOOK_HOME`) that its kernel gets.

    Raises:
        CellExecutionError: When a cell raises.
    """
    client = NotebookClient(
        notebook,
        timeout=CELL_TIMEOUT,
        kernel_name=KERNEL["name"],
        record_timing=False,
        extra_arguments=["--log-level=ERROR"],
        resources={"metadata": {"path": str(folder)}},
    )
    # What is committed shows the default run, whatever keys the one who runs it has set.
    keyless = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    return client.execute(env=keyless | environment(home))


def tidy(notebook: Any) -> Any:
    """Take out of a notebook what changes with the machine or the run, and return it."""
    notebook.metadata = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = [_lasting(output) for output in _joined(cell.outputs)]
    return notebook


def _lasting(output: Any) -> Any:
    """Drop a widget, which lives in its kernel; the HTML beside it is what a page shows."""
    output.get("data", {}).pop(WIDGET, None)
    return output


def _joined(outputs: list[Any]) -> list[Any]:
    """Join the pieces of a stream, and keep of a redrawn line what was drawn last."""
    joined: list[Any] = []
    for output in outputs:
        last = joined[-1] if joined else None
        if last and output.output_type == last.output_type == "stream" and output.name == last.name:
            last.text += output.text
        else:
            joined.append(output)
    for output in joined:
        if output.output_type == "stream":
            lines = [line.rsplit("\r", 1)[-1] for line in output.text.split("\n")]
            output.text = "\n".join(lines)
    return joined
