"""Images: stored once, held by reference, and seen by every model turn that needs them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from holdfast import Agent, Image, Runner, Task, TaskStep, TaskStepOutput, tool
from holdfast.errors import StepFailedError
from holdfast.models.openai.chat import ChatCompletionsModel
from holdfast.testing import FakeOpenAI
from holdfast.values.messages import ImagePart, Message, TextPart, assistant, user
from holdfast.workers import StepContext
from tests.live.test_bad_input import history_bytes
from tests.support.pictures import copies, histories_hold, png, url_of
from tests.support.rig import MakeAgent, MakeRunner, Rig
from tests.support.workers import Counting, Doing, ends

CAT, DOG = Image.from_bytes(png(1)), Image.from_bytes(png(2))
BIG = Image.from_bytes(png(3, side=200))


@tool(effect="read")
def look(where: str = "here") -> str:
    """Look somewhere."""
    return f"seen {where}"


@tool(effect="read")
def camera() -> list[Any]:
    """Take pictures."""
    return ["before", CAT, "after", DOG]


def images_of(messages: list[Message]) -> list[ImagePart]:
    """List the image parts of messages."""
    return [part for message in messages for part in message.images]


async def test_a_model_gets_the_bytes_and_history_only_a_reference(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner()
    model.reply("noise")
    response = await runner.chat("What is it?", images=[BIG])
    assert model.requests[0].images == (BIG,)
    assert model.requests[0].last_user == "What is it?"
    assert not await histories_hold(runner, response.task_id, BIG.data)
    assert await history_bytes(runner, response.task_id) < 12_000
    assert copies(runner.archive.url, BIG.data) == (1, 0)


async def test_readers_show_references_and_give_the_image_back(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(look)
    model.call("look")
    model.reply("a cat")
    task = await runner.create_task("What is it?", images=[CAT])
    assert task.images == (await runner.get_task(task)).images
    assert [step.images for step in await runner.get_upcoming_steps(task)] == [task.images]
    await runner.run_task(task)
    messages = await runner.transcript(task)
    content = messages[0].content
    assert isinstance(content, tuple)
    text, part = content
    assert text == TextPart(kind="text", text="What is it?")
    assert isinstance(part, ImagePart)
    assert (part,) == task.images
    assert part.stored is not None
    assert (part.stored.size, part.stored.media_type) == (len(CAT.data), "image/png")
    assert await runner.image(part) == CAT
    assert await runner.all_messages(task) == messages
    assert await runner.verify(task) == []
    await runner.finalize_response(task)
    assert await runner.transcript(task) == messages
    assert (await runner.get_task(task)).images == task.images


async def test_images_reach_every_turn_also_after_a_worker_restart(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    await rig.serve(make_agent(look))
    runner = rig.runner()
    model.call("look")
    model.call("look")
    model.reply("done")
    task = await runner.create_task("q", images=[CAT])
    await runner.run_step(task)
    await rig.serve(make_agent(look))  # with an empty memory
    await runner.run_step(task, input="and this?", images=[DOG])
    await runner.run_step(task)
    assert [request.images for request in model.requests] == [(CAT,), (CAT, DOG), (CAT, DOG)]


async def test_images_of_a_tool_reach_the_model_in_their_place(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(camera)
    model.call("camera")
    model.reply("seen")
    task = await runner.create_task("q")
    first = await runner.run_step(task)
    await runner.run_step(task)
    [result] = (m for m in model.requests[1].messages if m.role == "tool")
    assert [type(part) for part in result.content] == [TextPart, ImagePart, TextPart, ImagePart]
    assert result.text == "beforeafter"
    assert model.requests[1].images == (CAT, DOG)
    [source] = first.sources
    cat, dog = images_of(await runner.transcript(task))
    assert source.content == f"before\n{cat}\nafter\n{dog}"
    assert await runner.image(dog) == DOG
    assert await runner.verify(task) == []
    told = [event.result for event in await runner.audit(task) if event.kind == "tool_call"]
    assert told == [source.content]


async def test_chat_completions_get_images_of_tools_after_the_results(
    rig: Rig, model: FakeOpenAI
) -> None:
    chat = ChatCompletionsModel("gpt-5-mini", base_url=model.base_url, api_key="sk-of-the-tests-1")
    await rig.serve(Agent(name="agent", model=chat, tools=[camera, look]))
    model.calls([("camera", {}), ("look", {})])
    model.reply("seen")
    high = Image.from_bytes(CAT.data, detail="high")
    await rig.runner().chat("q", images=[high])
    await chat.close()
    sent = model.requests[1].messages
    assert [message.role for message in sent] == ["user", "assistant", "tool", "tool", "user"]
    assert model.requests[1].images == (high, CAT, DOG)
    assert sent[2].text == "beforeafter"


async def test_images_that_are_given_again_to_a_failed_step_join_it_once(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner()
    model.fail(401)
    task = await runner.create_task("q", images=[CAT])
    with pytest.raises(StepFailedError):
        await runner.run_step(task, images=[DOG])
    model.reply("done")
    await runner.run_step(task, images=[DOG])
    assert model.requests[1].images == (CAT, DOG)


async def test_data_urls_of_a_run_are_stored_and_its_list_can_be_run_again(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    image = Image.from_bytes(png(78, side=30))
    agent = make_agent(camera)
    await rig.serve(agent)
    runner = rig.runner()
    item = {"type": "input_image", "image_url": url_of(image.data), "detail": "low"}
    text = {"type": "input_text", "text": "What is it?"}
    model.call("camera")
    model.reply("a cat")
    result = await Runner.run(agent, [{"role": "user", "content": [text, item]}], runner=runner)
    low = Image.from_bytes(image.data, detail="low")
    assert model.requests[1].images == (low, CAT, DOG)
    assert copies(runner.archive.url, image.data) == (1, 0)
    assert not await histories_hold(runner, result.task_id, image.data)
    output = result.new_items[1].raw_item["output"]
    assert output[1]["image_url"].startswith("holdfast:image/png;")
    model.reply("again")
    again = [*result.to_input_list(), {"role": "user", "content": "Sure?"}]
    await Runner.run(agent, again, runner=runner)
    assert model.requests[2].images == (low, CAT, DOG)


async def test_data_urls_in_an_appended_session_are_stored_once(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    image = Image.from_bytes(png(79, side=30))
    runner = await make_runner()
    part = ImagePart(kind="image", url=url_of(image.data))
    await runner.session("s").append([user("Look", (part, part)), assistant("a cat")])
    assert copies(runner.archive.url, image.data) == (1, 0)
    model.reply("yes")
    await runner.chat("Sure?", "s")
    assert model.requests[0].images == (image, image)


async def test_what_a_worker_adds_and_hands_on_is_stored_by_reference(
    make_runner: MakeRunner,
) -> None:
    part = BIG.part()

    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        ctx.add(user("from the worker", (part,)))
        if ctx.n == 2:
            ctx.add(step.message() or user(""))
            return ends(step)
        following = step.get_next_step(input="next", images=(part,))
        return TaskStepOutput(task_step=step, next_steps=(following,))

    runner = await make_runner(worker=Doing(body))
    task = await runner.create_task("q")
    await runner.run_task(task)
    found = images_of(await runner.transcript(task))
    assert len(found) == 3
    assert [await runner.image(each) for each in found] == [BIG, BIG, BIG]
    assert not await histories_hold(runner, task, BIG.data)


class OwnFirstStep(Counting):
    """A worker that was written before there were images."""

    def initialize_step(self, task: Task) -> TaskStep:
        return TaskStep(task_id=task.task_id, step_id="mine", input=task.input)


async def test_a_first_step_of_a_workers_own_has_the_images_of_its_input(
    make_runner: MakeRunner,
) -> None:
    runner = await make_runner(worker=OwnFirstStep())
    task = await runner.create_task("q", images=[CAT])
    first = await runner.run_step(task)
    assert first.task_step.step_id == "mine"
    assert first.task_step.images == task.images


async def test_a_task_whose_image_was_lost_waits_until_it_is_back(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    image = Image.from_bytes(png(80, side=30))
    runner = await make_runner()
    task = await runner.create_task("q", images=[image])
    [place] = (p for p in Path(runner.archive.url).rglob("*") if p.is_file() if holds(p, image))
    place.unlink()
    with pytest.raises(StepFailedError, match="has no"):
        await runner.run_step(task)
    assert (await runner.get_task(task)).status == "needs_attention"
    assert model.requests == []
    place.write_bytes(image.data)
    model.reply("there")
    assert str(await runner.run_step(task)) == "there"


def holds(path: Path, image: Image) -> bool:
    return path.read_bytes() == image.data


class ToolOutputImage(BaseModel):
    """As the Agents SDK has it."""

    type: str = "image"
    image_url: str | None = None
    file_id: str | None = None
    detail: str | None = None


class ToolOutputText(BaseModel):
    """As the Agents SDK has it."""

    type: str = "text"
    text: str


LIKE = {"type": "image", "x": 1}
SHAPES: list[tuple[Any, str, tuple[Image, ...]]] = [
    ({"type": "image", "image_url": url_of(CAT.data)}, "", (CAT,)),
    (ToolOutputImage(image_url=url_of(CAT.data)), "", (CAT,)),
    (
        [{"type": "text", "text": "a cat"}, {"type": "image", "image_url": url_of(CAT.data)}],
        "a cat",
        (CAT,),
    ),
    (
        [ToolOutputText(text="a cat"), ToolOutputImage(image_url=url_of(CAT.data)), CAT, "b"],
        "a catb",
        (CAT, CAT),
    ),
    ({"type": "text", "text": "hello"}, "hello", ()),
    ([ToolOutputText(text="a"), {"type": "text", "text": "b"}], "ab", ()),
    (LIKE, '{"type":"image","x":1}', ()),
    ({"type": "text", "text": "a", "n": 1}, '{"type":"text","text":"a","n":1}', ()),
]
"""What tools give, its text and its images; data that only look like an output stay data."""


async def test_outputs_in_the_agents_sdks_shapes_reach_the_model_as_texts_and_images(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    @tool(effect="read")
    def show(n: int) -> Any:
        """Show something."""
        return SHAPES[n][0]

    runner = await make_runner(show)
    model.calls([("show", {"n": n}) for n in range(len(SHAPES))])
    model.reply("seen")
    await runner.chat("q")
    results = [m for m in model.requests[1].messages if m.role == "tool"]
    for result, (_, text, images) in zip(results, SHAPES, strict=True):
        assert result.text.replace("\n", "") == text
        assert len(result.images) == len(images)
    assert model.requests[1].images == tuple(i for _, _, images in SHAPES for i in images)
