"""Questions of MCP servers (elicitation): people answer them as they decide approvals."""

from typing import Any

import pytest

from holdfast import AgentRunner, Task
from holdfast.errors import CommandRefusedError
from holdfast.testing import FakeOpenAI
from tests.live.test_mcp import THING, Serve, place, serve
from tests.support.rig import activities_of
from tests.support.tool_servers import Place

__all__ = ["place", "serve"]


async def asked(runner: AgentRunner, model: FakeOpenAI, name: str) -> tuple[Task, Any]:
    """Run a task up to the question of its tool."""
    model.call(name, THING)
    model.reply("done")
    task = await runner.create_task("q")
    assert (await runner.run_task(task)).status == "waiting"
    [approval] = await runner.pending_approvals(task)
    assert approval.kind == "question"
    assert f"Tool {name!r} asks: How many nights? [nights (integer)]" in approval.text
    return task, approval


@pytest.mark.parametrize(("mode", "answer"), [("auto", {"nights": 3}), ("legacy", "3")])
async def test_an_answer_that_fits_completes_the_call_also_with_a_server_started_meanwhile(
    serve: Serve, model: FakeOpenAI, place: Place, mode: Any, answer: Any
) -> None:
    runner = await serve(place.stdio(protocol_mode=mode))
    task, approval = await asked(runner, model, "stay")
    for wrong, text in (
        ({"nights": "three"}, "Field 'nights' must be of type integer"),
        ({"nights": True}, "Field 'nights' must be of type integer"),
        ({}, "The answer lacks nights"),
        ({"nights": 3, "days": 4}, "has no field 'days'"),
    ):
        with pytest.raises(CommandRefusedError, match=text):
            await runner.respond(approval, by="ann", result=wrong)
    with pytest.raises(CommandRefusedError, match="The answer lacks nights"):
        await runner.approve(approval, by="ann")
    assert place.calls == {}
    # The first worker process is gone: it would be asked about a call in which it is stopped.
    runner = await serve(place.stdio(protocol_mode=mode))
    await runner.respond(approval, by="ann", result=answer)
    assert ((await runner.run_task(task)).output, place.calls) == ("done", {"stay:x:3": 1})
    assert model.requests[1].holds("3 nights in x")
    assert (await activities_of(runner.client, task.task_id)).count("tool") == 2


@pytest.mark.parametrize(
    ("mode", "name", "calls"), [("auto", "stay", {}), ("legacy", "pushes", {"pushes:x": 1})]
)
async def test_a_call_whose_question_is_declined_is_not_made_again(
    serve: Serve, model: FakeOpenAI, place: Place, *, mode: Any, name: str, calls: dict[str, int]
) -> None:
    runner = await serve(place.stdio(protocol_mode=mode))
    task, approval = await asked(runner, model, name)
    await runner.reject(approval, by="ann", reason="not now")
    assert ((await runner.run_task(task)).output, place.calls) == ("done", calls)
    assert model.requests[1].holds("nothing booked in x") is (name == "pushes")
    [call] = [e for e in await runner.audit(task) if e.kind == "tool_call"]
    assert call.decision == "rejected"


async def test_a_server_that_asks_in_the_middle_of_a_call_is_called_again_with_the_answer(
    serve: Serve, model: FakeOpenAI, place: Place
) -> None:
    runner = await serve(place.stdio(protocol_mode="legacy"))
    task, approval = await asked(runner, model, "pushes")
    assert "calls it again, from its beginning" in approval.text
    assert "nothing booked in x" in approval.text
    await runner.approve(approval, by="ann", arguments={"nights": 3})
    assert (await runner.run_task(task)).output == "done"
    assert place.calls == {"pushes:x": 2, "pushed:x:3": 1}
    assert model.requests[1].holds("3 nights in x")


@pytest.mark.parametrize(
    ("mode", "name", "thing", "text"),
    [
        ("auto", "wants", "words", "asks for sampling/createMessage, which Holdfast refuses"),
        ("legacy", "demands", "roots", "List roots not supported"),
    ],
)
async def test_what_a_server_wants_beside_answers_is_refused_and_the_model_reads_it(
    serve: Serve, model: FakeOpenAI, place: Place, *, mode: Any, name: str, thing: str, text: str
) -> None:
    runner = await serve(place.stdio(protocol_mode=mode))
    model.call(name, {"thing": thing})
    model.reply("done")
    assert (await runner.run_task(await runner.create_task("q"))).output == "done"
    assert model.requests[1].holds(text)
    assert place.calls == {f"{name}:{thing}": 1}
