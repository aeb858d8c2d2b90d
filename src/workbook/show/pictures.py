"""Pictures that carry their description, in colours that everybody can tell apart."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from workbook.show.markup import literal

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's palette, told apart in every common form of colour blindness.
ORANGE, SKY, GREEN, BLUE, VERMILION = "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00"
YELLOW, GREY = "#F0E442", "#6E6E6E"
# Light enough for black figures on them, and told apart without colour by their hatching.
PARTS = [(SKY, ""), (ORANGE, "//"), (YELLOW, ".."), (GREEN, "xx")]


class Picture:
    """A drawn figure with a text that says the same, for those who cannot see it.

    The text is the image's alternative text and stands under it as a caption.
    """

    def __init__(self, png: bytes, alt: str) -> None:
        self.png = png
        self.alt = alt

    def __repr__(self) -> str:
        return self.alt

    def _ipython_display_(self) -> None:
        from IPython.display import display

        data = {"image/png": self.png, "text/plain": self.alt}
        display(data, metadata={"image/png": {"alt": self.alt}}, raw=True)  # type: ignore[no-untyped-call]
        caption = {
            "text/html": f"<p><small>{literal(self.alt)}</small></p>",
            "text/plain": self.alt,
        }
        display(caption, raw=True)  # type: ignore[no-untyped-call]


def blank(width: float, height: float) -> Any:
    """Return the axes of a new figure. Only what draws imports matplotlib, which takes a while."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height)).subplots()


def picture(figure: Figure, alt: str) -> Picture:
    """Turn a matplotlib figure into a picture with a description.

    Args:
        figure: A `matplotlib.figure.Figure`, with its title, units and legend.
        alt: What it shows, in a sentence or two.
    """
    buffer = io.BytesIO()
    # No software version inside: the same picture is the same bytes.
    figure.savefig(
        buffer,
        format="png",
        dpi=110,
        bbox_inches="tight",
        facecolor="white",
        metadata={"Software": None},
    )
    return Picture(buffer.getvalue(), alt)


def bars(values: Mapping[str, float], *, title: str, unit: str) -> Picture:
    """Draw one horizontal bar for each value, the first at the top, each labelled with its value.

    Args:
        values: The values by name; counts, bytes, or whatever `unit` says.
        title: What is compared.
        unit: What the axis counts, such as `"documents examined"`.
    """
    axes = _bar_axes(len(values), title, unit)
    names, numbers = list(values), list(values.values())
    drawn = axes.barh(names, numbers, color=BLUE)
    axes.bar_label(drawn, labels=[_count(number) for number in numbers], padding=4)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.margins(x=0.15)
    said = "; ".join(f"{name} {_count(value)}" for name, value in values.items())
    return picture(axes.figure, f"{title}, in {unit}: {said}.")


def stacked(rows: Mapping[str, Mapping[str, float]], *, title: str, unit: str) -> Picture:
    """Draw sums as horizontal bars, each made of its parts, the first row at the top.

    Args:
        rows: The parts of each sum by name; every row has the same parts, four at most.
        title: What is compared.
        unit: What the axis counts, such as `"score"`.
    """
    axes = _bar_axes(len(rows), title, unit)
    ends = [0.0] * len(rows)
    for part, (colour, hatch) in zip(next(iter(rows.values())), PARTS, strict=False):
        sizes = [row[part] for row in rows.values()]
        look = {"color": colour, "hatch": hatch, "edgecolor": "white"}
        drawn = axes.barh(list(rows), sizes, left=ends, label=part, **look)
        written = [f"{size:.2f}" if size else "" for size in sizes]
        for label in axes.bar_label(drawn, labels=written, label_type="center"):
            label.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 1})
        ends = [end + size for end, size in zip(ends, sizes, strict=True)]
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.9 / len(rows)), ncols=4, frameon=False)
    said = "; ".join(f"{name.rstrip('.')} {end:.2f}" for name, end in zip(rows, ends, strict=True))
    return picture(axes.figure, f"{title}, in {unit}: {said}.")


def _bar_axes(count: int, title: str, unit: str) -> Any:
    axes = blank(7.5, 0.8 + 0.5 * count)
    axes.set(title=title, xlabel=unit)
    axes.invert_yaxis()
    plain(axes)
    return axes


def plain(axes: Any) -> None:
    """Take away the lines of a plot that say nothing."""
    axes.spines[["top", "right"]].set_visible(False)


def _count(number: float) -> str:
    return f"{number:,.0f}" if float(number).is_integer() else f"{number:,.2f}"
