"""Final outputs that are written otherwise than asked for, and what they can only mean."""

import re
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from holdfast.agents.output_type import AgentOutputSchema
from holdfast.errors import ModelBehaviorError


class Order(BaseModel):
    """What a model is asked for."""

    id: int
    notes: list[str] = []


@dataclass
class Point:
    """A type that is wrapped."""

    x: int


MEANT = (
    '```json\n{"id": 3}\n```',
    '```\n{"id": 3}\n```\nThat is all.',
    'Here is the order: {"id": 3}',
    '{"id": 3} I hope that it helps.',
    '<think>An {id} is [1].</think>\n{"id": 3}',
    '{"id": 3,}',
    "{'id': 3}",
    '{"id": 3.0}',
    '[{"id": 3}]',
    '```json\n[{"id": 3.0,},]\n```',
    '{"id": 3, // the id\n}',
)


@pytest.mark.parametrize("text", MEANT)
def test_an_output_is_read_that_can_only_mean_one_thing(text: str) -> None:
    assert AgentOutputSchema(Order).read(text) == {"id": 3}


@pytest.mark.parametrize(
    ("kind", "text", "data"),
    [
        (list[int], "[1, 2]", [1, 2]),
        (list[int], '```json\n{"response": [1, 2.0]}\n```', [1, 2]),
        (list[int], '[{"response": [7]}]', [7]),
        (Point, '{"x": 1}', {"x": 1}),
        (Point, 'The point: {"response": {"x": 1.0}}', {"x": 1}),
        (int, '{"response": 4.0}', 4),
    ],
)
def test_an_output_is_read_with_its_wrapper_and_without(kind: Any, text: str, data: Any) -> None:
    assert AgentOutputSchema(kind).read(text) == data


@pytest.mark.parametrize(
    "text",
    [
        " ",
        "3",
        '{"id": 3} or {"id": 4}',
        '[{"id": 3}, {"id": 4}]',
        '[{"id": 3}, {"id"',
        '{"order": {"id": 3}',
        '{"id": "three"}',
        '{"id": 3.5}',
        '{"id": true}',
        '"{\\"id\\": 3}"',
        "{" * 20_000,
        '{"id": 3} ' + "[" * 20_000,
    ],
)
def test_nothing_is_guessed_of_an_output_that_may_mean_something_else(text: str) -> None:
    with pytest.raises(ModelBehaviorError, match=re.escape(text[:50])):
        AgentOutputSchema(Order).read(text)
