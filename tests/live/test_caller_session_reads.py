"""How often a run reads a session of the caller's own, and that its turn is written once."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from holdfast import Runner, tool
from holdfast.agents_sdk import SessionSettings
from holdfast.client.agent_runner.base import new_id
from holdfast.client.caller_sessions import store
from holdfast.client.caller_sessions.store import FEW, TAIL
from holdfast.errors import SessionUnclearError
from holdfast.testing import call
from tests.support.kept_session import Items, Kept, worded
from tests.support.runs import Runs

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


@pytest.mark.parametrize("written", [1, None])
async def test_an_append_that_raises_after_it_has_written_is_not_repeated(
    run: Runs, written: int | None
) -> None:
    session = Breaking(items=[user("q"), user("q")])  # the same question as that of the turn
    session.adds_before = written
    run.model.reply("done")
    name = new_id("caller")
    with pytest.raises(OSError, match="connection"):
        await run("q", session=session, task_id=name)
    assert session.reads == [None]
    for _ in range(2):
        await run("q", session=session, task_id=name, exist_ok=True)
        assert session.said[2:] == [("user", "q"), ("assistant", "done")]
    assert session.reads == [None, store.ALL]


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
