"""A notebook as a reader meets it: opened in JupyterLab, Run > Run All Cells, and looked at.

The default is the first notebook. `make looks` opens all of them and keeps screenshots of every
page in `looks/`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest

pytest.importorskip("selenium", reason="needs selenium: pip install -r requirements.txt")

from notebooks.jupyterlab import BROWSER, DRIVER, Lab, lab

from workbook.notebooks.run import all_notebooks

SCREENSHOTS = os.environ.get("LOOKS")
CHOSEN = all_notebooks() if SCREENSHOTS else all_notebooks()[:1]

pytestmark = [
    pytest.mark.skipif(
        not (BROWSER and DRIVER),
        reason="needs chromium and chromedriver: apt-get install chromium chromium-driver",
    ),
    pytest.mark.xdist_group("jupyterlab"),
]


@pytest.fixture(scope="module")
def jupyterlab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Return JupyterLab in a browser, one for all the notebooks."""
    with lab(tmp_path_factory.mktemp("jupyterlab")) as opened:
        yield opened


def diagrams(path: Path) -> int:
    cells = nbformat.read(path, as_version=4).cells
    return sum(cell.source.count("```mermaid") for cell in cells if cell.cell_type == "markdown")


@pytest.mark.parametrize("path", CHOSEN, ids=lambda path: path.stem)
def test_a_notebook_runs_and_is_drawn_whole(jupyterlab: Lab, path: Path) -> None:
    jupyterlab.open(path)
    jupyterlab.run_all()
    if SCREENSHOTS:
        jupyterlab.photograph(Path(SCREENSHOTS) / path.stem)

    assert jupyterlab.complaints() == []
    drawn = jupyterlab.diagrams()
    assert len(drawn) == diagrams(path)
    assert None not in drawn
    assert jupyterlab.too_wide() == []
    jupyterlab.close()
