"""References to images of the archive: they count only as they were given out."""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest

from holdfast import Agent, AgentRunner, Image, Runner, Task
from holdfast.errors import InvalidArgumentError
from holdfast.testing import FakeOpenAI, raw
from holdfast.values.base import Json
from holdfast.values.messages import ImagePart, ImageRef
from holdfast.values.parts.images import address
from tests.support.pictures import png
from tests.support.rig import Rig, step_a_task

SECRET = Image.from_bytes(png(91))
REFUSED = "is not a reference that was made for this archive"
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
async def forged(rig: Rig) -> Place:
    """A runner, its agent, and what somebody else can know of an image of the archive."""
    agent = rig.agent()
    runner = await rig.serving(agent)
    rig.model.reply("a secret")
    task = await step_a_task(runner, "What is it?", images=[SECRET])
    ref = task.images[0].stored
    assert ref is not None
    guessed = ImageRef(sha256=ref.sha256, size=ref.size, media_type=ref.media_type)
    return Place(runner, agent, task, ImagePart(kind="image", stored=guessed))


def item(part: ImagePart) -> dict[str, Json]:
    """Write a user message that shows an image."""
    shown = {"type": "input_image", "image_url": address(part), "detail": "auto"}
    return {"role": "user", "content": [{"type": "input_text", "text": "What is it?"}, shown]}


GIVE: tuple[Give, ...] = (
    lambda at, part: Runner.run(at.agent, [item(part)], runner=at.runner),
    lambda at, part: at.runner.session("mine").add_items([item(part)]),
    lambda at, part: at.runner.chat("q", "mine", chat_history=[item(part)]),
    lambda at, part: at.runner.create_task("q", images=[part]),
    lambda at, part: at.runner.image(part),
    lambda at, part: at.runner.run_step(at.task, "and this?", images=[part]),
    lambda at, part: at.runner.fork(at.task, "s1", "and this?", images=[part]),
)


async def test_the_digest_of_an_image_does_not_give_it_to_others(
    forged: Place, model: FakeOpenAI
) -> None:
    stored = forged.part.stored
    assert stored is not None
    guessed = stored.model_copy(update={"mac": "0" * 32})
    for part in (forged.part, forged.part.model_copy(update={"stored": guessed})):
        for give in GIVE:
            with pytest.raises(InvalidArgumentError, match=REFUSED):
                await give(forged, part)
    assert len(model.requests) == 1
    assert await forged.runner.session("mine").chat_history() == []


async def test_a_model_cannot_name_an_archived_image(forged: Place, model: FakeOpenAI) -> None:
    runner, _, _, part = forged
    said = item(part)["content"]
    model.add(raw({"output": [{"role": "assistant", "content": said}]}), "done")
    task = await step_a_task(runner)
    await runner.chat("and?", "mine", chat_history=await runner.transcript(task))
    assert model.requests[2].images == ()
