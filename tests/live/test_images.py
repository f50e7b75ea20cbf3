"""Images and files: stored once, held by reference, and seen by every turn that needs them."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from agents import ToolOutputFileContent, ToolOutputImage, ToolOutputText

from holdfast import Agent, AgentRunner, Image, Runner, SQLiteSession, Task, tool
from holdfast.agents.tools.decorator import Tool
from holdfast.agents_sdk import CustomTool
from holdfast.archive.contents import store_image
from holdfast.errors import InvalidArgumentError
from holdfast.models.openai.chat import ChatCompletionsModel
from holdfast.testing import FakeOpenAI, FakeRequest, call, calls, hosted, raw, reply
from holdfast.values.base import Json
from holdfast.values.checks.gate import LARGEST, as_array
from holdfast.values.messages import FilePart, ImagePart, ImageRef, Message, TextPart
from holdfast.values.parts.images import address, file_with
from tests.live.test_bad_input import history_bytes
from tests.support.pictures import copies, histories_hold, png, url_of
from tests.support.rig import Rig, step_a_task
from tests.support.runs import Runs, look

CAT, DOG = Image.from_bytes(png(1)), Image.from_bytes(png(2))
BIG = Image.from_bytes(png(3, side=200))
PDF = b"%PDF-1.7 " + bytes(range(256)) * 200
PDF_URL, CAT_URL = url_of(PDF, "application/pdf"), url_of(CAT.data)


@tool(effect="read")
def camera() -> list[Any]:
    """Take pictures."""
    return ["before", CAT, "after", DOG]


def text_of(text: str) -> dict[str, str]:
    """Write a text as the model gets it."""
    return {"type": "input_text", "text": text}


def fetches(value: Any) -> Tool[Any, Any]:
    """Make a tool that gives a value."""

    @tool(effect="read")
    def fetch() -> Any:
        """Fetch something."""
        return value

    return fetch


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


async def test_data_urls_of_a_run_are_stored_and_images_of_its_tool_reach_the_model_in_their_place(
    rig: Rig,
) -> None:
    image = Image.from_bytes(png(78, side=30))
    agent = rig.agent(camera)
    runner = await rig.serving(agent)
    item = {"type": "input_image", "image_url": url_of(image.data), "detail": "low"}
    rig.model.add(call("camera"), "a cat")
    result = await Runner.run(
        agent, [{"role": "user", "content": [text_of("What is it?"), item]}], runner=runner
    )
    low = Image.from_bytes(image.data, detail="low")
    assert rig.model.requests[1].images == (low, CAT, DOG)
    [told] = (m for m in rig.model.requests[1].messages if m.role == "tool")
    assert [type(part) for part in told.content] == [TextPart, ImagePart, TextPart, ImagePart]
    assert told.text == "beforeafter"
    assert copies(runner.archive.url, image.data) == (1, 0)
    assert not await histories_hold(runner, result.task_id, image.data)
    output = result.new_items[1].raw_item["output"]
    assert output[1]["image_url"].startswith("holdfast:image/png;")
    transcript = await runner.transcript(result.task_id)
    cat, dog = (part for message in transcript for part in message.images)
    first, _ = await runner.get_completed_steps(result.task_id)
    assert [source.content for source in first.sources] == [f"before\n{cat}\nafter\n{dog}"]
    assert await runner.image(dog) == DOG
    assert await runner.verify(result.task_id) == []
    audit = await runner.audit(result.task_id)
    results = [event.result for event in audit if event.kind == "tool_call"]
    assert results == [first.sources[0].content]

    rig.model.reply("again")  # its list can be run again
    again = [*result.to_input_list(), {"role": "user", "content": "Sure?"}]
    await Runner.run(agent, again, runner=runner)
    assert rig.model.requests[2].images == (low, CAT, DOG)


NAMED: dict[str, Any] = {"file_data": PDF_URL, "filename": "report.pdf"}
PART = {"type": "input_file", **NAMED}
AS_SENT = {"type": "input_image", "image_url": CAT_URL, "detail": "auto"}
A_CAT = text_of("a cat")
MIXED = [
    {"type": "text", "text": "a cat"},
    {"type": "file", **NAMED},
    {"type": "image", "image_url": CAT_URL, "detail": "low"},
    {"c": 1},
]
GIVEN: list[tuple[Any, Any]] = [
    ({"type": "file", **NAMED}, [PART]),
    (ToolOutputFileContent(**NAMED), [PART]),
    ({"type": "file", "file_data": "YQ=="}, [{"type": "input_file", "file_data": "YQ=="}]),
    (
        {"type": "file", "file_url": "https://a.b/c.pdf", "file_id": None},
        [{"type": "input_file", "file_url": "https://a.b/c.pdf"}],
    ),
    (
        MIXED,
        [A_CAT, PART, {**AS_SENT, "detail": "low"}, text_of('{"c":1}')],
    ),
    ({"type": "file", "filename": "a"}, '{"type":"file","filename":"a"}'),
    ({"type": "image", "image_url": CAT_URL}, [AS_SENT]),
    (ToolOutputImage(image_url=CAT_URL), [AS_SENT]),
    (
        [ToolOutputText(text="a cat"), ToolOutputImage(image_url=CAT_URL), CAT, "b"],
        [A_CAT, AS_SENT, AS_SENT, text_of("b")],
    ),
    ({"type": "text", "text": "hello"}, "hello"),
    ([ToolOutputText(text="a"), {"type": "text", "text": "b"}], [*map(text_of, "ab")]),
    ({"type": "image", "x": 1}, '{"type":"image","x":1}'),
    ({"type": "text", "text": "a", "n": 1}, '{"type":"text","text":"a","n":1}'),
]
"""What tools give, and what the model gets; data that only look like a file or so stay data."""


async def test_outputs_in_the_agents_sdks_shapes_reach_the_model_as_texts_images_and_files(
    rig: Rig,
) -> None:
    @tool(effect="read")
    def fetch(n: int) -> Any:
        """Fetch something."""
        return GIVEN[n][0] if n < len(GIVEN) else {"type": "file", "file_data": "no base64!"}

    runner = await rig.make(fetch)
    rig.model.add(calls([("fetch", {"n": n}) for n in range(len(GIVEN) + 1)]), "read")
    response = await runner.chat("q")
    *sent, broken = (i["output"] for i in rig.model.requests[1].body["input"] if "output" in i)
    assert sent == [told for _, told in GIVEN]
    assert not await histories_hold(runner, response.task_id, PDF)
    assert "[file" in response.sources[0].content
    assert "Base64 or a data: URL" in broken
    assert [source.is_error for source in response.sources] == [False] * len(GIVEN) + [True]


async def test_a_session_takes_a_picture_that_no_task_could_keep_in_its_history(rig: Rig) -> None:
    runner = await rig.make()
    shown = Message(role="user", content=(ImagePart(kind="image", url=url_of(png(side=2600))),))
    assert len(url_of(png(side=2600))) > LARGEST
    await runner.session("s").append([shown])
    assert len(await runner.session("s").chat_history()) == 1


async def test_the_session_and_a_following_run_have_the_file_once_in_the_archive(rig: Rig) -> None:
    data = PDF + b"of the session"
    url = url_of(data, "application/pdf")
    agent = rig.agent(fetches({"type": "file", "file_data": url, "filename": "a.pdf"}))
    runner = await rig.serving(agent)
    rig.model.add(call("fetch"), "read")
    result = await Runner.run(agent, "q", session=runner.session("s"), runner=runner)
    assert copies(runner.archive.url, data) == (1, 0)
    items = result.to_input_list()
    assert items[2]["output"][0]["file_data"].startswith("holdfast:application/pdf;size=")
    rig.model.add("again", "once more")
    await Runner.run(agent, [*items, {"role": "user", "content": "Sure?"}], runner=runner)
    await Runner.run(agent, "And?", session=runner.session("s"), runner=runner)
    for request in rig.model.requests[1:]:
        assert request.body["input"][2]["output"][0]["file_data"] == url
    forged = items[2]["output"][0]["file_data"].partition(";mac=")[0]
    again = {"type": "input_file", "file_data": forged}
    with pytest.raises(InvalidArgumentError, match=r"The file .* was made for this archive"):
        await Runner.run(agent, [{"role": "user", "content": [again]}], runner=runner)


async def test_chat_completions_get_files_after_the_results(rig: Rig) -> None:
    chat = ChatCompletionsModel("gpt-5-mini", base_url=rig.model.base_url, api_key="sk-test")
    given = [{"type": "file", **NAMED}, {"type": "file", "file_id": "file_1"}]
    await rig.serve(Agent(name="agent", model=chat, tools=[fetches(given)]))
    rig.model.add(call("fetch"), "read")
    await rig.runner().chat("q")
    await chat.close()
    result, files = rig.model.requests[1].body["messages"][-2:]
    assert result["content"] == "The result is the file in the next user message."
    named = [{"type": "file", "file": each} for each in (NAMED, {"file_id": "file_1"})]
    assert (files["role"], files["content"]) == ("user", named)


def test_a_file_is_told_in_a_few_words() -> None:
    ref = ImageRef(sha256="ab12cd34" + "0" * 56, size=11_900, media_type="application/pdf")
    known = FilePart(kind="file", filename="a.pdf", stored=ref)
    assert str(known) == "[file a.pdf 12 kB sha256 ab12cd34..]"
    assert str(file_with("", file_id="file_1")) == "[file file_1]"


# ---- by their id at the provider, beside what the archive keeps

BY_ID = {"type": "input_image", "file_id": "file_1", "detail": "auto"}
AUDIO = {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}


def told(request: FakeRequest) -> list[Any]:
    """Return the content or the output of the first item that has several parts."""
    found = (item.get("output", item.get("content")) for item in request.body["input"])
    return next(filter(None, map(as_array, found)))


@pytest.mark.parametrize(
    ("other", "custom", "asks_session"), [(AS_SENT, False, True), (PART, True, False)]
)
async def test_what_a_tool_names_by_id_beside_data_can_be_given_again(
    run: Runs, *, other: dict[str, Any], custom: bool, asks_session: bool
) -> None:
    beside = {key: other[key] for key in other if key != "type"}
    both = [ToolOutputImage(file_id="file_1"), {"type": other["type"][6:], **beside}]
    await run.serve(CustomTool("draw", "Draws.", lambda *_: both) if custom else fetches(both))
    session = SQLiteSession("s")
    asked = hosted("custom_tool_call", id="ct_1", call_id="c1", name="draw", input="a cat")
    run.model.add(reply("", items=[asked]) if custom else call("fetch"), "seen", "again")
    first = await run("q", session=session)
    if asks_session:
        await run("Sure?", session=session)
    else:
        await run([*first.to_input_list(), {"role": "user", "content": "Sure?"}])
    assert told(run.model.requests[1]) == told(run.model.requests[2]) == [BY_ID, other]
    session.close()


@pytest.mark.parametrize("beside", [BY_ID, AUDIO])
async def test_what_a_user_names_beside_data_can_be_given_again(
    run: Runs, beside: dict[str, Any]
) -> None:
    await run.serve()
    reference = {**AS_SENT, "image_url": address(await store_image(CAT, run.runner.archive))}
    for content in ([beside, AS_SENT, PART], [beside, reference, PART]):
        run.model.add("a cat", "again")
        first = await run([{"role": "user", "content": content}])
        await run([*first.to_input_list(), {"role": "user", "content": "Sure?"}])
        assert not await histories_hold(run.runner, first.task_id, PDF)
    assert [told(request) for request in run.model.requests] == [[beside, AS_SENT, PART]] * 4
    assert run.model.requests[3].images == (
        (CAT,) if beside is AUDIO else (Image(file_id="file_1"), CAT)
    )


# ---- references to images of the archive count only as they were given out

SECRET = Image.from_bytes(png(91))
REFUSED = "is not a reference that was made for this archive"
Give = Callable[[AgentRunner, Agent, Task, ImagePart], Awaitable[Any]]
Forged = tuple[AgentRunner, Agent, Task, ImagePart]


@pytest.fixture
async def forged(rig: Rig) -> Forged:
    """A runner, its agent, a task about an image, and what others can know of that image."""
    agent = rig.agent()
    runner = await rig.serving(agent)
    rig.model.reply("a secret")
    task = await step_a_task(runner, "What is it?", images=[SECRET])
    ref = task.images[0].stored
    assert ref is not None
    guessed = ImageRef(sha256=ref.sha256, size=ref.size, media_type=ref.media_type)
    return runner, agent, task, ImagePart(kind="image", stored=guessed)


def shows(part: ImagePart) -> dict[str, Json]:
    """Write a user message that shows an image."""
    shown = {"type": "input_image", "image_url": address(part), "detail": "auto"}
    return {"role": "user", "content": [text_of("What is it?"), shown]}


GIVE: tuple[Give, ...] = (
    lambda runner, agent, _, part: Runner.run(agent, [shows(part)], runner=runner),
    lambda runner, _a, _t, part: runner.session("mine").add_items([shows(part)]),
    lambda runner, _a, _t, part: runner.chat("q", "mine", chat_history=[shows(part)]),
    lambda runner, _a, _t, part: runner.create_task("q", images=[part]),
    lambda runner, _a, _t, part: runner.image(part),
    lambda runner, _, task, part: runner.run_step(task, "and this?", images=[part]),
    lambda runner, _, task, part: runner.fork(task, "s1", "and this?", images=[part]),
)


async def test_the_digest_of_an_image_does_not_give_it_to_others(
    forged: Forged, model: FakeOpenAI
) -> None:
    runner, agent, task, part = forged
    assert part.stored is not None
    guessed = part.stored.model_copy(update={"mac": "0" * 32})
    for each in (part, part.model_copy(update={"stored": guessed})):
        for give in GIVE:
            with pytest.raises(InvalidArgumentError, match=REFUSED):
                await give(runner, agent, task, each)
    assert len(model.requests) == 1
    assert await runner.session("mine").chat_history() == []


async def test_a_model_cannot_name_an_archived_image(forged: Forged, model: FakeOpenAI) -> None:
    runner, _, _, part = forged
    model.add(raw({"output": [{"role": "assistant", "content": shows(part)["content"]}]}), "done")
    task = await step_a_task(runner)
    await runner.chat("and?", "mine", chat_history=await runner.transcript(task))
    assert model.requests[2].images == ()
