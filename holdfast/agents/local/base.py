"""What the provider's tools that run here have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, Literal, NotRequired, cast

from typing_extensions import TypedDict, TypeVar, Unpack

from holdfast.agents.items.raw_items import RawItem
from holdfast.agents.items.run_items import ToolApprovalItem
from holdfast.agents.tools.context import ToolContext
from holdfast.agents.tools.declaration import refuse_to_offer
from holdfast.agents.tools.error_texts import default_tool_error_function
from holdfast.agents.tools.guardrails import ToolInputGuardrail, ToolOutputGuardrail
from holdfast.agents.tools.hooks import EffectHook, EnabledPredicate, FailureFormatter
from holdfast.agents.tools.tool import Tool
from holdfast.errors import AgentsException, UserError, WrongTypeError
from holdfast.models.base import ToolSpec
from holdfast.models.openai.hosted_items import BARE_REJECTION
from holdfast.models.openai.local_items import call_item
from holdfast.task.data.agent_snapshot import ToolEffect, ToolPolicy
from holdfast.values.base import Json
from holdfast.values.code.user_calls import invoke, naming
from holdfast.values.messages import CallKind, ToolCall
from holdfast.values.runs.run_context import RunContextWrapper
from holdfast.values.settings import ApprovalRule
from holdfast.values.text.shown import shown

AskedT = TypeVar("AskedT", default=Any)


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
    """Options that a tool of the provider has beside those of the Agents SDK; see `Tool`."""

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


class CallRejectedError(AgentsException):
    """An `on_approval` function rejected a call; its text is what the model reads."""


def told_error(ctx: ToolContext[Any, Any], error: Exception) -> str:
    """Make the model's text for a failed call: of a rejected one, the reason alone."""
    if isinstance(error, CallRejectedError):
        return str(error)
    return default_tool_error_function(ctx, error)


class LocalTool(Tool[..., Any], Generic[AskedT]):
    """A tool whose calls have an item type of their own, and that runs here.

    A call is recorded, approved, repeated and undone as that of any tool. Its effect is
    "irreversible" unless it is declared otherwise.

    Attributes:
        kind: Type of its calls.
        on_approval: Decides about calls that need approval, in place of a person.
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
        options.setdefault("failure_error_function", told_error)
        super().__init__(
            name,
            description,
            strict_json_schema=False,
            needs_approval=cast("Any", needs_approval),
            **cast("Any", options),
        )

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
            UserError: Only a tool that Holdfast lacks would make it usable.
        """
        refuse_to_offer(self)
        return ToolSpec(name=self.name, description=self.description, hosted=self.definition)

    def policy(self) -> ToolPolicy:
        """Describe as data how a task runs the tool."""
        own = super().policy()
        if self.on_approval is None:
            return own
        return own.model_copy(update={"needs_approval": "no", "approval": None})

    def parse(self, arguments: str) -> dict[str, Any]:
        """Return what a call asks for, by name.

        Raises:
            ToolArgumentsError: It is not what such calls ask for.
        """
        return {"asked": self.asked(None, arguments)}

    async def asks_approval(self, ctx: ToolContext, arguments: str) -> bool:
        """Whether a person must approve this call; a predicate gets (ctx, what is asked, call id).

        Raises:
            ToolArgumentsError: The call asks for nothing that can be read.
            Exception: An error that the predicate raised.
        """
        if self.on_approval is not None:
            return False
        return await self._needs_approval(ctx, self.asked(ctx, arguments))

    async def run(self, ctx: ToolContext, arguments: str) -> Any:
        """Run a call, once `on_approval` has agreed where it must.

        Raises:
            ToolArgumentsError: It asks for nothing that can be read; nothing was run.
            CallRejectedError: `on_approval` has rejected it; nothing was run.
            Exception: An error of the tool's own code.
        """
        asked = self.asked(ctx, arguments)
        if self.on_approval is not None and await self._needs_approval(ctx, asked):
            await self._decide(ctx, self.on_approval)
        return await self.execute(ctx, asked)

    def raw_call(self, ctx: ToolContext) -> RawItem:
        """Return a call as an item of the Responses API."""
        call = ToolCall(id=ctx.call_id, name=self.name, arguments=ctx.arguments, kind=self.kind)
        return RawItem(call_item(call))

    async def _needs_approval(self, ctx: ToolContext, asked: AskedT) -> bool:
        needs = self.needs_approval
        if isinstance(needs, bool | ApprovalRule):
            return bool(needs)
        return bool(await invoke(cast("Callable[..., Any]", needs), ctx, asked, ctx.call_id))

    async def _decide(self, ctx: ToolContext, decide: OnApproval) -> None:
        item = ToolApprovalItem(ctx.agent, self.raw_call(ctx), tool_name=self.name)
        with naming(f"on_approval of tool {self.name!r}", decide):
            said: object = await invoke(decide, ctx, item)
        answered: object = said
        given = dict(cast("Mapping[str, Json]", said)) if isinstance(said, Mapping) else {}
        approve, reason = given.get("approve"), given.get("reason") or ""
        if not isinstance(approve, bool) or not isinstance(reason, str):
            msg = (
                f"on_approval of tool {self.name!r} must return"
                f' {{"approve": bool, "reason": str}}; it returned {shown(answered)}.'
            )
            raise UserError(msg, remedy="To have a person decide, leave on_approval out.")
        if not approve:
            raise CallRejectedError(reason or BARE_REJECTION)
