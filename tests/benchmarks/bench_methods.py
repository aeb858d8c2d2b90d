"""Measure every method of the backend and of the transcript, and the same calls on others.

`make bench` runs this and prints the tables of `report.py`; it asserts nothing. What a call costs
in commands, documents, keys and bytes is counted once; its time is the median of a few rounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from benchmarks import stores, workload
from benchmarks.conftest import Bench
from benchmarks.counting import Cost, cost_of
from benchmarks.workload import Measured

SECONDS = 2.0  # spent on the rounds of one call, about
MAX_ROUNDS = 7

METERED = [stores.OURS, stores.LEAN, stores.BASELINE]
STORAGES = [*METERED, stores.LANCEDB, stores.QDRANT]
TRANSCRIPTS = [stores.OURS, stores.BASELINE]
MEMORY_CALLS = {call.name: call for call in workload.memory_calls()}
TRANSCRIPT_CALLS = {call.name: call for call in workload.transcript_calls()}


@pytest.mark.parametrize("call", MEMORY_CALLS)
@pytest.mark.parametrize("name", STORAGES)
def test_memories(bench: Bench, name: str, call: str, benchmark: Any) -> None:
    storage = bench.storages[name]
    if storage is None:
        pytest.skip(stores.MISSING[name])
    if name == stores.LEAN and not call.startswith(("search", "list_records")):
        pytest.skip("vectors_in_results changes nothing about this call")
    measure(bench, name, storage, MEMORY_CALLS[call], benchmark, "memories")


@pytest.mark.parametrize("call", TRANSCRIPT_CALLS)
@pytest.mark.parametrize("name", TRANSCRIPTS)
def test_transcript(bench: Bench, name: str, call: str, benchmark: Any) -> None:
    transcript = bench.transcripts[name]
    measure(bench, name, transcript, TRANSCRIPT_CALLS[call], benchmark, "transcript")


def measure(
    bench: Bench, name: str, target: Any, call: Measured, benchmark: Any, kind: str
) -> None:
    """Count what the call costs where there are commands to count, then take its time."""

    def run() -> None:
        call.run(target)

    def prepare() -> None:
        call.prepare(target)

    if name in METERED:
        cost = cost_of(run, prepare, bench.meter, bench.server)
        counted, seconds = counts(cost), cost.seconds
    else:
        counted, seconds = {}, warmed_up(run, prepare)
    benchmark.extra_info.update(counted, kind=kind, call=call.name, storage=name, size=bench.size)
    rounds = max(1, min(MAX_ROUNDS, int(SECONDS / seconds)))
    benchmark.pedantic(run, setup=prepare, rounds=rounds)


def counts(cost: Cost) -> dict[str, Any]:
    return {
        "commands": len(cost.commands),
        "documents": cost.documents,
        "keys": cost.keys,
        "sent": cost.sent,
        "received": cost.received,
    }


def warmed_up(run: Callable[[], Any], prepare: Callable[[], Any]) -> float:
    """Return how many seconds a first run takes."""
    prepare()
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
