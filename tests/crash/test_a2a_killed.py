"""Workers are killed while the task of a remote agent is followed: there is one remote task."""

import asyncio
import threading

from fastapi import FastAPI

from holdfast import Agent, AgentRunner
from holdfast.contrib.a2a import a2a_router
from holdfast.contrib.a2a_tool import a2a_tool
from holdfast.contrib.fastapi import Identity
from holdfast.models import ModelAnswer, ModelRequest
from holdfast.testing import ScriptedModel, call
from holdfast.values.settings import ModelSettings
from tests.crash.lab import Lab
from tests.crash.programs import AGENT, Job
from tests.support.desk import serve_app
from tests.support.rig import until


def make(job: Job) -> Agent:
    """Make an agent that asks the remote one."""
    url = (job.home / "url").read_text("utf-8")
    clerk = a2a_tool(url, name="clerk", description="Pays.", idempotent=True)
    settings = ModelSettings(max_attempts=5)
    return Agent(name=AGENT, model="fake-model", tools=[clerk], model_settings=settings)


class Slow:
    """A model that answers once it may.

    Attributes:
        asked: Set when it is asked.
        may: Set when it may answer.
    """

    name = "slow"

    def __init__(self) -> None:
        self._model = ScriptedModel(["5 are paid."])
        self.asked, self.may = threading.Event(), threading.Event()

    async def respond(self, request: ModelRequest) -> ModelAnswer:
        self.asked.set()
        await asyncio.to_thread(self.may.wait)
        return await self._model.respond(request)


async def test_a_killed_worker_goes_on_with_the_remote_task_and_begins_no_second_one(
    lab: Lab,
) -> None:
    model, app = Slow(), FastAPI()
    office = Identity("office", frozenset({"operator"}))
    own = Agent(name="remote", model=model)
    async with AgentRunner.local(own, data_dir=None) as remote, serve_app(app) as base:
        app.include_router(a2a_router(remote, [own], url=base, identity=lambda: office))
        (lab.home / "url").write_text(f"{base}/remote", "utf-8")
        lab.api.when(lambda r: not r.results, call("clerk", {"message": "Pay 5."}))
        worker = await lab.serve(make=make)
        task = await lab.runner.create_task("Settle it.", step_mode="automatic")
        await until(model.asked.is_set)
        await lab.kill(worker)
        await lab.serve(make=make)
        model.may.set()
        await lab.until_status(task, "answered")
        said = await lab.runner.transcript(task)
        assert [each.text for each in said if each.role == "tool"] == ["5 are paid."]
        assert [each.input for each in await remote.list_tasks()] == ["Pay 5."]
