"""What the provider's tools that run here have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Generic, Literal, NoReturn, NotRequired, cast

from typing_extensions import TypedDict, TypeVar, Unpack

from holdfast.agents.items.run_items import RawItem, ToolApprovalItem
from holdfast.agents.tools.arguments import ToolArgumentsError
from holdfast.agents.tools.context import ToolContext
from holdfast.agents.tools.guardrails import ToolInputGuardrail, ToolOutputGuardrail
from holdfast.agents.tools.hooks import (
    EffectHook,
    EnabledPredicate,
    FailureFormatter,
    answer_of,
)
from holdfast.agents.tools.tool import Tool, refuse_to_offer
from holdfast.errors import DeclarationError, HoldfastError, UserError, WrongTypeError
from holdfast.models.base import ToolSpec
from holdfast.models.openai.hosted_items import BARE_REJECTION
from holdfast.models.openai.local_items import call_item
from holdfast.task.data.agent_snapshot import ToolEffect, ToolPolicy
from holdfast.values.base import Json
from holdfast.values.code.user_calls import invoke, naming
from holdfast.values.messages import CallKind, ToolCall
from holdfast.values.runs.approval_rules import ApprovalRule
from holdfast.values.runs.run_context import RunContextWrapper
from holdfast.values.text.shown import shown
from holdfast.values.tool_result import ToolResultError

AskedT = TypeVar("AskedT", default=Any)

_NAMED = "decides in place of the persons whom needs_approval=ApprovalRule(...) names"


class OnApprovalResult(TypedDict):
    """What an `on_approval` function decides.

    Attributes:
        approve: Whether the call is run.
        reason: Why not, for the model.
    """

    approve: bool
    reason: NotRequired[str]


OnApproval = Callable[
    [RunContextWrapper[Any], ToolApprovalItem], OnApprovalResult | Awaitable[OnApprovalResult]
]
"""Decides, in the worker process and right before a call is run, whether it may be."""


class LocalOptions(TypedDict, total=False):
    """Options that a tool of the provider has next to those of the Agents SDK; see `Tool`."""

    effect: ToolEffect
    idempotent: bool
    undo: EffectHook | None
    probe: EffectHook | None
    is_enabled: bool | EnabledPredicate
    timeout_seconds: float | None
    approval_seconds: float | None
    max_attempts: int
    retry_on: tuple[type[Exception], ...]
    max_output_bytes: int
    failure_error_function: FailureFormatter | Literal["default"] | None
    tool_input_guardrails: list[ToolInputGuardrail]
    tool_output_guardrails: list[ToolOutputGuardrail]
    undo_needs_approval: bool
    undo_idempotent: bool
    allowed_callers: list[Literal["direct", "programmatic"]] | None
    custom_data_extractor: None


class UnusableResultError(ToolResultError):
    """A call was run, but what its code returned cannot be used. It is never run again for that."""

    def __init__(self, tool: str, value: object, why: str) -> None:
        """Say what is wrong with a value."""
        self.tool = tool
        self.type_name = type(value).__qualname__
        HoldfastError.__init__(
            self,
            f"Tool {tool!r} ran, but its result cannot be used: {why}. What it has done is done:"
            " repeat the call only if that does no harm.",
        )


class LocalTool(Tool[..., Any], Generic[AskedT]):
    """A tool whose calls have an item type of their own, and that runs here.

    A call is recorded, approved, repeated and undone as that of any tool. Its effect is
    "irreversible" unless it is declared otherwise.

    Attributes:
        kind: Type of its calls.
        on_approval: Decides about calls that need approval, in place of a person: once, before the
            tool runs, and outside its time and its attempts. If it raises, the task is parked.
    """

    kind: CallKind
    on_approval: OnApproval | None

    def __init__(
        self,
        name: str,
        description: str = "",
        *,
        needs_approval: bool | ApprovalRule | Callable[..., Any],
        on_approval: OnApproval | None,
        **options: Unpack[LocalOptions],
    ) -> None:
        """Describe the tool.

        Raises:
            DeclarationError: The options contradict each other.
            WrongTypeError: One is of a wrong type.
        """
        given: object = on_approval
        if given is not None and not callable(given):
            msg = f"on_approval must be a function (ctx, approval_item); it was {shown(given)}."
            raise WrongTypeError(msg)
        self.on_approval = on_approval
        super().__init__(
            name,
            description,
            strict_json_schema=False,
            needs_approval=cast("Any", needs_approval),
            **cast("Any", options),
        )
        self._check_approval()

    @property
    @abstractmethod
    def definition(self) -> dict[str, Json]:
        """The tool as the Responses API has it."""

    @abstractmethod
    def asked(self, ctx: ToolContext[Any, Any] | None, arguments: str) -> AskedT:
        """Read what a call asks for.

        Raises:
            ToolArgumentsError: It is not what such calls ask for.
        """

    @abstractmethod
    async def execute(self, ctx: ToolContext[Any, Any], asked: AskedT) -> Any:
        """Run a call that may be run."""

    def spec(self) -> ToolSpec:
        """Describe the tool for a model.

        Raises:
            DeclarationError: What is said about approvals contradicts itself.
            UserError: Only a tool that Holdfast lacks would make it usable.
        """
        self._check_approval()
        refuse_to_offer(self)
        return ToolSpec(name=self.name, description=self.description, hosted=self.definition)

    def policy(self) -> ToolPolicy:
        """Describe as data how a task runs the tool."""
        own = super().policy().model_copy(update={"call_kind": self.kind})
        if self.on_approval is None:
            return own
        return own.model_copy(update={"needs_approval": "no"})

    def parse(self, arguments: str) -> dict[str, Any]:
        """Return what a call asks for, by name.

        Raises:
            ToolArgumentsError: It is not what such calls ask for.
        """
        return {"asked": self.asked(None, arguments)}

    async def asks_approval(self, ctx: ToolContext, arguments: str) -> bool | ApprovalRule:
        """Whether a person must approve this call; a predicate gets (ctx, what is asked, call id).

        Returns:
            The predicate's rule, if it returned one.

        Raises:
            ToolArgumentsError: The call asks for nothing that can be read.
            UserError: The predicate returned something else.
            Exception: An error that it raised.
        """
        if self.on_approval is not None:
            return False
        return await self._needs_approval(ctx, self.asked(ctx, arguments))

    async def run(self, ctx: ToolContext, arguments: str) -> Any:
        """Run a call that may be run: see `rejection`.

        Raises:
            ToolArgumentsError: It asks for nothing that can be read; nothing was run.
            UnusableResultError: It was run, and its result cannot be used.
            Exception: An error of the tool's own code.
        """
        return await self.execute(ctx, self.asked(ctx, arguments))

    async def rejection(self, ctx: ToolContext, arguments: str) -> str | None:
        """Ask `on_approval` about a call that needs an approval; return why not, or None.

        A call that asks for nothing that can be read is not asked about: it is not run either.

        Raises:
            UserError: `on_approval` has returned no decision, or the predicate no answer.
            DeclarationError: The predicate has named persons to decide.
            Exception: An error that one of them raised.
        """
        if self.on_approval is None:
            return None
        try:
            asked = self.asked(ctx, arguments)
        except ToolArgumentsError:
            return None
        needs = await self._needs_approval(ctx, asked)
        if isinstance(needs, ApprovalRule):
            self._refuse(_NAMED)
        if not needs:
            return None
        return await self._decide(ctx, self.on_approval)

    def raw_call(self, ctx: ToolContext) -> RawItem:
        """Return a call as an item of the Responses API."""
        call = ToolCall(id=ctx.call_id, name=self.name, arguments=ctx.arguments, kind=self.kind)
        return RawItem(call_item(call))

    def _check_approval(self) -> None:
        if self.on_approval is None:
            return
        why = ""
        if self.needs_approval is False:
            why = "is never asked without needs_approval=; give needs_approval=True or a function"
        elif isinstance(self.needs_approval, ApprovalRule):
            why = _NAMED
        elif self.approval_seconds is not None:
            why = "decides at once, so approval_seconds= limits nothing"
        if why:
            self._refuse(why)

    def _refuse(self, why: str) -> NoReturn:
        msg = f"Tool {self.name!r}: on_approval= {why}."
        raise DeclarationError(msg)

    async def _needs_approval(self, ctx: ToolContext, asked: AskedT) -> bool | ApprovalRule:
        needs = self.needs_approval
        if isinstance(needs, bool | ApprovalRule):
            return bool(needs)
        predicate = cast("Callable[..., Any]", needs)
        return answer_of(predicate, await invoke(predicate, ctx, asked, ctx.call_id))

    async def _decide(self, ctx: ToolContext, decide: OnApproval) -> str | None:
        item = ToolApprovalItem(ctx.agent, self.raw_call(ctx), tool_name=self.name)
        with naming(f"on_approval of tool {self.name!r}", decide):
            said: object = await invoke(decide, ctx, item)
        answered: object = said
        given = dict(cast("Mapping[str, Json]", said)) if isinstance(said, Mapping) else {}
        approve, reason = given.get("approve"), given.get("reason")
        if not isinstance(approve, bool) or not isinstance(reason, str | None):
            msg = (
                f"on_approval of tool {self.name!r} must return"
                f' {{"approve": bool, "reason": str}}; it returned {shown(answered)}.'
            )
            raise UserError(msg, remedy="To have a person decide, leave on_approval out.")
        return None if approve else reason or BARE_REJECTION


def check_one_of_kind(agent: str, tools: Iterable[Tool[..., Any]]) -> None:
    """Refuse two tools for one type of calls, which say by no name which of them they are for.

    Args:
        agent: Name of the agent, for the error message.
        tools: Its tools.

    Raises:
        DeclarationError: There are two such tools.
    """
    found: dict[CallKind, Tool[..., Any]] = {}
    for tool in tools:
        kind: CallKind = getattr(tool, "kind", "")
        if kind in ("", "custom_tool_call") or tool.is_enabled is False:
            continue
        other = found.setdefault(kind, tool)
        if other is not tool:
            msg = (
                f"Agent {agent!r} has {type(other).__name__} {other.name!r} and"
                f" {type(tool).__name__} {tool.name!r}, but a {kind!r} of the model does not"
                " say which of them it is for. Give the agent one of them."
            )
            raise DeclarationError(msg)
