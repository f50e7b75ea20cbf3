"""ReActAgentWorker: rounds of text, against a real server and a model that offers no calls."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast import Agent, AgentRunner, Budget, Task, TaskStepOutput, ToolContext, tool
from holdfast.agents.tools.context import Effect
from holdfast.errors import InvalidArgumentError, StepFailedError
from holdfast.models.base import ModelAnswer
from holdfast.task.data.head import AGENTS_SDK, TaskHead
from holdfast.testing import FakeOpenAI, ScriptedModel
from holdfast.values.messages import Message, ToolCall, assistant, user
from holdfast.workers import MultimodalReActAgentWorker, ReActAgentWorker
from holdfast.workers.context.model_calls import LAST_CALL
from holdfast.workers.react.parser import ParseFailure
from holdfast.workers.react.prompt import ANSWER_NOW, WITHOUT_TOOL
from tests.support.people import World, ask
from tests.support.rig import MakeAgent, MakeRunner, Rig, until_status
from tests.support.workers import said


@tool(effect="read")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(effect="read")
def broken() -> str:
    """Fail."""
    raise RuntimeError("no such luck")


@tool(effect="read", return_direct=True)
def direct(fail: bool = False) -> str:
    """Answer directly."""
    if fail:
        raise RuntimeError("cannot")
    return "Thought: not one\nAnswer: word for word "


def act(name: str = "add", thought: str = "I add.", **arguments: Any) -> str:
    given = json.dumps(arguments or {"a": 1, "b": 2})
    return f"Thought: {thought}\nAction: {name}\nAction Input: {given}"


def finish(text: str) -> str:
    return f"Thought: Enough.\nAnswer: {text}"


@pytest.fixture
def world() -> World:
    return World()


async def ran(runner: AgentRunner, *, steps: int = 0, **options: Any) -> tuple[Task, list[Any]]:
    """Create a task and run so many steps, or all."""
    task = await runner.create_task("q", **options)
    outputs: list[TaskStepOutput] = []
    while not outputs or (len(outputs) != steps and not outputs[-1].is_last):
        outputs.append(await runner.run_step(task))
    return task, outputs


async def transcript(runner: AgentRunner, task: Task) -> list[tuple[str, str]]:
    return said(await runner.transcript(task))


# ---- one round


async def test_an_action_is_one_tool_call_and_one_observation_and_an_answer_is_last(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(add, worker=ReActAgentWorker())
    model.reply(act())
    model.reply(finish("3"))
    task, [first, last] = await ran(runner)
    [source] = first.sources
    assert (source.tool_name, source.content, source.call_id) == ("add", "3", "call_s1")
    assert json.loads(source.raw_input) == {"a": 1, "b": 2}
    assert (first.is_last, last.is_last, str(last), last.sources) == (False, True, "3", ())
    assert await transcript(runner, task) == [
        ("user", "q"),
        ("assistant", act()),
        ("user", "Observation: 3"),
        ("assistant", finish("3")),
    ]
    response = await runner.finalize_response(task)
    assert (str(response), [s.content for s in response.sources]) == ("3", ["3"])


async def test_the_model_gets_the_tools_in_the_prompt_and_none_to_call(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    await rig.serve(make_agent(add, instructions="Be brief.", worker=ReActAgentWorker()))
    model.reply("hello")
    await ran(rig.runner())
    [request] = model.requests
    assert request.tools == ()
    assert request.instructions.startswith("Be brief.\n")
    assert "- add\n  Add two numbers.\n  Schema: {" in request.instructions


async def test_calls_of_a_model_that_was_offered_no_tools_are_not_run(rig: Rig) -> None:
    message = assistant("hello", calls=(ToolCall(id="c", name="add", arguments="{}"),))
    scripted = ScriptedModel([ModelAnswer(message=message)])
    await rig.serve(Agent(name="agent", model=scripted, tools=[add], worker=ReActAgentWorker()))
    runner = rig.runner()
    task, [output] = await ran(runner)
    assert (str(output), output.sources) == ("hello", ())
    assert (await runner.transcript(task))[-1] == assistant("hello")


async def test_what_the_model_made_up_is_kept_from_the_next_round(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(add, worker=ReActAgentWorker())
    model.reply(act() + "\nObservation: 99\nThought: Done.\nAnswer: 99")
    model.reply(finish("3"))
    _, [first, last] = await ran(runner)
    assert (first.sources[0].content, str(last)) == ("3", "3")
    assert not model.requests[1].holds("99")


async def test_an_unknown_tool_is_an_observation_that_names_the_known_ones(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(add, broken, worker=ReActAgentWorker())
    model.reply(act("sub"))
    model.reply(finish("none"))
    task, [first, last] = await ran(runner)
    assert (first.sources, str(last)) == ((), "none")
    _, observed = (await transcript(runner, task))[1:3]
    assert observed[1].startswith("Observation: There is no tool named 'sub'.")
    assert "add, broken" in observed[1]


async def test_an_unknown_tool_is_an_observation_in_the_dialect_that_raises_too(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    await rig.serve(make_agent(add, worker=ReActAgentWorker()))
    model.reply(act("sub"))
    model.reply(finish("none"))
    runner = rig.runner()
    head = TaskHead(agent="agent", dialect=AGENTS_SDK)
    await runner.run_to_end("q", head, task_id=f"{rig.app}-sdk")
    assert str(await runner.get_task_output(f"{rig.app}-sdk")) == "none"


async def test_the_error_of_a_tool_is_an_observation(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(broken, worker=ReActAgentWorker())
    model.reply("Action: broken\nAction Input: {}")
    model.reply(finish("sorry"))
    _, [first, last] = await ran(runner)
    assert first.sources[0].is_error
    assert model.requests[1].last_user.startswith("Observation: ")
    assert "no such luck" in model.requests[1].last_user
    assert str(last) == "sorry"


async def test_arguments_that_do_not_fit_the_tool_are_an_observation(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(add, worker=ReActAgentWorker())
    model.reply(act(a="one"))
    model.reply(finish("sorry"))
    await ran(runner)
    assert "b: required, but missing" in model.requests[1].last_user


# ---- replies that cannot be read


@pytest.mark.parametrize("reply", ["Action: add\nAction Input: [1, 2]", "Thought: hm", ""])
async def test_a_reply_that_cannot_be_read_is_answered_by_what_is_wrong(
    make_runner: MakeRunner, model: FakeOpenAI, reply: str
) -> None:
    runner = await make_runner(add, worker=ReActAgentWorker())
    model.reply(reply)
    model.reply(finish("3"))
    task, [first, last] = await ran(runner, session="s")
    assert (first.is_last, first.sources, str(last)) == (False, (), "3")
    assert "could not be read: " in model.requests[1].last_user
    own = [(role, text) for role, text in await transcript(runner, task) if role == "assistant"]
    assert own == [("assistant", text) for text in (reply, finish("3")) if text]
    await runner.finalize_response(task)
    history = await runner.session("s").chat_history()
    assert said(history) == [("user", "q"), ("assistant", "3")]


async def test_a_handler_of_ones_own_makes_the_observation(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    def handler(reply: str, failure: ParseFailure) -> str:
        return f"{reply!r}: {failure.text}!"

    runner = await make_runner(add, worker=ReActAgentWorker(on_parse_failure=handler))
    model.reply("Action: add")
    model.reply(finish("3"))
    await ran(runner)
    assert model.requests[1].last_user.startswith("Observation: 'Action: add': there is no")


async def test_a_handler_that_raises_fails_the_step_and_the_answer_is_not_paid_for_again(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    strict = True

    def handler(reply: str, failure: ParseFailure) -> str:
        if strict:
            raise ValueError("write properly")
        return "again"

    runner = await make_runner(add, worker=ReActAgentWorker(on_parse_failure=handler))
    model.reply("Action: add")
    task = await runner.create_task("q")
    with pytest.raises(StepFailedError, match="write properly"):
        await runner.run_step(task)
    strict = False
    assert not (await runner.run_step(task)).is_last
    assert len(model.requests) == 1


# ---- limits


async def test_an_answer_on_the_last_turn_succeeds_and_tools_ran_on_those_before(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(add, worker=ReActAgentWorker(max_turns=3))
    model.reply(act())
    model.reply(act())
    model.reply(finish("3"))
    _, outputs = await ran(runner)
    assert [len(output.sources) for output in outputs] == [1, 1, 0]
    assert str(outputs[-1]) == "3"
    told = [request.holds(ANSWER_NOW.text) for request in model.requests]
    assert told == [False, False, True]


async def test_one_turn_is_enough_for_an_immediate_answer(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(add, worker=ReActAgentWorker(max_turns=1))
    model.reply("3")
    _, [output] = await ran(runner)
    assert (str(output), output.is_last) == ("3", True)


async def test_an_action_on_the_last_turn_is_not_run_and_the_answer_says_so(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(add, worker=ReActAgentWorker(max_turns=2))
    model.reply(act())
    model.reply(act(thought="Once more.", a=3, b=4))
    task, [_, last] = await ran(runner, session="s")
    assert (last.is_last, last.sources) == (True, ())
    assert "the limit of 2 model calls was reached" in str(last)
    assert "Once more." in str(last)
    assert '{"a": 3, "b": 4}' in str(last)
    assert ("assistant", act(thought="Once more.", a=3, b=4)) in await transcript(runner, task)
    await runner.finalize_response(task)
    history = await runner.session("s").chat_history()
    assert said(history) == [("user", "q"), ("assistant", str(last))]


@pytest.mark.parametrize("reply", ["Thought: nearly there", ""])
async def test_a_last_reply_that_cannot_be_read_ends_the_task_too(
    make_runner: MakeRunner, model: FakeOpenAI, reply: str
) -> None:
    runner = await make_runner(add, worker=ReActAgentWorker(max_turns=1))
    model.reply(reply)
    task, [output] = await ran(runner)
    assert "the limit of 1 model call was reached" in str(output)
    assert reply in str(output)
    assert str(await runner.finalize_response(task)) == str(output)


@pytest.mark.parametrize("max_turns", [0, -1])
def test_a_limit_that_allows_nothing_is_refused(max_turns: int) -> None:
    with pytest.raises(InvalidArgumentError, match="at least 1"):
        ReActAgentWorker(max_turns=max_turns)


@pytest.mark.parametrize("worker", [ReActAgentWorker, MultimodalReActAgentWorker])
@pytest.mark.parametrize("options", [{"max_turns": "3"}, {"max_turns": 2.0}, {"max_turns": True}])
def test_a_limit_that_is_no_whole_number_is_refused(worker: Any, options: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"max_turns .* whole number"):
        worker(**options)


@pytest.mark.parametrize("options", [{"prompt": "Be kind."}, {"on_parse_failure": "again"}])
def test_a_text_where_a_function_is_needed_is_refused(options: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="must be a function"):
        ReActAgentWorker(**options)


@pytest.mark.parametrize("acts", [True, False])
async def test_the_end_of_the_budget_is_an_answer(
    make_runner: MakeRunner, model: FakeOpenAI, acts: bool
) -> None:
    runner = await make_runner(add, worker=ReActAgentWorker(max_turns=2))
    model.reply(act())
    model.reply(act() if acts else finish("about 3"))
    _, [_, last] = await ran(runner, budget=Budget(max_turns=1, on_exceeded="finish"))
    assert (last.is_last, last.sources) == (True, ())
    assert model.requests[1].holds(LAST_CALL.text)
    assert not model.requests[1].holds(ANSWER_NOW.text)
    assert str(last) == "about 3" or "the budget of the task was reached" in str(last)


# ---- tool choice


async def test_a_chosen_tool_is_asked_for_in_the_first_step_only(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(add, worker=ReActAgentWorker())
    model.reply(act())
    model.reply(finish("3"))
    _, [first, _] = await ran(runner, tool_choice="add")
    assert first.sources[0].content == "3"
    asked = [[m.text for m in r.messages].count("Use add next.") for r in model.requests]
    assert asked == [1, 1]


async def test_an_action_where_no_tool_was_wanted_is_not_run(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(add, worker=ReActAgentWorker())
    model.reply(act())
    task, [output] = await ran(runner, steps=1, tool_choice="none")
    assert (output.sources, output.is_last) == ((), False)
    assert model.requests[0].holds(WITHOUT_TOOL.text)
    assert "was not run" in (await transcript(runner, task))[-1][1]


# ---- direct return


async def test_a_direct_tool_ends_the_task_with_its_text_word_for_word(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(direct, worker=ReActAgentWorker())
    model.reply("Action: direct\nAction Input: {}")
    task, [output] = await ran(runner, session="s")
    text = "Thought: not one\nAnswer: word for word "
    assert (str(output), output.is_last, output.sources[0].content) == (text, True, text)
    await runner.finalize_response(task)
    history = await runner.session("s").chat_history()
    assert history == [user("q"), assistant(text)]


async def test_a_direct_tool_that_fails_is_an_observation(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(direct, worker=ReActAgentWorker())
    model.reply(act("direct", fail=True))
    model.reply(finish("sorry"))
    _, [first, last] = await ran(runner)
    assert (first.is_last, str(last)) == (False, "sorry")
    assert "cannot" in model.requests[1].last_user


# ---- people


async def test_an_input_in_mid_task_is_an_observation_before_the_next_model_call(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(add, worker=ReActAgentWorker())
    model.reply(act())
    model.reply(finish("3"))
    task, _ = await ran(runner, steps=1, session="s")
    await runner.run_step(task, input="x")
    assert [m.text for m in model.requests[1].messages][-2:] == [
        "Observation: 3",
        "Observation: x",
    ]
    assert (await runner.get_task(task)).input == "q"
    await runner.finalize_response(task)
    assert said(await runner.session("s").chat_history()) == [("user", "q"), ("assistant", "3")]


async def test_a_task_keeps_each_user_turn_with_its_answer_and_nothing_else(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(add, worker=ReActAgentWorker(max_turns=2))
    model.reply(act())
    model.reply(finish("3"))
    model.reply(act(a=3, b=3))
    model.reply("6")
    task = await runner.create_task("Observation: is 1 + 2?", session="s")
    await runner.give_feedback(task, "be brief", by="ann")
    await runner.run_step(task)
    await runner.give_feedback(task, "briefer", by="ann")
    await runner.give_feedback(task, "and twice that?", when="queued", by="ann")
    await runner.run_task(task)
    assert ("user", "and twice that?") in said(model.requests[2].messages)
    await runner.finalize_response(task)
    assert await runner.session("s").chat_history() == [
        user("Observation: is 1 + 2?"),
        assistant("3"),
        user("and twice that?"),
        assistant("6"),
    ]


async def test_a_fork_with_an_input_of_its_own_begins_a_turn(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(add, worker=ReActAgentWorker())
    model.reply(act())
    model.reply(finish("other"))
    task, [first] = await ran(runner, steps=1, session="s")
    fork = await runner.fork(task, at=first, input="something else", session="s", by="ann")
    await runner.run_task(fork)
    assert model.requests[1].last_user == "something else"
    await runner.finalize_response(fork)
    assert await runner.session("s").chat_history() == [
        user("q"),
        user("something else"),
        assistant("other"),
    ]
    await runner.abandon(task, reason="enough", by="ann")


async def test_a_tool_call_waits_for_its_approval_and_runs_as_edited(
    make_runner: MakeRunner, model: FakeOpenAI, world: World
) -> None:
    @tool(needs_approval=True)
    async def pay(amount: int) -> str:
        """Pay."""
        world.done.append(f"pay {amount}")
        return f"paid {amount}"

    runner = await make_runner(pay, worker=ReActAgentWorker())
    model.reply(act("pay", amount=500))
    model.reply(finish("paid"))
    task, [output] = await ran(runner, steps=1)
    assert (output.status, world.done) == ("waiting", [])
    assert (await runner.get_task(task)).status == "waiting"
    approval = await ask(runner, task)
    assert (approval.tool, approval.arguments) == ("pay", '{"amount": 500}')
    await runner.approve(approval, "ann", arguments={"amount": 50})
    output = await runner.run_step(task)
    assert (output.status, str(output.sources[0])) == ("done", "paid 50")
    assert str(await runner.run_step(task)) == "paid"
    assert world.done == ["pay 50"]
    assert len(model.requests) == 2
    assert model.requests[1].holds("Observation: paid 50")


async def test_a_rejected_call_is_an_observation(
    make_runner: MakeRunner, model: FakeOpenAI, world: World
) -> None:
    @tool(needs_approval=True)
    async def pay(amount: int) -> str:
        """Pay."""
        world.done.append("pay")
        return "paid"

    runner = await make_runner(pay, worker=ReActAgentWorker())
    model.reply(act("pay", amount=5))
    model.reply(finish("not paid"))
    task, _ = await ran(runner, steps=1)
    await runner.reject(await ask(runner, task), "ann", "too dear")
    assert str(await runner.run_task(task)) == "not paid"
    assert "too dear" in model.requests[1].last_user
    assert world.done == []


async def test_a_step_is_undone_with_its_effect_and_the_task_goes_on(
    make_runner: MakeRunner, model: FakeOpenAI, world: World
) -> None:
    async def cancel(effect: Effect) -> str:
        world.done.append(f"cancel {effect.arguments['city']}")
        return "cancelled"

    @tool(undo=cancel)
    async def book(ctx: ToolContext, city: str) -> str:
        """Book."""
        world.done.append(f"book {city}")
        ctx.state["city"] = city
        return f"booked {city}"

    runner = await make_runner(book, worker=ReActAgentWorker(max_turns=2))
    model.reply(act("book", city="Rome"))
    model.reply(act("book", city="Paris"))
    model.reply(finish("Paris it is"))
    task, _ = await ran(runner, steps=1, session="s")
    await runner.undo_step(task, reason="wrong city", by="ann")
    assert await transcript(runner, task) == []
    assert (await runner.get_task(task)).extra_state == {}
    output = await runner.run_step(task)
    assert (str(output.sources[0]), output.is_last) == ("booked Paris", False)
    assert str(await runner.run_step(task)) == "Paris it is"
    assert world.done == ["book Rome", "cancel Rome", "book Paris"]
    assert model.requests[1].holds("wrong city")
    assert not model.requests[2].holds("booked Rome")
    await runner.finalize_response(task)
    assert said(await runner.session("s").chat_history()) == [
        ("user", "q"),
        ("assistant", "Paris it is"),
    ]


# ---- what lasts


async def test_another_worker_process_goes_on_where_the_first_one_stopped(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    agent = make_agent(add, worker=ReActAgentWorker(max_turns=2))
    await rig.serve(agent)
    runner = rig.runner()
    model.reply(act())
    model.reply(finish("3"))
    task, _ = await ran(runner, steps=1)
    await rig.serve(agent)
    last = await runner.run_step(task)
    assert (str(last), last.is_last) == ("3", True)
    assert len(model.requests) == 2


async def test_a_worker_process_that_stops_while_a_person_decides_pays_for_nothing_twice(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    @tool(needs_approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    agent = make_agent(pay, worker=ReActAgentWorker())
    await rig.serve(agent)
    runner = rig.runner()
    model.reply(act("pay", amount=5))
    model.reply(finish("paid"))
    task, _ = await ran(runner, steps=1)
    approval = await ask(runner, task)
    await rig.stop()
    await runner.approve(approval, "ann")
    await rig.serve(agent)
    await until_status(runner, task, "running")
    assert str(await runner.run_task(task)) == "paid"
    assert len(model.requests) == 2


async def test_a_large_result_reaches_the_model_whole(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    text = "many words " * 5000

    def read() -> str:
        """Read a book."""
        return text

    runner = await make_runner(read, worker=ReActAgentWorker())
    model.reply("Action: read\nAction Input: {}")
    model.reply(finish("long"))
    task, [first, _] = await ran(runner)
    assert first.sources[0].content == text
    assert model.requests[1].last_user == f"Observation: {text}"
    assert str(await runner.finalize_response(task)) == "long"


async def test_the_next_task_of_a_session_sees_question_and_answer_only(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(add, worker=ReActAgentWorker())
    model.reply(act())
    model.reply(finish("3"))
    model.reply(finish("4"))
    await runner.chat("1 + 2?", session="s")
    await runner.chat("and 1 more?", session="s")
    assert said(model.requests[2].messages) == [
        ("user", "1 + 2?"),
        ("assistant", "3"),
        ("user", "and 1 more?"),
    ]


async def test_a_refusal_is_the_answer(make_runner: MakeRunner, model: FakeOpenAI) -> None:
    runner = await make_runner(add, worker=ReActAgentWorker())
    model.refuse("I will not.")
    task, [output] = await ran(runner, session="s")
    assert (str(output), output.is_last) == ("I will not.", True)
    await runner.finalize_response(task)
    history: list[Message] = await runner.session("s").chat_history()
    assert said(history) == [("user", "q"), ("assistant", "I will not.")]
