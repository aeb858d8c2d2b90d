"""How the scripted LLM answers the questions that CrewAI's memory asks an LLM."""

from __future__ import annotations

import re
from collections.abc import Callable

from crewai.memory.analyze import (
    ConsolidationAction,
    ConsolidationPlan,
    ExtractedMemories,
    ExtractedMetadata,
    MemoryAnalysis,
    QueryAnalysis,
)
from pydantic import BaseModel

from workbook.scripted_llm import language

CONTENT = re.compile(
    r"Content(?: to store)?:\n(?P<content>.*?)\n\n(?:Extract memory|Existing scopes)", re.S
)
RESULT = re.compile(r"^(?:Task|Input): (?P<task>.*?)\nAgent: .*?\nResult: (?P<result>.*)", re.S)
QUERY = re.compile(r"Query: (?P<query>.*?)\n\nAvailable scopes:", re.S)
NEW_CONTENT = re.compile(r"New content to consider storing:\n(?P<new>.*?)\n\nExisting", re.S)
RECORD = re.compile(r"- id=(?P<id>\S+) \|.*?\n  content: (?P<content>.*?)(?=\n\n|\Z)", re.S)
EXPLORATION = re.compile(
    r"^Query: (?P<query>.*?)\n\nRelevant memory excerpts:\n(?P<excerpts>.*?)\n\nExtract the", re.S
)

# The kinds of memory: the words that give one away, and how much it matters (0 to 1).
KINDS = (
    ("preference", r"\b(?:prefers?|likes?|wants?|rather|love|hate|never|always|avoid)\b", 0.8),
    ("decision", r"\b(?:best match|decided|chose|chosen|agreed|recommended|shortlisted)\b", 0.7),
    ("fact", "", 0.6),
)
SUPERSEDES = re.compile(r"\b(?:now|no longer|instead|changed|anymore|from now on|actually)\b", re.I)
QUERIES_AT_MOST = 3


def answer(prompt: str, response_model: type[BaseModel]) -> BaseModel | None:
    """Return the answer to one of memory's structured calls, or None for any other model."""
    rule = RULES.get(response_model)
    return rule(prompt) if rule else None


def extract(prompt: str) -> ExtractedMemories:
    """Find what is worth remembering in a text.

    Of a finished task that is the prose of its result: its list items are evidence that lies
    where it was found, and what the agent says of itself ("I ...") is no fact.
    """
    content = _group(CONTENT, prompt, "content")
    if not (run := RESULT.match(content)):
        return ExtractedMemories(memories=language.unique(language.statements(content)))
    prose = "\n\n".join(line for line in run["result"].splitlines() if not _is_item(line))
    told = {frozenset(language.words(fact)) for fact in language.sentences(run["task"])}
    new = [
        statement
        for statement in language.unique(language.statements(prose))
        if not statement.startswith("I ") and frozenset(language.words(statement)) not in told
    ]
    return ExtractedMemories(memories=new)


def classify(prompt: str) -> MemoryAnalysis:
    """Give a memory a scope, a category and an importance by the kind of sentence it is."""
    content = _group(CONTENT, prompt, "content")
    kind, importance = next(
        (kind, weight) for kind, signs, weight in KINDS if re.search(signs, content, re.I)
    )
    return MemoryAnalysis(
        suggested_scope=f"/{kind}s",
        categories=[kind],
        importance=importance,
        extracted_metadata=ExtractedMetadata(
            entities=language.unique(language.PROPER_NAME.findall(content)),
            dates=language.DATE.findall(content),
        ),
    )


def consolidate(prompt: str) -> ConsolidationPlan:
    """Compare a new memory with similar ones.

    The same words are not stored twice. A text that says that something changed replaces the most
    similar memory, which comes first. Everything else is kept beside what is there.
    """
    new = _group(NEW_CONTENT, prompt, "new")
    records = [(match["id"], match["content"]) for match in RECORD.finditer(prompt)]
    if any(language.words(content) == language.words(new) for _, content in records):
        return ConsolidationPlan(insert_new=False, insert_reason="It is stored already.")
    if records and SUPERSEDES.search(new):
        update = ConsolidationAction(
            action="update", record_id=records[0][0], new_content=new, reason="It has changed."
        )
        return ConsolidationPlan(actions=[update], insert_new=False, insert_reason="It is updated.")
    return ConsolidationPlan(insert_new=True, insert_reason="It says something new.")


def distill(prompt: str) -> QueryAnalysis:
    """Turn a long query into at most three short ones: its questions, else what is quoted."""
    query = _group(QUERY, prompt, "query")
    said = language.quoted(query)
    short = (
        language.questions(said)
        or language.questions(query)
        or language.sentences(said)
        or language.sentences(query)
    )
    return QueryAnalysis(recall_queries=language.unique(short)[:QUERIES_AT_MOST])


def explore(prompt: str) -> str | None:
    """Answer recall's request to read excerpts: those that share a word with the query.

    Returns:
        The excerpts, a line that says what is missing, or None when this is no such request.
    """
    if not (match := EXPLORATION.match(prompt)):
        return None
    query = {word for word in language.words(match["query"]) if len(word) > 3}
    excerpts = [e.strip() for e in match["excerpts"].split("\n---\n")]
    relevant = [excerpt for excerpt in excerpts if query & language.words(excerpt)]
    return "\n".join(relevant) or "Missing: no excerpt shares a word with the query."


def _group(pattern: re.Pattern[str], text: str, name: str) -> str:
    match = pattern.search(text)
    return match[name].strip() if match else text


def _is_item(line: str) -> bool:
    return bool(language.BULLET.match(line)) or line.startswith(" ")


RULES: dict[type[BaseModel], Callable[[str], BaseModel]] = {
    ExtractedMemories: extract,
    MemoryAnalysis: classify,
    ConsolidationPlan: consolidate,
    QueryAnalysis: distill,
}
