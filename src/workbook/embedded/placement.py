"""Where in a pipeline a search stage may stand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from workbook.embedded.errors import CommandError

STAGES = {"$vectorSearch", "$listSearchIndexes"}


def holds_search(pipeline: Any) -> bool:
    """Tell whether a search stage stands anywhere in a pipeline or its sub-pipelines."""
    return any(
        STAGES & set(stage) or any(holds_search(sub) for _, sub in _subpipelines(stage))
        for stage in _stages(pipeline)
    )


def check_placement(pipeline: Any) -> None:
    """Refuse a search stage where MongoDB does not take one.

    Raises:
        CommandError: For one that is not first, or in a `$facet` or a `$lookup`.
    """
    for number, stage in enumerate(_stages(pipeline)):
        for name in STAGES & set(stage):
            if number:
                raise CommandError(40602, f"{name} is only valid as the first stage in a pipeline")
        for name, sub in _subpipelines(stage):
            if holds_search(sub) and name == "$facet":
                raise CommandError(
                    40600, "$vectorSearch is not allowed to be used within a $facet stage"
                )
            if holds_search(sub) and name == "$lookup":
                raise CommandError(
                    51047, "$vectorSearch is not allowed within a $lookup's sub-pipeline"
                )
            check_placement(sub)


def _stages(pipeline: Any) -> list[Mapping[str, Any]]:
    if not isinstance(pipeline, list):
        return []
    return [stage for stage in pipeline if isinstance(stage, Mapping)]


def _subpipelines(stage: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, body in stage.items():
        if not isinstance(body, Mapping):
            continue
        if name == "$facet":
            yield from ((name, sub) for sub in body.values())
        elif "pipeline" in body:
            yield name, body["pipeline"]
