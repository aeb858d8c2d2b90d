"""`python -m workbook lab`: the notebooks in JupyterLab."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

from workbook import paths

# JupyterLab would ask the package index at each start whether there is a newer one.
QUIET = "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"


def main(argv: list[str]) -> int:
    """Open JupyterLab on the notebooks folder; `argv` is passed on to it.

    Returns:
        JupyterLab's exit code, or 1 with one line of advice when it is not installed.
    """
    if importlib.util.find_spec("jupyterlab") is None:
        print("JupyterLab is missing here: pip install -r requirements.txt", file=sys.stderr)
        return 1
    start = paths.NOTEBOOKS / "00_start_here.ipynb"
    return subprocess.call([sys.executable, "-m", "jupyterlab", str(start), QUIET, *argv])
