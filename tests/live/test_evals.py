"""Folders of recorded cases, run with the agent's own model and judged."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast import Agent, AgentRunner, ToolCall, tool
from holdfast.errors import InvalidArgumentError
from holdfast.models import ModelRequest
from holdfast.testing import Case, EvalResult, FakeOpenAI, ScriptedModel, eval_cases, record_run
from holdfast.values.messages import user
from tests.support.cli import Cli
from tests.support.rig import finish_a_task, run_a_task

RAN: list[str] = []


@tool(needs_approval=True)
def pay(amount: int) -> str:
    """Pay an amount."""
    RAN.append(f"pay {amount}")
    return f"paid {amount}"


@tool(effect="read")
def weather(city: str) -> str:
    """Tell the weather."""
    RAN.append(f"weather {city}")
    return f"dry in {city}"


def call(name: str, **arguments: object) -> ToolCall:
    return ToolCall(id="", name=name, arguments=json.dumps(arguments))


def answer(request: ModelRequest) -> Any:
    """Look at the weather of each city, pay each amount, then say what the tools said."""
    wanted = " ".join(each.text for each in request.messages if each.role == "user").split()
    results = [each.text for each in request.messages if each.role == "tool"]
    if len(results) == len(wanted):
        return "; ".join(results)
    word = wanted[len(results)]
    return call("pay", amount=int(word)) if word.isdecimal() else call("weather", city=word)


def clerk(**changes: Any) -> Agent:
    given: dict[str, Any] = {"model": ScriptedModel(answer), "tools": [pay, weather], **changes}
    return Agent(name="clerk", **given)


@pytest.fixture(scope="module")
async def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Record two runs: one with an approval and a second question, one in a session."""
    made = tmp_path_factory.mktemp("cases")
    async with AgentRunner.local(clerk(), data_dir=None) as runner:
        task = await runner.create_task("Oslo 5")
        while not (step := await runner.run_step(task)).is_last:
            if step.status == "waiting":
                [waiting] = await runner.pending_approvals(task)
                await runner.approve(waiting, by="ann")
        step = await runner.run_step(task, "Rome")
        while not step.is_last:
            step = await runner.run_step(task)
        (await record_run(runner, task)).save(made / "oslo.json")
        task = await finish_a_task(runner, "Rome", session="s")
        task = await run_a_task(runner, "Bonn", session="s")
        (await record_run(runner, task)).save(made / "bonn.json")
    return made


def judge_dry(case: Case, result: EvalResult) -> bool:
    assert "Oslo" not in str(case.messages[0].text), "It was asked of Oslo."
    return "dry" in str(result.output)


async def judge_short(_case: Case, result: EvalResult) -> float:
    return 1 / len(result.messages)


def judge_wrong(_case: Case, result: EvalResult) -> Any:
    return result.output if "Oslo" in str(result.output) else 1 // 0


async def test_the_agents_model_runs_and_tools_answer_from_the_case(folder: Path) -> None:
    RAN.clear()
    cases = {file.stem: Case.load(file) for file in folder.glob("*.json")}
    given = cases | {"a": cases["bonn"].model_copy(update={"messages": (user(""),)})}
    found = await eval_cases(given, agent=clerk(), judges=[judge_dry, judge_short], least=0.1)
    oslo, bonn, empty = sorted(found, key=lambda each: each.name, reverse=True)
    assert (empty.passed, empty.scores, "input" in empty.error) == (False, {}, True)
    assert oslo.result.output == "dry in Oslo; paid 5; dry in Rome"
    assert not oslo.passed
    assert oslo.error.startswith("judge_dry: It was asked of Oslo.")
    assert bonn.result.output == "dry in Rome; dry in Bonn"
    assert (bonn.passed, bonn.scores) == (True, {"judge_dry": True, "judge_short": 1 / 4})
    assert RAN == []
    assert [replace(bonn, least=least).passed for least in (0.25, 0.5)] == [True, False]
    least = await eval_cases(
        dict(sorted(cases.items())), agent=clerk(), judges=[judge_short, judge_wrong]
    )
    assert not any(each.passed for each in least)
    first, second = (each.error for each in least)
    assert first.startswith("judge_wrong raised ZeroDivisionError: ")
    assert second.endswith("from 0 to 1; judge_wrong returned 'dry in Oslo; paid 5; dry in Rome'.")


