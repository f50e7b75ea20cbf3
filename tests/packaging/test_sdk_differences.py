"""The list of differences from the Agents SDK agrees with what its own tests have shown.

The SDK's tests are not run here (see tests/support/sdk_differences.py): this holds that the record
of their last run and the page for users say the same, and that the comparison with a run works.
"""

import json
from pathlib import Path

from tests.support import sdk_differences
from tests.support.sdk_differences import COUNT, PAGE, Differences, compared, entries

KNOWN = Differences.read()
ENTRIES = entries(PAGE.read_text("utf-8"))


def entries_of(words: str) -> list[str]:
    return [entry for entry in ENTRIES if words in entry]


def test_what_fails_names_one_entry_of_the_page_and_each_entry_is_named_once() -> None:
    named = [*KNOWN.listed, *KNOWN.untested]
    assert {words: entries_of(words) for words in named if len(entries_of(words)) != 1} == {}
    assert sorted(entry for words in named for entry in entries_of(words)) == sorted(ENTRIES)


def test_each_test_stands_once_and_each_group_has_some() -> None:
    tests = KNOWN.tests()
    assert sorted(set(tests)) == sorted(tests)
    assert all([*KNOWN.listed.values(), *KNOWN.not_of_users.values()])


def test_page_says_how_many_failures_are_not_explained() -> None:
    said = COUNT.search(PAGE.read_text("utf-8"))
    assert said is not None
    assert int(said[1]) == len(KNOWN.unlisted)


def test_a_run_that_differs_is_told(tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"

    def ran(**changed: str) -> list[str]:
        outcomes = dict.fromkeys(KNOWN.tests(), "failed") | changed
        lines = [json.dumps({"test": test, "outcome": what}) for test, what in outcomes.items()]
        results.write_text("\n".join(lines), "utf-8")
        return compared(results)

    one = KNOWN.tests()[0]
    name = sdk_differences.DATA.name
    assert ran() == []
    assert ran(new="failed") == [f"fails, and is not in {name}: new"]
    assert ran(**{one: "passed"}) == [f"passes; take it out of {name}: {one}"]
    assert ran(**{one: "private"}) == [f"was not run: {one}"]
