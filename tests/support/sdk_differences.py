"""Which tests of the Agents SDK fail on Holdfast, and which listed difference each failure is.

The SDK's tests do not run here: they need its checkout, and a package `agents` that has Holdfast's
names. A run of them writes a line of JSON for each test, `{"test": "tests/test_x.py::test_y",
"outcome": "failed"}`, and `make sdk-differences RESULTS=file` holds that against
sdk_differences.json. What the file says of a test is as old as the last such run.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "sdk_differences.md"
DATA = Path(__file__).with_name("sdk_differences.json")
HEADINGS = ("## Known differences from the SDK", "## Not here")
ITEM = re.compile(r"^\* (.*(?:\n  .*)*)", re.MULTILINE)
COUNT = re.compile(r"(\d+) of the SDK's tests fail without an\s+entry below", re.MULTILINE)


@dataclass
class Differences:
    """What fails.

    Attributes:
        listed: Words of one entry of the page, to the tests that fail for it.
        untested: Words of the entries that no test of the SDK shows.
        not_of_users: Why a failure is no difference that a user meets, to the tests.
        unlisted: Tests that fail for a reason that is not listed, or not known yet.
    """

    listed: dict[str, list[str]]
    untested: list[str]
    not_of_users: dict[str, list[str]]
    unlisted: list[str]

    @classmethod
    def read(cls) -> Differences:
        """Read the file."""
        return cls(**json.loads(DATA.read_text("utf-8")))

    def tests(self) -> list[str]:
        """Return all tests of the file; one that stands twice is there twice."""
        groups = [*self.listed.values(), *self.not_of_users.values(), self.unlisted]
        return [test for group in groups for test in group]


def entries(page: str) -> list[str]:
    """Return the items of the page's lists of differences, each in one line."""
    parts = (page.partition(f"{heading}\n")[2].partition("\n## ")[0] for heading in HEADINGS)
    items = [item for part in parts for item in ITEM.findall(part)]
    return [" ".join(item.split()) for item in items]


def failed(results: Path) -> tuple[set[str], set[str]]:
    """Return the tests of a run that failed, and all that ran; the last line of a test holds."""
    outcomes: dict[str, str] = {}
    for line in results.read_text("utf-8").splitlines():
        result = json.loads(line)
        outcomes[result["test"]] = result["outcome"]
    ran = {test for test, outcome in outcomes.items() if outcome in ("passed", "failed")}
    return {test for test in ran if outcomes[test] == "failed"}, ran


def compared(results: Path) -> list[str]:
    """Say where a run differs from the file."""
    fails, ran = failed(results)
    known = set(Differences.read().tests())
    new = [f"fails, and is not in {DATA.name}: {test}" for test in sorted(fails - known)]
    over = [f"passes; take it out of {DATA.name}: {test}" for test in sorted(known & ran - fails)]
    gone = [f"was not run: {test}" for test in sorted(known - ran)]
    return [*new, *over, *gone]


if __name__ == "__main__":
    found = compared(Path(sys.argv[1]))
    sys.exit("\n".join(found) or 0)
