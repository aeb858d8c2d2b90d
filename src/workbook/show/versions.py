"""Which versions a run uses."""

import platform
from importlib.metadata import version

PACKAGES = {"CrewAI": "crewai", "pymongo": "pymongo", "numpy": "numpy", "pandas": "pandas"}


def versions() -> str:
    """Return one line with the versions of Python and of the packages that matter here."""
    found = [f"{name} {version(package)}" for name, package in PACKAGES.items()]
    return " · ".join([f"Python {platform.python_version()}", *found])
