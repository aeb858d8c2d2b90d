"""What a crew does, step by step, from CrewAI's event bus."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from crewai.events.base_events import BaseEvent
from crewai.events.event_bus import crewai_event_bus
from crewai.events.types.llm_events import LLMCallFailedEvent
from crewai.events.types.memory_events import (
    MemoryQueryFailedEvent,
    MemoryRetrievalCompletedEvent,
    MemoryRetrievalFailedEvent,
    MemorySaveFailedEvent,
)
from crewai.events.types.task_events import TaskCompletedEvent
from crewai.events.types.tool_usage_events import ToolUsageErrorEvent, ToolUsageFinishedEvent

from workbook import llm_failures

MEMORY_LOGGER = "crewai.memory"


@dataclass(frozen=True)
class Step:
    """One thing that an agent or its memory did.

    Attributes:
        kind: `prompted` (CrewAI put memories into the task's prompt), `tool` (a tool was called),
            `answer` (a task was finished), `refused` (the LLM refused tools, and CrewAI went on
            without them) or `failure`.
        agent: The agent's role, `""` for what memory does in the background.
        name: The tool's name, `""` for everything else.
        arguments: What the tool was called with.
        text: What the tool or the agent said, what was put into the prompt, or what went wrong.
    """

    kind: str
    agent: str
    text: str
    name: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)


class _Swallowed(logging.Handler):
    """Turns what CrewAI's memory logs as a warning into a failed step."""

    def __init__(self, tell: Callable[[Step], None]) -> None:
        super().__init__(logging.WARNING)
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        cause = record.exc_info[1] if record.exc_info else None
        logged = [cause, *(record.args if isinstance(record.args, tuple) else ())]
        errors = [each for each in logged if isinstance(each, Exception)]
        said = next(filter(None, map(llm_failures.explain, errors)), None)
        self._tell(Step("failure", "", said or str(cause or record.getMessage())))


@contextmanager
def listening(tell: Callable[[Step], None]) -> Iterator[None]:
    """Tell of every step that any crew makes within the block, in order and as it happens.

    Failures that CrewAI's memory logs and then ignores are told as well: to the crew they look
    like an empty memory.

    Args:
        tell: Called with each step, from CrewAI's event thread.
    """

    # CrewAI runs async handlers on one loop, in the order of the events; sync handlers run on ten
    # threads and overtake each other.
    async def handler(_source: Any, event: BaseEvent) -> None:
        if isinstance(event, LLMCallFailedEvent) and not llm_failures.refuses_tools(event.error):
            return  # it is raised besides
        tell(step_of(event))

    swallowed = _Swallowed(tell)
    logging.getLogger(MEMORY_LOGGER).addHandler(swallowed)
    for event_type in READERS:
        crewai_event_bus.on(event_type)(handler)
    try:
        yield
    finally:
        crewai_event_bus.flush()
        logging.getLogger(MEMORY_LOGGER).removeHandler(swallowed)
        for event_type in READERS:
            crewai_event_bus.off(event_type, handler)


def step_of(event: BaseEvent) -> Step:
    """Return an event as a step."""
    return READERS[type(event)](event)


def _tool(event: Any) -> Step:
    arguments = event.tool_args if isinstance(event.tool_args, dict) else {}
    return Step("tool", event.agent_role or "", str(event.output), event.tool_name, arguments)


def _tool_failure(event: Any) -> Step:
    return Step("failure", event.agent_role or "", f"{event.tool_name}: {event.error}")


def _answer(event: Any) -> Step:
    return Step("answer", event.output.agent, event.output.raw)


def _refused(event: Any) -> Step:
    role = event.agent_role or ""
    return Step("refused", role, llm_failures.IN_WRITING)


def _prompted(event: Any) -> Step:
    return Step("prompted", event.agent_role or "", event.memory_content)


def _memory_failure(event: Any) -> Step:
    return Step("failure", event.agent_role or "", str(event.error))


READERS: dict[type[BaseEvent], Callable[[Any], Step]] = {
    MemoryRetrievalCompletedEvent: _prompted,
    ToolUsageFinishedEvent: _tool,
    ToolUsageErrorEvent: _tool_failure,
    TaskCompletedEvent: _answer,
    LLMCallFailedEvent: _refused,
    MemoryQueryFailedEvent: _memory_failure,
    MemoryRetrievalFailedEvent: _memory_failure,
    MemorySaveFailedEvent: _memory_failure,
}
