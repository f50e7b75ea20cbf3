"""What activities must not lose or do twice, on a real server."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import Agent, ToolCall
from holdfast.activities.data import source
from holdfast.archive.archive import Archive
from holdfast.errors import ArchiveError, StepFailedError
from holdfast.testing import ScriptedModel
from holdfast.values.messages import assistant, user
from tests.support.rig import Rig, until
from tests.support.runs import look

LARGE = "y" * 30_000


class Outage:
    """An archive that cannot be written while `left` is above zero; each try counts it down."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = 0
        put = Archive.put

        def failing(archive: Archive, data: bytes) -> str:
            if self.left and len(data) > 20_000:
                self.left -= 1
                raise ArchiveError("down")
            return put(archive, data)

        monkeypatch.setattr(Archive, "put", failing)
        monkeypatch.setattr(source, "PATIENCE_SECONDS", ())


async def test_a_large_answer_is_paid_once_though_the_archive_was_down(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    outage = Outage(monkeypatch)
    model = ScriptedModel([LARGE])
    runner = await rig.serving(Agent(name="a", model=model))
    task = await runner.create_task("q")
    outage.left = 2
    assert (await runner.run_step(task)).output == LARGE
    assert outage.left == 0
    assert model.calls == 1


async def test_a_task_id_that_is_used_again_sees_nothing_of_the_deleted_task(rig: Rig) -> None:
    model = ScriptedModel(lambda _: "ok")
    runner = await rig.serving(Agent(name="a", model=model))
    name = f"{rig.app}-t"
    await runner.session("s1").append([user("secret of s1"), assistant("noted")])
    await runner.run_step(await runner.create_task("one", task_id=name, session="s1"))
    await runner.delete_task(name)

    async def created() -> Any:
        try:
            return await runner.create_task("two", task_id=name, session="s2")
        except Exception:  # noqa: BLE001  the server deletes in its own time
            return None

    await until(created)
    await runner.run_step(name)
    assert [m.text for m in model.requests[0].messages] == ["secret of s1", "noted", "one"]
    assert [m.text for m in model.requests[1].messages] == ["two"]


async def test_a_running_task_waits_for_the_model_it_began_with(rig: Rig) -> None:
    looks = ToolCall(id="", name="look")
    old, new = ScriptedModel([looks, "from old"], name="old"), ScriptedModel(["x"], name="new")
    runner = await rig.serving(Agent(name="agent", model=old, tools=[look]))
    task = await runner.create_task("q")
    await runner.run_step(task)
    await rig.serve(Agent(name="agent", model=new, tools=[look]))
    with pytest.raises(StepFailedError, match=r"'old'.*'new'"):
        await runner.run_step(task)
    await rig.serve(Agent(name="agent", model=old, tools=[look]))
    assert (await runner.run_step(task)).output == "from old"
    assert new.calls == 0
