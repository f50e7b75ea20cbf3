"""Runs that become tests: a recorded task is replayed against its agent as it is now."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pydantic
import pytest

from holdfast import Agent, AgentRunner, Runner, ToolCall, handoff, tool
from holdfast.errors import InvalidArgumentError
from holdfast.testing import Case, CaseDiffersError, ScriptedModel, record_run, replay_run
from holdfast.workers import ReActAgentWorker
from tests.support.tool_servers import Place

PAID: list[int] = []


def call(name: str, **arguments: object) -> ToolCall:
    return ToolCall(id="", name=name, arguments=json.dumps(arguments))


@tool(needs_approval=True)
def pay(amount: int) -> str:
    """Pay an amount."""
    PAID.append(amount)
    return f"paid {amount}"


@tool(effect="read")
def weather(city: str) -> str:
    """Tell the weather."""
    if city == "Atlantis":
        msg = "no such city"
        raise ValueError(msg)
    return f"dry in {city}"


class Verdict(pydantic.BaseModel):
    """An output with a structure."""

    rain: bool


@pytest.fixture(scope="module")
async def runner() -> AsyncIterator[AgentRunner]:
    idle = Agent(name="idle", model=ScriptedModel([]))
    async with AgentRunner.local(idle, data_dir=None) as made:
        yield made


def clerk(**changes: Any) -> Agent:
    model = ScriptedModel(
        [
            (call("weather", city="Oslo"), call("weather", city="Atlantis")),
            call("pay", amount=5),
            "Paid. The key is sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD.",
            "Once more: paid.",
        ]
    )
    given = {"name": "clerk", "instructions": "Be short.", "tools": [pay, weather]}
    return Agent(model=model, **(given | changes))


@pytest.fixture(scope="module")
async def case(runner: AgentRunner, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Record a run with parallel calls, an error, feedback, an approval and a follow-up."""
    await runner.ensure_agent(clerk())
    task = await runner.create_task("Pay for Oslo, passphrase: tulip", agent="clerk")
    await runner.run_step(task)
    await runner.give_feedback(task, "but quickly", by="ann")
    await runner.run_step(task)
    (approval,) = await runner.pending_approvals()
    await runner.approve(approval, "bob")
    while not (await runner.run_step(task)).is_last:
        pass
    await runner.run_step(task, "And again?")
    await runner.finalize_response(task)
    file = tmp_path_factory.mktemp("cases") / "pay.json"
    (await record_run(runner, task, secrets=["tulip"])).save(file)
    return file


async def test_an_unchanged_agent_passes_and_what_may_differ_or_is_ignored_is_no_difference(
    case: Path,
) -> None:
    PAID.clear()
    replayed = await replay_run(case, agent=clerk())
    assert (replayed.turns, replayed.differences, PAID) == (4, (), [])  # no tool runs
    changed = clerk(instructions="Be brief.")
    assert (await replay_run(case, agent=changed, ignore=["short|brief"])).turns == 4
    assert (await replay_run(case, agent=changed, may_differ=["instructions"])).turns == 4
    text = case.read_text("utf-8")  # which holds no secret and reads as it was written
    assert "tulip" not in text
    assert "sk-proj" not in text
    assert "[redacted]" in text
    assert Case.load(case).to_json() == text


@tool(name="pay", description="Pay an amount.", needs_approval=True)
def pay_up_to_three(amount: pydantic.conint(le=3)) -> str:  # type: ignore[valid-type]
    """Pay an amount."""
    return f"paid {amount}"


@pytest.mark.parametrize(
    ("changes", "options", "said"),
    [
        (
            {"instructions": "Be long."},
            {},
            ["instructions of agent 'clerk'", "-Be short.\n+Be long."],
        ),
        (
            {"instructions": lambda *_: "Be short."},
            {},
            ["instructions of agent 'clerk'", "+(a function makes them)"],
        ),
        ({"tools": [weather]}, {}, ["tools and handoffs of agent 'clerk'", "-pay: Pay an amount."]),
        ({"output_type": Verdict}, {}, ["structure of the output of agent 'clerk'", '+   "rain"']),
        ({"name": "cleric"}, {}, ["The agents are others", "-clerk\n+cleric"]),
        (
            {"tools": [pay_up_to_three, weather]},
            {"may_differ": ["tools"]},
            ["Tool 'pay' refuses arguments", '{"amount": 5}', "less than or equal to 3"],
        ),
        (
            {"tool_use_behavior": {"stop_at_tool_names": ["pay"]}},
            {},
            ["The run ends after 2 model calls; the case has 4", "assistant: Paid."],
        ),
        (
            {"tools": [pay, tool(name="weather", effect="read")(lambda city: f"wet in {city}")]},
            {"may_differ": ["tools"], "runs": ["weather"]},
            ["model call 2 is sent differs", "-tool: dry in Oslo\n", "+tool: wet in Oslo"],
        ),
    ],
    ids=["instructions", "function", "tools", "output", "name", "arguments", "end", "results"],
)
async def test_the_first_difference_is_told_as_a_diff(
    case: Path, changes: dict[str, Any], options: dict[str, Any], said: list[str]
) -> None:
    with pytest.raises(CaseDiffersError) as raised:
        await replay_run(case, agent=clerk(**changes), **options)
    for each in [*said, str(case)]:
        assert each in str(raised.value)


