"""Images by their id at the provider, beside images and files that the archive keeps."""

from typing import Any

import pytest

from holdfast import Image, SQLiteSession, tool
from holdfast.agents_sdk import CustomTool, ToolOutputImage
from holdfast.archive.contents import store_image
from holdfast.testing import FakeRequest, call, hosted, reply
from holdfast.values.checks.gate import as_array
from holdfast.values.parts.images import address
from tests.support.pictures import png, url_of
from tests.support.runs import Runs

CAT = Image.from_bytes(png(1))
BY_ID = {"type": "input_image", "file_id": "file_1", "detail": "auto"}
BY_DATA = {"type": "input_image", "image_url": url_of(CAT.data), "detail": "auto"}
PDF = {"type": "input_file", "file_data": url_of(b"%PDF-1.7", "application/pdf")}
AUDIO = {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}


def told(request: FakeRequest) -> list[Any]:
    """Return the content or the output of the first item that has several parts."""
    found = (item.get("output", item.get("content")) for item in request.body["input"])
    return next(filter(None, map(as_array, found)))


@pytest.mark.parametrize(
    ("other", "custom", "asks_session"), [(BY_DATA, False, True), (PDF, True, False)]
)
async def test_what_a_tool_names_by_id_beside_data_can_be_given_again(
    run: Runs, *, other: dict[str, Any], custom: bool, asks_session: bool
) -> None:
    @tool(effect="read")
    def show() -> Any:
        """Show something."""
        return both()

    def both(*_: Any) -> Any:
        beside = {key: other[key] for key in other if key != "type"}
        return [ToolOutputImage(file_id="file_1"), {"type": other["type"][6:], **beside}]

    await run.serve(CustomTool("draw", "Draws.", both) if custom else show)
    session = SQLiteSession("s")
    asked = hosted("custom_tool_call", id="ct_1", call_id="c1", name="draw", input="a cat")
    run.model.add(reply("", items=[asked]) if custom else call("show"), reply("seen"))
    first = await run("q", session=session)
    run.model.reply("again")
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
    reference = {**BY_DATA, "image_url": address(await store_image(CAT, run.runner.archive))}
    for content in ([beside, BY_DATA, PDF], [beside, reference, PDF]):
        run.model.add("a cat", "again")
        asked = {"role": "user", "content": content}
        await run([*(await run([asked])).to_input_list(), {"role": "user", "content": "Sure?"}])
    assert [told(request) for request in run.model.requests] == [[beside, BY_DATA, PDF]] * 4
    assert run.model.requests[3].images == (
        (CAT,) if beside is AUDIO else (Image(file_id="file_1"), CAT)
    )
