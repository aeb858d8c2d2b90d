"""`python -m workbook reset`: delete what the workbook keeps on this machine."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from workbook import embedded, paths
from workbook.chat.commands import decision
from workbook.printable import is_terminal

BESIDES = (paths.CHAT_HISTORY, paths.CREWAI)


def main(argv: list[str]) -> int:
    """Delete a home's database and what lies beside it, after a question on a terminal.

    Args:
        argv: `--home` for another home than the workbook's, `--yes` to be asked nothing.

    Returns:
        0, or 1 after one line: the answer was no, or the database does not stop.
    """
    options = _parser().parse_args(argv)
    home = (options.home or paths.home()).absolute()
    if not kept(home):
        print(f"There is nothing to delete in {home}")
        return 0
    if not options.yes and is_terminal() and not _agreed(home):
        print("Nothing was deleted.")
        return 1
    try:
        delete(home)
    except embedded.EmbeddedError as error:
        print(embedded.mask(str(error)), file=sys.stderr)
        return 1
    print("The embedded database and its data are gone, and the lines typed into chats too.")
    return 0


def kept(home: Path) -> list[Path]:
    """Return the files and folders of a home that are the workbook's and exist."""
    ours = [embedded.folder.Folder.of(home).path, *(home / name for name in BESIDES)]
    return [path for path in ours if path.exists()]


def delete(home: Path) -> None:
    """Stop the database of a home and delete everything that the workbook keeps there.

    Raises:
        workbook.embedded.EmbeddedError: If the database does not stop.
    """
    embedded.reset(home)
    for path in kept(home):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m workbook reset", description=__doc__)
    parser.add_argument("--home", type=Path, help="the folder of the data (.workbook)")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    return parser


def _agreed(home: Path) -> bool:
    try:
        said = input(f"This deletes every memory and transcript in {home}. Go on? yes or no: ")
    except EOFError:
        print()
        return False
    return decision(said) is True
