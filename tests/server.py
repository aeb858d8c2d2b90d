"""Which database server the tests use: one of their own, or `make test MONGODB_URI=...`."""

from __future__ import annotations

import os

# Not MONGODB_URI itself: a key in the environment must not turn an offline test into an online
# one. The workers of a parallel run inherit it.
KEPT = "WORKBOOK_TEST_MONGODB_URI"


def keep_chosen() -> None:
    """Take the server that was chosen out of the variables that the workbook reads."""
    if named := os.environ.pop("MONGODB_URI", None) or os.environ.pop("ATLAS_URI", None):
        os.environ[KEPT] = named


def chosen_uri() -> str | None:
    """Return the connection string that the tests were given, or None."""
    return os.environ.get(KEPT)


def in_database(uri: str, name: str) -> str:
    """Return a connection string that names a database, as a room's participants have it."""
    scheme, _, rest = uri.partition("://")
    address, _, options = rest.partition("?")
    return f"{scheme}://{address.partition('/')[0]}/{name}?{options}"
