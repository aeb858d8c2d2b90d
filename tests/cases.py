"""The known cases and the tests that hold them: `python -m tests.cases` writes the table.

Runs every test named after a case (`test_A1_...`), and writes id, where the case can be tested,
test and result into `tests/README.md`, between the two marks. Exits with 1 if a case that can be
tested here has no passing test.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from pathlib import Path

import pytest

README = Path(__file__).parent / "README.md"
BEGIN, END = "<!-- cases: begin -->", "<!-- cases: end -->"

# O: on the embedded database. P: the shape of the request here, the server's behaviour on Atlas.
# N: needs Atlas, Colab or a network; the procedure is in README.md.
CASES = {
    "O": (
        "A1 A2 A3 A4 A6 A7 A8 A10 A12 A13 A14 A16 A17 A19 A20 A21 A22 A24 A25 A27 A29 A30 A32 A35 "
        "B4 B5 B6 B9 B10 B11 B12 B18 B20 B21 B24 B27 C2 C3 C4 C6 C7 D1 D3 D5 D7 D11 D12 "
        "E3 E4 E5 E8 E11 F1 F2 F3 F4 F8 F9 F11 F13 F15"
    ),
    "P": "A31 B1 B2 B7 B17 B19 B23 D13 E1",
    "N": "B15 B16 B25 B29 F7",
}
WHERE = {case: where for where, cases in CASES.items() for case in cases.split()}
TEST = re.compile(r"::test_([A-F]\d+)_\w+")


class Cases:
    """A pytest plugin that runs the tests of cases alone and notes how they end."""

    def __init__(self) -> None:
        self.results: dict[str, dict[str, str]] = defaultdict(dict)

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        chosen = [item for item in items if TEST.search(item.nodeid)]
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = chosen

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call" and report.outcome == "passed":
            return
        case = TEST.search(report.nodeid).group(1)  # type: ignore[union-attr]
        test = report.nodeid.partition("[")[0]
        worst = self.results[case].get(test, "passed")
        self.results[case][test] = report.outcome if worst == "passed" else worst


def table(results: dict[str, dict[str, str]]) -> str:
    """Return the Markdown table of all cases."""
    rows = ["| case | where | test | result |", "|---|---|---|---|"]
    for case in sorted(WHERE, key=lambda name: (name[0], int(name[1:]))):
        tests = sorted(results.get(case, {}).items()) or [("", "by hand: see below")]
        for test, outcome in tests:
            path, _, name = test.partition("::")
            shown = f"`{path.removeprefix('tests/')}` `{name}`" if test else ""
            rows.append(f"| {case} | {WHERE[case]} | {shown} | {outcome} |")
    return "\n".join(rows)


def lacking(results: dict[str, dict[str, str]]) -> list[str]:
    """Return the cases that can be tested here and have no test, or one that does not pass."""
    return [
        case
        for case, where in WHERE.items()
        if (where != "N" and not results.get(case))
        or not set(results.get(case, {}).values()) <= {"passed"}
    ]


def main() -> int:
    """Run the tests of the cases and write the table."""
    cases = Cases()
    pytest.main(["-q", "--no-header", str(Path(__file__).parent)], plugins=[cases])
    text = README.read_text() if README.exists() else f"# Tests\n\n{BEGIN}\n{END}\n"
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    README.write_text(f"{before}{BEGIN}\n{table(cases.results)}\n{END}{after}")
    if missing := lacking(cases.results):
        print(f"Without a passing test: {', '.join(missing)}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
