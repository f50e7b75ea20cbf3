"""Runs in sessions of the caller's own: what the model sees, and what the caller's store gets."""

import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from holdfast import (
    GuardrailFunctionOutput,
    OutputGuardrail,
    OutputGuardrailTripwireTriggered,
    RunConfig,
    Runner,
    RunState,
    Session,
    UserError,
    tool,
)
from holdfast.activities.task_end import WITHHELD
from holdfast.agents_sdk import OutputGuardrailBlockedMessageArgs, SessionSettings
from holdfast.client.agent_runner.base import new_id
from holdfast.client.caller_sessions import store
from holdfast.client.caller_sessions.store import FEW, TAIL
from holdfast.errors import InvalidArgumentError, SessionUnclearError, TaskExistsError
from holdfast.testing import call
from tests.support.kept_session import Items, Kept, worded
from tests.support.runs import Runs, look, tools
from tests.support.workers import said


def answer(text: str, id: str = "msg_1") -> dict[str, Any]:
    """Write an answer as sessions get it: in the form of the API."""
    part: dict[str, Any] = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    kind = {"id": id, "type": "message", "role": "assistant", "status": "completed"}
    return {**kind, "content": [part]}


async def resume(run: Runs, state: RunState, **options: Any) -> Any:
    assert run.agent is not None
    return await Runner.run(run.agent, state, runner=run.runner, **options)


async def test_two_turns_read_and_write_the_callers_session(run: Runs) -> None:
    session = Kept(items=[{"role": "user", "content": "before"}])
    run.model.add(call("look", {"where": "up"}), "done")
    result = await run("q", look, session=session)
    assert said(run.model.requests[0].messages) == [("user", "before"), ("user", "q")]
    kinds = [each.get("type") or each["role"] for each in session.items]
    assert kinds == ["user", "user", "function_call", "function_call_output", "message"]
    assert session.items[1:] == [
        {"role": "user", "content": "q"},
        *[each.to_input_item() for each in result.new_items[:-1]],
        answer("done"),
    ]
    assert [*session.items[-1]["content"][0]] == ["annotations", "text", "type", "logprobs"]
    assert len(session.adds) == 1
    assert session.threads == {threading.get_ident()}
    items: Any = result.input
    assert [each["content"] for each in items] == ["before", "q"]
    run.model.reply("again")
    given = [{"role": "user", "content": "one"}, {"role": "user", "content": "two"}]
    await run(given, look, session=session)
    assert session.adds[1] == [*given, answer("again", "msg_2")]
    assert [each for each in run.model.requests[-1].body["input"] if "id" in each] == []
    seen = [role for role, _ in said(run.model.requests[2].messages)]
    assert seen == ["user", "user", "assistant", "tool", "assistant", "user", "user"]


async def test_a_session_of_openai_gets_items_without_ids_and_notes_of_other_providers(
    run: Runs,
) -> None:
    class OpenAIConversationsSession(Kept):
        """One like the Agents SDK's, which adds items as they are."""

    session = OpenAIConversationsSession()
    run.model.reply("done")
    note = {"id": "item_1", "provider_data": {"model": "other"}}
    await run([{"role": "user", "content": "q", **note}], session=session)
    assert [each.get("role") for each in session.items] == ["user", "assistant"]
    assert not any({"id", "provider_data"} & set(each) for each in session.items)


class MyOwn(Session):
    """A session of one's own whose base is Holdfast's."""

    async def get_items(self, limit: int | None = None) -> Items:
        return [{"role": "user", "content": "before"}]

    async def add_items(self, items: Sequence[dict[str, Any]]) -> None:
        """Take nothing."""


async def test_a_subclass_of_session_with_items_of_its_own_is_made_without_arguments(
    run: Runs,
) -> None:
    run.model.reply("done")
    await run("q", session=MyOwn())
    assert said(run.model.requests[0].messages) == [("user", "before"), ("user", "q")]
    with pytest.raises(InvalidArgumentError, match=r"AgentRunner.session\(name\) makes one"):
        Session()


@pytest.mark.parametrize("without", [False, True])
async def test_a_run_that_waits_writes_when_it_ends_or_goes_on_with_its_session_again(
    run: Runs, caplog: pytest.LogCaptureFixture, *, without: bool
) -> None:
    session = Kept()
    _, pay = tools()
    run.model.call("pay", {"to": "Kim"})
    state = (await run("q", pay, session=session)).to_state()
    state.approve(state.get_interruptions()[0])
    run.model.reply("paid")
    with pytest.raises(UserError, match=r"has session 'mine' of its caller"):
        await resume(run, state, session=Kept("other"))
    await resume(run, state, session=None if without else session)
    assert len(session.adds) == (0 if without else 1)
    assert ("'mine'" in caplog.text) is without
    again = RunState.of(state.task_id)
    for _ in range(2):
        await resume(run, again, session=session)
    assert len(session.adds) == 1
    roles = [role for role, _ in session.said]
    assert roles == ["user", "function_call", "function_call_output", "assistant"]


async def test_a_session_that_fails_gets_the_turn_when_the_run_is_run_again(run: Runs) -> None:
    session = Kept()
    session.fails = True
    run.model.reply("done")
    name = new_id("caller")
    with pytest.raises(OSError, match="disk is full"):
        await run("q", session=session, task_id=name)
    session.fails = False
    reads = len(session.reads)
    assert (await run("q", session=session, task_id=name, exist_ok=True)).final_output == "done"
    assert session.said == [("user", "q"), ("assistant", "done")]
    assert session.reads[reads:] == [store.ALL]  # its history is not read again
    assert len(run.model.requests) == 1
    with pytest.raises(TaskExistsError):
        await run("another", session=session, task_id=name, exist_ok=True)


