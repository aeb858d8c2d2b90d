"""A trial run of the benchmarks at a small size, so that they go on working."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks import report, stores, workload
from benchmarks.conftest import Bench, open_bench
from benchmarks.counting import cost_of

SIZE = 50


@pytest.fixture
def small(mongodb_uri: str, database_name: str, tmp_path: Path) -> Iterator[Bench]:
    yield from open_bench(mongodb_uri, database_name, tmp_path, SIZE)


def test_every_storage_answers_the_calls_and_the_report_has_them(small: Bench) -> None:
    rows = []
    for kind, calls, targets in [
        ("memories", workload.memory_calls(), small.storages),
        ("transcript", workload.transcript_calls(), small.transcripts),
    ]:
        for call in calls:
            for name, target in targets.items():
                if target is None:
                    continue
                row = {"kind": kind, "call": call.name, "storage": name, "size": SIZE}
                rows.append({**row, "time": 1.0})
                call.prepare(target)
                call.run(target)
    for storage in filter(None, small.storages.values()):
        info = storage.get_scope_info(workload.SCOPE)
        assert info.record_count == SIZE // workload.CREWS
        assert len(info.child_scopes) == workload.TEAMS
    table = report.markdown(report.costs(report.Results(rows, "memories"), stores.OURS))
    assert table.count("\n") == len(workload.memory_calls()) + 1


def test_a_cost_is_what_was_sent_and_read(small: Bench) -> None:
    backend, baseline = small.storages[stores.OURS], small.storages[stores.BASELINE]

    def cost(target: object, name: str) -> tuple[list[str], int]:
        (call,) = [call for call in workload.memory_calls() if call.name == name]
        counted = cost_of(
            lambda: call.run(target), lambda: call.prepare(target), small.meter, small.server
        )
        assert counted.received > 0
        return counted.names, counted.documents

    scoped = SIZE // workload.CREWS
    assert cost(backend, "get_scope_info") == (["aggregate"], scoped)
    assert cost(backend, "touch_records, 10") == (["update"], 10)
    assert cost(baseline, "touch_records, 10") == (["update"] * 10, 10)
    assert cost(baseline, "get_scope_info") == (["find"], SIZE)
