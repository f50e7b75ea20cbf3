"""What a RunState decides: each call as it was decided, and nothing that contradicts another."""

import pytest

from holdfast.client.runner.runner import RunState
from holdfast.errors import CommandRefusedError, TaskClosedError
from tests.support.runs import Runs, tools


async def waiting(run: Runs, *names: str) -> tuple[list[str], RunState]:
    """Begin a run that waits for a person with a payment to each of these."""
    ran, pay = tools()
    run.model.calls([("pay", {"to": name}) for name in names])
    return ran, (await run("q", pay)).to_state()


async def refusals(run: Runs, state: RunState) -> list[str]:
    """List why the task has refused commands."""
    events = await run.runner.audit(state.task_id)
    return [event.reason for event in events if event.kind == "refused"]


async def test_a_decision_that_contradicts_one_made_elsewhere_is_refused_and_nothing_is_sent(
    run: Runs,
) -> None:
    ran, state = await waiting(run, "ann", "bob")
    first, second = state.get_interruptions()
    await run.runner.reject(second.approval_id, by="eve", reason="too much")
    state.approve(first)
    state.approve(second)
    with pytest.raises(CommandRefusedError, match=r"rejected by eve at 20.*Nothing .* was sent"):
        await run(state, by="ann")
    assert ran == []
    [why] = await refusals(run, state)
    assert "rejected by eve already" in why
    rest = RunState.of(state.task_id)
    [left] = (await run(rest)).interruptions
    assert left.approval_id == first.approval_id
    await run.runner.abandon(state.task_id, "enough")


@pytest.mark.parametrize("verb", ["approve", "reject"])
async def test_input_added_beside_a_decision_is_read_or_its_sender_is_told_that_the_task_has_ended(
    run: Runs, verb: str
) -> None:
    _, state = await waiting(run, "ann")
    late = (await run(RunState.of(state.task_id))).to_state()
    state.add_input("keep the report")
    getattr(state, verb)(state.get_interruptions()[0])
    run.model.reply("done")
    for _ in range(2):
        assert (await run(state)).final_output == "done"
    said = [m.text for m in run.model.requests[-1].messages if m.role == "user"]
    assert (said, len(run.model.requests)) == (["q", "keep the report"], 2)
    given = [e.verb for e in await run.runner.audit(state.task_id) if e.kind == "command"]
    assert given == ["feedback", verb]
    late.add_input("and stop")
    with pytest.raises(TaskClosedError, match=r"has ended, and no model has read .*'and stop'"):
        await run(late)
