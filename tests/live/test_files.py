"""Files that tools return: part of the result for the model, their data in the archive."""

import base64
from typing import Any

import pytest
from pydantic import BaseModel

from holdfast import Agent, Runner, tool
from holdfast.agents.tools.decorator import Tool
from holdfast.errors import InvalidArgumentError
from holdfast.models.openai.chat import ChatCompletionsModel
from holdfast.testing import call, calls
from holdfast.values.messages import FilePart, ImageRef
from holdfast.values.parts.images import file_with
from tests.support.pictures import copies, histories_hold, png, url_of
from tests.support.rig import Rig

PDF = b"%PDF-1.7 " + bytes(range(256)) * 200
PLAIN = base64.b64encode(PDF).decode()
URL = url_of(PDF, "application/pdf")
IMAGE = url_of(png(5))


class ToolOutputFileContent(BaseModel):
    """What the Agents SDK has under this name."""

    type: str = "file"
    file_data: str | None = None
    file_url: str | None = None
    file_id: str | None = None
    filename: str | None = None


def tool_that_gives(value: Any) -> Tool[Any, Any]:
    @tool(effect="read")
    def fetch() -> Any:
        """Fetch something."""
        return value

    return fetch


NAMED = {"file_data": URL, "filename": "report.pdf"}
PART = {"type": "input_file", **NAMED}
MIXED = [
    {"type": "text", "text": "a"},
    {"type": "file", **NAMED},
    {"type": "image", "image_url": IMAGE, "detail": "low"},
    {"c": 1},
]
FILES: list[tuple[Any, list[dict[str, str]] | str]] = [
    ({"type": "file", **NAMED}, [PART]),
    (ToolOutputFileContent(**NAMED), [PART]),
    ({"type": "file", "file_data": PLAIN}, [{"type": "input_file", "file_data": PLAIN}]),
    (
        {"type": "file", "file_url": "https://a.b/c.pdf", "file_id": None},
        [{"type": "input_file", "file_url": "https://a.b/c.pdf"}],
    ),
    (
        MIXED,
        [
            {"type": "input_text", "text": "a"},
            PART,
            {"type": "input_image", "image_url": IMAGE, "detail": "low"},
            {"type": "input_text", "text": '{"c":1}'},
        ],
    ),
    ({"type": "file", "filename": "a"}, '{"type":"file","filename":"a"}'),
]
"""What tools give, and what the model gets; data that only look like a file stay data."""


async def test_a_file_of_a_tool_is_part_of_its_result(rig: Rig) -> None:
    @tool(effect="read")
    def fetch(n: int) -> Any:
        """Fetch something."""
        return FILES[n][0] if n < len(FILES) else {"type": "file", "file_data": "no base64!"}

    runner = await rig.make(fetch)
    rig.model.add(calls([("fetch", {"n": n}) for n in range(len(FILES) + 1)]), "read")
    response = await runner.chat("q")
    *sent, broken = (i["output"] for i in rig.model.requests[1].body["input"] if "output" in i)
    assert sent == [files for _, files in FILES]
    assert not await histories_hold(runner, response.task_id, PDF)
    assert "[file" in response.sources[0].content
    assert "Base64 or a data: URL" in broken
    assert [source.is_error for source in response.sources] == [False] * len(FILES) + [True]


async def test_the_session_and_a_following_run_have_the_file_once_in_the_archive(rig: Rig) -> None:
    data = PDF + b"of the session"
    url = url_of(data, "application/pdf")
    agent = rig.agent(tool_that_gives({"type": "file", "file_data": url, "filename": "a.pdf"}))
    runner = await rig.serving(agent)
    rig.model.add(call("fetch"), "read")
    result = await Runner.run(agent, "q", session=runner.session("s"), runner=runner)
    assert copies(runner.archive.url, data) == (1, 0)
    items = result.to_input_list()
    assert items[2]["output"][0]["file_data"].startswith("holdfast:application/pdf;size=")
    rig.model.reply("again")
    await Runner.run(agent, [*items, {"role": "user", "content": "Sure?"}], runner=runner)
    rig.model.reply("once more")
    await Runner.run(agent, "And?", session=runner.session("s"), runner=runner)
    for request in rig.model.requests[1:]:
        assert request.body["input"][2]["output"][0]["file_data"] == url
    forged = items[2]["output"][0]["file_data"].partition(";mac=")[0]
    again = {"type": "input_file", "file_data": forged}
    with pytest.raises(InvalidArgumentError, match=r"The file .* was made for this archive"):
        await Runner.run(agent, [{"role": "user", "content": [again]}], runner=runner)


async def test_a_file_in_an_input_is_archived_and_reaches_the_model(rig: Rig) -> None:
    agent = rig.agent()
    await rig.serve(agent)
    asked = {"role": "user", "content": [PART, {"type": "input_text", "text": "What is it?"}]}
    rig.model.reply("a report")
    result = await Runner.run(agent, [asked], runner=rig.runner())
    assert rig.model.requests[0].body["input"] == [asked]
    assert not await histories_hold(rig.runner(), result.task_id, PDF)


async def test_chat_completions_get_files_after_the_results(rig: Rig) -> None:
    chat = ChatCompletionsModel(
        "gpt-5-mini", base_url=rig.model.base_url, api_key="sk-of-the-tests-1"
    )
    given = [{"type": "file", **NAMED}, {"type": "file", "file_id": "file_1"}]
    await rig.serve(Agent(name="agent", model=chat, tools=[tool_that_gives(given)]))
    rig.model.add(call("fetch"), "read")
    await rig.runner().chat("q")
    await chat.close()
    result, files = rig.model.requests[1].body["messages"][-2:]
    assert result["content"] == "The result is the file in the next user message."
    assert files["role"] == "user"
    named = [{"type": "file", "file": each} for each in (NAMED, {"file_id": "file_1"})]
    assert files["content"] == named


def test_a_file_is_told_in_a_few_words() -> None:
    ref = ImageRef(sha256="ab12cd34" + "0" * 56, size=11_900, media_type="application/pdf")
    known = FilePart(kind="file", filename="a.pdf", stored=ref)
    assert str(known) == "[file a.pdf 12 kB sha256 ab12cd34..]"
    assert str(file_with("", file_id="file_1")) == "[file file_1]"
