"""The workbook's command line: `python -m workbook <command>`."""

from __future__ import annotations

import sys
from collections.abc import Callable

COMMANDS = {
    "demo": "run the demo crew: one session learns, another remembers",
    "chat": "talk to the concierge, who remembers what you tell it",
    "doctor": "say what this machine has and whether it works",
    "lab": "open the notebooks in JupyterLab",
    "serve": "run the embedded database in this terminal",
    "status": "say whether the embedded database runs, and where",
    "stop": "stop the embedded database",
    "reset": "stop the embedded database and delete what it holds",
}


def usage() -> str:
    """Return the list of commands."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {says}" for name, says in COMMANDS.items()]
    return "\n".join(["usage: python -m workbook <command> [--help]", "", *lines])


def command(name: str) -> Callable[[list[str]], int]:
    """Return the function that runs a command, importing only what that command needs."""
    if name == "demo":
        from workbook import demo

        return demo.main
    if name == "chat":
        from workbook.chat import terminal

        return terminal.main
    if name == "doctor":
        from workbook import doctor

        return doctor.main
    if name == "lab":
        from workbook import lab

        return lab.main
    from workbook.embedded import cli

    return lambda arguments: cli.main([name, *arguments])


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code (2 for a command that does not exist)."""
    arguments = sys.argv[1:] if argv is None else argv
    if not arguments or arguments[0] in {"-h", "--help", "help"}:
        print(usage())
        return 0
    name, *rest = arguments
    if name not in COMMANDS:
        print(f"There is no command {name!r}.\n\n{usage()}", file=sys.stderr)
        return 2
    return command(name)(rest)


if __name__ == "__main__":
    raise SystemExit(main())