async def test_an_update_writes_the_case_again(
    case: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "case.json"
    file.write_text(case.read_text("utf-8"), "utf-8")

    def today(*_: object) -> str:
        return "Be slow. a-token-of-the-crm"

    monkeypatch.setenv("HOLDFAST_UPDATE", "1")
    monkeypatch.setenv("CRM_TOKEN", "a-token-of-the-crm")
    changed = clerk(instructions=today, output_type=None)
    updated = await replay_run(file, agent=changed, secrets=["but quickly"])
    monkeypatch.delenv("HOLDFAST_UPDATE")
    [difference] = updated.differences
    assert "+(a function makes them)" in difference
    assert not any(each in file.read_text("utf-8") for each in ("a-token-of", "but quickly"))
    assert (await replay_run(file, agent=changed)).turns == 4
    before, after = Case.load(case), Case.load(file)
    assert (after.messages[:3], after.output, after.usage) == (
        before.messages[:3],
        before.output,
        before.usage,
    )
    other = clerk(instructions=lambda *_: "Be quick.")
    with pytest.raises(CaseDiffersError, match=r"instructions of model call 1(.|\n)*\+Be quick"):
        await replay_run(file, agent=other)


def team(tools: list[Any]) -> Agent:
    expert = Agent(
        name="expert",
        instructions="Know.",
        model=ScriptedModel([call("weather", city="Rome"), '{"rain": false}']),
        tools=tools,
        output_type=Verdict,
    )
    inner = Agent(name="inner", model=ScriptedModel(["inner words"]))
    return Agent(
        name="front",
        instructions="Route.",
        model=ScriptedModel([call("ask", input="hm"), call("transfer_to_expert")]),
        tools=[inner.as_tool("ask", "Ask.")],
        handoffs=[expert],
    )


async def test_runs_of_runner_with_handoffs_children_and_typed_outputs_are_replayed(
    runner: AgentRunner,
) -> None:
    result = await Runner.run(team([weather]), "Rain in Rome?", runner=runner)
    recorded = await record_run(runner, result.task_id)
    assert [each.agent for each in recorded.agents] == ["front", "expert"]
    assert recorded.output == {"rain": False}
    assert (await replay_run(recorded, agent=team([weather]))).turns == 4
    with pytest.raises(CaseDiffersError, match="tools and handoffs of agent 'expert'"):
        await replay_run(recorded, agent=team([weather, pay]))


async def test_a_turn_of_a_session_is_replayed_with_its_history(runner: AgentRunner) -> None:
    agent = Agent(name="talker", model=ScriptedModel(["one", "two"]))
    await Runner.run(agent, "first", session=runner.session("s"), runner=runner)
    result = await Runner.run(agent, "second", session=runner.session("s"), runner=runner)
    recorded = await record_run(runner, result.task_id)
    assert [said.text for said in recorded.history] == ["first", "one"]
    assert (await replay_run(recorded, agent=agent)).turns == 1


async def test_no_mcp_server_is_asked(runner: AgentRunner, tmp_path: Path) -> None:
    place = Place(tmp_path)
    model = ScriptedModel([call("look", thing="lamp"), "seen"])
    agent = Agent(name="looker", model=model, mcp_servers=[place.stdio()])
    result = await Runner.run(agent, "Look.", runner=runner)
    recorded = await record_run(runner, result.task_id)
    begun = place.calls, place.pids
    assert begun[0] == {"look:lamp": 1}
    assert (await replay_run(recorded, agent=agent)).turns == 2
    assert (place.calls, place.pids) == begun


async def test_a_task_that_cannot_be_replayed_is_refused(runner: AgentRunner) -> None:
    model = ScriptedModel(["Thought: I can answer.\nAnswer: x"])
    agent = Agent(name="thinker", model=model, worker=ReActAgentWorker())
    await runner.ensure_agent(agent)
    task = await runner.create_task("x", agent=agent.name)
    with pytest.raises(InvalidArgumentError, match="no answer of a model yet"):
        await record_run(runner, task)
    await runner.run_task(task)
    with pytest.raises(InvalidArgumentError, match="has a ReActAgentWorker"):
        await record_run(runner, task)


def test_what_is_no_case_is_refused(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.json"
    for text in ("", "{}", '{"task": "x", "agents": [], "messages": [], "mesages": []}'):
        wrong.write_text(text)
        with pytest.raises(InvalidArgumentError, match="cannot be read as a recorded case"):
            Case.load(wrong)


async def test_options_that_cannot_be_used_are_refused(case: Path) -> None:
    odds: list[tuple[dict[str, Any], str]] = [
        ({"ignore": "a.b"}, "ignore"),
        ({"may_differ": ["instruction"]}, "may_differ"),
        ({"runs": ["wether"]}, "no agent has: wether"),
        ({"update": True}, "Only a case in a file"),
    ]
    for odd, said in odds:
        known = Case.load(case) if "update" in odd else case
        with pytest.raises(InvalidArgumentError, match=said):
            await replay_run(known, agent=clerk(), **odd)


async def test_what_a_filter_shows_is_compared_in_every_turn(
    runner: AgentRunner, tmp_path: Path
) -> None:
    def front(shown: Any) -> Agent:
        known = ScriptedModel([call("weather", city="Rome"), "dry"])
        expert = Agent(name="expert", model=known, tools=[weather])
        model = ScriptedModel([call("transfer_to_expert")])
        return Agent(name="front", model=model, handoffs=[handoff(expert, input_filter=shown)])

    def whole(data: Any) -> Any:
        return data

    def wrong(data: Any) -> Any:
        return data.clone(input_history="WRONG", pre_handoff_items=(), new_items=())

    result = await Runner.run(front(whole), "Rain in Rome?", runner=runner)
    file = tmp_path / "case.json"
    (await record_run(runner, result.task_id)).save(file)
    await replay_run(file, agent=front(whole), update=True)
    await replay_run(file, agent=front(whole))
    with pytest.raises(CaseDiffersError, match=r"model call 2 is sent differs(.|\n)*WRONG"):
        await replay_run(file, agent=front(wrong))
