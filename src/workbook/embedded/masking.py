"""Connection strings that can be shown."""

import re

# Greedy up to the last @ before the path: a password that was not percent-encoded may hold one.
_CREDENTIALS = re.compile(r"(mongodb(?:\+srv)?://[^:/?#@\s]*):([^/?#\s]*)@")


def mask(uri: str) -> str:
    """Return a connection string, or a text that quotes one, with each password as `***`."""
    return _CREDENTIALS.sub(r"\1:***@", uri)
