"""Say a thing once, however often an agent's loop meets it."""

from __future__ import annotations

import functools
import logging

logger = logging.getLogger("crewai_mongodb_memory")


@functools.lru_cache(maxsize=1024)
def log_once(message: str, level: int = logging.WARNING) -> None:
    """Log a message the first time that this process has it to say."""
    logger.log(level, message)
