"""Images: stored once, held by reference, and seen by every model turn that needs them."""

from typing import Any

from pydantic import BaseModel

from holdfast import Image, Runner, tool
from holdfast.testing import call, calls
from holdfast.values.messages import ImagePart, Message, TextPart
from tests.live.test_bad_input import history_bytes
from tests.support.pictures import copies, histories_hold, png, url_of
from tests.support.rig import Rig, step_a_task
from tests.support.runs import look

CAT, DOG = Image.from_bytes(png(1)), Image.from_bytes(png(2))
BIG = Image.from_bytes(png(3, side=200))


@tool(effect="read")
def camera() -> list[Any]:
    """Take pictures."""
    return ["before", CAT, "after", DOG]


def images_of(messages: list[Message]) -> list[ImagePart]:
    """List the image parts of messages."""
    return [part for message in messages for part in message.images]


async def test_a_model_gets_the_bytes_and_readers_a_reference_that_gives_them_back(
    rig: Rig,
) -> None:
    runner = await rig.make(look)
    rig.model.add(call("look"), "a cat")
    task = await runner.create_task("What is it?", images=[BIG])
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
    assert (part.stored.size, part.stored.media_type) == (len(BIG.data), "image/png")
    assert await runner.image(part) == BIG
    assert rig.model.requests[0].images == (BIG,)
    assert not await histories_hold(runner, task.task_id, BIG.data)
    assert await history_bytes(runner, task.task_id) < 24_000
    assert copies(runner.archive.url, BIG.data) == (1, 0)
    assert await runner.all_messages(task) == messages
    assert await runner.verify(task) == []
    await runner.finalize_response(task)
    assert await runner.transcript(task) == messages
    assert (await runner.get_task(task)).images == task.images


async def test_images_reach_every_turn_also_after_a_worker_restart(rig: Rig) -> None:
    runner = await rig.serving(rig.agent(look))
    rig.model.add(call("look"), call("look"), "done")
    task = await step_a_task(runner, images=[CAT])
    await rig.serve(rig.agent(look))  # with an empty memory
    await runner.run_step(task, input="and this?", images=[DOG])
    await runner.run_step(task)
    assert [request.images for request in rig.model.requests] == [(CAT,), (CAT, DOG), (CAT, DOG)]


async def test_images_of_a_tool_reach_the_model_in_their_place(rig: Rig) -> None:
    runner = await rig.make(camera)
    rig.model.add(call("camera"), "seen")
    task = await runner.create_task("q")
    first = await runner.run_step(task)
    await runner.run_step(task)
    [result] = (m for m in rig.model.requests[1].messages if m.role == "tool")
    assert [type(part) for part in result.content] == [TextPart, ImagePart, TextPart, ImagePart]
    assert result.text == "beforeafter"
    assert rig.model.requests[1].images == (CAT, DOG)
    [source] = first.sources
    cat, dog = images_of(await runner.transcript(task))
    assert source.content == f"before\n{cat}\nafter\n{dog}"
    assert await runner.image(dog) == DOG
    assert await runner.verify(task) == []
    told = [event.result for event in await runner.audit(task) if event.kind == "tool_call"]
    assert told == [source.content]


async def test_data_urls_of_a_run_are_stored_and_its_list_can_be_run_again(rig: Rig) -> None:
    image = Image.from_bytes(png(78, side=30))
    agent = rig.agent(camera)
    runner = await rig.serving(agent)
    item = {"type": "input_image", "image_url": url_of(image.data), "detail": "low"}
    text = {"type": "input_text", "text": "What is it?"}
    rig.model.add(call("camera"), "a cat")
    result = await Runner.run(agent, [{"role": "user", "content": [text, item]}], runner=runner)
    low = Image.from_bytes(image.data, detail="low")
    assert rig.model.requests[1].images == (low, CAT, DOG)
    assert copies(runner.archive.url, image.data) == (1, 0)
    assert not await histories_hold(runner, result.task_id, image.data)
    output = result.new_items[1].raw_item["output"]
    assert output[1]["image_url"].startswith("holdfast:image/png;")
    rig.model.reply("again")
    again = [*result.to_input_list(), {"role": "user", "content": "Sure?"}]
    await Runner.run(agent, again, runner=runner)
    assert rig.model.requests[2].images == (low, CAT, DOG)


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
    rig: Rig,
) -> None:
    @tool(effect="read")
    def show(n: int) -> Any:
        """Show something."""
        return SHAPES[n][0]

    runner = await rig.make(show)
    rig.model.add(calls([("show", {"n": n}) for n in range(len(SHAPES))]), "seen")
    await runner.chat("q")
    results = [m for m in rig.model.requests[1].messages if m.role == "tool"]
    for result, (_, text, images) in zip(results, SHAPES, strict=True):
        assert result.text.replace("\n", "") == text
        assert len(result.images) == len(images)
    assert rig.model.requests[1].images == tuple(i for _, _, images in SHAPES for i in images)
