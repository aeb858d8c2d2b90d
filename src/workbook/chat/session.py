"""`Chat`: one line in, one reply out. It knows of no screen, so every screen can use it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from threading import Thread
from typing import TypeVar

from crewai import Agent, CrewOutput, Task
from crewai.memory.types import MemoryRecord
from crewai.memory.unified_memory import Memory
from pymongo.errors import ConnectionFailure

from crewai_mongodb_memory import (
    ConversationMemory,
    Turn,
    sanitize_scope_name,
)
from workbook import crew, embedded, llm_failures, show, steps
from workbook.chat.commands import COMMANDS, Line, decision, parse, usage
from workbook.connect import Connection
from workbook.scripted_llm import LABEL, ScriptedLLM
from workbook.scripted_llm.prompt import hits as hits_in
from workbook.show.scopes import Tree

SCOPE = "/chat"
LONGEST = 10_000  # characters of one line
TOLD_TURNS = 8  # turns that the concierge is told
SHOWN_TURNS = 10
SHOWN_TEXT = 200  # characters of a memory
MOST_TURNS = 1_000
RECALLED = 5
SHORTEST_ID = 6  # characters of an id that name a memory
CLOSE = 0.5  # cosine similarity; below it a memory is not what somebody wants to forget
STOPPED = (
    "The embedded database has stopped. Start the chat again, and it starts too; every memory and "
    "turn that was stored is still there."
)
T = TypeVar("T")
KEPT_ALL = "Nothing was forgotten."


@dataclass(frozen=True)
class Found:
    """A memory that a search found.

    Attributes:
        content: Its text, cut after 200 characters.
        score: From 0 to 1; None for what was found by its words or its id.
        scope: Where it lies; `""` where CrewAI told an agent no more than text and score.
        id: Its id, `""` likewise.
    """

    content: str
    score: float | None = None
    scope: str = ""
    id: str = ""


@dataclass(frozen=True)
class Reply:
    """What a chat answers to one line.

    Attributes:
        text: What it says.
        speaker: The model whose words they are; `""` when the chat itself speaks.
        hits: The memories that were found, best first.
        tree: The scopes, after `/scope`.
        turns: The last turns, oldest first, after `/history`.
        kept: How many memories there are more than before.
        note: What else there is to know, a sentence.
        error: What went wrong and what to do, one sentence; `""` when nothing did.
        is_list: Whether the text is laid out in columns, as by `/help`.
        asks: Whether the next line should be yes or no.
        ends: Whether the chat is over.
    """

    text: str = ""
    speaker: str = ""
    hits: tuple[Found, ...] = ()
    tree: Tree | None = None
    turns: tuple[Turn, ...] = ()
    kept: int = 0
    note: str = ""
    error: str = ""
    is_list: bool = False
    asks: bool = False
    ends: bool = False


class Chat:
    """A conversation of one user with the concierge of the demo crew.

    Memories lie below `/chat/<user>`, the transcript under its session id. Nothing is kept in
    this object but a question that waits for its answer, so a new one goes on where another ended.

    Args:
        connection: The database, embedder and LLM.
        user: Whose memories; names that differ in meaningful characters have their own.
        session_id: Which transcript; the default is one of the user's.

    Raises:
        crewai_mongodb_memory.MemoryConnectionError: If the server cannot be reached.
    """

    def __init__(self, connection: Connection, user: str = "guest", session_id: str = "") -> None:
        self.connection = connection
        self.user = user
        self.scope = f"{SCOPE}/{sanitize_scope_name(user)}"
        self.transcript = ConversationMemory(
            connection.backend,
            session_id=session_id or f"chat-{sanitize_scope_name(user)}",
            max_turns=TOLD_TURNS,
        )
        self.memory = Memory(
            storage=connection.backend,
            embedder=connection.embedder,
            llm=connection.llm,
            root_scope=self.scope,
            # By meaning alone: what a person has told is no less true after a month, and with
            # recency in it a score says nothing about whether a memory answers the question.
            semantic_weight=1.0,
            recency_weight=0.0,
            importance_weight=0.0,
        )
        self._doomed: list[str] = []
        connection.backend.ensure_vector_index()

    @property
    def speaker(self) -> str:
        """The model that speaks; the scripted one is labelled as such."""
        llm = self.connection.llm
        return LABEL if isinstance(llm, ScriptedLLM) else str(llm.model)

    def greeting(self) -> Reply:
        """Return what there is from before."""
        try:
            memories, turns = self._count(), self.transcript.count()
        except Exception as error:
            return Reply(error=self._sentence(error))
        if not memories and not turns:
            return Reply(f"Nothing is remembered of {self.user} yet. Tell me something.")
        return Reply(
            f"Welcome back, {self.user}: {_many(memories, 'memory', 'memories')} and "
            f"{_many(turns, 'turn')} from before."
        )

    def answer(self, line: str) -> Reply:
        """Answer one line: words for the concierge, a command, or yes or no to a question.

        Never raises: a failure is a reply with an `error`.

        Args:
            line: What was typed.
        """
        parsed = parse(line)
        doomed, self._doomed = self._doomed, []
        decided = decision(parsed.text) if doomed and not parsed.command else None
        try:
            reply = self._does(parsed) if decided is None else self._decided(doomed, decided)
        except Exception as error:
            reply = Reply(error=self._sentence(error))
        if doomed and decided is None:
            return replace(reply, note=" ".join(filter(None, [KEPT_ALL, reply.note])))
        return reply

    def close(self) -> None:
        """Wait until the memories that CrewAI saves in the background are stored."""
        self.memory.drain_writes()

    def _does(self, line: Line) -> Reply:
        if len(line.text) > LONGEST:
            return Reply(
                error=f"That has {len(line.text):,} characters; at most {LONGEST:,} are read."
            )
        if not line.command:
            return self._talk(line.text) if line.text else Reply()
        if line.command not in COMMANDS:
            return Reply(error=f"There is no command /{line.command}: /help lists those there are.")
        needs = COMMANDS[line.command][0]
        if needs and not needs.startswith("[") and not line.text:
            return Reply(error=f"/{line.command} needs more: /{line.command} {needs}")
        does: dict[str, Callable[[str], Reply]] = {
            "remember": self._remember,
            "recall": self._recall,
            "scope": self._show_scopes,
            "history": self._show_history,
            "forget": self._forget,
            "clear": self._clear,
            "help": lambda _: Reply(usage(), is_list=True),
            "quit": lambda _: Reply(f"Everything is kept for {self.user}.", ends=True),
        }
        return does[line.command](line.text)

    # Talking

    def _talk(self, words: str) -> Reply:
        """Let a crew of one answer, and keep both turns."""
        before = self._count()
        agent = concierge(self.connection, self.user, self.transcript.history_text())
        seen: list[steps.Step] = []
        with steps.listening(seen.append):
            made = crew.build_crew([task(agent, words)], self.memory)
            output = _apart(made.kickoff)
            self.memory.drain_writes()
        if failure := _failure(seen):
            return Reply(error=failure)
        assert isinstance(output, CrewOutput)  # a stream only with Crew(stream=True)
        self.transcript.add_exchange(words, output.raw)
        return Reply(
            output.raw,
            self.speaker,
            _recalled(seen),
            kept=self._kept(before),
            note=llm_failures.IN_WRITING if any(s.kind == "refused" for s in seen) else "",
        )

    # Commands

    def _remember(self, text: str) -> Reply:
        before = self._count()
        seen: list[steps.Step] = []
        with steps.listening(seen.append):
            record = _apart(lambda: self.memory.remember(text))
        kept = self._kept(before)
        if record is None or not kept:
            return Reply("That is remembered already, or has replaced what it changes.")
        where = f"Stored in {record.scope}, importance {record.importance:.1f}, id {record.id[:8]}."
        return Reply(where, kept=kept, note=_failure(seen))

    def _recall(self, query: str) -> Reply:
        matches = self.memory.recall(query, limit=RECALLED, depth="shallow")
        if not matches:
            return Reply("Nothing is remembered yet.")
        return Reply(hits=tuple(_found(match.record, match.score) for match in matches))

    def _show_scopes(self, _: str) -> Reply:
        if not self._count():
            return Reply(f"Nothing lies in {self.scope} yet.")
        return Reply(tree=show.tree(self.connection.backend, self.scope))

    def _show_history(self, text: str) -> Reply:
        if text and not (text.isdecimal() and int(text)):
            return Reply(error=f"/history takes a number of turns, and {text!r} is none.")
        turns = self.transcript.recent_turns(min(int(text or SHOWN_TURNS), MOST_TURNS))
        return Reply(turns=tuple(turns)) if turns else Reply("Nothing was said yet.")

    def _forget(self, text: str) -> Reply:
        found = self._meant(text)
        if not found:
            return Reply("No memory says that: /recall shows what there is, with its ids.")
        self._doomed = [hit.id for hit in found]
        count = _many(len(found), "memory", "memories")
        return Reply(f"Forget {count}? yes or no", hits=tuple(found), asks=True)

    def _meant(self, text: str) -> list[Found]:
        """Return the memories of that id, or else with those words, or else close in meaning."""
        records = self._records()
        by_id = [r for r in records if len(text) >= SHORTEST_ID and r.id.startswith(text)]
        by_words = [r for r in records if text.casefold() in r.content.casefold()]
        if exact := by_id or by_words:
            return [_found(record) for record in exact]
        vector = self.connection.embedder.embed_query(text)
        near = self.connection.backend.search(vector, self.scope, limit=RECALLED)
        return [_found(record, score) for record, score in near if score >= CLOSE]

    def _decided(self, ids: list[str], yes: bool) -> Reply:
        if not yes:
            return Reply(KEPT_ALL)
        gone = self.connection.backend.delete(scope_prefix=self.scope, record_ids=ids)
        return Reply(f"{_many(gone, 'memory', 'memories')} forgotten.")

    def _clear(self, _: str) -> Reply:
        count = self.transcript.count()
        self.transcript.clear()
        return Reply(f"{_many(count, 'turn')} of the transcript deleted; the memories stay.")

    def _sentence(self, error: Exception) -> str:
        if said := llm_failures.explain(error):
            return said
        is_embedded = self.connection.capabilities.database == "embedded"
        if is_embedded and isinstance(error.__cause__, ConnectionFailure):
            return STOPPED
        return embedded.mask(_first_line(str(error)) or type(error).__name__)

    def _kept(self, before: int) -> int:
        """Return how many memories there are more than before, when search finds them."""
        kept = max(0, self._count() - before)
        if kept:
            crew.wait_until_searchable(self.connection, self.scope)
        return kept

    def _count(self) -> int:
        return self.connection.backend.count(self.scope)

    def _records(self) -> list[MemoryRecord]:
        return self.connection.backend.list_records(self.scope, limit=max(1, self._count()))


# The concierge of a chat


def concierge(connection: Connection, user: str, history: str) -> Agent:
    """Return the demo's concierge as it talks to one user.

    Args:
        connection: The LLM.
        user: Who talks to it.
        history: The last turns, as `ConversationMemory.history_text` gives them. They are in
            the backstory and not in the task, since CrewAI recalls by the task's description.
    """
    agent = crew.concierge(connection)
    agent.backstory += (
        f" You talk with {user}. Save every fact and preference that {user} tells, one sentence "
        "each. Answer questions from memory and from the conversation alone, and say so when "
        f"they hold no answer.\n\nThe conversation so far:\n{history or '(it begins now)'}"
    )
    return agent


def task(agent: Agent, words: str) -> Task:
    """Return the task of answering what was said."""
    quoted = "\n".join(f"> {line}" for line in words.splitlines())
    return Task(description=quoted, expected_output="A short reply to what is quoted.", agent=agent)


def _recalled(seen: Iterable[steps.Step]) -> tuple[Found, ...]:
    """Return what an agent's searches found; without any, what CrewAI put into the prompt.

    For what was only saved nothing was needed.
    """
    seen = list(seen)
    if {step.name for step in seen} & {"search_memory", "save_to_memory"} == {"save_to_memory"}:
        return ()
    searches = [step.text for step in seen if step.name == "search_memory"]
    prompted = [step.text.partition("\n")[2] for step in seen if step.kind == "prompted"]
    hits = [hit for text in searches or prompted for hit in hits_in(text)]
    scores = {hit.text: hit.score for hit in hits if hit.score is not None}
    best = sorted(scores, key=lambda text: -scores[text])[:RECALLED]
    return tuple(Found(_short(text), scores[text]) for text in best)


def _failure(seen: Iterable[steps.Step]) -> str:
    """Return the first failure that CrewAI passed over, in one line."""
    return next((_first_line(step.text) for step in seen if step.kind == "failure"), "")


def _found(record: MemoryRecord, score: float | None = None) -> Found:
    return Found(_short(record.content), score, record.scope, record.id)


def _short(text: str) -> str:
    return text if len(text) <= SHOWN_TEXT else f"{text[:SHOWN_TEXT]} …"


def _apart(work: Callable[[], T]) -> T:
    """Run on a thread of its own and return what it returns.

    CrewAI refuses to run on a thread with an event loop, which Jupyter's is. The thread is one
    that Ctrl-C leaves behind: a language model may take minutes, and cannot be told to stop.
    """
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:
            done.set_exception(error)

    Thread(target=run, daemon=True).start()
    return done.result()


def _many(count: int, one: str, more: str = "") -> str:
    return f"{count:,} {one if count == 1 else more or one + 's'}"


def _first_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[0]
