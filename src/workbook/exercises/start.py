"""The checks of `00_start_here`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from workbook.exercises import exercise, expect

if TYPE_CHECKING:
    from crewai_mongodb_memory import ConversationMemory
    from workbook.connect import Connection

HOSPITAL = "hospital"


@exercise(
    hint="Say what the site is for, or what kind of people will use it, in words of your own."
)
def in_other_words(question: str, connection: Connection) -> str:
    """Find the memory of the hospital's booking site with a question that shares no word with it.

    Args:
        question: The learner's question.
        connection: Where the memories of `/start` lie.
    """
    expect(isinstance(question, str), "A question is a text, in quotes.")
    vector = connection.embedder.for_queries()([question])[0]
    found = connection.backend.search(vector, scope_prefix="/start", limit=1)
    expect(bool(found), "There is no memory below /start: run the cells of session 1 first.")
    nearest = found[0][0].content
    expect(HOSPITAL in nearest, f"What lies closest to your question is another one: “{nearest}”")
    shared = sorted(_words(question) & _words(nearest))
    expect(not shared, f"It finds the right one, but the two share: {', '.join(shared)}.")
    return "Not a word in common, and still the closest: the search compares meanings."


@exercise(hint="A question and its answer are two turns. Which of the last four begins with hers?")
def last_exchange(count: int, conversation: ConversationMemory, question: str) -> str:
    """Read back the last question together with its answer, and nothing before it.

    Args:
        count: The learner's number of turns.
        conversation: The transcript.
        question: The last question that was asked.
    """
    expect(isinstance(count, int) and count > 0, "How many turns? A whole number from 1.")
    read = conversation.recent_turns(count)
    first = read[0]
    expect(first.role == "user", f"Turn {first.turn} is an answer whose question is left out.")
    expect(first.content == question, f"Turn {first.turn} is an earlier one: “{first.content}”")
    return "The two newest turns, the older of them first: ready to go into a prompt."


def _words(text: str) -> set[str]:
    """Return the words that carry meaning: those of four letters or more."""
    return {word for word in re.findall(r"\w+", text.lower()) if len(word) >= 4}
