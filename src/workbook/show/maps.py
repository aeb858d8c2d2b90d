"""A map of an embedding space: what lies near what, and what a search saw of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox
from numpy.typing import NDArray

from workbook.show.hits import field, scored
from workbook.show.pictures import BLUE, GREY, ORANGE, VERMILION, Picture, picture, plain

Vectors = NDArray[np.float64]
QUERY: dict[str, Any] = {
    "marker": "*",
    "s": 320,
    "c": VERMILION,
    "edgecolors": "black",
    "zorder": 3,
}
# Where a name may stand beside its point, in points of 1/72 inch; the first that is free.
SPOTS = [("left", (7, 4)), ("left", (7, -10)), ("right", (-7, 4)), ("right", (-7, -10))]


def embedding_map(
    records: Iterable[Any],
    *,
    query: Sequence[float] | None = None,
    hits: Iterable[Any] = (),
    filtered_out: Callable[[Any], bool] | None = None,
    label: Callable[[Any], str] | None = None,
    title: str = "The memories, by meaning",
) -> Picture:
    """Draw vectors in two dimensions, with a query, its hits and what a filter removed.

    The two axes are the principal components of the records: the plane in which they differ
    most. Distances in it are a shadow of the real ones, so a hit may look farther than a miss.

    Args:
        records: Records or documents with an `embedding`; those without are left out.
        query: The query's vector.
        hits: What the search returned, in any form that `show.hits()` takes.
        filtered_out: Says of a record whether the filter removed it before the search.
        label: The name to write beside a record; the default is the first words of its content.
        title: What the map shows.
    """
    found = [record for record in records if _has_vector(record)]
    if len(found) < 3:
        raise ValueError(f"A map needs three records with an embedding; there are {len(found)}.")
    ranks = {_key(scored(hit)[0]): rank for rank, hit in enumerate(hits, 1)}
    named = label or _first_words
    points = [
        Point(named(record), ranks.get(_key(record)), bool(filtered_out and filtered_out(record)))
        for record in found
    ]
    vectors = np.array([field(record, "embedding") for record in found], dtype=float)
    figure = _draw(points, vectors, None if query is None else np.array(query, dtype=float), title)
    return picture(figure, _described(title, points))


@dataclass
class Point:
    """One record on the map: its name, its rank among the hits, whether a filter removed it."""

    name: str
    rank: int | None
    removed: bool


def _has_vector(record: Any) -> bool:
    vector = field(record, "embedding")
    return vector is not None and len(vector) > 0


def _key(record: Any) -> Any:
    return field(record, "_id") or field(record, "id")


def _first_words(record: Any) -> str:
    text = str(field(record, "name") or field(record, "content") or _key(record))
    return text if len(text) <= 28 else text[:27].rstrip() + "…"


def _principal_plane(vectors: Vectors) -> tuple[Vectors, Vectors, Vectors]:
    """Return the centre, the two principal directions and their shares of the variance."""
    centre = vectors.mean(axis=0)
    _, lengths, directions = np.linalg.svd(vectors - centre, full_matrices=False)
    plane = directions[:2]
    # A direction's sign is arbitrary; fixing it keeps the map the right way up on every machine.
    signs = np.sign(plane[np.arange(2), np.abs(plane).argmax(axis=1)])
    return centre, plane * signs[:, None], lengths[:2] ** 2 / (lengths**2).sum()


def _draw(points: list[Point], vectors: Vectors, query: Vectors | None, title: str) -> Figure:
    centre, plane, shares = _principal_plane(vectors)
    at = (vectors - centre) @ plane.T
    figure = Figure(figsize=(8.5, 6))
    axes = figure.subplots()
    _draw_groups(axes, at, points)
    axes.margins(0.12)
    if query is not None:
        axes.scatter(*((query - centre) @ plane.T)[:, None], label="query", **QUERY)
    axis = "principal component {} ({:.0%} of the variance)"
    axes.set(title=title, xlabel=axis.format(1, shares[0]), ylabel=axis.format(2, shares[1]))
    _write_names(axes, points, at)
    plain(axes)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=4, frameon=False)
    return figure


def _draw_groups(axes: Any, at: Vectors, points: list[Point]) -> None:
    hit = np.array([point.rank is not None for point in points])
    removed = np.array([point.removed for point in points])
    looks = [
        (~hit & ~removed, {"marker": "o", "s": 46, "c": BLUE, "label": "not among the hits"}),
        (removed & ~hit, {"marker": "x", "s": 46, "c": GREY, "label": "removed by the filter"}),
        (hit, {"marker": "D", "s": 80, "c": ORANGE, "edgecolors": "black", "label": "hit"}),
    ]
    for chosen, look in looks:
        if chosen.any():
            axes.scatter(at[chosen, 0], at[chosen, 1], **look)


def _write_names(axes: Any, points: list[Point], at: Vectors) -> None:
    """Write each name beside its point, hits first, where it covers no other name and no point."""
    taken = [Bbox.from_bounds(x - 6, y - 6, 12, 12) for x, y in axes.transData.transform(at)]
    order = sorted(range(len(points)), key=lambda n: (points[n].rank is None, points[n].rank))
    for point, place in ((points[n], at[n]) for n in order):
        text = f"{point.rank}. {point.name}" if point.rank else point.name
        look = {"color": "black", "fontweight": "bold"} if point.rank else {"color": GREY}
        for spot, (side, offset) in enumerate(SPOTS):
            note = axes.annotate(
                text, place, xytext=offset, textcoords="offset points", ha=side, fontsize=8, **look
            )
            box = note.get_window_extent()
            if not any(box.overlaps(other) for other in taken) or spot == len(SPOTS) - 1:
                taken.append(box)
                break
            note.remove()


def _described(title: str, points: list[Point]) -> str:
    said = [f"{title}: {len(points)} vectors in the plane of their two principal components."]
    hits = sorted((point for point in points if point.rank), key=lambda point: point.rank or 0)
    if hits:
        said.append(f"The hits, best first: {', '.join(point.name for point in hits)}.")
    removed = sum(point.removed for point in points)
    if removed:
        said.append(f"Removed by the filter: {removed}.")
    return " ".join(said)
