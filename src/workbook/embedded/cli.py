"""`python -m workbook serve | status | stop`."""

from __future__ import annotations

import argparse
import contextlib
import logging
import sys
from pathlib import Path

from workbook.embedded import lifecycle
from workbook.embedded.errors import EmbeddedError
from workbook.embedded.masking import mask


def main(argv: list[str]) -> int:
    """Run one of the commands; return 0, or 1 after one line that says what to do."""
    arguments = _parser().parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except EmbeddedError as error:
        print(mask(str(error)), file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m workbook")
    commands = parser.add_subparsers(required=True, metavar="command")
    everywhere = argparse.ArgumentParser(add_help=False)
    everywhere.add_argument("--home", type=Path, help="the folder of the data (.workbook)")
    serve = commands.add_parser("serve", parents=[everywhere], help="run in this terminal")
    serve.add_argument("--behind", metavar="URI", help="stand in front of this MongoDB server")
    serve.add_argument("--port", type=int, default=0, help="a free one by default")
    serve.add_argument(
        "--idle-timeout",
        type=_seconds,
        default=float("inf"),
        metavar="SECONDS",
        help="stop after so long without a client (never by default)",
    )
    serve.set_defaults(run=_serve)
    for name, run, says in (
        ("status", _status, "say whether it runs, and where"),
        ("stop", _stop, "stop it"),
    ):
        commands.add_parser(name, parents=[everywhere], help=says).set_defaults(run=run)
    return parser


def _seconds(text: str) -> float:
    """Return a time to wait; `inf` is one, `nan` and what is not above 0 are none."""
    with contextlib.suppress(ValueError):
        if (seconds := float(text)) > 0:
            return seconds
    raise argparse.ArgumentTypeError(f"{text!r} is no time to wait: give more than 0 seconds")


def _serve(arguments: argparse.Namespace) -> int:
    logging.basicConfig(format="%(message)s", level=logging.INFO, stream=sys.stdout)
    lifecycle.serve(arguments.home, arguments.behind, arguments.port, arguments.idle_timeout)
    return 0


def _status(arguments: argparse.Namespace) -> int:
    running = lifecycle.status(arguments.home)
    if running is None:
        print("The embedded database does not run.")
        return 0
    print(f"The embedded database runs (process {running.pid}) at {running.masked_uri}")
    print(f"data  {running.home}")
    if running.behind:
        print(f"in front of {running.behind}")
    return 0


def _stop(arguments: argparse.Namespace) -> int:
    was_running = lifecycle.stop(arguments.home)
    print("Stopped." if was_running else "The embedded database does not run.")
    return 0
