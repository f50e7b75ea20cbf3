"""What a step of the program's own step logic gives beside its text and the steps that follow.

That is the state in which it leaves itself, and the sources, nodes and metadata of its response. No
step reads them, so what cannot be recorded of them is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from holdfast.agents.tools.foreign.llama_index import raw_output_of
from holdfast.errors import InvalidArgumentError
from holdfast.llama_index.step_code.state import StateCodec
from holdfast.llama_index.tools import ToolOutput
from holdfast.llama_index.values import OwnRecord, TaskStepOutput
from holdfast.values import steps
from holdfast.values.base import Json
from holdfast.values.checks.json_shapes import as_object
from holdfast.values.parts.sources import SourceNode, nodes_of

STATE = "step"
"""Key of a step's state under which that of the user's step is."""

FIELDS = ("content", "tool_name", "raw_input", "is_error", "raw_output")
"""Of a source, what is recorded."""


def written_beside(output: TaskStepOutput, codec: StateCodec) -> dict[str, Json]:
    """Write what a step gave, as far as it can be recorded."""
    response: Any = output.output
    made: dict[str, Json] = {}
    if sources := _listed(getattr(response, "sources", None)):
        made["sources"] = [_fields(each, codec) for each in sources]
    if nodes := nodes_of(response):
        made["nodes"] = [each.wire() for each in nodes]
    if metadata := _kept_values(getattr(response, "metadata", None), codec):
        made["metadata"] = metadata
    left: Any = getattr(output.task_step, "step_state", None)
    handed_on = [n for n, each in enumerate(output.next_steps) if each.step_state is left]
    if handed_on:
        made["left_to"] = handed_on[0]  # written there already
    elif left:
        made["left"] = _kept(left, codec)
    return made


def _listed(given: object) -> list[Any]:
    return list(cast("Sequence[Any]", given)) if isinstance(given, list | tuple) else []


def _fields(source: object, codec: StateCodec) -> Json:
    return _kept_values({name: getattr(source, name, None) for name in FIELDS}, codec)


def _kept_values(given: Any, codec: StateCodec) -> dict[str, Json]:
    found = {str(key): _kept(each, codec) for key, each in as_object(given).items()}
    return {key: each for key, each in found.items() if each is not None}


def _kept(value: object, codec: StateCodec) -> Json:
    try:
        return codec.encode(value)
    except InvalidArgumentError:
        return None


def own_record(memo: Mapping[str, Any], codec: StateCodec) -> OwnRecord:
    """Read what `written_beside` wrote, and the sources that the step logic collects."""
    state: Mapping[str, Any] = memo.get("state") or {}
    collected = _read(state.get("sources"), codec)
    return OwnRecord(
        sources=[_source(each, codec) for each in memo.get("sources", ())],
        nodes=[SourceNode.model_validate(each) for each in memo.get("nodes", ())],
        metadata=_read(memo.get("metadata"), codec),
        all_sources=_listed(collected),
    )


def _source(recorded: Mapping[str, Any], codec: StateCodec) -> ToolOutput:
    known = {name: _read(each, codec) for name, each in recorded.items()}
    content = str(known.pop("content", ""))
    return ToolOutput(content, **{"raw_output": raw_output_of(content), **known})


def _read(recorded: Any, codec: StateCodec) -> Any:
    """Read a part of a record; as it is recorded, if the program has lost a class of it."""
    try:
        return codec.decode(recorded)
    except InvalidArgumentError:
        return recorded


def own_step(step: steps.TaskStep, codec: StateCodec) -> steps.TaskStep:
    """Return a step with the state that the step logic gave it, in the place of its record."""
    state = _read(step.step_state.get(STATE, {}), codec)
    return step.model_copy(update={"step_state": state})


def own_output(
    output: steps.TaskStepOutput, memo: Mapping[str, Any], codec: StateCodec
) -> steps.TaskStepOutput:
    """Return a step's output with the states that the step logic gave."""
    following = tuple(own_step(each, codec) for each in output.next_steps)
    step = own_step(output.task_step, codec)
    if "left_to" in memo:
        state = following[int(memo["left_to"])].step_state
        step = step.model_copy(update={"step_state": state})
    elif "left" in memo:
        step = step.model_copy(update={"step_state": _read(memo["left"], codec) or {}})
    return output.model_copy(update={"task_step": step, "next_steps": following})
