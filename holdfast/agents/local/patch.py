"""The patch tool: the model asks for changes of files, and an editor of yours makes them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, cast, get_args, runtime_checkable

from typing_extensions import Unpack

from holdfast.agents.local.base import (
    LocalOptions,
    LocalTool,
    OnApproval,
    OnApprovalResult,
    UnusableResultError,
)
from holdfast.agents.tools.arguments import ToolArgumentsError
from holdfast.agents.tools.context import Effect, ToolContext
from holdfast.errors import UserError
from holdfast.values.base import Json
from holdfast.values.checks.json_shapes import data_in, is_object
from holdfast.values.code.user_calls import invoke
from holdfast.values.messages import CallKind
from holdfast.values.runs.approval_rules import ApprovalRule
from holdfast.values.runs.run_context import RunContextWrapper
from holdfast.values.text.shown import shown
from holdfast.values.tool_result import ErrorResult

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

    kind: CallKind = "apply_patch_call"

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
            msg = (
                "ApplyPatchTool(editor=...) needs an object with at least one of the methods"
                f" create_file, update_file and delete_file; {shown(editor)} {has}."
            )
            raise UserError(msg)
        self.editor = editor
        if callable(getattr(editor, "undo", None)):
            options.setdefault("undo", self._take_back)
        super().__init__(name, needs_approval=needs_approval, on_approval=on_approval, **options)

    @property
    def type(self) -> Literal["apply_patch"]:
        """Type of the tool."""
        return "apply_patch"

    @property
    def definition(self) -> dict[str, Json]:
        """The tool as the Responses API has it."""
        return {"type": "apply_patch"}

    def asked(self, ctx: ToolContext[Any, Any] | None, arguments: str) -> ApplyPatchOperation:
        """Read the operation of a call.

        Raises:
            ToolArgumentsError: It is not one.
        """
        given = data_in(arguments)
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