def of_whom(args: OutputGuardrailBlockedMessageArgs[Any]) -> str:
    return f"{args.agent.name} {args.guardrail_name} {args.run_context.context}"


def of_the_output(args: Any) -> str:
    return str(args.output)


@pytest.mark.parametrize(
    ("formatter", "text"),
    [(of_whom, "agent no secrets {'user': 'ann'}"), (of_the_output, WITHHELD), ("gone", "gone")],
)
async def test_a_function_words_what_stands_in_the_place_of_blocked_results(
    run: Runs, formatter: Any, text: str
) -> None:
    def trip(*_: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered=True)

    await run.serve(look, tool_use_behavior="stop_on_first_tool")
    session = Kept()
    run.model.call("look", {"where": "up"})
    config = RunConfig(
        output_guardrails=[OutputGuardrail(trip, name="no secrets")],
        output_guardrail_blocked_message=formatter,
    )
    with pytest.raises(OutputGuardrailTripwireTriggered):
        await run("q", session=session, run_config=config, context={"user": "ann"})
    assert session.items[2]["output"] == text


async def test_what_cannot_work_is_refused_before_anything_happens(run: Runs) -> None:
    with pytest.raises(UserError, match="lacks get_items"):
        await run("q", session=object())
    with pytest.raises(UserError, match="exclude each other"):
        await run("q", session=Kept(), conversation_id="c1")
    session = Kept(items=[{"role": "nobody", "content": "x"}])
    with pytest.raises(InvalidArgumentError, match="its role is 'nobody'"):
        await run("q", session=session)


# ---- how often a run reads a session of the caller's own, and that its turn is written once

ONCE_MORE = TAIL + 1
"""The limit of a read for the turn alone."""


class Breaking(Kept):
    """A session whose add_items fails after it has added items, as often as it is told to.

    Attributes:
        adds_before: Number of a turn's items that it adds before it fails; None for all.
        breaks: Called in the place of an error; None for an error.
    """

    adds_before: int | None = None
    breaks: Callable[[], Awaitable[None]] | None = None
    times = 1

    async def add_items(self, items: Items) -> None:
        fails, self.times = self.times > 0, self.times - 1
        await super().add_items(items[: self.adds_before] if fails else items)
        if fails and self.breaks is not None:
            await self.breaks()
        elif fails:
            msg = "the connection is gone"
            raise OSError(msg)


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


async def test_a_run_reads_its_session_once_also_under_an_id_and_streamed(run: Runs) -> None:
    agent = await run.serve()
    options: list[dict[str, Any]] = [{}, {"task_id": new_id("caller"), "exist_ok": True}]
    for given in options:
        session = Kept(items=[user("before")])
        run.model.reply("done")
        await run("q", session=session, **given)
        assert session.reads == [None]
        assert len(session.adds) == 1
    session = Kept()
    run.model.reply("done")
    stream = Runner.run_streamed(agent, "q", runner=run.runner, session=session)
    assert [event async for event in stream.stream_events()]
    assert session.reads == [None]
    assert session.said == [("user", "q"), ("assistant", "done")]


@pytest.mark.parametrize(
    ("limit", "has", "reads"),
    [(FEW - 1, FEW + 9, [FEW - 1, ONCE_MORE]), (FEW, FEW + 9, [FEW]), (None, 2 * TAIL, [None])],
)
async def test_a_limit_that_shows_too_little_of_a_session_has_it_read_once_more(
    run: Runs, limit: int | None, has: int, reads: list[int | None]
) -> None:
    session = Breaking(items=[user(str(k)) for k in range(has)])
    session.session_settings = SessionSettings(limit=limit)
    run.model.reply("done")
    name = new_id("caller")
    for _ in range(2):
        session.times = 1 if not session.adds else 0
        if session.times:
            with pytest.raises(OSError, match="connection"):
                await run("q", session=session, task_id=name)
        else:
            await run("q", session=session, task_id=name, exist_ok=True)
    assert session.reads == [*reads, store.ALL]
    assert session.said[has:] == [("user", "q"), ("assistant", "done")]


async def broken_beside_another(run: Runs, *, adds: int | None) -> tuple[Breaking, str]:
    """Run a task whose append fails, and whose tool has another write to the session.

    Args:
        run: Runs it.
        model: Its model.
        adds: How many items of the turn are added before the failure; None for all.

    Returns:
        The session and the task's id.
    """
    session = Breaking(items=[user("before")])
    session.adds_before = adds

    @tool(effect="read")
    def note() -> str:
        session.items.append(user("of another"))
        return "noted"

    run.model.add(call("note"), "done")
    name = new_id("caller")
    with pytest.raises(OSError, match="connection"):
        await run("q", note, session=session, task_id=name)
    return session, name


@pytest.mark.parametrize("written", [True, False])
async def test_items_that_others_added_during_the_run_are_told_apart_or_make_it_unclear(
    run: Runs, *, written: bool
) -> None:
    session, name = await broken_beside_another(run, adds=None if written else 0)
    again = run("q", session=session, task_id=name, exist_ok=True)
    if written:
        await again
    else:
        with pytest.raises(SessionUnclearError, match="do not show") as caught:
            await again
        assert [worded(each) for each in caught.value.items][::3] == ["q", "done"]
    assert len(session.items) == (6 if written else 2)
