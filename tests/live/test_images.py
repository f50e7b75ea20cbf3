"""Images: stored once, held by reference, and seen by every model turn that needs them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from holdfast import Agent, AgentRunner, Image, Runner, Task, TaskStep, TaskStepOutput, tool
from holdfast.errors import InvalidArgumentError, StepFailedError
from holdfast.models.openai.chat import ChatCompletionsModel
from holdfast.testing import FakeOpenAI
from holdfast.values.messages import ImagePart, Message, TextPart, assistant, user
from holdfast.values.parts.images import address
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


async def test_one_image_in_two_inputs_is_one_object_of_the_archive(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    image = Image.from_bytes(png(77, side=30))
    runner = await make_runner(look)
    model.call("look")
    model.reply("twice")
    task = await runner.create_task("q", images=[image, image])
    await runner.run_step(task)
    await runner.run_step(task, input="again", images=[image])
    assert model.requests[1].images == (image, image, image)
    assert copies(runner.archive.url, image.data) == (1, 0)
    assert len(set(images_of(await runner.transcript(task)))) == 1


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


async def test_images_are_in_the_session_of_the_next_task(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner()
    model.reply("a cat")
    model.reply("as I said")
    await runner.chat("What is it?", "s", images=[BIG])
    second = await runner.chat("Are you sure?", "s")
    assert model.requests[1].images == (BIG,)
    assert images_of(await runner.session("s").chat_history())[0].stored is not None
    assert not await histories_hold(runner, second.task_id, BIG.data)
    assert not await histories_hold(runner, runner.session("s").id, BIG.data)


async def test_a_fork_sees_the_images_before_it_and_takes_its_own(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(look)
    model.call("look")
    task = await runner.create_task("q", images=[CAT])
    first = await runner.run_step(task)
    model.reply("with two")
    forked = await runner.fork(task, first, "and this?", images=[DOG])
    assert forked.images == task.images
    await runner.run_step(forked)
    assert model.requests[1].images == (CAT, DOG)
    assert model.requests[1].last_user == "and this?"
    model.reply("with one")
    await runner.run_step(await runner.fork(task, first))
    assert model.requests[2].images == (CAT,)


async def test_a_fork_may_have_an_image_alone_as_its_input(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner()
    model.reply("a cat")
    task = await runner.create_task("", images=[CAT])
    first = await runner.run_step(task)
    model.reply("a dog")
    await runner.run_step(await runner.fork(task, first, images=[DOG]))
    assert model.requests[1].images == (CAT, DOG)
    [message] = (m for m in model.requests[0].messages if m.role == "user")
    assert [type(part) for part in message.content] == [ImagePart]


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


async def test_the_bytes_of_a_tools_image_are_not_in_history(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    @tool(effect="read")
    def scan() -> Image:
        """Scan."""
        return BIG

    runner = await make_runner(scan)
    model.call("scan")
    model.reply("noise")
    response = await runner.chat("q")
    assert model.requests[1].images == (BIG,)
    assert not await histories_hold(runner, response.task_id, BIG.data)
    assert response.sources[0].content.startswith("[image png 41 kB sha256 ")


async def test_an_image_hidden_in_a_result_is_an_error_for_the_model(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    @tool(effect="read")
    def scan() -> dict[str, Any]:
        """Scan."""
        return {"scan": CAT}

    runner = await make_runner(scan)
    model.call("scan")
    model.reply("I see")
    response = await runner.chat("q")
    assert "give it itself, or in a list of texts and images" in response.sources[0].content


async def test_long_texts_beside_images_go_to_the_archive(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    said = "x" * 50_000

    @tool(effect="read")
    def scan() -> list[Any]:
        """Scan."""
        return [said, CAT]

    runner = await make_runner(scan)
    model.call("scan")
    model.reply("much")
    asked = "y" * 50_000
    response = await runner.chat(asked, images=[DOG])
    assert model.requests[1].images == (DOG, CAT)
    assert model.requests[1].results == {"call_1": said}
    assert model.requests[1].last_user == asked
    assert await history_bytes(runner, response.task_id) < 16_000
    [question, _, result, _] = await runner.transcript(response.task_id)
    assert (question.text, result.text) == (asked, said)
    assert await runner.verify(response.task_id) == []


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


async def test_images_alone_join_the_input_that_a_step_has(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(look)
    model.call("look")
    model.reply("done")
    task = await runner.create_task("q", images=[CAT])
    await runner.run_step(task, images=[DOG])
    await runner.run_step(task, images=[DOG])
    assert model.requests[0].last_user == "q"
    assert model.requests[0].images == (CAT, DOG)
    assert model.requests[1].images == (CAT, DOG, DOG)


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


async def test_a_new_input_replaces_text_and_images(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner()
    model.fail(401)
    task = await runner.create_task("z" * 20_000, images=[CAT])
    with pytest.raises(StepFailedError):
        await runner.run_step(task)
    model.reply("done")
    await runner.run_step(task, "another", images=[DOG])
    assert model.requests[1].last_user == "another"
    assert model.requests[1].images == (DOG,)


async def test_an_undone_step_gives_its_images_back_to_the_queue(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner()
    model.reply("once")
    task = await runner.create_task("q", images=[CAT])
    await runner.run_step(task)
    await runner.undo_step(task)
    model.reply("twice")
    await runner.run_step(task)
    assert model.requests[1].images == (CAT,)


async def test_images_survive_rollovers(make_runner: MakeRunner, model: FakeOpenAI) -> None:
    runner = await make_runner(look, roll_events=20)
    for _ in range(6):
        model.call("look")
    model.reply("done")
    response = await runner.chat("q", images=[BIG])
    assert [request.images for request in model.requests] == [(BIG,)] * 7
    assert not await histories_hold(runner, response.task_id, BIG.data)


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


async def test_an_image_of_the_web_stays_an_address(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    web = Image.from_url("https://example.com/cat.png")
    runner = await make_runner()
    model.reply("a cat")
    task = await runner.create_task("q", images=[web])
    await runner.run_step(task)
    assert model.requests[0].images == (web,)
    assert [address(part) for part in task.images] == [web.url]
    assert await runner.image(task.images[0]) == web


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


async def test_a_closed_task_can_be_forked_with_its_images(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner()
    model.reply("a cat")
    response = await runner.chat("q", images=[CAT])
    [only] = await runner.get_completed_steps(response.task_id)
    model.reply("a cat, still")
    forked = await runner.fork(response.task_id, only, "Sure?")
    await runner.run_step(forked)
    assert model.requests[1].images == (CAT,)
    assert (await runner.get_task(forked)).images == only.task_step.images


async def test_a_broken_data_url_is_refused_before_a_run_is_created(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    agent = make_agent()
    await rig.serve(agent)
    part = {"type": "input_image", "image_url": "data:image/png;base64,a?"}
    given = [{"role": "user", "content": [part]}]
    with pytest.raises(InvalidArgumentError, match="does not hold Base64"):
        await Runner.run(agent, given, runner=rig.runner())
    assert rig.ids == []
    assert model.requests == []


async def test_an_image_of_5_mb_is_sent_whole(make_runner: MakeRunner, model: FakeOpenAI) -> None:
    large = Image.from_bytes(png(5, side=2300))
    assert len(large.data) > 5_000_000
    runner = await make_runner()
    model.reply("noise")
    response = await runner.chat("q", images=[large])
    assert model.requests[0].images == (large,)
    assert await history_bytes(runner, response.task_id) < 12_000


async def test_what_is_no_image_is_refused_before_anything_is_created(
    make_runner: MakeRunner,
) -> None:
    runner: AgentRunner = await make_runner(worker=Counting())
    wrong: Any = ["cat.png"]
    with pytest.raises(InvalidArgumentError, match=r"images holds str, not Image\. Make one with"):
        await runner.create_task("q", images=wrong, task_id="no-image")
    with pytest.raises(InvalidArgumentError, match="must be a text that says something"):
        await runner.create_task("", task_id="no-image")
    task = await runner.create_task("q", task_id="no-image")
    with pytest.raises(InvalidArgumentError, match="images holds str"):
        await runner.run_step(task, images=wrong)
    assert (await runner.get_task(task)).steps == 0


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


SHAPES: dict[str, tuple[Any, str, tuple[Image, ...]]] = {
    "a dict": ({"type": "image", "image_url": url_of(CAT.data)}, "", (CAT,)),
    "an object": (ToolOutputImage(image_url=url_of(CAT.data)), "", (CAT,)),
    "dicts": (
        [{"type": "text", "text": "a cat"}, {"type": "image", "image_url": url_of(CAT.data)}],
        "a cat",
        (CAT,),
    ),
    "objects": (
        [ToolOutputText(text="a cat"), ToolOutputImage(image_url=url_of(CAT.data)), CAT, "b"],
        "a catb",
        (CAT, CAT),
    ),
    "a text": ({"type": "text", "text": "hello"}, "hello", ()),
    "texts": ([ToolOutputText(text="a"), {"type": "text", "text": "b"}], "ab", ()),
}


@pytest.mark.parametrize("shape", SHAPES)
async def test_outputs_in_the_agents_sdks_shapes_reach_the_model_as_texts_and_images(
    make_runner: MakeRunner, model: FakeOpenAI, shape: str
) -> None:
    value, text, images = SHAPES[shape]

    @tool(effect="read")
    def show() -> Any:
        """Show something."""
        return value

    runner = await make_runner(show)
    model.call("show")
    model.reply("seen")
    await runner.chat("q")
    [result] = (m for m in model.requests[1].messages if m.role == "tool")
    assert result.text.replace("\n", "") == text
    assert model.requests[1].images == images


async def test_an_image_of_the_web_in_the_agents_sdks_shape_keeps_its_detail(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    @tool(effect="read")
    def show() -> Any:
        """Show something."""
        return {"type": "image", "image_url": "https://a.b/c.png", "detail": "low"}

    runner = await make_runner(show)
    model.call("show")
    model.reply("seen")
    await runner.chat("q")
    [result] = (m for m in model.requests[1].messages if m.role == "tool")
    [part] = result.images
    assert (part.url, part.detail) == ("https://a.b/c.png", "low")


async def test_an_image_that_a_tool_names_by_its_file_id_reaches_the_model_by_it(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    @tool(effect="read")
    def show() -> Any:
        """Show something."""
        return [ToolOutputText(text="a cat"), ToolOutputImage(file_id="file_1", detail="low")]

    await rig.serve(make_agent(show))
    model.call("show")
    model.reply("seen")
    await rig.runner().chat("q")
    [result] = (i for i in model.requests[1].body["input"] if "output" in i)
    assert result["output"] == [
        {"type": "input_text", "text": "a cat"},
        {"type": "input_image", "file_id": "file_1", "detail": "low"},
    ]


@pytest.mark.parametrize(
    "value", [{"type": "image", "x": 1}, {"type": "text"}, {"type": "text", "text": "a", "n": 1}]
)
async def test_data_that_only_look_like_an_output_stay_data(
    make_runner: MakeRunner, model: FakeOpenAI, value: Any
) -> None:
    @tool(effect="read")
    def show() -> Any:
        """Show something."""
        return value

    runner = await make_runner(show)
    model.call("show")
    model.reply("seen")
    await runner.chat("q")
    assert json.loads(model.requests[1].results["call_1"]) == value
