"""What stands around a tool call in its activity: guardrails of the tool, hooks of the agent."""

from __future__ import annotations

from typing import Any

from temporalio.exceptions import ApplicationError

from holdfast.activities.data.source import Source
from holdfast.activities.failures import LoggedError, failure_by, users_code
from holdfast.activities.guardrails import info_of
from holdfast.activities.spans import Block, GuardrailKind, Recording, checked, guardrail
from holdfast.agents.agent import Agent
from holdfast.agents.agent_base import users_agent
from holdfast.agents.local.base import LocalTool
from holdfast.agents.tools.context import ToolContext
from holdfast.agents.tools.decorator import Tool
from holdfast.agents.tools.guardrails import (
    ToolGuardrailFunctionOutput,
    ToolInputGuardrailData,
    ToolOutputGuardrailData,
)
from holdfast.task.data.calls import Outcome
from holdfast.task.data.failures import INTERRUPTED, Failure
from holdfast.task.data.guard_rules import ToolGuarded
from holdfast.task.data.head import TaskHead
from holdfast.task.data.wire import ToolInput
from holdfast.task.guardrails_due import TOOL_INPUT_TRIPPED, TOOL_OUTPUT_TRIPPED
from holdfast.values.base import Json
from holdfast.values.code.typed_data import class_name
from holdfast.values.code.user_calls import invoke
from holdfast.values.messages import clean, shown

NOTHING: Any = object()


