"""What the provider's tools that run here have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import (
    Any,
    ClassVar,
    Generic,
    Literal,
    NoReturn,
    NotRequired,
    Protocol,
    cast,
    get_args,
    runtime_checkable,
)

from typing_extensions import TypedDict, TypeVar, Unpack

from holdfast.agents.items.run_items import RawItem, ToolApprovalItem
from holdfast.agents.tools.arguments import ToolArgumentsError
from holdfast.agents.tools.context import Effect, ToolContext
from holdfast.agents.tools.options import (
    LocalOptions,
    answer_of,
    decision_of,
)
from holdfast.agents.tools.tool import Tool, refuse_to_offer
from holdfast.errors import DeclarationError, HoldfastError, UserError, WrongTypeError
from holdfast.models.base import ToolSpec
from holdfast.models.openai.hosted_items import BARE_REJECTION
from holdfast.models.openai.local_items import call_item
from holdfast.task.data.head import ToolPolicy
from holdfast.values.base import Json
from holdfast.values.checks import gate
from holdfast.values.checks.gate import data_of, is_object
from holdfast.values.code.user_calls import invoke, naming
from holdfast.values.messages import CallKind, ToolCall
from holdfast.values.runs.approval_rules import ApprovalRule
from holdfast.values.runs.run_context import RunContextWrapper
from holdfast.values.text.shown import shown
from holdfast.values.tool_result import ErrorResult, ToolResultError

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

    kind: ClassVar[CallKind]
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
        raise DeclarationError(f"Tool {self.name!r}: on_approval= {why}.")

    async def _needs_approval(self, ctx: ToolContext, asked: AskedT) -> bool | ApprovalRule:
        needs = self.needs_approval
        if isinstance(needs, bool | ApprovalRule):
            return bool(needs)
        predicate = cast("Callable[..., Any]", needs)
        return answer_of(predicate, await invoke(predicate, ctx, asked, ctx.call_id))

    async def _decide(self, ctx: ToolContext, decide: OnApproval) -> str | None:
        item = ToolApprovalItem(ctx.agent, self.raw_call(ctx), tool_name=self.name)
        what = f"on_approval of tool {self.name!r}"
        with naming(what, decide):
            said: object = await invoke(decide, ctx, item)
        approve, reason = decision_of(what, said)
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
        kind = tool.kind
        if kind in ("", "custom_tool_call") or tool.is_enabled is False:
            continue
        other = found.setdefault(kind, tool)
        if other is not tool:
            raise DeclarationError(
                f"Agent {agent!r} has {type(other).__name__} {other.name!r} and"
                f" {type(tool).__name__} {tool.name!r}, but a {kind!r} of the model does not"
                " say which of them it is for. Give the agent one of them."
            )


OperationType = Literal["create_file", "update_file", "delete_file"]


@dataclass(slots=True)
class ApplyPatchOperation:
    """What the model asks an editor for.

    Attributes:
        type: What to do.
        path: The file, as the model names it: an editor decides which paths it allows.
        diff: The diff, see `apply_diff`; None for a file that is deleted.
        ctx_wrapper: The ToolContext of the call.
        move_to: New path of the file, if it moves.
    """

    type: OperationType
    path: str
    diff: str | None = None
    ctx_wrapper: RunContextWrapper[Any] | None = None
    move_to: str | None = None


@dataclass(slots=True)
class ApplyPatchResult:
    """What an operation came to.

    Attributes:
        status: Whether it was done; None counts as done.
        output: A text for the model.
    """

    status: Literal["completed", "failed"] | None = None
    output: str | None = None


_Done = ApplyPatchResult | str | None


@runtime_checkable
class ApplyPatchEditor(Protocol):
    """Makes the changes. Its methods may be async; a text that they return is for the model.

    One that also has `undo(operation, effect)` makes the tool's calls reversible: it takes back
    what the operation has done, and is called again if it was cut off only where the tool is
    `undo_idempotent`.
    """

    def create_file(self, operation: ApplyPatchOperation) -> _Done | Awaitable[_Done]:
        """Make a file."""
        ...

    def update_file(self, operation: ApplyPatchOperation) -> _Done | Awaitable[_Done]:
        """Change a file."""
        ...

    def delete_file(self, operation: ApplyPatchOperation) -> _Done | Awaitable[_Done]:
        """Delete a file."""
        ...


ApplyPatchOnApprovalFunctionResult = OnApprovalResult


class ApplyPatchTool(LocalTool[ApplyPatchOperation]):
    """Lets the model change files by an editor of yours.

    Attributes:
        editor: Makes the changes.
    """

    type: ClassVar[Literal["apply_patch"]] = "apply_patch"
    kind: ClassVar[CallKind] = "apply_patch_call"

    def __init__(
        self,
        editor: ApplyPatchEditor,
        name: str = "apply_patch",
        needs_approval: bool | ApprovalRule | Callable[..., Any] = False,  # noqa: FBT001, FBT002
        on_approval: OnApproval | None = None,
        **options: Unpack[LocalOptions],
    ) -> None:
        """Take the editor.

        Args:
            editor: Makes the changes.
            name: Name of the tool in the record, for approvals and guardrails.
            needs_approval: Whether calls need an approval; or a predicate (ctx, operation,
                call_id), or an ApprovalRule.
            on_approval: Decides in place of a person: (ctx, approval_item) to {"approve": bool}.
            options: Other attributes of `Tool`.

        Raises:
            UserError: The editor lacks all of the methods, or has one that cannot be called.
        """
        found = {each: getattr(editor, each, None) for each in get_args(OperationType)}
        methods = {name: each for name, each in found.items() if each is not None}
        wrong = [name for name, each in methods.items() if not callable(each)]
        if wrong or not methods:
            has = f"has {', '.join(wrong)}, which cannot be called" if wrong else "does not"
            raise UserError(
                "ApplyPatchTool(editor=...) needs an object with at least one of the methods"
                f" create_file, update_file and delete_file; {shown(editor)} {has}."
            )
        self.editor = editor
        if callable(getattr(editor, "undo", None)):
            options.setdefault("undo", self._take_back)
        super().__init__(name, needs_approval=needs_approval, on_approval=on_approval, **options)

    @property
    def definition(self) -> dict[str, Json]:
        """The tool as the Responses API has it."""
        return {"type": "apply_patch"}

    def asked(self, ctx: ToolContext[Any, Any] | None, arguments: str) -> ApplyPatchOperation:
        """Read the operation of a call.

        Raises:
            ToolArgumentsError: It is not one.
        """
        given = data_of(arguments)
        data = given if is_object(given) else {}
        problems: list[str] = []
        if data.get("type") not in get_args(OperationType):
            problems.append(f"type: {data.get('type')!r} is not an operation")
        if not isinstance(data.get("move_to"), str | None):
            problems.append("move_to: it is not text")
        if not isinstance(data.get("path"), str) or not data["path"]:
            problems.append("path: it names no file")
        if data.get("type") in ("create_file", "update_file") and not isinstance(
            data.get("diff"), str
        ):
            problems.append("diff: it is missing")
        if problems:
            raise ToolArgumentsError(self.name, tuple(problems), arguments)
        return ApplyPatchOperation(
            data["type"], data["path"], data.get("diff"), ctx, data.get("move_to")
        )

    async def execute(self, ctx: ToolContext[Any, Any], asked: ApplyPatchOperation) -> Any:  # noqa: ARG002
        """Have the editor make the change.

        Raises:
            UserError: It has no method for this change.
            UnusableResultError: It returned something else than a text, an ApplyPatchResult or
                None.
            Exception: An error of the editor.
        """
        change = getattr(self.editor, asked.type, None)
        if change is None:
            msg = f"The editor of tool {self.name!r} has no {asked.type}; nothing was changed."
            raise UserError(msg)
        said: object = await invoke(change, asked)
        if said is None or isinstance(said, str):
            return said or ""
        if isinstance(said, ApplyPatchResult):
            said = {"status": said.status, "output": said.output}
        where = f"{asked.type} of its editor"
        if not is_object(said) or not said.keys() <= {"status", "output"}:
            why = f"{where} must return a text, an ApplyPatchResult or None; it returned"
            raise UnusableResultError(self.name, said, f"{why} {shown(said)}")
        status, output = said.get("status"), said.get("output")
        if status not in ("completed", "failed", None) or not isinstance(output, str | None):
            why = f'{where} must return "completed", "failed" or None as status and a text or None'
            raise UnusableResultError(
                self.name, said, f"{why} as output; it returned {shown(said)}"
            )
        return ErrorResult(output or "") if status == "failed" else output or ""

    async def _take_back(self, ctx: ToolContext[Any, Any], effect: Effect) -> Any:
        asked = effect.arguments
        operation = ApplyPatchOperation(
            cast("OperationType", asked["type"]),
            cast("str", asked["path"]),
            cast("str | None", asked.get("diff")),
            ctx,
            cast("str | None", asked.get("move_to")),
        )
        return await invoke(cast("Any", self.editor).undo, operation, effect)


CustomToolOnApprovalFunctionResult = OnApprovalResult


class CustomTool(LocalTool[str]):
    """A tool that takes the text that the model wrote, as it is.

    Attributes:
        format: Form of the text as the Responses API has it: {"type": "text"}, or a grammar.
        on_invoke_tool: Called as (ctx, text), sync or async.
    """

    kind: ClassVar[CallKind] = "custom_tool_call"

    def __init__(  # noqa: PLR0917  the Agents SDK's signature
        self,
        name: str,
        description: str,
        on_invoke_tool: Callable[[ToolContext[Any, Any], str], Any],
        format: Mapping[str, Json] | None = None,  # noqa: A002  the Agents SDK's name
        needs_approval: bool | ApprovalRule | Callable[..., Any] = False,  # noqa: FBT001, FBT002
        on_approval: OnApproval | None = None,
        defer_loading: bool = False,  # noqa: FBT001, FBT002
        **options: Unpack[LocalOptions],
    ) -> None:
        """Take the function.

        Args:
            name: 1 to 64 letters, digits, `_` and `-`.
            description: For the model.
            on_invoke_tool: Called as (ctx, text); returns what a tool may return.
            format: Form of the text; None for any.
            needs_approval: Whether calls need an approval; or a predicate (ctx, text, call_id), or
                an ApprovalRule.
            on_approval: Decides in place of a person: (ctx, approval_item) to {"approve": bool}.
            defer_loading: As for `Tool`.
            options: Other attributes of `Tool`.

        Raises:
            UserError: The function cannot be called, or the format is not valid.
        """
        if not callable(cast("object", on_invoke_tool)):
            msg = f"CustomTool {name!r} needs a function (ctx, text); got {shown(on_invoke_tool)}."
            raise UserError(msg)
        if wrong := _format_problem(format):
            raise UserError(f"CustomTool {name!r} cannot use its format: {wrong}", remedy=_FORMATS)
        self.format = format
        super().__init__(
            name, description, needs_approval=needs_approval, on_approval=on_approval, **options
        )
        self.on_invoke_tool = on_invoke_tool
        self.defer_loading = defer_loading

    @property
    def definition(self) -> dict[str, Json]:
        """The tool as the Responses API has it."""
        known: dict[str, Json] = {
            "type": "custom",
            "name": self.name,
            "description": self.description,
        }
        known |= {} if self.format is None else {"format": dict(self.format)}
        return {**known, "defer_loading": True} if self.defer_loading else known

    @property
    def tool_config(self) -> dict[str, Json]:
        """The definition, under the name of the Agents SDK."""
        return self.definition

    def asked(self, ctx: ToolContext[Any, Any] | None, arguments: str) -> str:  # noqa: ARG002
        """Return the text."""
        return arguments

    async def execute(self, ctx: ToolContext[Any, Any], asked: str) -> Any:
        """Call the function.

        Raises:
            Exception: An error that it raised.
        """
        return await invoke(self.on_invoke_tool, ctx, asked)


_FORMATS = (
    'A format is {"type": "text"}, or {"type": "grammar", "syntax": "lark" or "regex",'
    ' "definition": "..."}; leave it out for any text.'
)


def _format_problem(given: Mapping[str, Json] | None) -> str:
    if given is None:
        return ""
    if not isinstance(cast("object", given), Mapping):
        return f"it must be a mapping; it was {shown(given)}."
    members = dict(given)
    if wrong := gate.flaw(members, "format"):
        return wrong
    kind = members.get("type")
    keys = {"text": {"type"}, "grammar": {"type", "syntax", "definition"}}.get(str(kind))
    if keys is None:
        return f"its type must be 'text' or 'grammar'; it was {shown(kind)}."
    if set(members) != keys:
        return f"a {kind} has {', '.join(sorted(keys))}; this has {', '.join(sorted(members))}."
    if kind == "grammar" and members["syntax"] not in ("lark", "regex"):
        return f"its syntax must be 'lark' or 'regex'; it was {shown(members['syntax'])}."
    if kind == "grammar" and not isinstance(members["definition"], str):
        return f"its definition must be a text; it was {shown(members['definition'])}."
    return ""
