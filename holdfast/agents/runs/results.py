"""RunResult, the result of a run, in the form of the OpenAI Agents SDK."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from holdfast.agents.agent import Agent
from holdfast.agents.guardrails import InputGuardrailResult, OutputGuardrailResult
from holdfast.agents.items import MessageOutputItem, RunItem, ToolApprovalItem
from holdfast.agents.model_input import without_reasoning_id
from holdfast.agents.raw_items import dumped, member, plain, replayable
from holdfast.agents.runs.state import RunState
from holdfast.agents.tools.guardrails import ToolInputGuardrailResult, ToolOutputGuardrailResult
from holdfast.values.base import Json
from holdfast.values.run_context import RunContextWrapper
from holdfast.values.usage import Usage

T = TypeVar("T")

RunInput = str | Sequence[dict[str, Json]]


@dataclass
class ModelResponse:
    """One answer of a model.

    Attributes:
        output: Its items, in the form of the Responses API: RawItems (dicts), or objects of
            `openai.types.responses` in an answer made by hand.
        usage: Its cost.
        response_id: The provider's id of the answer, or None.
    """

    output: list[Any]
    usage: Usage
    response_id: str | None

    def to_input_items(self) -> list[dict[str, Json]]:
        """Return the items as input for another run."""
        return [replayable(item) for item in self.output]


@dataclass(frozen=True, kw_only=True)
class RunData:
    """The data of a run, whether it has finished, waits, or was ended by an error.

    Attributes:
        input: The run's input; in a session, the part of the history that the model sees, then the
            run's input.
        new_items: The items that the run made, oldest first.
        raw_responses: The answers of models, oldest first.
        last_agent: The agent that ran last.
        context_wrapper: The run's context and cost.
        task_id: The run's task; its ledger stays readable.
        interruptions: Tool calls that wait for a reviewer's decision.
        input_guardrail_results: Results of the input guardrails.
        output_guardrail_results: Results of the output guardrails.
        tool_input_guardrail_results: Results of tool guardrails that checked calls.
        tool_output_guardrail_results: Results of tool guardrails that checked results.
        normalized: The conversation as the last agent saw it, with its own items, if a handoff had
            changed the conversation.
        reasoning_item_id_policy: Whether `to_input_list` keeps the ids of reasoning items.
    """

    input: str | list[dict[str, Json]]
    new_items: list[RunItem] = field(default_factory=list[RunItem])
    raw_responses: list[ModelResponse] = field(default_factory=list[ModelResponse])
    last_agent: Agent
    context_wrapper: RunContextWrapper[Any]
    task_id: str
    interruptions: list[ToolApprovalItem] = field(default_factory=list[ToolApprovalItem])
    input_guardrail_results: list[InputGuardrailResult] = field(
        default_factory=list[InputGuardrailResult]
    )
    output_guardrail_results: list[OutputGuardrailResult] = field(
        default_factory=list[OutputGuardrailResult]
    )
    tool_input_guardrail_results: list[ToolInputGuardrailResult] = field(
        default_factory=list[ToolInputGuardrailResult]
    )
    tool_output_guardrail_results: list[ToolOutputGuardrailResult] = field(
        default_factory=list[ToolOutputGuardrailResult]
    )
    normalized: list[dict[str, Json]] | None = field(default=None, repr=False)
    reasoning_item_id_policy: Literal["preserve", "omit"] = field(default="preserve", repr=False)

    @property
    def usage(self) -> Usage:
        """Cost of the run."""
        return self.context_wrapper.usage

    @property
    def last_response_id(self) -> str | None:
        """The provider's id of the last answer of a model, or None."""
        return self.raw_responses[-1].response_id if self.raw_responses else None

    def to_input_list(
        self, *, mode: Literal["preserve_all", "normalized"] = "preserve_all"
    ) -> list[dict[str, Json]]:
        """Return input and new items as the input of a following run.

        Args:
            mode: "preserve_all": the input and all new items. "normalized": the conversation as the
                last agent saw it, which is shorter if the filter of a handoff left items out.
        """
        if mode == "normalized" and self.normalized is not None:
            items = [dict(item) for item in self.normalized]
        else:
            made = [item for item in self.new_items if not isinstance(item, ToolApprovalItem)]
            start = ItemHelpers.input_to_new_input_list(self.input)
            items = [*start, *(item.to_input_item() for item in made)]
        omits = self.reasoning_item_id_policy == "omit"
        return list(map(without_reasoning_id, items)) if omits else items

    def to_state(self) -> RunState:
        """Return a RunState, to take decisions and resume the run: `Runner.run(agent, state)`."""
        return RunState(self.task_id, self.interruptions)

    def release_agents(self, release_new_items: bool = True) -> None:  # noqa: FBT001, FBT002  the Agents SDK's signature
        """Do nothing: agents are plain descriptions, and hold no resources to release."""


