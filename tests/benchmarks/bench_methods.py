"""Measure every method of the backend and of the transcript, and the same calls on others.

`make bench` runs this and prints the tables of `report.py`; it asserts nothing. What a call costs
in commands, documents, keys and bytes is counted once; its time is the median of a few rounds.
"""

from __future__ import annotations

import time
from typing import Any

import pytest
from benchmarks import stores, workload
from benchmarks.conftest import Bench
from benchmarks.counting import cost_of
from benchmarks.workload import Measured

SECONDS = 2.0  # spent on the rounds of one call, about
MAX_ROUNDS = 7

STORAGES = [stores.OURS, stores.BASELINE, stores.LANCEDB, stores.QDRANT]
TRANSCRIPTS = [stores.OURS, stores.BASELINE]
MEMORY_CALLS = {call.name: call for call in workload.memory_calls()}
TRANSCRIPT_CALLS = {call.name: call for call in workload.transcript_calls()}


@pytest.mark.parametrize("call", MEMORY_CALLS)
@pytest.mark.parametrize("name", STORAGES)
def test_memories(bench: Bench, name: str, call: str, benchmark: Any) -> None:
    storage = bench.storages[name]
    if storage is None:
        pytest.skip(stores.MISSING[name])
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
    counted = {}
    if name in TRANSCRIPTS:
        cost = cost_of(
            lambda: call.run(target), lambda: call.prepare(target), bench.meter, bench.server
        )
        counted = {
            "commands": len(cost.commands),
            "documents": cost.documents,
            "keys": cost.keys,
            "sent": cost.sent,
            "received": cost.received,
        }
    benchmark.extra_info.update(counted, kind=kind, call=call.name, storage=name, size=bench.size)
    benchmark.pedantic(
        lambda: call.run(target),
        setup=lambda: call.prepare(target),
        rounds=rounds(target, call),
    )


def rounds(target: Any, call: Measured) -> int:
    """Return how often a call fits into the time that one gets; this run is the warm-up."""
    call.prepare(target)
    start = time.perf_counter()
    call.run(target)
    return max(1, min(MAX_ROUNDS, int(SECONDS / (time.perf_counter() - start))))