async def test_a_call_that_is_not_in_the_case_runs_only_if_it_reads_or_is_named(
    folder: Path,
) -> None:
    RAN.clear()
    cases = {"oslo": Case.load(folder / "oslo.json")}

    def other(request: ModelRequest) -> Any:
        turns = sum(each.role == "assistant" for each in request.messages)
        return [call("weather", city="Bonn"), call("pay", amount=7), "Done.", "Done."][turns]

    def said(of: Any) -> list[str]:
        return [each.text for each in of.result.messages if each.role == "tool"]

    agent = clerk(model=ScriptedModel(other))
    [found] = await eval_cases(cases, agent=agent, judges=[])
    assert said(found) == [
        "dry in Bonn",
        "This call is not in the recorded case, so it was not made.",
    ]
    assert RAN == ["weather Bonn"]
    [found] = await eval_cases(cases, agent=agent, judges=[], runs=["pay"])
    assert (found.passed, found.error) == (False, "The run waits for a person.")
    with pytest.raises(InvalidArgumentError, match="no agent has: pai"):
        await eval_cases(cases, agent=agent, judges=[], runs=["pai"])
    with pytest.raises(InvalidArgumentError, match="several: judge_dry"):
        await eval_cases(cases, agent=agent, judges=[judge_dry, judge_dry])


async def test_a_run_that_does_not_end_fails_and_is_not_judged(folder: Path) -> None:
    cases = {"bonn": Case.load(folder / "bonn.json")}
    for model, turns, why in (
        (ScriptedModel([]), 30, "script"),
        (ScriptedModel(lambda _: call("weather", city="Rome")), 3, "Max turns"),
    ):
        agent = clerk(model=model)
        [found] = await eval_cases(cases, agent=agent, judges=[judge_dry], max_turns=turns)
        assert (found.passed, found.scores) == (False, {})
        assert why in found.error


MODULE = """
from holdfast import Agent, tool

@tool
def pay(amount: int) -> str:
    '''Pay an amount.'''
    raise RuntimeError("it ran")

@tool
def weather(city: str) -> str:
    '''Tell the weather.'''
    raise RuntimeError("it ran")

def is_dry(case, result):
    return "dry" in result.output

async def is_cheap(case, result):
    return 0.75 if result.usage.requests <= case.usage.requests else 0.25

clerk = Agent(name="clerk", model="gpt-5-mini", tools=[pay, weather])
cleric = Agent(name="cleric", model="gpt-5-mini")
judges = [is_dry, is_cheap]
none = []
"""


def test_a_folder_is_judged_with_a_table_and_an_exit_code(
    cli: Cli, folder: Path, model: FakeOpenAI
) -> None:
    (cli.home / "my_clerk.py").write_text(MODULE, "utf-8")
    cases = cli.home / "cases"
    cases.mkdir()
    (cases / "bonn.json").write_bytes((folder / "bonn.json").read_bytes())
    (cli.home / "prices.json").write_text('{"gpt-5-mini": {"input": 1, "output": 2}}', "utf-8")
    environment = {
        "OPENAI_BASE_URL": model.base_url,
        "OPENAI_API_KEY": "any",
        "HOLDFAST_PRICES": "prices.json",
    }
    command = ("eval", "cases", "my_clerk:clerk", "--judges", "my_clerk:judges")
    model.call("weather", {"city": "Bonn"})
    model.reply("It is dry in Bonn.")
    head, row, total = cli(*command, environment=environment).out.splitlines()
    assert " ".join(head.split()) == "case result is_dry is_cheap turns cost before why"
    assert row.split()[:5] == ["bonn", "passed", "1.00", "0.75", "2"]
    assert "$" in row
    assert total.split()[:7] == ["all", "1", "of", "1", "1.00", "0.75", "2"]
    assert "dry in Rome" in model.requests[0].text  # what its session had
    model.call("weather", {"city": "Bonn"})
    model.call("weather", {"city": "Bonn"})
    model.reply("I do not know.")
    failed = cli(*command, "--json", environment=environment, expect=1).json
    assert (failed["passed"], failed["scores"]) == (False, {"is_dry": False, "is_cheap": 0.25})
    assert (failed["output"], failed["usage"]["requests"]) == ("I do not know.", 3)
    for arguments, said in (
        (("nowhere", "my_clerk:clerk", "--judges", "my_clerk:judges"), "'nowhere' is no folder"),
        ((".", "my_clerk:clerk", "--judges", "my_clerk:judges"), "cannot be read as a recorded"),
        (("cases", "my_clerk:cleric", "--judges", "my_clerk:judges"), "Did you mean 'cleric'?"),
        (("cases", "my_clerk:clerk", "--judges", "my_clerk:none"), "list of functions"),
        (("cases", "my_clerk:clerk", "--judges", "my_clerk"), "my_module:judges"),
    ):
        refused = cli("eval", *arguments, expect=2)
        assert said in refused.err, refused.err
        assert "Traceback" not in refused.err
