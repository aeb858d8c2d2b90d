"""The little English that the scripted LLM understands: sentences, quotes, questions, orders."""

from __future__ import annotations

import re

BULLET = re.compile(r"^\s*(?:[-*•]|\d+[.)])\s+")
QUOTE_LINE = re.compile(r"^\s*>\s?")
SENTENCE_END = re.compile(r"(?<=[.!?])(?<!\bMr\.)(?<!\bMs\.)(?<!\bDr\.)(?<!e\.g\.)(?<!i\.e\.)\s+")
INLINE_QUOTE = re.compile(r"[“\"]([^”\"]*\w\s+\w[^”\"]*)[”\"]")
REMEMBER = re.compile(r"^(?:please\s+)?(?:remember|note|store|save)(?:\s+that\b|\s*:)\s*", re.I)
FIRST_PERSON = re.compile(r"\b(?:I|I'm|I've|I'd|my|me|we|we're|we've|our|us)\b", re.I)
DATE = re.compile(
    r"\b(?:\d{4}-\d{2}-\d{2}"
    r"|\d{1,2} [A-Z][a-z]{2,8}(?: \d{4})?"
    r"|[A-Z][a-z]{2,8} \d{1,2}(?:, \d{4})?)\b"
)
PROPER_NAME = re.compile(r"(?<=[a-z,;:] )[A-Z][\w'-]+(?: [A-Z][\w'-]+)*")

# A sentence that begins with one of these tells the agent what to do, not what is so.
ORDER = re.compile(
    r"^(?:please\s+)?(?:add|answer|ask|choose|compare|confirm|describe|do|don't|explain|find|give"
    r"|help|keep|list|look|make|name|note|pick|plan|propose|read|recall|recommend|remember|reply"
    r"|return|save|say|search|show|store|suggest|summari[sz]e|tell|use|write)\b",
    re.I,
)

# Typed without a question mark, a question still begins like one and ends without a full stop.
ASKING = re.compile(
    r"^(?:who|whom|whose|what|what's|when|where|which|why|how|(?:do|does|did|is|are|can|could"
    r"|should|would|will) (?:I|you|we|they|he|she|it|the|my|our|there))\b[^.!:]*$",
    re.I,
)
SMALL_TALK = re.compile(
    r"^(?:hello|hi|hey|good (?:morning|afternoon|evening|day)|thanks?|thank you|bye|goodbye|ok|okay"
    r"|yes|no|great|fine)\b(?:\W+\w+){0,3}\W*$",
    re.I,
)


def sentences(text: str) -> list[str]:
    """Return the sentences of a text; a list item is one sentence or more of its own."""
    blocks: list[str] = []
    open_paragraph = False
    for line in text.splitlines():
        bare = BULLET.sub("", QUOTE_LINE.sub("", line)).strip()
        starts_item = BULLET.match(QUOTE_LINE.sub("", line)) is not None
        if bare and open_paragraph and not starts_item:
            blocks[-1] += f" {bare}"
        elif bare:
            blocks.append(bare)
        open_paragraph = bool(bare)
    return [s for block in blocks for s in SENTENCE_END.split(block) if s.strip()]


def quoted(text: str) -> str:
    """Return what somebody is quoted as saying: the lines after `>`, else the words in quotes."""
    lines = [QUOTE_LINE.sub("", line) for line in text.splitlines() if QUOTE_LINE.match(line)]
    return "\n".join(lines) if lines else "\n".join(INLINE_QUOTE.findall(text))


def questions(text: str) -> list[str]:
    """Return the sentences that ask something."""
    return [sentence for sentence in sentences(text) if is_question(sentence)]


def is_question(sentence: str) -> bool:
    """Return whether a sentence asks: by its mark, or, as people type, by its first word alone."""
    return sentence.rstrip("\"”')").endswith("?") or ASKING.match(sentence) is not None


def is_statement(sentence: str) -> bool:
    """Return whether a sentence says that something is so: no question, order or heading."""
    words = re.findall(r"[\w'-]+", sentence)
    return (
        len(words) >= 3
        and not sentence.rstrip("\"”')").endswith(":")
        and not is_question(sentence)
        and not ORDER.match(sentence)
        and not SMALL_TALK.match(sentence)
    )


def statements(text: str) -> list[str]:
    """Return the sentences that state something."""
    return [sentence for sentence in sentences(text) if is_statement(sentence)]


def told(text: str) -> list[str]:
    """Return the facts that a person tells in a text.

    They are the statements that are quoted, or, where nothing is quoted, those in the first
    person; and whatever follows "remember that" or "note:".
    """
    said = quoted(text)
    facts = []
    for sentence in sentences(said or text):
        fact = REMEMBER.sub("", sentence)
        told_by_somebody = said or FIRST_PERSON.search(sentence)
        if fact != sentence or (told_by_somebody and is_statement(sentence)):
            facts.append(fact)
    return facts


def words(text: str) -> set[str]:
    """Return the words of a text in lower case, to compare two texts without their punctuation."""
    return set(re.findall(r"[a-z0-9]+", text.lower()))


def unique(texts: list[str]) -> list[str]:
    """Return the texts without repetitions, in their order."""
    seen: dict[frozenset[str], str] = {}
    for text in texts:
        seen.setdefault(frozenset(words(text)), text)
    return list(seen.values())
