"""What activities must not lose or do twice, on a real server."""

from typing import Any

from holdfast import Agent
from holdfast.testing import ScriptedModel
from holdfast.values.messages import assistant, user
from tests.support.rig import Rig, until


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
