"""Standing in front of a MongoDB server that somebody else runs."""

from __future__ import annotations

import re

import pymongo
from pymongo.errors import ConfigurationError, InvalidURI, PyMongoError
from pymongo.uri_parser import parse_uri

from workbook.embedded.errors import EmbeddedError
from workbook.embedded.masking import mask
from workbook.embedded.proxy import Address

_PARTS = re.compile(r"(mongodb://(?:[^@/]*@)?)[^/?]+/?([^?]*)\??(.*)")


def address(uri: str) -> Address:
    """Return where the server behind listens, after it has answered.

    Raises:
        EmbeddedError: If the connection string cannot be used, or nothing answers.
    """
    shown = mask(uri)
    if uri.startswith("mongodb+srv://"):
        raise EmbeddedError(
            f"{shown} cannot stand behind: Atlas has vector search; set MONGODB_URI to it instead."
        )
    try:
        parsed = parse_uri(uri)
    except (InvalidURI, ConfigurationError, ValueError) as error:
        raise EmbeddedError(f"{shown} is no connection string: {mask(str(error))}") from error
    options = parsed["options"]
    if options.get("tls") or options.get("ssl"):
        raise EmbeddedError(f"{shown} asks for TLS, which cannot be passed through: leave it out.")
    host, port = parsed["nodelist"][0]
    port = port or 27017
    client: pymongo.MongoClient[dict[str, object]] = pymongo.MongoClient(
        host, port, directConnection=True, serverSelectionTimeoutMS=5_000
    )
    with client:
        try:
            client.admin.command("hello")
        except PyMongoError as error:
            raise EmbeddedError(
                f"No MongoDB server answers at {host}:{port}: start it first."
            ) from error
    return host, port


def fronted(uri: str, port: int) -> str:
    """Return a connection string for the same user and database through a port of ours."""
    found = _PARTS.fullmatch(uri)
    if found is None:
        raise EmbeddedError(f"{mask(uri)} is no connection string.")
    start, database, query = found.groups()
    dropped = ("replicaset=", "directconnection=", "loadbalanced=")
    options = [one for one in query.split("&") if one and not one.lower().startswith(dropped)]
    return f"{start}127.0.0.1:{port}/{database}?{'&'.join([*options, 'directConnection=true'])}"
