"""Custom tools: the model writes one plain text, by a grammar if there is one, and no JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from typing_extensions import Unpack

from holdfast.agents.local.base import LocalOptions, LocalTool, OnApproval, OnApprovalResult
from holdfast.agents.tools.context import ToolContext
from holdfast.errors import UserError
from holdfast.values.base import Json
from holdfast.values.checks import gate
from holdfast.values.code.user_calls import invoke
from holdfast.values.messages import CallKind
from holdfast.values.runs.approval_rules import ApprovalRule
from holdfast.values.text.shown import shown

CustomToolOnApprovalFunctionResult = OnApprovalResult


class CustomTool(LocalTool[str]):
    """A tool that takes the text that the model wrote, as it is.

    Attributes:
        format: Form of the text as the Responses API has it: {"type": "text"}, or a grammar.
        on_invoke_tool: Called as (ctx, text), sync or async.
    """

    kind: CallKind = "custom_tool_call"

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
            msg = f"CustomTool {name!r} cannot use its format: {wrong}"
            raise UserError(msg, remedy=_FORMATS)
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
