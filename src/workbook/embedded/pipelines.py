"""The rest of a pipeline after `$vectorSearch`, rewritten so that the storage server can run it.

The hits enter as literal documents (`_id` and score), are joined with the collection in their
order, and carry the score in a hidden field for as long as a later stage may ask for it by
`{$meta: "vectorSearchScore"}`. No client sees that field.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Stage = dict[str, Any]

SCORE = "__vectorSearchScore"
META = {"$meta": "vectorSearchScore"}

# Stages that give out the documents they take, perhaps fewer, more or changed: metadata lives on.
# After any other stage the documents are new, and have no score.
FORGETS = {"$group", "$bucket", "$bucketAuto", "$sortByCount", "$count", "$facet"}


class MetadataError(ValueError):
    """A pipeline asks for metadata that its documents do not have."""


def after(hits: Iterable[tuple[Any, float]], collection: str, rest: list[Any]) -> list[Any]:
    """Return a pipeline that starts with the hits of a search and goes on with the given stages.

    Args:
        hits: `_id` and score, the best first.
        collection: Where the documents lie.
        rest: The stages after `$vectorSearch`.

    Raises:
        MetadataError: If a stage asks for metadata that is not there.
    """
    documents = [{"_id": _literal(one), "score": score} for one, score in hits]
    return [
        {"$documents": documents},
        {
            "$lookup": {
                "from": collection,
                "localField": "_id",
                "foreignField": "_id",
                "as": "document",
            }
        },
        {"$unwind": "$document"},
        *_documents(rest),
    ]


def inside(hits: Iterable[tuple[Any, float]], rest: list[Any]) -> list[Any]:
    """Return the same for a sub-pipeline, which runs over the collection and cannot leave it."""
    ids, scores = [], []
    for one, score in hits:
        ids.append(one)
        scores.append(score)
    place = {"$indexOfArray": [{"$literal": ids}, "$_id"]}
    return [
        {"$match": {"_id": {"$in": ids}}},
        {"$set": {SCORE: {"$arrayElemAt": [{"$literal": scores}, place]}}},
        {"$sort": {SCORE: -1}},
        *with_scores(rest),
    ]


def _documents(rest: list[Any]) -> list[Any]:
    if not any(_asks(stage) for stage in rest):
        return [{"$replaceRoot": {"newRoot": "$document"}}, *rest]
    merged = {"$mergeObjects": ["$document", {SCORE: "$score"}]}
    return [{"$replaceRoot": {"newRoot": merged}}, *with_scores(rest)]


def _literal(value: Any) -> Any:
    """Keep a value from being read as an expression."""
    risky = isinstance(value, Mapping) or (isinstance(value, str) and value.startswith("$"))
    return {"$literal": value} if risky else value


def with_scores(stages: list[Any]) -> list[Any]:
    """Rewrite stages whose documents carry the hidden score; it ends at the last that asks."""
    last = max((i for i, stage in enumerate(stages) if _asks(stage)), default=-1)
    if last < 0:
        return [{"$unset": SCORE}, *stages]
    result: list[Any] = []
    known = True
    for number, stage in enumerate(stages):
        if not known and _asks(stage):
            raise MetadataError(
                "query requires vector search score metadata, but it is not available"
            )
        result.append(_rewritten(stage, number < last) if known and number <= last else stage)
        known = known and not (isinstance(stage, Mapping) and FORGETS & set(stage))
        if number == last and known:
            result.append({"$unset": SCORE})
    return result


def _asks(value: Any) -> bool:
    if isinstance(value, Mapping):
        return value == META or any(_asks(one) for one in value.values())
    return isinstance(value, list) and any(_asks(one) for one in value)


def _rewritten(stage: Any, needed: bool) -> Any:
    """Rewrite one stage; `needed` says that a later one still asks for the score."""
    if not isinstance(stage, Mapping) or len(stage) != 1:
        return stage
    ((name, body),) = stage.items()
    if name == "$facet" and isinstance(body, Mapping):
        return {name: {key: with_scores(list(sub)) for key, sub in body.items()}}
    if name == "$sort" and isinstance(body, Mapping):
        return {name: dict((SCORE, -1) if v == META else (k, v) for k, v in body.items())}
    body = _expression(body)
    if needed and name == "$project" and isinstance(body, Mapping) and _includes(body):
        body = {**body, SCORE: 1}
    if needed and name == "$replaceRoot" and isinstance(body, Mapping) and "newRoot" in body:
        body = {**body, "newRoot": _carried(body["newRoot"])}
    if needed and name == "$replaceWith":
        body = _carried(body)
    return {name: body}


def _carried(root: Any) -> Any:
    return {"$mergeObjects": [root, {SCORE: f"${SCORE}"}]}


def _includes(projection: Mapping[str, Any]) -> bool:
    """Tell an inclusion from an exclusion, by the first field that decides."""
    for name, value in projection.items():
        if isinstance(value, bool | int | float):
            if name != "_id" or len(projection) == 1:
                return bool(value)
        elif isinstance(value, Mapping) and not any(key.startswith("$") for key in value):
            return _includes(value)
        else:
            return True
    return True


def _expression(value: Any) -> Any:
    """Replace the score's `$meta` and hide the score in whole documents."""
    if value == META:
        return f"${SCORE}"
    if value in ("$$ROOT", "$$CURRENT"):
        return {"$setField": {"field": SCORE, "input": value, "value": "$$REMOVE"}}
    if isinstance(value, Mapping):
        if "$literal" in value:
            return value
        return {key: _expression(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_expression(one) for one in value]
    return value
