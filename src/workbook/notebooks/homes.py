"""A workbook folder of its own for each notebook that runs unattended."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def own_home() -> Iterator[Path]:
    """Give the block an empty workbook folder, and stop its database server in the end."""
    from workbook import embedded

    with tempfile.TemporaryDirectory(prefix="workbook-", ignore_cleanup_errors=True) as folder:
        home = Path(folder).resolve()
        try:
            yield home
        finally:
            embedded.stop(home)


def environment(home: Path) -> dict[str, str]:
    """Return the variables that make a kernel keep its files in that folder."""
    return {"WORKBOOK_HOME": str(home), "CREWAI_STORAGE_DIR": str(home / "crewai")}