@dataclass(frozen=True, kw_only=True)
class RunResult(RunData):
    """A run that has its answer, or waits for a decision.

    Attributes:
        final_output: The answer, of the last agent's `output_type`; None while the run waits.
        waiting_for: Descriptions of what the run waits for; empty when it is finished.
    """

    final_output: Any = None
    waiting_for: tuple[str, ...] = ()

    def final_output_as(self, cls: type[T], raise_if_incorrect_type: bool = False) -> T:  # noqa: FBT001, FBT002  the Agents SDK's signature
        """Return the answer, typed.

        Args:
            cls: The type that the answer should have.
            raise_if_incorrect_type: Whether to check it.

        Raises:
            TypeError: The answer is checked and has another type.
        """
        if raise_if_incorrect_type and not isinstance(self.final_output, cls):
            msg = f"Final output is not of type {cls.__name__}"
            raise TypeError(msg)
        output: T = self.final_output
        return output


class ItemHelpers:
    """Functions that read and make items, as in the Agents SDK.

    They take items as dicts and as objects of `openai.types.responses`.
    """

    @classmethod
    def extract_last_content(cls, message: Any) -> str:
        """Return the text or the refusal of a message's last part; empty when there is none."""
        last = _parts(message)[-1:]
        return _joined(last, "output_text", "text") or _joined(last, "refusal", "refusal")

    @classmethod
    def extract_text(cls, message: Any) -> str | None:
        """Return the text of a message, without refusals; None when there is none."""
        return _joined(_parts(message), "output_text", "text") or None

    @classmethod
    def extract_refusal(cls, message: Any) -> str | None:
        """Return the refusal of a message; None when there is none."""
        return _joined(_parts(message), "refusal", "refusal") or None

    @classmethod
    def tool_call_output_item(
        cls, tool_call: Any, output: str | list[dict[str, Json]]
    ) -> dict[str, Json]:
        """Make the item that answers a call.

        Args:
            tool_call: The call, as `raw_item` of its item has it.
            output: The result for the model: a text, or parts in the form of the Responses API.
        """
        call_id = member(tool_call, "call_id")
        return {"type": "function_call_output", "call_id": call_id, "output": output}

    @classmethod
    def extract_last_text(cls, message: Any) -> str | None:
        """Return the text of a message's last part; None when that part is not text."""
        parts = [part for part in _parts(message)[-1:] if part.get("type") == "output_text"]
        return str(parts[0]["text"]) if parts else None

    @classmethod
    def text_message_output(cls, message: MessageOutputItem) -> str:
        """Return the text of a message of a model, without refusals."""
        return cls.extract_text(message.raw_item) or ""

    @classmethod
    def text_message_outputs(cls, items: Sequence[RunItem]) -> str:
        """Return the texts of all messages of models among items, joined."""
        messages = (item for item in items if isinstance(item, MessageOutputItem))
        return "".join(map(cls.text_message_output, messages))

    @classmethod
    def input_to_new_input_list(cls, input: RunInput) -> list[dict[str, Json]]:
        """Return an input as a new list of items that `json.dumps` takes."""
        if isinstance(input, str):
            return [{"role": "user", "content": input}]
        return [dumped(item) for item in input]


def _joined(parts: list[dict[str, Any]], kind: str, name: str) -> str:
    return "".join(part.get(name) or "" for part in parts if part.get("type") == kind)


def _parts(message: Any) -> list[dict[str, Any]]:
    item = plain(message)
    content: Any = item.get("content") if item.get("role") == "assistant" else None
    if isinstance(content, str):
        return [{"type": "output_text", "text": content}]
    parts: list[Any] = content or []
    return [plain(part) for part in parts]
