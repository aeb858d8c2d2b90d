"""Write every address that a Python process connects to or looks up into a file.

Python imports this module at start when its folder is on PYTHONPATH, so every process of a tree
is watched, whoever starts it.
"""

import json
import os
import sys

WATCHED = {"socket.connect", "socket.getaddrinfo", "socket.sendto", "socket.gethostbyname"}


def _address(event: str, arguments: tuple) -> object:
    return arguments[1] if event in {"socket.connect", "socket.sendto"} else arguments[0]


def _watch(event: str, arguments: tuple) -> None:
    if event in WATCHED:
        # orig_argv, because argv is not set yet while a process starts.
        entry = [sys.orig_argv[1:], event, repr(_address(event, arguments))]
        with open(os.environ["WATCH_FILE"], "a") as file:
            file.write(json.dumps(entry) + "\n")


if "WATCH_FILE" in os.environ:
    sys.addaudithook(_watch)
