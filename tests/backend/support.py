"""Records, vectors, stand-ins and a command log for the backend's tests."""

from __future__ import annotations

import hashlib
import json
import math
import re
import threading
from collections.abc import Callable, Iterable
from typing import Any

from crewai.llms.base_llm import BaseLLM
from crewai.memory.analyze import (
    ConsolidationPlan,
    ExtractedMemories,
    MemoryAnalysis,
    QueryAnalysis,
)
from crewai.memory.types import MemoryRecord
from pymongo import monitoring
from pymongo.errors import OperationFailure

from crewai_mongodb_memory import MongoDBStorageBackend

DIMENSIONS = 1024


def unit(*weights: float) -> list[float]:
    """Return a vector of length 1 whose first numbers stand in the given proportion."""
    norm = math.sqrt(sum(weight * weight for weight in weights))
    return [weight / norm for weight in weights] + [0.0] * (DIMENSIONS - len(weights))


def at_cosine(cosine: float) -> list[float]:
    """Return a vector of that cosine similarity to `unit(1)`."""
    return unit(cosine, math.sqrt(1 - cosine * cosine)) if cosine < 1 else unit(1)


def record(record_id: str, scope: str = "/", **fields: Any) -> MemoryRecord:
    """Return a record with an embedding, unless told otherwise."""
    settings = {"content": f"content of {record_id}", "embedding": unit(1), **fields}
    return MemoryRecord(id=record_id, scope=scope, **settings)


def save_f5(backend: MongoDBStorageBackend) -> None:
    """Save the records that the cases call F5."""
    scopes = {"app": "/app", "appsub": "/app/sub", "apple": "/apple", "appb": "/app-b"}
    backend.save(
        [record("root")] + [record(i, scope, categories=["x"]) for i, scope in scopes.items()]
    )


def ids(found: Iterable[Any]) -> set[str]:
    """Return the ids of records, or of search results."""
    return {item[0].id if isinstance(item, tuple) else item.id for item in found}


def all_ids(backend: MongoDBStorageBackend) -> set[str]:
    """Return every id in the collection, whatever the backend's fence."""
    return {document["_id"] for document in backend.collection.find({}, {"_id": 1})}


def failure(code: int, message: str) -> OperationFailure:
    """Return a server's error as the driver raises it."""
    return OperationFailure(message, code, {"ok": 0, "errmsg": message, "code": code})


class Commands(monitoring.CommandListener):
    """Notes every command that a client sends: give it as `event_listeners=[commands]`."""

    HOUSEKEEPING = frozenset({"hello", "ping", "endSessions", "saslStart", "saslContinue"})

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        if event.command_name not in self.HOUSEKEEPING:
            self.sent.append(dict(event.command))

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        pass

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        pass

    def names(self) -> list[str]:
        return [next(iter(command)) for command in self.sent]

    def pipelines(self) -> list[list[dict[str, Any]]]:
        return [command["pipeline"] for command in self.sent if "pipeline" in command]

    def during(self, call: Callable[[], Any]) -> list[str]:
        """Return the names of the commands that a call sends."""
        self.sent.clear()
        call()
        return self.names()


class WordEmbedder:
    """Embeds a text by its words: texts that share words are near, others are orthogonal."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def __call__(self, texts: list[str]) -> list[list[float]]:
        self.texts += texts
        return [self._embed(text) for text in texts]

    def _embed(self, text: str) -> list[float]:
        numbers = [0.0] * DIMENSIONS
        for word in re.findall(r"\w+", text.lower()):
            numbers[int(hashlib.sha1(word.encode()).hexdigest(), 16) % DIMENSIONS] += 1.0
        norm = math.sqrt(sum(number * number for number in numbers)) or 1.0
        return [number / norm for number in numbers]


class StandInLLM(BaseLLM):
    """Answers memory's calls by what it was made with, and an agent by `replies` in turn.

    `plans` maps a word to the consolidation plan for new content that has it, as a function of the
    ids of the similar records.
    """

    analysis: MemoryAnalysis = MemoryAnalysis(
        suggested_scope="/general", categories=["general"], importance=0.5
    )
    query: QueryAnalysis = QueryAnalysis()
    extracted: tuple[str, ...] = ()
    plans: Any = None
    answer: Any = None

    def __init__(self, **settings: Any) -> None:
        super().__init__(model="stand-in", **settings)

    def supports_function_calling(self) -> bool:
        return True

    def get_context_window_size(self) -> int:
        return 100_000

    def call(
        self,
        messages: Any,
        tools: Any = None,
        callbacks: Any = None,
        available_functions: Any = None,
        from_task: Any = None,
        from_agent: Any = None,
        response_model: Any = None,
    ) -> Any:
        if response_model is MemoryAnalysis:
            return self.analysis
        if response_model is QueryAnalysis:
            return self.query
        if response_model is ExtractedMemories:
            return ExtractedMemories(memories=list(self.extracted))
        if response_model is ConsolidationPlan:
            return self._plan(messages[-1]["content"])
        if self.answer is not None and not isinstance(messages, str):
            return self.answer(messages, tools)
        return "nothing is missing here"

    def _plan(self, prompt: str) -> ConsolidationPlan:
        similar = re.findall(r"id=(\S+)", prompt)
        for word, plan in (self.plans or {}).items():
            if word in prompt:
                return plan(similar)
        return ConsolidationPlan(actions=[], insert_new=True)


def tool_call(name: str, arguments: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what an LLM says to have a tool called."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    return [{"id": "call_1", "type": "function", "function": function}]


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Run `work(0)` to `work(count - 1)` at the same time, and raise what one of them raises."""
    errors: list[BaseException] = []
    start = threading.Barrier(count)

    def run(number: int) -> None:
        try:
            start.wait()
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
