"""Keep CrewAI silent and on this machine."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

from workbook import paths

OPT_OUTS = {
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_DISABLE_TRACKING": "true",
    "CREWAI_TRACING_ENABLED": "false",
    "CREWAI_DISABLE_VERSION_CHECK": "true",
    "OTEL_SDK_DISABLED": "true",
    "ANONYMIZED_TELEMETRY": "false",
    # onnxruntime reports its use from native code, beginning with its import.
    "ORT_DISABLE_TELEMETRY": "1",
}


def silence_crewai() -> None:
    """Set the opt-outs that CrewAI reads at import, unless the environment already decides them.

    Without them a fresh machine waits for telemetry at exit and is asked a tracing question.
    CrewAI's own SQLite file goes into the workbook's folder instead of the home directory.
    """
    for name, value in OPT_OUTS.items():
        os.environ.setdefault(name, value)
    os.environ.setdefault("CREWAI_STORAGE_DIR", str(paths.home() / "crewai"))


def hide_panels() -> None:
    """Keep CrewAI from printing a panel for whatever a memory does outside of a crew.

    A crew decides for itself: it sets the same switch to its own `verbose`. The warnings about
    unpaired events, which CrewAI prints when an LLM's call fails, are hidden too.
    """
    from crewai.events import event_context
    from crewai.events.event_listener import event_listener

    event_listener.formatter.verbose = False
    unpaired = event_context._default_config
    unpaired.mismatch_behavior = event_context.MismatchBehavior.SILENT
    unpaired.empty_pop_behavior = event_context.MismatchBehavior.SILENT


@contextmanager
def hidden_logs() -> Iterator[None]:
    """Keep CrewAI's and the backend's log lines off the screen within the block.

    For a command that tells every failure itself, in one sentence. CrewAI's LLM clients log to
    the root logger.
    """
    silent = logging.NullHandler()
    loggers = [logging.getLogger(name) for name in ("", "crewai", "crewai_mongodb_memory")]
    before = [logger.propagate for logger in loggers]
    for logger in loggers:
        logger.addHandler(silent)
        logger.propagate = False
    try:
        yield
    finally:
        for logger, propagates in zip(loggers, before, strict=True):
            logger.removeHandler(silent)
            logger.propagate = propagates
