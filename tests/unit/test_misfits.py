"""Values that are made of what does not fit: our words for people, pydantic's own for pydantic."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError, create_model

from holdfast import Image, Message, Task, TaskStep, TaskStepOutput, ToolCall
from holdfast.client.agent_runner.runner import AgentRunner
from holdfast.client.runner.engines import configure
from holdfast.errors import InvalidArgumentError
from holdfast.models import ResponsesModel
from holdfast.values.messages import ImagePart
from holdfast.values.text.shown import misfit, shown
from holdfast.workers import (
    FoldingAgentWorker,
    FunctionCallingAgentWorker,
    LLMCompilerAgentWorker,
    PlanAndSolveAgentWorker,
)

ODD: Any = 7
MESSAGE: Any = Message
STEP: Any = TaskStep
CALLING: Any = FunctionCallingAgentWorker
COMPILER: Any = LLMCompilerAgentWorker
PLANNER: Any = PlanAndSolveAgentWorker
FOLDING: Any = FoldingAgentWorker
OUTPUT: Any = TaskStepOutput
WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: Message(role=ODD), r"Message cannot use role=7: input should be 'system', 'user'"),
    (lambda: MESSAGE(content="q"), "Message needs role, and it was not given"),
    (lambda: MESSAGE("user", "q"), r"takes its fields by name \(role, content, .*'user' without"),
    (lambda: ImagePart(kind="image", detail=ODD), "ImagePart cannot use detail=7: input should be"),
    (lambda: ToolCall(id=ODD, name="a"), "ToolCall cannot use id=7: input should be a valid"),
    (lambda: TaskStep(prev_steps=ODD), "TaskStep cannot use prev_steps=7"),
    (lambda: STEP(inputt="q"), "TaskStep has no field 'inputt'. Did you mean 'input'"),
    (lambda: STEP(zzz="q"), "no field 'zzz'. Its fields: task_id, "),
    (lambda: OUTPUT(next_step=()), "TaskStepOutput has no field 'next_step'. Did you mean"),
    (lambda: Task(task_id=ODD), "Task cannot use task_id=7"),
    (lambda: Image(data=ODD), "Image cannot use data=7"),
    (lambda: AgentRunner(agent="a", client=ODD), "cannot use client=7: .* instance of Client"),
    (lambda: AgentRunner(agent="a", archive=ODD), "cannot use archive=7: .* instance of Archive"),
    (lambda: AgentRunner(agent="a", engine=ODD), "cannot use engine=7"),
    (lambda: ResponsesModel("m", client=ODD), r"client=7 .* is not an openai\.AsyncOpenAI"),
    (lambda: configure(data_dir=ODD), "configure cannot use data_dir=7"),
    (lambda: CALLING(max_function_calls=-1), "at least 0, as a whole number; it is -1"),
    (lambda: CALLING(max_function_calls="2"), "it is '2'"),
    (lambda: CALLING(max_function_calls=True), "it is True"),
    (lambda: CALLING(allow_parallel_tool_calls="no"), "calls='no': input should be"),
    (lambda: COMPILER(max_replans=-1), "max_replans must be at least .* is -1"),
    (lambda: COMPILER(max_replans=None), "max_replans must be at least .* is None"),
    (lambda: COMPILER(max_replans="3"), "max_replans must be at least .* is '3'"),
    (lambda: COMPILER(max_plan_attempts=0), "max_plan_attempts must be at least .* is 0"),
    (lambda: COMPILER(max_plan_attempts=True), "max_plan_attempts must be at least .* is True"),
    (lambda: COMPILER(max_plan_attempts=2.0), "max_plan_attempts must be at least .* is 2.0"),
    *(
        (partial(PLANNER, max_turns=turns), f"max_turns must be .* is {turns!r}")
        for turns in (0, -1, "3", None, 2.5, True)
    ),
    (lambda: FOLDING(window=10), "window"),
    (lambda: FOLDING(window="1"), "window"),
    (lambda: FOLDING(pin="x"), "pin"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "reason"), WRONG)
def test_what_does_not_fit_is_told_in_words(make: Callable[[], Any], reason: str) -> None:
    with pytest.raises(InvalidArgumentError, match=reason) as caught:
        make()
    assert caught.value.__cause__ is None
    assert "pydantic.dev" not in str(caught.value)


class Letter(BaseModel):
    """A model of a user's, with one of ours inside."""

    message: Message
    number: Message | int = 0


def test_pydantic_gets_its_own_error_where_a_value_is_part_of_another() -> None:
    with pytest.raises(ValidationError) as caught:
        Letter.model_validate({"message": {"role": 7}})
    assert caught.value.errors()[0]["loc"] == ("message", "role")
    assert Letter.model_validate({"message": {"role": "user"}, "number": 1}).number == 1
    with pytest.raises(ValidationError):
        Message.model_validate({"role": 7})


@pytest.mark.parametrize("name", ["api_key", "options", "client_secret"])
def test_a_secret_that_does_not_fit_is_not_shown(name: str) -> None:
    fields: Any = {name: (int, ...)}
    model: type[BaseModel] = create_model("Given", **fields)
    with pytest.raises(ValidationError) as raised:
        model.model_validate({name: "my-very-secret-value"})
    text = misfit("connect", raised.value)
    assert "secret-value" not in text
    assert f"connect cannot use {name}=a value that is not shown (str)" in text


def test_a_field_of_a_newer_version_is_passed_over_when_history_is_read() -> None:
    newer = {"step_id": "s1", "newer": 1}
    known = TaskStep(step_id="s1")
    assert TaskStep.model_validate(newer) == known
    read = TaskStepOutput.model_validate({"task_step": newer, "next_steps": [newer], "newer": 1})
    assert read == TaskStepOutput(task_step=known, next_steps=(known,))
    assert TaskStepOutput.model_validate_json(read.model_dump_json()) == read


class Odd:
    def __repr__(self) -> str:
        return "<a\ud800b>"


def test_a_value_is_shown_by_its_beginning_or_its_type_and_can_be_printed() -> None:
    assert shown("x" * 500) == repr("x" * 80) + "..."
    assert len(shown(list(range(500)))) == 80
    deep: Any = "end"
    for _ in range(100_000):  # too deep for repr
        deep = [deep]
    assert shown(deep) == "<list that cannot be shown>"
    assert (shown(Odd()), shown("a\ud800b")) == ("<a\\ud800b>", r"'a\ud800b'")
