"""The activity `handle`: an error handler of the run, asked for a final output."""

from __future__ import annotations

from typing import Any

from temporalio import activity

from holdfast.activities.data.source import TaskActivities, history_before
from holdfast.activities.failures import typed_failures
from holdfast.activities.heartbeat import heartbeats
from holdfast.activities.steps.agent_code import RegisteredCode
from holdfast.agents.agent import Agent
from holdfast.agents.agent_base import users_agent
from holdfast.agents.handoffs.filters import input_left
from holdfast.agents.runs.item_reading import conversation_items
from holdfast.agents.runs.teams import RunErrorData, RunErrorHandlerInput, as_handler_result
from holdfast.errors import AgentsException, InvalidArgumentError, UserError
from holdfast.models.openai.items import shown_items
from holdfast.task.data.wire import Handled, HandleInput
from holdfast.task.refusals import verdict_of
from holdfast.values import json_patch as merge_patch
from holdfast.values.base import Json
from holdfast.values.checks.gate import clean
from holdfast.values.code.user_calls import invoke, naming
from holdfast.values.messages import assistant


class HandlingActivities(TaskActivities):
    """Asks error handlers for the tasks of one worker process."""

    @activity.defn(name="handle")
    async def handle(self, given: HandleInput) -> Handled:
        """Ask the handler; validate and store what it gives."""
        with typed_failures():
            async with heartbeats():
                return await self._handle(given)

    async def _handle(self, given: HandleInput) -> Handled:
        head = await self._source.head(given.step.head)
        opened = await self._source.opened(given.step)
        code = await RegisteredCode.of(self._registry, self._source, head, opened.step.agent)
        agent, registry = code.live, code.registry
        handler = registry.code(head.run.error_handlers[given.kind])
        error = verdict_of(given.failure) or AgentsException(given.failure.message)
        data = await self._run_data(given, agent, registry.agent(head.agent))
        context = await code.context(opened.state)
        with naming(f"error handler {given.kind!r} of the run", handler):
            said = await invoke(handler, RunErrorHandlerInput(error, context, data))
        result = as_handler_result(said)
        if result is None:
            return Handled(declined=True)
        output, text = final_output_of(agent, result.final_output)
        said = assistant(clean(text)) if result.include_in_history else None
        stored = await self._source.store_json(output)
        return Handled(
            output=None if stored is not None else output,
            stored=stored,
            said=None if said is None else await self._source.offload(said),
        )

    async def _run_data(self, given: HandleInput, agent: Agent, first: Agent) -> RunErrorData:
        """Collect what the run has produced, the open step included."""
        source = self._source
        head = await source.head(given.step.head)
        opened = await source.opened(given.step)
        answers = [
            entry.answer.model_copy(update={"message": await source.resolve(entry.answer.message)})
            for entry in await source.journal(given.step)
            if entry.answer is not None
        ]
        messages = await source.transcript(given.step.at)
        given_in = opened.step.message()
        if opened.stored is not None and given_in is not None:
            text = await source.text(opened.stored)
            given_in = given_in.model_copy(update={"content": text})
        inputs = [] if given_in is None else [given_in]
        said = [*messages, *inputs, *(answer.message for answer in answers)]
        asked = [message for message in said[:1] if message.role == "user"]
        before = shown_items([*(await history_before(source, head)).messages, *asked])
        is_text = not head.history and not head.has_session and asked and not asked[0].images
        run_input: str | list[dict[str, Json]] = asked[0].text if is_text else before
        view = opened.step.history
        if view is not None:
            seen = (await source.stored_list(view.sha256)).messages[: view.given]
            left = input_left(view, seen)
            if left is not None:
                run_input, before = left, shown_items(seen)
        items = conversation_items(said[len(asked) :], first)
        output = [item.to_input_item() for item in items]
        return RunErrorData(
            input=run_input,
            new_items=items,
            history=[*before, *output],
            output=output,
            raw_responses=answers,
            last_agent=users_agent(agent),
        )


def final_output_of(agent: Agent, value: Any) -> tuple[Json, str]:
    """Return a handler's final output as JSON data, and as the text of an assistant message.

    Raises:
        UserError: It does not fit the agent's output type, or JSON cannot say it.
    """
    if agent.made_output is not None:
        return agent.made_output.dump(value)
    try:
        data = merge_patch.written(value, "final output")
    except InvalidArgumentError as cause:
        raise UserError(
            f"An error handler gave a final output of type {type(value).__name__}, which JSON"
            " cannot say. Return a text or plain data."
        ) from cause
    return data, value if isinstance(value, str) else str(value)
