"""docs/handoffs.md and examples/handoffs.py do what they say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.live.test_examples import ROOT, printed_by

PAGE = (ROOT / "docs" / "handoffs.md").read_text(encoding="utf-8")
CASES = re.findall(
    r"^```python\n(.*?)^```\n\nPrints:\n\n```\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL
)


def test_every_block_of_the_page_is_run() -> None:
    assert len(CASES) == PAGE.count("```python") == 2


@pytest.mark.parametrize(("code", "output"), CASES)
def test_a_block_of_the_page_prints_what_it_says(tmp_path: Path, code: str, output: str) -> None:
    program = tmp_path / "block.py"
    program.write_text(code, encoding="utf-8")
    assert printed_by(str(program), tmp_path) == output


def test_the_example_hands_over_and_goes_back_across_it(tmp_path: Path) -> None:
    answer = "Answer: I am sorry. 40 euros for order 7 are on their way."
    told = "  [books] desk handed over order 7, angry"
    assert printed_by("handoffs.py", tmp_path).splitlines() == [
        told,
        answer,
        told,
        "Next: refunds",
        "After the undo: desk",
        told,
        answer,
        "  desk: find_order",
        "  desk: transfer_to_refunds",
        "  refunds: refund",
        "  refunds: answer",
    ]
