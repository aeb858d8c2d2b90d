"""A progress bar that reads well live and in a saved notebook."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

from tqdm import tqdm

T = TypeVar("T")
FORMAT = "{desc}: {percentage:3.0f}% {bar} {n_fmt} of {total_fmt}"  # no seconds: a rerun is equal


def progress(items: Iterable[T], text: str, total: int | None = None) -> Iterator[T]:
    """Go through items with a progress bar.

    Args:
        items: What to go through.
        text: What is being done, such as `"writing memories"`.
        total: How many there are, when `items` cannot say.
    """
    yield from tqdm(items, text, total, file=sys.stdout, bar_format=FORMAT, ncols=80)
