"""The demo crew: a concierge who listens and an analyst who knows the team.

In one session a requester tells the crew what matters to her. In another session, with a new crew
in a new process, she asks who should lead her project. Only what lies in MongoDB connects the two:
her facts as CrewAI memories, the team as a corpus of embedded profiles, the words said as turns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from crewai import Agent, Crew, CrewOutput, Process, Task
from crewai.memory.types import MemoryRecord
from crewai.memory.unified_memory import Memory
from crewai.tools import BaseTool, tool

from crewai_mongodb_memory import ConversationMemory
from workbook import corpus
from workbook.scripted_llm import language

if TYPE_CHECKING:
    from workbook.connect import Connection

SCOPE = "/demo"
MEMORY_SCOPE = f"{SCOPE}/memory"
TEAM_SCOPE = f"{SCOPE}/team"
SESSION_ID = "demo"
RETRIES = 0  # of a task whose LLM failed: the LLM's own client has tried three times by then
SHORTEST_EVIDENCE = 4  # words; a job title is no evidence

REQUESTER = "Mara"
MESSAGE = """\
We are redoing the pages where visitors book our museum tours.
Many of our visitors see badly or cannot use a mouse, and it has to work for them too.
I prefer someone who has already taken a few developers through a launch.
I like parts that can be used again, since our own people will look after them later.
We begin in the third week of January."""
REQUEST = "Who should lead it, given what I told you?"


# What the crew stands on


def prepare(connection: Connection) -> int:
    """Empty the demo's scope and transcript, and store the team in it.

    Returns:
        The number of team members stored.
    """
    connection.backend.ensure_vector_index()
    connection.backend.reset(SCOPE)
    transcript(connection).clear()
    count = corpus.store(connection.backend, connection.embedder, scope=TEAM_SCOPE)
    wait_until_searchable(connection, TEAM_SCOPE)
    return count


def wait_until_searchable(connection: Connection, scope: str) -> None:
    """Wait until the newest record of a scope is found: on Atlas, search follows the writes.

    Raises:
        crewai_mongodb_memory.VectorIndexError: If that takes longer than a minute.
    """
    for newest in connection.backend.list_records(scope, limit=1):
        connection.backend.wait_until_searchable(newest)


def crew_memory(connection: Connection) -> Memory:
    """Return CrewAI's memory on MongoDB, rooted in the demo's own scope."""
    return Memory(
        storage=connection.backend,
        embedder=connection.embedder,
        llm=connection.llm,
        root_scope=MEMORY_SCOPE,
    )


def transcript(connection: Connection) -> ConversationMemory:
    """Return the transcript of the demo's conversation."""
    return ConversationMemory(connection.backend, session_id=SESSION_ID)


# The tool that searches the team


class Evidence(NamedTuple):
    """A need, the sentence of a profile that is closest to it, and their cosine similarity."""

    need: str
    sentence: str
    score: float


@dataclass(frozen=True)
class Candidate:
    """A team member that a search found.

    Attributes:
        record: The member's record in the corpus.
        score: Cosine similarity of the profile to all needs together, 0 to 1.
        evidence: For each need the sentence of the profile that is closest to it, and how close.
    """

    record: MemoryRecord
    score: float
    evidence: tuple[Evidence, ...]

    def describe(self) -> str:
        """Return the candidate as one list item with details below it."""
        about = self.record.metadata
        lines = [
            f"- (score={self.score:.2f}) {about['name']}, {about['title']}, {about['location']}",
            f"  availability: {about['availability']}",
            *(f"  “{e.need}” ↔ {e.sentence.rstrip('.')} ({e.score:.2f})" for e in self.evidence),
        ]
        return "\n".join(lines)


def find_members(connection: Connection, needs: Sequence[str], limit: int = 3) -> list[Candidate]:
    """Find the team members whose profiles are closest in meaning to all needs together.

    One `$vectorSearch` with one vector, that of all needs as one text.

    Args:
        connection: Where the team is stored.
        needs: What is needed, each need a sentence of its own.
        limit: How many members to return.

    Returns:
        Candidates, best first.
    """
    embed_queries = connection.embedder.for_queries()
    everything, *each = embed_queries([" ".join(needs), *needs])
    hits = connection.backend.search(everything, scope_prefix=TEAM_SCOPE, limit=limit)
    return [
        Candidate(record, score, _evidence(connection, record, needs, each))
        for record, score in hits
    ]


def _evidence(
    connection: Connection,
    record: MemoryRecord,
    needs: Sequence[str],
    vectors: Sequence[Sequence[float]],
) -> tuple[Evidence, ...]:
    """Pair each need with the sentence of a profile that is closest to it."""
    profile = [s for s in language.sentences(record.content) if len(s.split()) >= SHORTEST_EVIDENCE]
    embedded = connection.embedder(profile)
    pairs = []
    for need, vector in zip(needs, vectors, strict=True):
        scores = [_cosine(vector, sentence) for sentence in embedded]
        best = max(scores, default=0.0)
        if scores:
            pairs.append(Evidence(need, profile[scores.index(best)], best))
    return tuple(pairs)


def _cosine(a: Sequence[float], b: Sequence[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True)) / (math.hypot(*a) * math.hypot(*b))


