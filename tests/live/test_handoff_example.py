"""examples/handoffs.py does what it says."""

from __future__ import annotations

from pathlib import Path

from tests.live.test_examples import printed_by


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
