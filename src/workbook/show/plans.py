"""Turn the answer of `explain()` into a table of five columns.

The same query is explained in different shapes: classic and slot-based plans, plans inside an
aggregation's `$cursor` stage, plans per shard, a `$vectorSearch` that another process runs.
Whatever the shape, the rows are in the order in which documents flow: what reads comes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

from pymongo.collection import Collection
from pymongo.cursor import Cursor

from workbook.show.tables import Table, table

COLUMNS = ("stage", "index", "keys examined", "documents examined", "returned")
MERGES = {"SHARD_MERGE", "SHARD_MERGE_SORT", "SINGLE_SHARD"}
READERS = {"FETCH", "COLLSCAN", "IDHACK", "EXPRESS_IXSCAN", "CLUSTERED_IXSCAN"}
WRITES = {"$out", "$merge"}  # a pipeline that ends so is not run to be counted
INPUTS = ("inputStage", "outerStage", "innerStage", "thenStage", "elseStage")

Explain = Mapping[str, Any]
Explainable = Cursor[Any] | tuple[Collection[Any], Sequence[Mapping[str, Any]]] | Explain


@dataclass
class Step:
    """One stage of a plan; `None` where the server says nothing."""

    stage: str
    index: str = ""
    keys: int | None = None
    documents: int | None = None
    returned: int | None = None


def plan(query: Explainable | Collection[Any], pipeline: Sequence[Any] | None = None) -> Table:
    """Explain a query and show how the server ran it.

    Args:
        query: A find cursor, a `(collection, pipeline)` pair, a collection (with `pipeline`), or
            a document that `explain` has returned.
        pipeline: The aggregation pipeline when `query` is a collection.

    Returns:
        One row per stage, those that read first: stage, index, keys examined, documents
        examined, returned. A cell is blank where the server reports no figure; what the last
        stage returned is counted then, by running the query.
    """
    return table(map(astuple, _counted_steps(query, pipeline)), columns=COLUMNS)


def plans(queries: Mapping[str, Explainable]) -> Table:
    """Explain several queries and show one row for each.

    Args:
        queries: What `plan()` takes, by the name that the row gets.

    Returns:
        The name, the stages joined by arrows, the index, and the totals of the whole query.
    """
    rows = [(name, *_summary(_counted_steps(query))) for name, query in queries.items()]
    return table(rows, columns=("query", "stages", *COLUMNS[1:]))


def explain(query: Explainable | Collection[Any], pipeline: Sequence[Any] | None = None) -> Explain:
    """Return the server's explanation of a query, with execution figures.

    Args:
        query: As in `plan()`.
        pipeline: As in `plan()`.

    Raises:
        TypeError: For anything that cannot be explained.
    """
    if isinstance(query, tuple):
        query, pipeline = query
    if isinstance(query, Cursor):
        return dict(query.clone().explain())
    if isinstance(query, Collection) and pipeline is not None:
        command = {"aggregate": query.name, "pipeline": list(pipeline), "cursor": {}}
        return dict(query.database.command("explain", command, verbosity="executionStats"))
    if isinstance(query, Mapping):
        return query
    raise TypeError(
        "show.plan() takes a find cursor, a collection with a pipeline, or an explain document; "
        f"not {type(query).__name__}."
    )


def steps(explained: Explain) -> list[Step]:
    """Return a plan's stages in the order in which documents flow."""
    if isinstance(explained.get("shards"), Mapping):
        return [step for name, part in explained["shards"].items() for step in _of(name, part)]
    if "stages" in explained:
        return list(_aggregation_steps(explained))
    return list(_query_steps(explained))


def _of(shard: str, part: Explain) -> Iterator[Step]:
    for step in steps(part):
        step.stage = f"{step.stage} on {shard}"
        yield step


def _counted_steps(
    query: Explainable | Collection[Any], pipeline: Sequence[Any] | None = None
) -> list[Step]:
    """Return a query's steps, the last one with what it returned even if the server is silent."""
    explained = explain(query, pipeline)
    found = steps(explained)
    if found and found[-1].returned is None and "shards" not in explained:
        found[-1].returned = _count(query, pipeline)
    return found


def _count(query: Explainable | Collection[Any], pipeline: Sequence[Any] | None) -> int | None:
    if isinstance(query, tuple):
        query, pipeline = query
    if isinstance(query, Cursor):
        return sum(1 for _ in query.clone())
    if isinstance(query, Collection) and pipeline and not WRITES & set(pipeline[-1]):
        return sum(1 for _ in query.aggregate(list(pipeline)))
    return None


def _summary(found: list[Step]) -> tuple[str, str, int | None, int | None, int | None]:
    indexes = dict.fromkeys(step.index for step in found if step.index)
    return (
        " → ".join(step.stage for step in found),
        ", ".join(indexes),
        _total(step.keys for step in found),
        _total(step.documents for step in found),
        found[-1].returned if found else None,
    )


