"""Diffs that models write: hunks found by their context."""

import random
from collections.abc import Callable
from typing import Any

import agents
import pytest

from holdfast.agents_sdk import apply_diff

CLASSES = "class A\n  def f\n    1\nclass B\n  def f\n    1\n"


def outcome(apply: Callable[..., str], *given: str) -> str | None:
    """Return the text that a diff makes; None if it is refused."""
    try:
        return apply(*given)
    except ValueError:
        return None


@pytest.mark.parametrize(
    ("text", "diff", "made"),
    [
        ("a\nb\nc\nb\nd\n", "@@\n b\n-c\n+C\n@@\n b\n-d\n+D\n", "a\nb\nC\nb\nD\n"),
        (CLASSES, "@@ class B\n@@   def f\n-    1\n+    2", CLASSES[:-6] + "    2\n"),
        ("a\nb\n", "@@ nowhere\n-b\n+B", "a\nB\n"),
        (CLASSES, "@@ class C\n@@   def f\n-    1\n+    2", "Invalid Anchor"),
        ("  a  \nb\n", "@@\n a\n-b\n+c", "  a  \nc\n"),
        ("a\r\nb\r\n", "@@\n-b\n+c", "a\r\nc\r\n"),
        ("a\nb\n", "@@\r\n-b\r\n+c", "a\nc\n"),
        ("", "+a\r\n+", "a\r\n"),
        ("", "+a\n+b\n*** End Patch", "a\nb"),
        ("", "a", "Invalid Add File Line"),
        ("a\n", "@@\n-z\n+y", "Invalid Context"),
        ("a\n", "@@\n-z\n+y\n*** End of File", "Invalid EOF Context"),
        ("a\n", "@@\n?", "Invalid Line"),
        ("a\n", "*** Move", "Invalid Line"),
        ("a\n", "@@ a", "Nothing in this section"),
    ],
)
def test_a_diff_is_applied_or_refused_as_in_the_agents_sdk(text: str, diff: str, made: str) -> None:
    mode: Any = "default" if text else "create"
    theirs = outcome(agents.apply_diff, text, diff, mode)
    if theirs is not None:
        assert apply_diff(text, diff, mode) == theirs == made
        return
    with pytest.raises(ValueError, match=made):
        apply_diff(text, diff, mode)


def test_diffs_come_to_what_they_come_to_in_the_agents_sdk() -> None:
    chosen = random.Random(7)
    old = ["a", "b", " a", "c", "", "  b"]
    marks = ["@@", "@@ a", "@@ b", " a", "-a", "+x", "-b", " b", "", "*** End of File", "+", " c"]

    def some(lines: list[str], least: int) -> str:
        made = [chosen.choice(lines) for _ in range(chosen.randint(least, 6))]
        return "\n".join(made) + chosen.choice(["", "\n"])

    applied = 0
    for _ in range(1000):
        text, diff = some(old, 0), some(marks, 1)
        expected = outcome(agents.apply_diff, text, diff)
        assert outcome(apply_diff, text, diff) == expected, (text, diff)
        applied += expected is not None
    assert applied > 125
