"""The set-up cell that every notebook has, word for word."""

from workbook.notebooks.addresses import clone_address

TEMPLATE = """\
# Set-up: the same in every notebook, and safe to run twice.
import sys
from pathlib import Path

try:
    import google.colab  # only Colab has this module
except ImportError:
    here = Path.cwd()
    project = next((p for p in [here, *here.parents] if (p / "src/workbook").is_dir()), here)
else:  # Colab: fetch the project and install what it needs; numpy and pandas stay as they are
    project = Path("crewai-mongodb-memory").resolve()
    if not project.exists():
        !git clone --quiet --depth 1 {address} {{project}}
    %pip install --quiet "{{project}}[workbook]"

sys.path.insert(0, str(project / "src"))

from workbook import show
from workbook.connect import connect

print(show.versions())
connection = connect()"""


def source(slug: str | None = None) -> str:
    """Return the set-up cell's source.

    Args:
        slug: The `OWNER/NAME` to clone from; the default is the project's own.
    """
    return TEMPLATE.format(address=clone_address(slug))