def _total(figures: Iterable[int | None]) -> int | None:
    known = [figure for figure in figures if figure is not None]
    return sum(known) if known else None


def _aggregation_steps(explained: Explain) -> Iterator[Step]:
    stages = list(explained["stages"])
    for stage in _without_absorbed(stages, explained):
        name = next(key for key in stage if key.startswith("$"))
        if name in {"$cursor", "$geoNearCursor"}:
            yield from _query_steps(stage[name])
        else:
            yield _pipeline_step(name, stage)


def _without_absorbed(stages: list[Explain], explained: Explain) -> list[Explain]:
    """Drop a `$match` that the cursor has already applied and the server lists once more."""
    if len(stages) < 2 or "$cursor" not in stages[0] or "nReturned" in stages[1]:
        return stages
    sent = explained.get("command", {}).get("pipeline")
    repeated = "$match" in stages[1] and sent and stages[1] == sent[0]
    return [stages[0], *stages[2:]] if repeated else stages


def _pipeline_step(name: str, stage: Explain) -> Step:
    spec = stage[name] if isinstance(stage[name], Mapping) else {}
    asked: Explain = spec.get("mongotQuery") or spec
    return Step(
        stage=name,
        index=str(asked.get("index", "")),
        keys=_figure(stage, "totalKeysExamined"),
        documents=_figure(stage, "totalDocsExamined"),
        returned=_figure(stage, "nReturned"),
    )


def _query_steps(explained: Explain) -> Iterator[Step]:
    winning = explained["queryPlanner"]["winningPlan"]
    execution = explained.get("executionStats", {})
    if winning.get("stage") in MERGES and "shards" in winning:
        yield from _sharded_steps(winning, execution)
    else:
        yield from _server_steps(winning, execution)


def _sharded_steps(winning: Explain, execution: Explain) -> Iterator[Step]:
    ran = execution.get("executionStages", {})
    parts = {part.get("shardName"): part for part in ran.get("shards", [])}
    for shard in winning["shards"]:
        name = shard.get("shardName")
        for step in _server_steps(shard["winningPlan"], parts.get(name, {})):
            step.stage = f"{step.stage} on {name}"
            yield step
    yield Step(winning["stage"], returned=_figure(ran, "nReturned"))


def _server_steps(winning: Explain, execution: Explain) -> Iterator[Step]:
    ran = execution.get("executionStages", {})
    if "queryPlan" in winning:
        ran_stages = list(_walk(ran))
        found = [_slot_step(node, ran_stages) for node in _walk(winning["queryPlan"])]
    else:
        found = list(_classic_steps(list(_walk(winning)), list(_walk(ran))))
    _fill_totals(found, execution)
    yield from found


def _walk(node: Explain) -> Iterator[Explain]:
    """Yield a plan's stages, what reads first and the outermost last."""
    if not node:
        return
    for key in INPUTS:
        yield from _walk(node.get(key, {}))
    for child in node.get("inputStages", []):
        yield from _walk(child)
    yield node


def _classic_steps(nodes: list[Explain], ran: list[Explain]) -> Iterator[Step]:
    """Pair the plan with what ran, by stage name in order: a server may report only a part."""
    left = list(ran)
    for node in nodes:
        same = next((each for each in left if each.get("stage") == node.get("stage")), {})
        if same:
            left.remove(same)
        yield Step(
            stage=str(node.get("stage", "?")),
            index=str(node.get("indexName", "_id_" if node.get("stage") == "IDHACK" else "")),
            keys=_figure(same, "keysExamined"),
            documents=_figure(same, "docsExamined"),
            returned=_figure(same, "nReturned"),
        )


def _slot_step(node: Explain, ran: list[Explain]) -> Step:
    """Gather the slot-based stages that one node of the plan was compiled into."""
    own = [stage for stage in ran if stage.get("planNodeId") == node.get("planNodeId")]
    scans = [stage for stage in own if str(stage.get("stage", "")).startswith("ix")]
    reads = [stage for stage in own if stage.get("stage") in {"seek", "scan"}]
    return Step(
        stage=str(node.get("stage", "?")),
        index=str(node.get("indexName", "")),
        keys=_total(_figure(stage, "keysExamined", "numReads") for stage in scans),
        documents=_total(_figure(stage, "numReads") for stage in reads),
        returned=_figure(own[-1], "nReturned") if own else None,
    )


def _fill_totals(found: list[Step], execution: Explain) -> None:
    """Put the query's totals on the stages that read when the stages carry no figures."""
    scans = [step for step in found if step.index]
    if scans and all(step.keys is None for step in scans):
        scans[0].keys = _figure(execution, "totalKeysExamined")
    reads = [step for step in found if step.stage in READERS]
    if reads and all(step.documents is None for step in reads):
        reads[0].documents = _figure(execution, "totalDocsExamined")


def _figure(stage: Explain, *names: str) -> int | None:
    return next((int(stage[name]) for name in names if name in stage), None)
