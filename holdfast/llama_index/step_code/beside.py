"""What a step of the program's own step logic gives next to its text and the steps that follow.

That is the state in which it leaves itself, and the sources, nodes and metadata of its response. No
step reads them, so what cannot be recorded of them is left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from holdfast.agents.tools.foreign.llama_index import raw_output_of
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

MOST_BYTES = 1_000_000
"""Of what is recorded next to a step's text, as JSON: a memo that is too large fails its step."""


class _Room:
    """Writes values as long as there is room in the record of a step."""

    def __init__(self, codec: StateCodec) -> None:
        """Begin with all room."""
        self._codec = codec
        self._left = MOST_BYTES

    def kept(self, value: object) -> Json:
        """Write a value; None for one that cannot be written, or that has no room."""
        try:
            written = self._codec.encode(value)
            size = len(json.dumps(written))
        except Exception:  # noqa: BLE001  of the value's own code: the step goes on without it
            return None
        if size > self._left:
            return None
        self._left -= size
        return written

    def kept_values(self, given: Any) -> dict[str, Json]:
        """Write those values of a dict that can be kept."""
        found = {str(key): self.kept(each) for key, each in as_object(given).items()}
        return {key: each for key, each in found.items() if each is not None}


def written_beside(output: TaskStepOutput, codec: StateCodec) -> dict[str, Json]:
    """Write what a step gave, as far as it can be recorded."""
    response: Any = output.output
    made: dict[str, Json] = {}
    room = _Room(codec)
    left: Any = getattr(output.task_step, "step_state", None)
    handed_on = [n for n, each in enumerate(output.next_steps) if each.step_state is left]
    if handed_on:
        made["left_to"] = handed_on[0]  # written there already
    elif left is not None:
        made["left"] = room.kept(left)
    if sources := _listed(getattr(response, "sources", None)):
        made["sources"] = [
            room.kept_values({name: getattr(each, name, None) for name in FIELDS})
            for each in sources
        ]
    if nodes := [node for each in nodes_of(response) if (node := room.kept(each.wire()))]:
        made["nodes"] = nodes
    if metadata := room.kept_values(getattr(response, "metadata", None)):
        made["metadata"] = metadata
    return made


def _listed(given: object) -> list[Any]:
    return list(cast("Sequence[Any]", given)) if isinstance(given, list | tuple) else []


def own_record(memo: Mapping[str, Any], codec: StateCodec, *, ends: bool = True) -> OwnRecord:
    """Read what `written_beside` wrote, and the sources that the step logic collects.

    Args:
        memo: What a step gave.
        codec: Reads it.
        ends: Whether the collected sources are wanted, as for a last step.
    """
    state: Mapping[str, Any] = memo.get("state") or {}
    collected = _read(state.get("sources"), codec) if ends else None
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
    """Read a part of a record; as it is recorded, if the program can make no such object now."""
    try:
        return codec.decode(recorded)
    except Exception:  # noqa: BLE001  of the object's own code, or its class is gone
        return recorded


def own_step(step: steps.TaskStep, codec: StateCodec) -> steps.TaskStep:
    """Return a step with the state that the step logic gave it, instead of its record."""
    state = _read(step.step_state.get(STATE, {}), codec)
    return step.model_copy(update={"step_state": state})


def own_output(
    output: steps.TaskStepOutput, memo: Mapping[str, Any], codec: StateCodec
) -> steps.TaskStepOutput:
    """Return a step's output with the states that the step logic gave."""
    following = tuple(own_step(each, codec) for each in output.next_steps)
    if "left_to" in memo:
        same = following[int(memo["left_to"])].step_state
        step = output.task_step.model_copy(update={"step_state": same})
    elif memo.get("left") is not None:
        # Not read beside the state before it, which had the same objects.
        state: Any = _read(memo["left"], codec) or {}
        step = output.task_step.model_copy(update={"step_state": state})
    else:
        step = own_step(output.task_step, codec)
    return output.model_copy(update={"task_step": step, "next_steps": following})
