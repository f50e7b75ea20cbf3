"""Diffs that models write: hunks found by their context."""

import random
from collections.abc import Callable
from typing import Any

import agents
import pytest

from holdfast.agents_sdk import apply_diff


def test_hunks_are_found_by_context_one_after_the_other() -> None:
    text = "a\nb\nc\nb\nd\n"
    assert apply_diff(text, "@@\n b\n-c\n+C\n@@\n b\n-d\n+D\n") == "a\nb\nC\nb\nD\n"


def test_anchors_say_after_which_line_a_hunk_stands() -> None:
    text = "class A\n  def f\n    1\nclass B\n  def f\n    1\n"
    diff = "@@ class B\n@@   def f\n-    1\n+    2"
    assert apply_diff(text, diff) == "class A\n  def f\n    1\nclass B\n  def f\n    2\n"
    assert apply_diff("a\nb\n", "@@ nowhere\n-b\n+B") == "a\nB\n"
    with pytest.raises(ValueError, match="Invalid Anchor"):
        apply_diff(text, "@@ class C\n@@   def f\n-    1\n+    2")


def test_blanks_that_a_model_forgot_do_not_matter_and_are_kept() -> None:
    assert apply_diff("  a  \nb\n", "@@\n a\n-b\n+c") == "  a  \nc\n"


def test_line_ends_of_the_text_are_kept() -> None:
    assert apply_diff("a\r\nb\r\n", "@@\n-b\n+c") == "a\r\nc\r\n"
    assert apply_diff("a\nb\n", "@@\r\n-b\r\n+c") == "a\nc\n"
    assert apply_diff("", "+a\r\n+", mode="create") == "a\r\n"


@pytest.mark.parametrize(
    ("text", "diff", "why"),
    [
        ("a\n", "@@\n-z\n+y", "Invalid Context"),
        ("a\n", "@@\n-z\n+y\n*** End of File", "Invalid EOF Context"),
        ("a\n", "@@\n?", "Invalid Line"),
        ("a\n", "*** Move", "Invalid Line"),
        ("a\n", "@@ a", "Nothing in this section"),
    ],
)
def test_what_cannot_be_applied_is_refused(text: str, diff: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        apply_diff(text, diff)


def test_a_new_file_has_only_lines_that_are_put_in() -> None:
    assert apply_diff("", "+a\n+b\n*** End Patch", mode="create") == "a\nb"
    with pytest.raises(ValueError, match="Invalid Add File Line"):
        apply_diff("", "a", mode="create")


def outcome(apply: Callable[..., str], text: str, diff: str) -> str | None:
    """Return the text that a diff makes; None if it is refused."""
    try:
        return apply(text, diff)
    except ValueError:
        return None


def test_diffs_come_to_what_they_come_to_in_the_agents_sdk() -> None:
    chosen = random.Random(7)
    old = ["a", "b", " a", "c", "", "  b"]
    marks = ["@@", "@@ a", "@@ b", " a", "-a", "+x", "-b", " b", "", "*** End of File", "+", " c"]

    def some(lines: list[str], least: int) -> str:
        made = [chosen.choice(lines) for _ in range(chosen.randint(least, 6))]
        return "\n".join(made) + chosen.choice(["", "\n"])

    theirs: Any = agents.apply_diff
    applied = 0
    for _ in range(1000):
        text, diff = some(old, 0), some(marks, 1)
        expected = outcome(theirs, text, diff)
        assert outcome(apply_diff, text, diff) == expected, (text, diff)
        applied += expected is not None
    assert applied > 125
