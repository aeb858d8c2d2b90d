"""A folder of its own for each notebook that runs unattended.

As a pytest plugin (`-p workbook.notebooks.isolation`) it gives each notebook that nbmake runs an
empty embedded database, so that notebooks run in any order and in parallel.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Any

import pytest

from workbook.notebooks.homes import environment, own_home


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Run an nbmake item with `WORKBOOK_HOME` set to a folder of its own."""
    if not getattr(item, "nbmake", False):
        return (yield)
    with own_home() as home:
        chosen = environment(home)
        before = {name: os.environ.get(name) for name in chosen}
        os.environ |= chosen
        try:
            return (yield)
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})
