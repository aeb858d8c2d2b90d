"""Search index definitions: what is accepted, and where they are kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bson import ObjectId

SIMILARITIES = ("cosine", "dotProduct", "euclidean")
MAX_DIMENSIONS = 8192


class DefinitionError(ValueError):
    """A definition that Atlas would refuse; the message names what is wrong."""


@dataclass(frozen=True)
class VectorField:
    """A field of an index that holds vectors."""

    path: str
    dimensions: int
    similarity: str


@dataclass
class SearchIndex:
    """A search index of one collection.

    Attributes:
        name: Its name.
        definition: What was asked for, as `$listSearchIndexes` gives it back.
        id: Its identifier.
        version: Counts the updates of the definition, from 0.
    """

    name: str
    definition: dict[str, Any]
    id: str = field(default_factory=lambda: str(ObjectId()))
    version: int = 0
    type: str = "vectorSearch"

    @property
    def vectors(self) -> dict[str, VectorField]:
        """Return the vector fields by path."""
        return {
            f["path"]: VectorField(f["path"], int(f["numDimensions"]), f["similarity"])
            for f in self.definition["fields"]
            if f["type"] == "vector"
        }

    @property
    def filter_paths(self) -> list[str]:
        """Return the paths declared as filters."""
        return [f["path"] for f in self.definition["fields"] if f["type"] == "filter"]

    def listed(self) -> dict[str, Any]:
        """Return the document that `$listSearchIndexes` shows."""
        return {
            "id": self.id,
            "name": self.name,
            "type": self.type,
            "status": "READY",
            "queryable": True,
            "latestDefinitionVersion": {"version": self.version},
            "latestDefinition": self.definition,
        }


def validate(definition: Any) -> dict[str, Any]:
    """Return a definition that Atlas would accept.

    Args:
        definition: A `vectorSearch` definition, `{"fields": [...]}`.

    Raises:
        DefinitionError: For anything Atlas refuses.
    """
    if not isinstance(definition, Mapping):
        raise DefinitionError('"definition" must be a document')
    fields = definition.get("fields")
    if not isinstance(fields, list):
        raise DefinitionError('"fields" is required')
    if not fields:
        raise DefinitionError('"fields" cannot be empty')
    for unknown in set(definition) - {"fields", "storedSource", "numPartitions"}:
        raise DefinitionError(f'unrecognized field "{unknown}"')
    for number, one in enumerate(fields):
        _validate_field(f"fields[{number}]", one)
    paths = [one["path"] for one in fields]
    if len(paths) != len(set(paths)):
        raise DefinitionError("Vector and filter fields should have distinct paths")
    if not any(one["type"] == "vector" for one in fields):
        raise DefinitionError("At least one vector field is required")
    return dict(definition)


ALLOWED = {
    "vector": {
        "type",
        "path",
        "numDimensions",
        "similarity",
        "quantization",
        "hnswOptions",
        "indexingMethod",
    },
    "filter": {"type", "path"},
}


def _validate_field(where: str, one: Any) -> None:
    if not isinstance(one, Mapping):
        raise DefinitionError(f'"{where}" must be a document')
    kind = one.get("type")
    if kind is None:
        raise DefinitionError(f'"{where}.type" is required')
    if kind not in ALLOWED:
        raise DefinitionError(f'"{where}.type" must be one of [filter, vector]')
    path = one.get("path")
    if path is None:
        raise DefinitionError(f'"{where}.path" is required')
    if not isinstance(path, str) or not path or any(not part for part in path.split(".")):
        raise DefinitionError(f'"{where}.path" must be a field path')
    for unknown in sorted(set(one) - ALLOWED[kind]):
        raise DefinitionError(f'"{where}" unrecognized field "{unknown}"')
    if kind == "vector":
        _validate_vector(where, one)


def _validate_vector(where: str, one: Mapping[str, Any]) -> None:
    dimensions = one.get("numDimensions")
    if dimensions is None:
        raise DefinitionError(f'"{where}.numDimensions" is required')
    if isinstance(dimensions, float) and dimensions.is_integer():
        dimensions = int(dimensions)
    if isinstance(dimensions, bool) or not isinstance(dimensions, int):
        raise DefinitionError(f'"{where}.numDimensions" must be an integer')
    if not 1 <= dimensions <= MAX_DIMENSIONS:
        raise DefinitionError(
            f'"{where}.numDimensions" must be within bounds [1..{MAX_DIMENSIONS}]'
        )
    similarity = one.get("similarity")
    if similarity is None:
        raise DefinitionError(f'"{where}.similarity" is required')
    if similarity not in SIMILARITIES:
        raise DefinitionError(f'"{where}.similarity" must be one of [{", ".join(SIMILARITIES)}]')
    quantization = one.get("quantization", "none")
    if quantization not in ("none", "scalar", "binary"):
        raise DefinitionError(f'"{where}.quantization" must be one of [none, scalar, binary]')


Namespace = tuple[str, str]
