"""Reading the vectors of known indexes before the first search needs them."""

from __future__ import annotations

import logging
from typing import Any

import pymongo
from pymongo.errors import PyMongoError

from workbook.embedded.definitions import Namespace, SearchIndex

log = logging.getLogger(__name__)


def warm(uri: str, kept: list[tuple[Namespace, SearchIndex]]) -> None:
    """Search each index once, as a client would, so that it is in memory.

    Args:
        uri: The server's own connection string.
        kept: The indexes, each with its collection.
    """
    client: pymongo.MongoClient[dict[str, Any]] = pymongo.MongoClient(uri)
    with client:
        for (database, collection), index in kept:
            field = next(iter(index.vectors.values()))
            stage = {
                "index": index.name,
                "path": field.path,
                "queryVector": [1.0] * field.dimensions,
                "limit": 1,
                "exact": True,
            }
            pipeline: list[dict[str, Any]] = [{"$vectorSearch": stage}, {"$project": {"_id": 1}}]
            try:
                client[database][collection].aggregate(pipeline).to_list()
            except PyMongoError as error:
                log.info("%s.%s was not read ahead: %s", database, collection, error)
