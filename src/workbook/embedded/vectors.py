"""Vectors as documents and queries hold them, and how near they are.

Score formulas are those of Atlas's documentation, "Atlas Vector Search Score".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from bson.binary import VECTOR_SUBTYPE, Binary, BinaryVectorDtype

from workbook.embedded import values
from workbook.embedded.definitions import VectorField

Floats = npt.NDArray[np.float32]

BYTES = {BinaryVectorDtype.FLOAT32.value: "<f4", BinaryVectorDtype.INT8.value: "i1"}

FLOAT, INT8 = 1, 2


def kind(value: Any) -> int:
    """Return which vectors a vector can be compared with: those of floats, or those of int8."""
    is_int8 = isinstance(value, Binary) and value[:1] == BinaryVectorDtype.INT8.value
    return INT8 if is_int8 else FLOAT


def from_value(value: Any) -> Floats | None:
    """Return a vector given as an array of numbers or as BinData, None for anything else."""
    if isinstance(value, Binary):
        return _from_binary(value)
    if not isinstance(value, list) or not value:
        return None
    if not all(type(one) is float for one in value) and not all(
        isinstance(one, int | float) and not isinstance(one, bool) for one in value
    ):
        return None
    with np.errstate(over="ignore"):
        vector = np.array(value, np.float32)
    return vector if np.isfinite(vector).all() else None


def _from_binary(value: Binary) -> Floats | None:
    if value.subtype != VECTOR_SUBTYPE or len(value) < 2:
        return None
    kind = BYTES.get(bytes(value[:1]))
    # The second byte counts padding bits, which these types do not have.
    if kind is None or value[1] or (len(value) - 2) % np.dtype(kind).itemsize:
        return None
    vector = np.frombuffer(bytes(value[2:]), kind).astype(np.float32)
    return vector if np.isfinite(vector).all() else None


def from_document(document: Mapping[str, Any], field: VectorField) -> tuple[Floats, int] | None:
    """Return a document's vector for a field as it is kept, and its kind, or None without one.

    Not indexed are a missing or null vector, one of another length, with anything but finite
    numbers in it, and for cosine one without a direction.
    """
    found = list(values.at_path(document, field.path))
    vector = from_value(found[0]) if len(found) == 1 else None
    if vector is None or len(vector) != field.dimensions:
        return None
    kept = unit(vector) if field.similarity == "cosine" else vector
    return None if kept is None else (kept, kind(found[0]))


def unit(vector: Floats) -> Floats | None:
    """Return a vector scaled to length 1, or None for one of length 0."""
    length = np.linalg.norm(vector.astype(np.float64))
    return (vector / length).astype(np.float32) if length else None


def scores(similarity: str, matrix: Floats, query: Floats) -> Floats:
    """Return the score of each row against a query; for cosine both are of length 1."""
    if similarity == "euclidean":
        squares = np.einsum("ij,ij->i", matrix, matrix) - 2 * (matrix @ query) + query @ query
        result = 1 / (1 + np.sqrt(np.maximum(squares, 0)))
    else:
        result = (1 + matrix @ query) / 2
    return np.asarray(result, np.float32)
