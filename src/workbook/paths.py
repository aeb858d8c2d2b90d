"""Where the workbook keeps and finds its files."""

import os
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
DATA = PROJECT / "data"
NOTEBOOKS = PROJECT / "notebooks"

# In a home, beside the embedded database's folder: the lines typed into chats, and the folder of
# CrewAI's own SQLite file.
CHAT_HISTORY = "chat_history"
CREWAI = "crewai"


def home() -> Path:
    """Return the folder for the embedded database and everything else kept between runs.

    Returns:
        `WORKBOOK_HOME` when it is set, else `.workbook` in the project, wherever the notebook or
        the shell stands. The folder may not exist yet.
    """
    chosen = os.environ.get("WORKBOOK_HOME")
    return Path(chosen).expanduser().resolve() if chosen else PROJECT / ".workbook"
