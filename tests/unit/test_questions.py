"""Forms of questions come from servers and remote agents: an odd one must not fail a workflow."""

from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.task.data.calls import Approval, Asks, Question
from holdfast.task.people.questions import answer, question_text

ODD: list[dict[str, Any]] = [
    {"properties": 5, "required": 5},
    {"properties": {"a": 5}, "required": ["a"]},
    {"properties": {"a": {"enum": 5, "type": ["string", "null"]}}, "required": [{}, [], "a"]},
    {"properties": {"a": {"enum": {"x": 1}}}},
]


@pytest.mark.parametrize("fields", ODD, ids=str)
def test_an_odd_form_is_shown_and_answered_or_refused(fields: dict[str, Any]) -> None:
    asks = Asks(questions=(Question(key="q", message="What?", fields=fields),))
    assert question_text(asks, "t", "").startswith("Tool 't' asks: What?")
    kept: list[Approval] = []
    ledger: Any = SimpleNamespace(asked=SimpleNamespace(put=kept.append))
    refused = answer(ledger, Approval(id="t:1", kind="question", asks=asks), {"a": "x"})
    assert bool(kept) is not bool(refused)
