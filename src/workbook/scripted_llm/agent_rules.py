"""How the scripted LLM acts as an agent: two rules for calling tools, four for answering.

Tools: what a person tells is saved, once; then every search tool is asked, memory first, with the
question and what is known by then. Answers: only words that the task, a tool or memory gave; of
memory all that was recalled, or where a short answer is expected, what comes near the best score,
and nothing when even the best is far from the question.
Small talk is answered with one fixed line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from workbook.scripted_llm import language
from workbook.scripted_llm.prompt import Hit, Prompt

SAVING = frozenset({"save", "store", "remember", "note", "record"})
SEARCHING = frozenset({"search", "find", "recall", "lookup", "look", "query", "retrieve", "read"})
RECALLED_AT_MOST = 6
NEAR = 0.85  # of the best score
# Cosine similarity: what answers a question scores 0.33 to 0.85, for one of something else ("What
# is the weather in Paris?") the best memory 0.0 to 0.36. CrewAI's composite score, which adds
# recency and importance, is higher: there only what is old and unimportant too is left out.
FAR = 0.3
ALTERNATIVES = 2
BEST_MATCH = "Best match for"
UNKNOWN = "I do not know"
INTRODUCTION = (
    "I keep what you tell me, and look up what you ask. Tell me a fact, or ask a question."
)
# No single memory is close to such a question, and all of them answer it.
ASKS_FOR_ALL = re.compile(
    r"\b(?:about (?:me|us)|who am I|what do you know|told|tell|said|mentioned|remember|stored?"
    r"|saved?|kept|preferences?|do (?:I|we) (?:like|prefer|want|need))\b",
    re.I,
)
POINTS_BACK = re.compile(r"\b(?:told|said|mentioned|remember|earlier|last time)\b", re.I)


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
        return is_memory(self.name)

    def arguments(self, texts: list[str]) -> dict[str, Any] | None:
        """Fill the parameters without a default: a list with the texts, a string with all of them.

        Returns:
            The arguments, or None when such a parameter is neither.
        """
        filled: dict[str, Any] = {}
        for name, schema in self.parameters.get("properties", {}).items():
            if "default" in schema:
                continue
            if schema.get("type") not in {"array", "string"}:
                return None
            filled[name] = texts if schema["type"] == "array" else " ".join(texts)
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
    """Rule 2: every search tool is asked once, unless facts came without a question.

    Memory comes first and is asked the question alone, or is left out when an earlier task handed
    its facts over. What is known by then joins the question for the other tools.
    """
    if (prompt.facts and not prompt.questions) or prompt.is_small_talk:
        return None
    searching = [tool for tool in tools if tool.does(SEARCHING) and not tool.does(SAVING)]
    for tool in sorted(searching, key=lambda tool: not tool.is_memory):
        if prompt.called(tool.name) or (tool.is_memory and given(prompt)):
            continue
        arguments = tool.arguments(wanted(prompt) if tool.is_memory else needs(prompt))
        if arguments is not None:
            return tool.name, arguments
    return None


def wanted(prompt: Prompt) -> list[str]:
    """Return what the task is after: its questions, or the first sentence of what is quoted."""
    said = language.quoted(prompt.task) or prompt.task
    return prompt.questions or language.sentences(said)[:1]


def needs(prompt: Prompt) -> list[str]:
    """Return what to search for: the question and the known facts.

    A question that points back ("given what I told you") says nothing that can be searched; the
    facts stand for it.
    """
    facts = known(prompt)
    questions = [q for q in wanted(prompt) if not (facts and POINTS_BACK.search(q))]
    return language.unique([*questions, *facts])


def given(prompt: Prompt) -> list[str]:
    """Return the facts that earlier tasks handed over."""
    return [text for text in language.statements(prompt.context) if not _is_answer(text)]


def recalled(prompt: Prompt) -> list[str]:
    """Return the remembered facts: what memory tools found, or else what the prompt brought."""
    calls = [call for call in prompt.calls if is_memory(call.name) and not _saves(call.name)]
    hits = [hit for call in calls for hit in call.hits] or list(prompt.memories)
    if prompt.wants_little and not ASKS_FOR_ALL.search(" ".join(wanted(prompt))):
        hits = _closest(hits)
    return language.unique([hit.text for hit in hits])[:RECALLED_AT_MOST]


def _closest(hits: list[Hit]) -> list[Hit]:
    """Return the hits whose scores come near the best, none when that is far from the question."""
    scores = [hit.score for hit in hits if hit.score is not None]
    if not scores:
        return hits
    best = max(scores)
    return [hit for hit in hits if (hit.score or 0) >= best * NEAR] if best >= FAR else []


def known(prompt: Prompt) -> list[str]:
    """Return the facts that were handed over or remembered; earlier answers are no facts."""
    return language.unique(
        [*given(prompt), *(text for text in recalled(prompt) if not _is_answer(text))]
    )


def found(prompt: Prompt) -> list[Hit]:
    """Return what the searches outside memory found, best first."""
    calls = [c for c in prompt.calls if not is_memory(c.name) and not _saves(c.name)]
    return [hit for call in calls for hit in call.hits]


def is_memory(name: str) -> bool:
    """Return whether the tool of that name reads or writes memory."""
    return bool({"memory", "memories", "recall"} & set(name.split("_")))


def _saves(name: str) -> bool:
    return bool(SAVING & set(name.split("_")))


def _is_answer(text: str) -> bool:
    return text.startswith((BEST_MATCH, UNKNOWN))


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
    lines = [f"{BEST_MATCH} {_question(prompt)}: {_scored(best)}."]
    lines += [f"- {detail}" for detail in best.details]
    if others:
        lines += ["", "Next best:", *(f"- {_scored(hit)}" for hit in others[:ALTERNATIVES])]
    quoted = "\n".join(best.details)
    if facts := [fact for fact in known(prompt) if fact not in quoted]:
        lines += ["", "Taken into account:", _bullets(facts)]
    return "\n".join(lines)


def _known(prompt: Prompt) -> str:
    """List what is remembered and what earlier tasks gave, for a question without a search."""
    if prompt.is_small_talk:
        return ""
    if prompt.facts and not prompt.questions:
        return "" if prompt.calls else "Understood:\n" + _bullets(prompt.facts)
    facts = language.unique([*recalled(prompt), *given(prompt), *prompt.facts])
    return f"What I know about {_question(prompt)}:\n{_bullets(facts)}" if facts else ""


def _unknown(prompt: Prompt) -> str:
    if prompt.is_small_talk:
        return INTRODUCTION
    return f"{UNKNOWN}: nothing that I was given or found answers {_question(prompt)}."


def _question(prompt: Prompt) -> str:
    return f"“{' '.join(wanted(prompt))}”"


def _scored(hit: Hit) -> str:
    text = hit.text.rstrip(".")
    return text if hit.score is None else f"{text} (score {hit.score:.2f})"


def _bullets(texts: list[str]) -> str:
    return "\n".join(f"- {text}" for text in texts)
