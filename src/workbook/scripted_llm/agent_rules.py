"""How the scripted LLM acts as an agent: two rules for calling tools, four for answering.

Tools: store what a person told, once; then search with every search tool, memory first, each with
the question and what is known by then. Answers: only words that the task, a tool or memory gave.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from workbook.scripted_llm import language
from workbook.scripted_llm.prompt import Hit, Prompt

SAVING = frozenset({"save", "store", "remember", "note", "record"})
SEARCHING = frozenset({"search", "find", "recall", "lookup", "look", "query", "retrieve", "read"})
RECALLED_AT_MOST = 6
ALTERNATIVES = 2


@dataclass(frozen=True)
class Tool:
    """A tool on offer, as far as the rules need to know it."""

    name: str
    description: str
    parameters: dict[str, Any]

    def does(self, verbs: frozenset[str]) -> bool:
        """Return whether the tool's name, or its description's first word, is one of the verbs."""
        first_word = self.description.lower().split(maxsplit=1)[:1]
        return bool(verbs & {*self.name.split("_"), *first_word})

    @property
    def is_memory(self) -> bool:
        """Whether the tool reads or writes memory."""
        return "memory" in self.name or "recall" in self.name

    def arguments(self, texts: list[str]) -> dict[str, Any] | None:
        """Fill the required parameters with texts: a list as it is, a string with all of them.

        Returns:
            The arguments, or None when a required parameter is neither and has no default.
        """
        filled: dict[str, Any] = {}
        for name, schema in self.parameters.get("properties", {}).items():
            if schema.get("type") == "array":
                filled[name] = texts
            elif schema.get("type") == "string" and "default" not in schema:
                filled[name] = " ".join(texts)
            elif name in self.parameters.get("required", ()) and "default" not in schema:
                return None
        return filled


def offered(tools: Sequence[dict[str, Any]] | None) -> list[Tool]:
    """Return the tools of a call, read from their function schemas."""
    functions = [tool.get("function", tool) for tool in tools or ()]
    return [Tool(f["name"], f.get("description", ""), f.get("parameters") or {}) for f in functions]


def next_call(prompt: Prompt, tools: list[Tool]) -> tuple[str, dict[str, Any]] | None:
    """Return the tool to call now and its arguments, or None when it is time to answer."""
    return _save(prompt, tools) or _search(prompt, tools)


def _save(prompt: Prompt, tools: list[Tool]) -> tuple[str, dict[str, Any]] | None:
    """Rule 1: what a person tells is stored, all of it at once."""
    saving = [tool for tool in tools if tool.does(SAVING)]
    if not prompt.facts or any(prompt.called(tool.name) for tool in saving):
        return None
    for tool in saving:
        if arguments := tool.arguments(prompt.facts):
            return tool.name, arguments
    return None


def _search(prompt: Prompt, tools: list[Tool]) -> tuple[str, dict[str, Any]] | None:
    """Rule 2: every search tool is asked once, memory first, unless facts came without a question.

    Memory is asked the question alone; what it returns joins the question for the others.
    """
    if prompt.facts and not prompt.questions:
        return None
    searching = [t for t in tools if t.does(SEARCHING) and not t.does(SAVING)]
    for tool in sorted(searching, key=lambda tool: not tool.is_memory):
        known = [] if tool.is_memory else [*given(prompt), *recalled(prompt)]
        arguments = tool.arguments(language.unique([*wanted(prompt), *known]))
        if arguments is not None and not prompt.called(tool.name):
            return tool.name, arguments
    return None


def wanted(prompt: Prompt) -> list[str]:
    """Return what the task is after: its questions, or its first sentence when it asks none."""
    return prompt.questions or language.sentences(prompt.task)[:1]


def given(prompt: Prompt) -> list[str]:
    """Return the facts that earlier tasks handed over."""
    return language.statements(prompt.context)


def recalled(prompt: Prompt) -> list[str]:
    """Return the remembered facts: what memory tools found, or else what the prompt brought."""
    calls = [call for call in prompt.calls if "memory" in call.name or "recall" in call.name]
    hits = [hit for call in calls for hit in call.hits] or list(prompt.memories)
    return language.unique([hit.text for hit in hits])[:RECALLED_AT_MOST]


def found(prompt: Prompt) -> list[Hit]:
    """Return what the searches outside memory found, best first."""
    calls = [c for c in prompt.calls if "memory" not in c.name and "recall" not in c.name]
    return [hit for call in calls if not _saves(call.name) for hit in call.hits]


def _saves(name: str) -> bool:
    return bool(SAVING & set(name.split("_")))


def answer(prompt: Prompt) -> str:
    """Compose the final answer from what was found, remembered, given or told, in this order."""
    problems = [f"- {call.name}: {call.result.strip()}" for call in prompt.calls if call.failed]
    parts = [_stored(prompt), _best_match(prompt) or _known(prompt)]
    if problems:
        parts.append("These tools failed:\n" + "\n".join(problems))
    return "\n\n".join(filter(None, parts)) or _unknown(prompt)


def _stored(prompt: Prompt) -> str:
    """Say which facts were stored."""
    if not any(_saves(call.name) and not call.failed for call in prompt.calls):
        return ""
    return "Stored for later sessions:\n" + _bullets(prompt.facts)


def _best_match(prompt: Prompt) -> str:
    """Name the best hit with its details, the next best, and what was taken into account."""
    hits = found(prompt)
    if not hits:
        return ""
    best, *others = hits
    lines = [f"Best match for “{' '.join(wanted(prompt))}”: {_scored(best)}."]
    lines += [f"- {detail}" for detail in best.details]
    if others:
        lines += ["", "Next best:", *(f"- {_scored(hit)}" for hit in others[:ALTERNATIVES])]
    if known := language.unique([*given(prompt), *recalled(prompt)]):
        lines += ["", "Taken into account:", _bullets(known)]
    return "\n".join(lines)


def _known(prompt: Prompt) -> str:
    """List what is remembered and what earlier tasks gave, for a question without a search."""
    if prompt.facts and not prompt.questions:
        return "" if prompt.calls else "Understood:\n" + _bullets(prompt.facts)
    known = language.unique([*recalled(prompt), *given(prompt), *prompt.facts])
    return f"What I know about “{' '.join(wanted(prompt))}”:\n{_bullets(known)}" if known else ""


def _unknown(prompt: Prompt) -> str:
    return f"I do not know: nothing that I was given or found answers “{' '.join(wanted(prompt))}”."


def _scored(hit: Hit) -> str:
    text = hit.text.rstrip(".")
    return text if hit.score is None else f"{text} (score {hit.score:.2f})"


def _bullets(texts: list[str]) -> str:
    return "\n".join(f"- {text}" for text in texts)
