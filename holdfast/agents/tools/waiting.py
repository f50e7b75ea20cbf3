"""Tools whose calls wait, for a time or for an outcome from outside, and hold no worker."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass, fields
from typing import Any, TypeVar

from holdfast.agents.tools.context import ToolContext
from holdfast.agents.tools.foreign.servers import PreparedTool, QuestionAskedError
from holdfast.agents.tools.options import ToolOptions
from holdfast.agents.tools.tool import Tool
from holdfast.errors import DeclarationError
from holdfast.task.data.calls import Wait
from holdfast.values.checks.gate import Seconds, check_fields
from holdfast.values.runs.times import time_in
from holdfast.values.text.shown import shown, time_shown


class WaitingError(QuestionAskedError):
    """A call goes on outside: it waits, and its tool has ended."""

    def __init__(self, wait: Wait, over: str) -> None:
        """Take the wait.

        Args:
            wait: What is waited for.
            over: What the model reads when its time is over.
        """
        Exception.__init__(self, wait.said)
        self.asks = wait
        self.after = over


def time_of(when: str) -> float:
    """Return the time that a model names.

    Raises:
        ValueError: It names none, or one that is over.
    """
    now = time.time()
    try:
        at = time_in(when, now=now)
    except (ValueError, OverflowError) as error:
        msg = f"{shown(when)} names no time: {error}. Write '2 h' or '2027-01-31T14:00:00Z'."
        raise ValueError(msg) from None
    if at <= now:
        raise ValueError(f"{time_shown(at)} is over: it is {time_shown(now)}. Name a time to come.")
    return at


async def _sleep_until(when: str, note: str) -> str:
    """Wait until a time; then read the note again and go on.

    Args:
        when: How long, as "30 min", "2 h" or "1 d"; or a time, as "2027-01-31T14:00:00Z".
        note: What to do then, in your own words.
    """
    raise WaitingError(Wait(waits="sleep", until=time_of(when), note=note), note)


sleep_until = Tool.from_function(_sleep_until, name="sleep_until", effect="read", inline=False)
"""Lets an agent wait: a timer of Temporal's, which ends at its time whatever crashes meanwhile."""


class AwaitingTool(PreparedTool):
    """A tool whose call waits for an outcome, which comes by the call's token."""

    async def prepare(
        self, ctx: ToolContext[Any], token: Callable[[], Awaitable[str]], tenant: str, /
    ) -> None:
        """Give the call its token."""
        ctx.completion_token, ctx.tenant = await token(), tenant

    def is_worth_repeating(self, error: BaseException) -> bool:
        """Whether the tool allows another attempt after this error, which a wait is not."""
        return not isinstance(error, WaitingError) and super().is_worth_repeating(error)


@dataclass(eq=False, repr=False)
class LaterTool(AwaitingTool):
    """A tool of `@tool(completes="later")`: it hands `ctx.completion_token` to someone, and ends.

    Its call waits until someone with the token completes it: see `AgentRunner.complete`.

    Attributes:
        completion_seconds: How long it waits, or None for as long as its task lasts.
    """

    _: KW_ONLY
    completion_seconds: Seconds | None = None

    def __post_init__(self) -> None:
        """Check the tool.

        Raises:
            DeclarationError: Its result cannot be checked, or no time is left for it.
            WrongTypeError: That is not a number.
        """
        super().__post_init__()
        check_fields(LaterTool, self, ("completion_seconds",), f"Tool {self.name!r}")
        if self.tool_output_guardrails or self.return_direct:
            option = "return_direct" if self.return_direct else "tool_output_guardrails"
            msg = f"Tool {self.name!r} completes later: {option}= would never see its result."
            raise DeclarationError(msg)

    async def run(self, ctx: ToolContext, arguments: str) -> Any:
        """Run the function; then the call waits.

        Raises:
            WaitingError: Always, unless the function raises.
        """
        said, seconds = await super().run(ctx, arguments), self.completion_seconds
        until = time.time() + seconds if seconds else 0.0
        note = said if isinstance(said, str) else ""
        over = f"No outcome of this call has come in {seconds:g} seconds." if seconds else ""
        raise WaitingError(Wait(waits="answer", until=until, note=note), over)


_FIELDS = [each.name for each in fields(Tool) if each.init]
MadeT = TypeVar("MadeT", bound=Tool[..., Any])


def made_as(kind: type[MadeT], made: Tool[..., Any], **own: Any) -> MadeT:
    """Return a tool as one of another class, with attributes of its own."""
    return kind(**{n: getattr(made, n) for n in _FIELDS} | dict[str, Any](inline=False) | own)


def later_tool(function: Callable[..., Any], options: ToolOptions) -> LaterTool:
    """Make a tool of `@tool(completes="later")`.

    Raises:
        DeclarationError: `completes` has another value, or as for `Tool.from_function`.
    """
    given: dict[str, Any] = dict(options)
    how, seconds = given.pop("completes"), given.pop("completion_seconds", None)
    if how != "later":
        msg = f"completes={shown(how)} is not 'later'; leave it out for a tool that ends with it."
        raise DeclarationError(msg)
    made = Tool.from_function(function, **given)
    return made_as(LaterTool, made, completion_seconds=seconds)
