"""What the scripted LLM is given: CrewAI's messages, taken apart."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from workbook.scripted_llm import language

HIT = re.compile(r"^- (?:\(score=(?P<score>-?[\d.]+)\) )?(?P<text>.+)$")
NOTHING_FOUND = re.compile(r"^(?:no|nothing|none)\b", re.I)
BRIEF = re.compile(r"\b(?:brief|short)\b", re.I)
PROBLEM = re.compile(r"^(?:error|i encountered an error|tool .{0,60}failed)", re.I)

# CrewAI writes the parts of a task's prompt one after the other, in this order.
PARTS = {
    "expected": "\n\nThis is the expected criteria for your final answer:",
    "context": "\n\nThis is the context you're working with:",
    "memories": "\n\n# Memories from past conversations:",
}
TASK_HEADING = "Current Task:"
ENDINGS = ("\n\nProvide your complete response:", "\n\nIMPORTANT: The memories above are")


@dataclass(frozen=True)
class Hit:
    """One line that a search returned: its text, its score and the indented lines below it."""

    text: str
    score: float | None = None
    details: tuple[str, ...] = ()


@dataclass(frozen=True)
class Call:
    """A tool call that was made, and what the tool answered."""

    name: str
    arguments: dict[str, Any]
    result: str

    @property
    def failed(self) -> bool:
        """Whether the tool answered with an error."""
        return PROBLEM.match(self.result.strip()) is not None

    @property
    def hits(self) -> list[Hit]:
        """What the tool found, best first; empty when it failed."""
        return [] if self.failed else hits(self.result)


@dataclass(frozen=True)
class Prompt:
    """A task as an agent meets it.

    Attributes:
        task: The task's description.
        context: The answers of earlier tasks.
        memories: What CrewAI recalled and put into the prompt by itself.
        calls: The tool calls made so far, in order.
        expected: What the task says of the answer that it expects.
    """

    task: str
    context: str = ""
    memories: tuple[Hit, ...] = ()
    calls: tuple[Call, ...] = ()
    expected: str = ""

    @property
    def questions(self) -> list[str]:
        """What is asked, a quoted question before the task's own."""
        return language.questions(language.quoted(self.task)) or language.questions(self.task)

    @property
    def facts(self) -> list[str]:
        """What a person tells in the task."""
        return language.unique(language.told(self.task))

    @property
    def is_small_talk(self) -> bool:
        """Whether a person is quoted who only greets, thanks or agrees."""
        said = language.sentences(language.quoted(self.task))
        return bool(said) and all(map(language.SMALL_TALK.match, said))

    @property
    def wants_little(self) -> bool:
        """Whether a short reply is expected, and no list of all that is known."""
        return BRIEF.search(self.expected) is not None

    def called(self, name: str) -> bool:
        """Return whether a tool was called already."""
        return any(call.name == name for call in self.calls)


def hits(text: str) -> list[Hit]:
    """Return the findings in a tool's answer: its list items, or else its lines."""
    if NOTHING_FOUND.match(text.strip()):
        return []
    lines = [line for line in text.splitlines() if line.strip()]
    if not any(HIT.match(line) for line in lines):
        return [Hit(line.strip()) for line in lines]
    found: list[Hit] = []
    for line in lines:
        if match := HIT.match(line):
            score = match["score"]
            found.append(Hit(match["text"].strip(), float(score) if score else None))
        elif found and line.startswith(" "):
            last = found[-1]
            found[-1] = Hit(last.text, last.score, (*last.details, line.strip()))
    return found


def text_of(message: dict[str, Any]) -> str:
    """Return a message's text, whether it is a string, content parts or nothing."""
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", "") for part in content if isinstance(part, dict))


def read(messages: str | Sequence[dict[str, Any]]) -> Prompt:
    """Take a conversation with CrewAI apart.

    Args:
        messages: One text, or messages with `role` and `content`; the last task in them counts.
    """
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    start = max(
        (i for i, m in enumerate(messages) if TASK_HEADING in text_of(m)),
        default=next((i for i, m in enumerate(messages) if m.get("role") == "user"), 0),
    )
    body = text_of(messages[start]) if messages else ""
    body = body.rpartition(TASK_HEADING)[2]
    for ending in ENDINGS:
        body = body.partition(ending)[0]
    parts: dict[str, str] = {}
    for name in reversed(PARTS):
        body, _, parts[name] = body.partition(PARTS[name])
    memories = hits(parts["memories"].partition("Relevant memories:")[2])
    return Prompt(
        body.strip(),
        parts["context"].strip(),
        tuple(memories),
        _calls(messages[start:]),
        parts["expected"].strip(),
    )


def _calls(messages: Sequence[dict[str, Any]]) -> tuple[Call, ...]:
    """Pair every tool's answer with the call that asked for it."""
    asked: dict[str, dict[str, Any]] = {}
    calls = []
    for message in messages:
        for call in message.get("tool_calls") or ():
            asked[call["id"]] = json.loads(call["function"]["arguments"] or "{}")
        if message.get("role") == "tool":
            arguments = asked.get(message.get("tool_call_id", ""), {})
            calls.append(Call(message.get("name", ""), arguments, text_of(message)))
    return tuple(calls)
