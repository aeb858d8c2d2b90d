"""Print what `bench_methods.py` measured as tables, and draw how the cost grows.

Run: python tests/benchmarks/report.py FOLDER_FOR_THE_PICTURES RESULTS.json [MORE.json ...]
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

OURS, LEAN, BASELINE = "this backend", "without vectors", "baseline"
COUNTS = ("commands", "documents", "keys", "sent", "received")
FIGURES = {"time": "time", "received": "bytes received", "documents": "documents examined"}
LOOKS = ["oC0-", "sC1--", "^C2-.", "vC3:", "DC4-"]  # of the storages, told apart without colour
TITLES = {"memories": "Memories", "transcript": "Transcript (a tenth as many turns)"}
NOTES = """\
Counted once for each call: commands; documents and index keys examined, by explain(); bytes of the
BSON of commands and answers. Time is a median, told only as a ratio within this run, on a machine
that may do other work. An arrow leads from the smallest size to the largest.

"without vectors" is this backend with vectors_in_results=False. "baseline" is the straightforward
way on the same collection: tests/benchmarks/baseline.py. LanceDB and Qdrant are CrewAI's storages,
inside this process and without a server.

Two counts are the embedded database's and not MongoDB's. A sort with a limit reads all that the
filter lets through (list_records, and add_turn, recent_turns and count of a transcript); MongoDB
stops at the limit where an index has the order. And explain() names no index for two conditions on
one, though it is used; so each is explained alone, and the one that reads least is told.
"""

Row = dict[str, Any]
Lines = Sequence[Sequence[str]]


class Results:
    """The measurements, by call, storage and size.

    Args:
        measured: The rows, in the order of the run.
        kind: `memories` or `transcript`.
    """

    def __init__(self, measured: Iterable[Row], kind: str) -> None:
        rows = [row for row in measured if row["kind"] == kind]
        self.calls = list(dict.fromkeys(row["call"] for row in rows))
        self.storages = list(dict.fromkeys(row["storage"] for row in rows))
        self.sizes = sorted({row["size"] for row in rows})
        self._rows = {(row["call"], row["storage"], row["size"]): row for row in rows}

    def of(self, call: str, storage: str, figure: str) -> list[float | None]:
        """Return a figure at every size; None where it was not measured."""
        rows = [self._rows.get((call, storage, size), {}) for size in self.sizes]
        return [row.get(figure) for row in rows]

    def ratios(self, call: str, storage: str) -> list[float | None]:
        """Return how many times this backend's time a storage takes, at every size."""
        pairs = zip(self.of(call, storage, "time"), self.of(call, OURS, "time"), strict=True)
        return [theirs / ours if theirs and ours else None for theirs, ours in pairs]


def read(path: Path) -> list[Row]:
    """Return the measurements of a file that pytest-benchmark has written."""
    found = json.loads(path.read_text("utf-8"))["benchmarks"]
    return [{**each["extra_info"], "time": each["stats"]["median"]} for each in found]


def costs(results: Results, storage: str) -> Lines:
    """Return what each call costs on one storage, at every size."""
    rows = []
    for call in results.calls:
        counts = [_growth(results.of(call, storage, figure), _whole) for figure in COUNTS]
        times = results.of(call, storage, "time")
        growth = [time / times[0] if time and times[0] else None for time in times]
        if any(times):
            rows.append([call, *counts, _growth(growth, _short)])
    return [
        ["call", *COUNTS[:1], "documents", "keys", "bytes sent", "bytes received", "time"],
        *rows,
    ]


def comparison(results: Results) -> Lines:
    """Return the time of the others as multiples of this backend's."""
    others = [name for name in results.storages if name != OURS]
    rows = [
        [call, *(_growth(results.ratios(call, name), _short, "x") for name in others)]
        for call in results.calls
    ]
    return [["call", *others], *rows]


def markdown(lines: Lines) -> str:
    """Return lines as a Markdown table, its columns aligned."""
    header, *body = lines
    ruled = [header, ["-" * len(cell) for cell in header], *body]
    widths = [max(map(len, column)) for column in zip(*ruled, strict=True)]
    return "\n".join(
        "| "
        + " | ".join(
            c.ljust(w, line[0][0] if line[0][0] == "-" else " ")
            for c, w in zip(line, widths, strict=True)
        )
        + " |"
        for line in ruled
    )


def draw(results: Results, figure: str, title: str, path: Path) -> None:
    """Draw a figure of every call against the size, one panel for each call."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    columns = 5
    rows = -(-len(results.calls) // columns)
    drawn, panels = pyplot.subplots(
        rows, columns, figsize=(3 * columns, 2.4 * rows), sharex=True, layout="constrained"
    )
    for call, panel in zip(results.calls, panels.flat, strict=False):
        unit = results.of(call, OURS, figure)[0] or 1
        for storage, look in zip(results.storages, LOOKS, strict=False):
            values = [v / unit if v else None for v in results.of(call, storage, figure)]
            if any(values):
                panel.plot(results.sizes, values, look, label=storage)
        panel.set(title=call, xscale="log", yscale="log")
    for panel in panels.flat[len(results.calls) :]:
        panel.axis("off")
    handles, labels = panels.flat[0].get_legend_handles_labels()
    drawn.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    drawn.suptitle(title)
    drawn.savefig(path, dpi=110)
    pyplot.close(drawn)


def _growth(values: Sequence[float | None], shown: Callable[[float], str], unit: str = "") -> str:
    """Return one value if the size does not change it, else all of them."""
    texts = ["-" if value is None else shown(value) + unit for value in values]
    return texts[0] if len(set(texts)) == 1 else " → ".join(texts)


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"


def main(folder: str, *results_files: str) -> None:
    """Print the tables and write the pictures."""
    measured = [row for file in results_files for row in read(Path(file))]
    pictures = []
    for kind, title in TITLES.items():
        results = Results(measured, kind)
        sizes = ", ".join(f"{size:,}" for size in results.sizes)
        for storage in [name for name in (OURS, LEAN, BASELINE) if name in results.storages]:
            print(f"\n## {title}: {storage}, at {sizes} memories\n")
            print(markdown(costs(results, storage)))
        print(f"\n## {title}: the time of the others, {OURS} = 1\n")
        print(markdown(comparison(results)))
        for figure, name in FIGURES.items():
            path = Path(folder) / f"{kind}-{figure}.png"
            draw(results, figure, f"{title}: {name}, {OURS} at the smallest size = 1", path)
            pictures.append(path.name)
    print(f"\n{NOTES}\nPictures in {folder}: {', '.join(pictures)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