def search_tool(connection: Connection) -> BaseTool:
    """Return the tool with which an agent searches the team."""

    @tool("search_team")
    def search_team(needs: list[str]) -> str:
        """Search the team by meaning for the people who meet all needs best.

        Pass every need as one full sentence of its own. Returns the three closest members, best
        first, each with a similarity score from 0 to 1, availability, and the sentence of the
        profile that speaks most to each need.
        """
        candidates = find_members(connection, needs)
        return "\n".join(found.describe() for found in candidates) or "Nobody was found."

    return search_team


# Agents, tasks, crews


def concierge(connection: Connection) -> Agent:
    """Return the agent that listens to a requester and remembers."""
    return Agent(
        role="Concierge",
        goal="Know what each requester needs and prefers, across sessions, in their own words",
        backstory=(
            "You look after the people who ask for staff. You write down what they tell you, "
            "exactly and completely, and you never add what they did not say."
        ),
        llm=connection.llm,
        max_retry_limit=RETRIES,
    )


def analyst(connection: Connection) -> Agent:
    """Return the agent that searches the team and proposes people."""
    return Agent(
        role="Staffing analyst",
        goal="Propose the person on the team who fits a request best, with evidence",
        backstory=(
            "You know the team only through its profiles, so you search them before you speak. "
            "You name people who were found, quote what their profiles say, and say so when "
            "nothing that was remembered or found answers the request."
        ),
        tools=[search_tool(connection)],
        llm=connection.llm,
        max_retry_limit=RETRIES,
    )


def listening_tasks(connection: Connection, message: str) -> list[Task]:
    """Return the tasks of the first session: remember what is told, and look who might fit."""
    remember = Task(
        description=(
            f"{REQUESTER} writes:\n\n{_quote(message)}\n\n"
            "Save each preference and each fact to memory, one sentence each, in her words. "
            "Then confirm what you saved."
        ),
        expected_output="A list of what was saved, one item per line.",
        agent=concierge(connection),
    )
    scout = Task(
        description=(
            f"Who on the team fits what {REQUESTER} told us? Search the team with everything that "
            "the concierge noted, each need as its own sentence."
        ),
        expected_output="The three closest team members with scores and availability.",
        agent=analyst(connection),
        context=[remember],
    )
    return [remember, scout]


def proposal_tasks(connection: Connection, request: str) -> list[Task]:
    """Return the tasks of a later session: recall what was told, and propose somebody."""
    recall = Task(
        description=(
            f"{REQUESTER} asks, in a new session:\n\n{_quote(request)}\n\n"
            "Recall everything that she told in earlier sessions about the project and about how "
            "she likes to work. Pass it on in her words, one item per line, and answer nothing "
            "yourself. If nothing is remembered, say so."
        ),
        expected_output="A list of what is remembered, one item per line.",
        agent=concierge(connection),
    )
    propose = Task(
        description=(
            f"{REQUESTER} asks:\n\n{_quote(request)}\n\n"
            "Search the team with what the concierge remembered, each need as its own sentence. "
            "Then write a staffing proposal: who, why, when they are available, how they fit each "
            "thing that she told us, and who would be next best."
        ),
        expected_output="A staffing proposal with a name, reasons, availability and evidence.",
        agent=analyst(connection),
        context=[recall],
    )
    return [recall, propose]


def build_crew(tasks: Sequence[Task], memory: Memory | None) -> Crew:
    """Return a crew that does the tasks one after the other, with or without memory."""
    return Crew(
        agents=[task.agent for task in tasks if task.agent],
        tasks=list(tasks),
        process=Process.sequential,
        memory=memory,
    )


def _quote(text: str) -> str:
    return "\n".join(f"> {line}" for line in text.splitlines())


# The two sessions


async def run(crew: Crew) -> CrewOutput:
    """Run a crew; asynchronously, because in a notebook an event loop runs already."""
    output = await crew.kickoff_async()
    assert isinstance(output, CrewOutput)  # a stream only with Crew(stream=True)
    return output


async def learn(connection: Connection, message: str = MESSAGE) -> CrewOutput:
    """Run the first session: a crew is told a message and remembers it.

    Args:
        connection: The database, embedder and LLM.
        message: What the requester tells.

    Returns:
        The crew's output; by then every memory and both turns are stored.
    """
    memory = crew_memory(connection)
    output = await run(build_crew(listening_tasks(connection, message), memory))
    # CrewAI saves in the background: without this a process could end before its memories do.
    memory.drain_writes()
    wait_until_searchable(connection, MEMORY_SCOPE)
    transcript(connection).add_exchange(message, output.raw)
    return output


async def propose(
    connection: Connection, request: str = REQUEST, *, with_memory: bool = True
) -> CrewOutput:
    """Run a later session: a brand-new crew answers a request.

    Args:
        connection: The database, embedder and LLM.
        request: What the requester asks.
        with_memory: Whether the crew has memory. Without it nothing is recalled, and nothing is
            added to the transcript, which makes it a fair contrast.

    Returns:
        The crew's output, its last task the proposal.
    """
    memory = crew_memory(connection) if with_memory else None
    output = await run(build_crew(proposal_tasks(connection, request), memory))
    if memory:
        memory.drain_writes()
        transcript(connection).add_exchange(request, output.raw)
    return output
