"""The embedded database: MongoDB's wire protocol on this machine, with vector search.

A process of its own listens on 127.0.0.1. It passes every message through to a storage server
(SecantusDB, or any MongoDB server it is told to stand in front of) and answers the search
commands itself, by Atlas's rules. `start()` finds it or starts it.
"""

from workbook.embedded.errors import EmbeddedError
from workbook.embedded.lifecycle import Server, Status, reset, serve, start, status, stop
from workbook.embedded.masking import mask

__all__ = [
    "EmbeddedError",
    "Server",
    "Status",
    "mask",
    "reset",
    "serve",
    "start",
    "status",
    "stop",
]