class ToolWatch:
    """Runs the guardrails and hooks of one call.

    Attributes:
        value: What the tool returned; set by the caller that runs it.
        guards: Results of the guardrails, in the order in which they ran.
    """

    def __init__(
        self,
        agent: Agent,
        tool: Tool,
        ctx: ToolContext[Any],
        source: Source,
        *,
        head: TaskHead,
        given: ToolInput,
    ) -> None:
        """Watch this call."""
        self._head = head
        self._step = (given.branch, given.n)
        self.value: Any = NOTHING
        self._agent = agent
        self._shown = users_agent(agent)
        self._tool = tool
        self._ctx = ctx
        self._source = source
        self.guards: tuple[ToolGuarded, ...] = ()

    async def screen(self) -> Outcome | None:
        """Run the guardrails of the call; return its outcome, or None when it may be run.

        Raises:
            ApplicationError: A guardrail raised. The call has not been made; the task waits.
        """
        for each in self._tool.tool_input_guardrails:
            name = each.get_name()
            code = users_code(self._guardrail(name), each.guardrail_function)
            with self._recorded("tool_input", name) as span, code:
                found = await each.run(ToolInputGuardrailData(self._ctx, self._shown))
                self._mark(span, found)
            guarded = await self._record("input", name, found)
            if guarded.behavior == "reject_content":
                text = await self._source.store_result(guarded.message)
                return Outcome(content=text, status="failed", attempts=0, guards=self.guards)
            if guarded.behavior == "raise_exception":
                failure = self._tripped(TOOL_INPUT_TRIPPED, guarded)
                return Outcome(status="failed", attempts=0, guards=self.guards, failure=failure)
        return None

    async def begin(self) -> Outcome | None:
        """Screen the call, have `on_approval` decide, and call the hook for a tool about to run.

        Raises:
            ApplicationError: Code of the user's raised. The call has not been made.
        """
        stopped = await self.screen() or await self._rejected()
        if stopped is None and self._shown.hooks is not None:
            hook = self._shown.hooks.on_tool_start
            with users_code(f"hook on_tool_start of agent {self._agent.name!r}", hook):
                await invoke(hook, self._ctx, self._shown, self._tool)
        return stopped

    async def _rejected(self) -> Outcome | None:
        """Return the outcome of a call that the `on_approval` function of its tool rejects."""
        tool, ctx = self._tool, self._ctx
        if not isinstance(tool, LocalTool):
            return None
        with users_code(f"approval of tool {tool.name!r}", tool.on_approval):
            reason = await tool.rejection(ctx, ctx.arguments)
        if reason is None:
            return None
        text = await self._source.store_result(clean(reason))
        return Outcome(content=text, is_error=True, status="failed", attempts=0, guards=self.guards)

    async def end(self, outcome: Outcome) -> Outcome:
        """Run the guardrails of the result, then call the hook with what they leave of it.

        A hook that raises stops the step; the outcome is recorded all the same.

        Raises:
            ApplicationError: A guardrail raised, so that the result must not be used.
        """
        if not self._tool.tool_output_guardrails and self._shown.hooks is None:
            return outcome.model_copy(update={"guards": self.guards}) if self.guards else outcome
        if self.value is NOTHING or outcome.is_error:
            self.value = shown(await self._source.content(outcome.content))
        outcome = await self._checked(outcome)
        if outcome.failure is None and self._shown.hooks is not None:
            hook = self._shown.hooks.on_tool_end
            try:
                with users_code(f"hook on_tool_end of agent {self._agent.name!r}", hook):
                    await invoke(hook, self._ctx, self._shown, self._tool, self.value)
            except ApplicationError as error:
                outcome = outcome.model_copy(update={"failure": failure_by(error)})
        return outcome.model_copy(update={"guards": self.guards})

    async def _checked(self, outcome: Outcome) -> Outcome:
        for each in self._tool.tool_output_guardrails:
            data = ToolOutputGuardrailData(self._ctx, self._shown, self.value)
            name = each.get_name()
            try:
                code = users_code(self._guardrail(name), each.guardrail_function)
                with self._recorded("tool_output", name) as span, code:
                    found = await each.run(data)
                    self._mark(span, found)
            except ApplicationError as error:
                raise self._unchecked(name, error) from None
            guarded = await self._record("output", name, found)
            if guarded.behavior == "reject_content":
                self.value = guarded.message
                text = await self._source.store_result(guarded.message)
                return outcome.model_copy(update={"content": text, "nodes": (), "returned": None})
            if guarded.behavior == "raise_exception":
                failure = self._tripped(TOOL_OUTPUT_TRIPPED, guarded)
                return outcome.model_copy(update={"failure": failure})
        return outcome

    def _unchecked(self, name: str, error: ApplicationError) -> ApplicationError:
        """Return the failure of a call whose result could not be checked.

        A repeatable call is repeated with its guardrails when the task is run again. Of any other
        call a person must supply the result.
        """
        if self._tool.policy().repeatable:
            return error
        text = (
            f"Tool {self._tool.name!r} was run, but what it gave is lost, because its guardrail"
            f" {name!r} failed: {error.type}: {error.message}"
        )
        return LoggedError(text, type=INTERRUPTED, non_retryable=True)

    def _guardrail(self, name: str) -> str:
        return f"guardrail {name!r} of tool {self._tool.name!r}"

    def _recorded(self, kind: GuardrailKind, name: str) -> Block:
        return guardrail(self._head, name, kind, step=self._step, i=len(self.guards))

    def _mark(self, span: Recording, found: ToolGuardrailFunctionOutput) -> None:
        behavior = found.behavior["type"]
        tripped = behavior == "raise_exception"
        checked(span, self._agent.name, tripped=tripped, behavior=behavior)

    async def _record(
        self, kind: Any, name: str, found: ToolGuardrailFunctionOutput
    ) -> ToolGuarded:
        info, stored = await info_of(self._source, found.output_info)
        message = clean(str(found.behavior.get("message", "")))
        behavior = found.behavior["type"]
        guarded = ToolGuarded(
            kind=kind,
            name=name,
            behavior=behavior,
            message=message,
            info=info,
            info_class=class_name(found.output_info),
            stored=stored,
        )
        self.guards = (*self.guards, guarded)
        return guarded

    def _tripped(self, kind: str, guarded: ToolGuarded) -> Failure:
        facts: dict[str, Json] = {
            "found": guarded.wire(),
            "tool": self._tool.qualified_name,
            "agent": self._agent.name,
        }
        text = f"Guardrail {guarded.name!r} of tool {self._tool.name!r} triggered its tripwire."
        return Failure(type=kind, message=text, data=facts)
