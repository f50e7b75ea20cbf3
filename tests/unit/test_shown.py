"""How errors show what they were given."""

from typing import Any

from holdfast.values.text.shown import shown


class Odd:
    def __repr__(self) -> str:
        return "<a\ud800b>"


def deep(levels: int) -> Any:
    found: Any = "end"
    for _ in range(levels):
        found = [found]
    return found


def test_a_long_value_is_shown_by_its_beginning() -> None:
    assert shown("x" * 500) == repr("x" * 80) + "..."
    assert len(shown(list(range(500)))) == 80


def test_a_value_too_deep_for_repr_is_shown_by_its_type() -> None:
    assert shown(deep(100_000)) == "<list that cannot be shown>"


def test_what_is_shown_can_be_printed() -> None:
    assert shown(Odd()) == "<a\\ud800b>"
    assert shown("a\ud800b") == r"'a\ud800b'"
