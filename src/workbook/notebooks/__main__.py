"""Keep the notebooks in order: `python -m workbook.notebooks run | badges`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from workbook import paths


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m workbook.notebooks", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="command")
    run = commands.add_parser("run", help="run notebooks and keep their outputs in place")
    run.add_argument("names", nargs="*", help="file names or numbers; the default is all")
    run.add_argument("--jobs", type=int, default=2, help="how many at once (default 2)")
    run.set_defaults(command=_run)
    badges = commands.add_parser("badges", help="rewrite badges and clone addresses for a fork")
    badges.add_argument("repository", nargs="?", default="", help="OWNER/NAME")
    badges.set_defaults(command=_badges)
    chosen = parser.parse_args(argv)
    return int(chosen.command(chosen))


def _run(chosen: argparse.Namespace) -> int:
    from workbook.notebooks.run import all_notebooks, run

    notebooks = [path for path in all_notebooks() if _is_named(path, chosen.names)]
    if not notebooks:
        print(f"No notebook in {paths.NOTEBOOKS} is named so.", file=sys.stderr)
        return 2
    failed = run(notebooks, chosen.jobs)
    for path in notebooks:
        print(f"{path.name}: {failed.get(path, 'done')}")
    return 1 if failed else 0


def _is_named(path: Path, names: list[str]) -> bool:
    return not names or any(path.name.startswith(Path(name).name) for name in names)


def _badges(chosen: argparse.Namespace) -> int:
    from workbook.notebooks import addresses

    try:
        changed = addresses.move(chosen.repository)
    except addresses.AddressError as error:
        print(f"{error} With make: make badges REPO=owner/name", file=sys.stderr)
        return 2
    for path in changed:
        print(f"rewritten: {path.relative_to(paths.PROJECT)}")
    if not changed:
        print(f"Everything names {chosen.repository} already.")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
