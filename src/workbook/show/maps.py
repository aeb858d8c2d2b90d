"""A map of an embedding space: what lies near what, and what a search saw of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from workbook.show.hits import field, scored
from workbook.show.pictures import BLUE, GREY, ORANGE, VERMILION, Picture, blank, picture, plain

if TYPE_CHECKING:
    from matplotlib.transforms import Bbox

Vectors = NDArray[np.float64]
QUERY: dict[str, Any] = {
    "marker": "*",
    "s": 320,
    "c": VERMILION,
    "edgecolors": "black",
    "zorder": 3,
}
# Where a name may stand beside its point, in points of 1/72 inch, the most pleasing first.
SPOTS = [
    *(("left", (7, 4)), ("left", (7, -10)), ("right", (-7, 4)), ("right", (-7, -10))),
    *(("left", (8, -3)), ("right", (-8, -3)), ("center", (0, 8)), ("center", (0, -15))),
]


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
    points, vectors = _points(records, hits, filtered_out, label)
    centre, plane, shares = _principal_plane(vectors)
    axis = "principal component {} ({:.0%} of the variance)"
    axes = _axes(title, axis.format(1, shares[0]), axis.format(2, shares[1]))
    at = (vectors - centre) @ plane.T
    star = np.empty((0, 2))
    if query is not None:
        star = ((np.array(query, dtype=float) - centre) @ plane.T)[None, :]
        axes.scatter(*star.T, label="query", **QUERY)
    _draw(axes, points, at, star)
    said = f"{len(points)} vectors in the plane of their two principal components."
    return picture(axes.figure, " ".join([_sentence(title), said, *_described(points)]))


def similarity_map(
    records: Iterable[Any],
    *,
    query: Sequence[float],
    hits: Iterable[Any] = (),
    filtered_out: Callable[[Any], bool] | None = None,
    label: Callable[[Any], str] | None = None,
    title: str = "The memories, as the query sees them",
) -> Picture:
    """Draw vectors by their similarity to a query, which is all that a search looks at.

    Farther to the right is closer in meaning to the query. Upwards is the direction in which the
    records differ most besides, so that like stands beside like. A dashed line marks the score of
    the last hit: what a filter removed may lie to its right, everything else there was returned.

    Args:
        records: As in `embedding_map()`.
        query: The query's vector.
        hits: As in `embedding_map()`.
        filtered_out: As in `embedding_map()`.
        label: As in `embedding_map()`.
        title: What the map shows.
    """
    points, vectors = _points(records, hits, filtered_out, label)
    vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    towards = np.array(query, dtype=float) / np.linalg.norm(np.array(query, dtype=float))
    similarity = vectors @ towards
    besides = vectors - similarity[:, None] * towards
    centre, plane, _ = _principal_plane(besides)
    axes = _axes(title, "cosine similarity to the query", "what else sets them apart (no unit)")
    last = [score for score, point in zip(similarity, points, strict=True) if point.rank]
    if last:
        axes.axvline(
            min(last), color=GREY, linestyle="--", linewidth=1, zorder=0, label="the last hit"
        )
    _draw(axes, points, np.column_stack([similarity, (besides - centre) @ plane[0]]))
    said = f"{len(points)} vectors by their similarity to the query."
    return picture(axes.figure, " ".join([_sentence(title), said, *_described(points)]))


@dataclass
class Point:
    """One record on the map: its name, its rank among the hits, whether a filter removed it."""

    name: str
    rank: int | None
    removed: bool


def _points(
    records: Iterable[Any],
    hits: Iterable[Any],
    filtered_out: Callable[[Any], bool] | None,
    label: Callable[[Any], str] | None,
) -> tuple[list[Point], Vectors]:
    found = [record for record in records if _has_vector(record)]
    if len(found) < 3:
        raise ValueError(f"A map needs three records with an embedding; there are {len(found)}.")
    ranks = {_key(scored(hit)[0]): rank for rank, hit in enumerate(hits, 1)}
    named = label or _first_words
    points = [
        Point(named(record), ranks.get(_key(record)), bool(filtered_out and filtered_out(record)))
        for record in found
    ]
    return points, np.array([field(record, "embedding") for record in found], dtype=float)


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


def _axes(title: str, horizontal: str, vertical: str) -> Any:
    axes = blank(8.5, 6)
    axes.set(title=title, xlabel=horizontal, ylabel=vertical)
    axes.margins(0.14, 0.12)
    plain(axes)
    return axes


def _draw(axes: Any, points: list[Point], at: Vectors, besides: Vectors | None = None) -> None:
    """Draw points and their names; `besides` are places that no name should cover."""
    _draw_groups(axes, at, points)
    _write_names(axes, points, at, at if besides is None else np.vstack([at, besides]))
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=4, frameon=False)


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


def _write_names(axes: Any, points: list[Point], at: Vectors, marks: Vectors) -> None:
    """Write each name beside its point, hits first, where it covers least of what is there."""
    from matplotlib.transforms import Bbox

    axes.autoscale_view()  # pixels are known only once the limits are
    taken = [Bbox.from_bounds(x - 6, y - 6, 12, 12) for x, y in axes.transData.transform(marks)]
    order = sorted(range(len(points)), key=lambda n: (points[n].rank is None, points[n].rank))
    for point, place in ((points[n], at[n]) for n in order):
        tried = [_name(axes, point, place, side, offset) for side, offset in SPOTS]
        boxes = [note.get_window_extent() for note in tried]
        covers = [sum(map(box.overlaps, taken)) + _leaves(box, axes.bbox) for box in boxes]
        best = covers.index(min(covers))
        taken.append(boxes[best])
        for note in tried[:best] + tried[best + 1 :]:
            note.remove()


def _leaves(box: Bbox, axes: Bbox) -> int:
    """Return how many axes a name crosses: left of one and below the other stand the ticks."""
    return int(box.x0 < axes.x0) + int(box.y0 < axes.y0)


def _name(axes: Any, point: Point, place: Vectors, side: str, offset: tuple[int, int]) -> Any:
    from matplotlib.patheffects import withStroke

    text = f"{point.rank}. {point.name}" if point.rank else point.name
    look = {"color": "black", "fontweight": "bold"} if point.rank else {"color": GREY}
    note = axes.annotate(
        text, place, xytext=offset, textcoords="offset points", ha=side, fontsize=8, **look
    )
    note.set_path_effects([withStroke(linewidth=2.5, foreground="white")])
    return note


def _sentence(title: str) -> str:
    return title if title[-1:] in {".", "?", "!"} else f"{title}."


def _described(points: list[Point]) -> Iterator[str]:
    hits = sorted((point for point in points if point.rank), key=lambda point: point.rank or 0)
    if hits:
        yield f"The hits, best first: {', '.join(point.name for point in hits)}."
    removed = sum(point.removed for point in points)
    if removed:
        yield f"Removed by the filter: {removed}."
