"""References to images of the archive: they count only as they were given out."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, NamedTuple

import pytest
from temporalio.client import WorkflowUpdateFailedError

from holdfast import Agent, AgentRunner, Image, Runner, Task, TaskStep, TaskStepOutput
from holdfast.errors import InvalidArgumentError, StepFailedError
from holdfast.task.data.commands import RunRequest
from holdfast.testing import FakeOpenAI
from holdfast.values.base import Json
from holdfast.values.messages import Blob, ImagePart, ImageRef, Message, user
from holdfast.values.parts.images import address
from holdfast.workers import AgentWorker, StepContext
from tests.support.pictures import png
from tests.support.rig import MakeAgent, Rig
from tests.support.workers import ends

SECRET = Image.from_bytes(png(91))
REFUSED = "is no reference that was made for this archive"
Give = Callable[["Place", ImagePart], Awaitable[Any]]


class Place(NamedTuple):
    """Where somebody else's image is.

    Attributes:
        runner: A runner of the agent.
        agent: The agent.
        task: A task that was asked about the image.
        part: What others can know of the image.
    """

    runner: AgentRunner
    agent: Agent
    task: Task
    part: ImagePart


@pytest.fixture
async def forged(rig: Rig, make_agent: MakeAgent, model: FakeOpenAI) -> Place:
    """A runner, its agent, and what somebody else can know of an image of the archive."""
    agent = make_agent()
    await rig.serve(agent)
    runner = rig.runner()
    model.reply("a secret")
    task = await runner.create_task("What is it?", images=[SECRET])
    await runner.run_step(task)
    ref = task.images[0].stored
    assert ref is not None
    guessed = ImageRef(sha256=ref.sha256, size=ref.size, media_type=ref.media_type)
    return Place(runner, agent, task, ImagePart(kind="image", stored=guessed))


def item(part: ImagePart) -> dict[str, Json]:
    """Write a user message that shows an image."""
    shown = {"type": "input_image", "image_url": address(part), "detail": "auto"}
    return {"role": "user", "content": [{"type": "input_text", "text": "What is it?"}, shown]}


GIVE: dict[str, Give] = {
    "run": lambda at, part: Runner.run(at.agent, [item(part)], runner=at.runner),
    "add_items": lambda at, part: at.runner.session("mine").add_items([item(part)]),
    "chat": lambda at, part: at.runner.chat("q", "mine", chat_history=[item(part)]),
    "create_task": lambda at, part: at.runner.create_task("q", images=[part]),
    "image": lambda at, part: at.runner.image(part),
    "run_step": lambda at, part: at.runner.run_step(at.task, "and this?", images=[part]),
    "fork": lambda at, part: at.runner.fork(at.task, "s1", "and this?", images=[part]),
}


@pytest.mark.parametrize("code", ["", "0" * 32])
async def test_the_digest_of_an_image_does_not_give_it_to_others(
    forged: Place, model: FakeOpenAI, code: str
) -> None:
    stored = forged.part.stored
    assert stored is not None
    part = forged.part.model_copy(update={"stored": stored.model_copy(update={"mac": code})})
    for give in GIVE.values():
        with pytest.raises(InvalidArgumentError, match=REFUSED):
            await give(forged, part)
    assert len(model.requests) == 1
    assert await forged.runner.session("mine").chat_history() == []


async def test_what_a_run_gave_can_be_given_to_another(forged: Place, model: FakeOpenAI) -> None:
    runner, agent, _, _ = forged
    model.reply("a cat")
    first = await Runner.run(agent, [item(SECRET.part())], runner=runner)
    model.reply("a cat again")
    await Runner.run(agent, first.to_input_list(), runner=runner)
    assert model.requests[2].images == (SECRET,)


async def test_a_text_of_the_archive_cannot_be_named_in_a_given_message(forged: Place) -> None:
    runner, _, _, part = forged
    assert part.stored is not None
    blob = Blob(sha256=part.stored.sha256, size=part.stored.size)
    for given in (Message(role="user", content=blob), Message(role="assistant", kept=blob)):
        with pytest.raises(InvalidArgumentError, match="A message that is given holds its text"):
            await runner.session("mine").append([given])
        with pytest.raises(InvalidArgumentError, match="A message that is given holds its text"):
            await runner.chat("q", "mine", chat_history=[given])


async def test_a_model_cannot_name_an_archived_image(forged: Place, model: FakeOpenAI) -> None:
    runner, _, _, part = forged
    said = item(part)["content"]
    model.raw({"output": [{"role": "assistant", "content": said}]})
    model.reply("done")
    task = await runner.create_task("q")
    await runner.run_step(task)
    await runner.chat("and?", "mine", chat_history=await runner.transcript(task))
    assert model.requests[2].images == ()


async def test_a_request_that_was_made_by_hand_fails_the_step_with_words(
    forged: Place, model: FakeOpenAI
) -> None:
    runner, _, _, part = forged
    task = await runner.create_task("q")
    handle: Any = runner.client.get_workflow_handle(task.task_id)
    with suppress(WorkflowUpdateFailedError):
        await handle.execute_update("run", RunRequest(images=(part,)))
    failed = await runner.get_task(task)
    assert failed.status == "needs_attention"
    assert re.search(REFUSED, failed.error)
    assert len(model.requests) == 1
    await runner.abandon(task, "forged")


class Forging(AgentWorker):
    """Shows its model an image of which it knows the digest."""

    def __init__(self, part: ImagePart) -> None:
        self.part = part

    async def run_step(self, step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        ctx.add(user("What is it?", (self.part,)))
        await ctx.call_model()
        return ends(step)


async def test_a_step_that_names_an_image_by_its_digest_fails_with_words(
    forged: Place, rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    await rig.serve(make_agent(worker=Forging(forged.part)))
    task = await rig.runner().create_task("q")
    with pytest.raises(StepFailedError, match=REFUSED):
        await rig.runner().run_step(task)
    assert len(model.requests) == 1
