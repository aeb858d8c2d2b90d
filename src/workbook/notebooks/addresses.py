"""The project's address: written in one place, rewritten everywhere by one command.

`pyproject.toml` names the repository. The notebooks' Colab badges, the clone address in their
set-up cells and the links of the README files repeat it; `move()` changes them all.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from workbook import paths

SLUG = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*/[A-Za-z0-9_.-]+")
HOST = "https://github.com/"
BADGE_IMAGE = "https://colab.research.google.com/assets/colab-badge.svg"


class AddressError(ValueError):
    """A repository's name that cannot be used; the message says what to write."""


def repository(project: Path = paths.PROJECT) -> str:
    """Return the project's `OWNER/NAME`, from the one place that decides it."""
    settings = tomllib.loads((project / "pyproject.toml").read_text("utf-8"))
    return str(settings["project"]["urls"]["Repository"]).removeprefix(HOST).removesuffix(".git")


def clone_address(slug: str | None = None) -> str:
    """Return the address that `git clone` fetches the project from."""
    return f"{HOST}{slug or repository()}"


def badge(name: str, slug: str | None = None) -> str:
    """Return the Markdown of the badge that opens a notebook in Colab.

    Args:
        name: The notebook's file name, such as `00_start_here.ipynb`.
        slug: `OWNER/NAME`; the default is the project's own.
    """
    colab = f"https://colab.research.google.com/github/{slug or repository()}"
    return f"[![Open in Colab]({BADGE_IMAGE})]({colab}/blob/main/notebooks/{name})"


def move(slug: str, project: Path = paths.PROJECT) -> list[Path]:
    """Rewrite every badge, clone address and link for another repository, such as a fork.

    Args:
        slug: The new `OWNER/NAME`.
        project: The project's folder.

    Returns:
        The files that changed.

    Raises:
        AddressError: When `slug` is not of the form `OWNER/NAME`; nothing is changed then.
    """
    if not SLUG.fullmatch(slug):
        raise AddressError(
            f"A repository is named OWNER/NAME, as in acme/agent-memory; not {slug!r}."
        )
    old, changed = repository(project), []
    for path in _files(project):
        before = path.read_text("utf-8")
        after = re.sub(rf"(?<=/){re.escape(old)}(?![A-Za-z0-9_-])", slug, before)
        if after != before:
            path.write_text(after, "utf-8")
            changed.append(path)
    return changed


def _files(project: Path) -> Iterator[Path]:
    yield from sorted((project / "notebooks").glob("*.ipynb"))
    for name in ("pyproject.toml", "README.md", "notebooks/README.md"):
        if (project / name).exists():
            yield project / name
