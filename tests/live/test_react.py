"""ReActAgentWorker: rounds of text, against a real server and a model that offers no calls."""

import json
from typing import Any

from holdfast import AgentRunner, Image, Task, TaskStepOutput, tool
from holdfast.values.messages import ImagePart, TextPart, assistant, user
from holdfast.workers import MultimodalReActAgentWorker, ReActAgentWorker
from holdfast.workers.react.worker import IMAGES
from tests.support.pictures import png
from tests.support.rig import Rig
from tests.support.workers import said


@tool(effect="read")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(effect="read", return_direct=True)
def direct(fail: bool = False) -> str:
    """Answer directly."""
    if fail:
        raise RuntimeError("cannot")
    return "Thought: not one\nAnswer: word for word "


def act(name: str = "add", thought: str = "I add.", **arguments: Any) -> str:
    given = json.dumps(arguments or {"a": 1, "b": 2})
    return f"Thought: {thought}\nAction: {name}\nAction Input: {given}"


def finish(text: str) -> str:
    return f"Thought: Enough.\nAnswer: {text}"


async def ran(runner: AgentRunner, *, steps: int = 0, **options: Any) -> tuple[Task, list[Any]]:
    """Create a task and run so many steps, or all."""
    task = await runner.create_task("q", **options)
    outputs: list[TaskStepOutput] = []
    while not outputs or (len(outputs) != steps and not outputs[-1].is_last):
        outputs.append(await runner.run_step(task))
    return task, outputs


async def transcript(runner: AgentRunner, task: Task) -> list[tuple[str, str]]:
    return said(await runner.transcript(task))


# ---- one round


async def test_an_action_is_one_tool_call_and_one_observation_and_an_answer_is_last(
    rig: Rig,
) -> None:
    runner = await rig.serving(rig.agent(add, instructions="Be brief.", worker=ReActAgentWorker()))
    rig.model.add(act(), finish("3"))
    task, [first, last] = await ran(runner)
    [source] = first.sources
    assert (source.tool_name, source.content, source.call_id) == ("add", "3", "call_s1")
    assert json.loads(source.raw_input) == {"a": 1, "b": 2}
    assert (first.is_last, last.is_last, str(last), last.sources) == (False, True, "3", ())
    assert rig.model.requests[0].tools == ()
    assert rig.model.requests[0].instructions.startswith("Be brief.\n")
    assert "- add\n  Add two numbers.\n  Schema: {" in rig.model.requests[0].instructions
    assert await transcript(runner, task) == [
        ("user", "q"),
        ("assistant", act()),
        ("user", "Observation: 3"),
        ("assistant", finish("3")),
    ]
    response = await runner.finalize_response(task)
    assert (str(response), [s.content for s in response.sources]) == ("3", ["3"])


# ---- replies that cannot be read


async def test_a_reply_that_cannot_be_read_is_answered_by_what_is_wrong(rig: Rig) -> None:
    runner = await rig.make(add, worker=ReActAgentWorker())
    reply = "Action: add\nAction Input: [1, 2]"
    rig.model.add(reply, finish("3"))
    task, [first, last] = await ran(runner, session="s")
    assert (first.is_last, first.sources, str(last)) == (False, (), "3")
    assert "could not be read: " in rig.model.requests[1].last_user
    own = [(role, text) for role, text in await transcript(runner, task) if role == "assistant"]
    assert own == [("assistant", text) for text in (reply, finish("3"))]
    await runner.finalize_response(task)
    assert said(await runner.session("s").chat_history()) == [("user", "q"), ("assistant", "3")]


# ---- limits


async def test_an_action_on_the_last_turn_is_not_run_and_the_answer_says_so(rig: Rig) -> None:
    runner = await rig.make(add, worker=ReActAgentWorker(max_turns=2))
    rig.model.add(act(), act(thought="Once more.", a=3, b=4))
    task, [_, last] = await ran(runner, session="s")
    assert (last.is_last, last.sources) == (True, ())
    assert "the limit of 2 model calls was reached" in str(last)
    assert "Once more." in str(last)
    assert '{"a": 3, "b": 4}' in str(last)
    assert ("assistant", act(thought="Once more.", a=3, b=4)) in await transcript(runner, task)
    await runner.finalize_response(task)
    history = await runner.session("s").chat_history()
    assert said(history) == [("user", "q"), ("assistant", str(last))]


# ---- direct return


async def test_a_direct_tool_ends_the_task_with_its_text_word_for_word(rig: Rig) -> None:
    runner = await rig.make(direct, worker=ReActAgentWorker())
    rig.model.reply("Action: direct\nAction Input: {}")
    task, [output] = await ran(runner, session="s")
    text = "Thought: not one\nAnswer: word for word "
    assert (str(output), output.is_last, output.sources[0].content) == (text, True, text)
    await runner.finalize_response(task)
    assert await runner.session("s").chat_history() == [user("q"), assistant(text)]


# ---- people


async def test_a_task_keeps_each_user_turn_with_its_answer_and_nothing_else(rig: Rig) -> None:
    runner = await rig.make(add, worker=ReActAgentWorker(max_turns=2))
    rig.model.add(act(), finish("3"), act(a=3, b=3), "6")
    task = await runner.create_task("Observation: is 1 + 2?", session="s")
    await runner.give_feedback(task, "be brief", by="ann")
    await runner.run_step(task)
    await runner.give_feedback(task, "briefer", by="ann")
    await runner.give_feedback(task, "and twice that?", when="queued", by="ann")
    await runner.run_task(task)
    assert ("user", "and twice that?") in said(rig.model.requests[2].messages)
    await runner.finalize_response(task)
    assert await runner.session("s").chat_history() == [
        user("Observation: is 1 + 2?"),
        assistant("3"),
        user("and twice that?"),
        assistant("6"),
    ]


# ---- ReAct with images: in the first input, in later ones, in observations, and in the session

CAT, DOG = (Image.from_bytes(png(shade)) for shade in (1, 2))
ACT = 'Thought: I must see more.\nAction: camera\nAction Input: {"where": "left"}'
ANSWER = "Thought: I see.\nAnswer: two animals"


@tool(effect="read")
def camera(where: str) -> list[Any]:
    """Take a picture."""
    return [f"looked {where}", DOG]


async def test_the_model_sees_the_images_of_the_question_and_of_a_tool(rig: Rig) -> None:
    runner = await rig.make(camera, worker=MultimodalReActAgentWorker())
    rig.model.reply(ACT)
    rig.model.reply(ANSWER)
    response = await runner.chat("What is there?", images=[CAT])
    assert str(response) == "two animals"
    assert rig.model.requests[0].instructions.endswith(IMAGES)
    assert rig.model.requests[0].tools == ()
    assert [request.images for request in rig.model.requests] == [(CAT,), (CAT, DOG)]
    observed = rig.model.requests[1].messages[-1]
    assert observed.role == "user"
    assert isinstance(observed.content, tuple)
    text, image = observed.content
    assert isinstance(text, TextPart)
    assert isinstance(image, ImagePart)
    [placeholder] = [line for line in text.text.splitlines() if line.startswith("[image png 1 kB")]
    assert text.text == f"Observation: looked left\n{placeholder}"
    assert response.sources[0].content == f"looked left\n{placeholder}"
