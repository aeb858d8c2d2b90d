"""The workbook's command line: `python -m workbook <command>`."""

from __future__ import annotations

import io
import os
import signal
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
    "reset": "delete what is kept on this machine: memories, transcripts, typed lines",
}
INTERRUPTED = 130  # what a shell reports for Ctrl-C
# Of `... | head -1`, whose reader has gone: what Python's documentation recommends, and what rich
# does when it is rich that finds out.
UNREAD = 1


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
    if name == "reset":
        from workbook import reset

        return reset.main
    from workbook.embedded import cli

    return lambda arguments: cli.main([name, *arguments])


def main(argv: list[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: The command and its arguments; by default those of this process.

    Returns:
        The command's exit code; 2 for a command that does not exist, 130 after Ctrl-C, 1 when
        whoever reads the output has gone.
    """
    _print_in_any_encoding()
    try:
        return _run(sys.argv[1:] if argv is None else argv)
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        _discard_output()
        return UNREAD


def _run(arguments: list[str]) -> int:
    try:
        return _command(arguments)
    finally:
        if sys.stdout:
            sys.stdout.flush()  # here, where a reader that has gone is met, and not at exit


def _command(arguments: list[str]) -> int:
    if not arguments or arguments[0] in {"-h", "--help", "help"}:
        print(usage())
        return 0
    name, *rest = arguments
    if name not in COMMANDS:
        print(f"There is no command {name!r}.\n\n{usage()}", file=sys.stderr)
        return 2
    return command(name)(rest)


def _print_in_any_encoding() -> None:
    """Let what an output's encoding lacks become `?`; stderr is written so by Python itself."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def _discard_output() -> None:
    """Send what is still in the buffer nowhere: Python would write it once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    code = main()
    # While Python tidies up, Ctrl-C would be a traceback of whatever it tidies just then.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    raise SystemExit(code)
