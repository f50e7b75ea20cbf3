"""Servers that are broken or mean no good: what a model makes of what they send."""

import gzip
from typing import Any

import pytest

from holdfast.agents.items.run_items import raw_of
from holdfast.errors import LONGEST_WAIT_SECONDS, InvalidArgumentError, ModelUnavailableError
from holdfast.models import ChatCompletionsModel, ModelRequest, ResponsesModel
from holdfast.models.base import Delta
from holdfast.models.openai.hosted_items import hosted_calls, outlines
from holdfast.models.openai.http.connection import LARGEST_BODY_BYTES
from holdfast.models.openai.item_contents import without_images
from holdfast.models.openai.local_items import is_stub, run_by_provider
from holdfast.values.messages import user
from tests.support.hostile import Bytes, chat, hostile_server, in_turn, message, responses, sent

KEY = "sk-of-the-tests-1"
REQUEST = ModelRequest(model="m", messages=(user("q"),))
APIS: dict[str, tuple[Any, dict[str, Any]]] = {
    "responses": (ResponsesModel, responses(message("done"))),
    "chat": (ChatCompletionsModel, chat({"content": "done"})),
}
each_api = pytest.mark.parametrize("api", APIS)
whole_or_streamed = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
BUSY = b'{"error": {"message": "too busy", "type": "server_error"}}'


async def asked(api: str, answer: Bytes, *, streamed: bool, client: bool = False) -> Any:
    """Ask a model whose server gives this answer."""
    async with hostile_server(in_turn(answer)) as server:
        given: dict[str, Any] = {"base_url": server.base_url, "api_key": KEY}
        if client:
            import openai

            own = openai.AsyncOpenAI(**given)
            given = {"client": own}
        model = APIS[api][0]("m", **given)
        try:
            if streamed:
                return await model.stream(REQUEST, ignore)
            return await model.respond(REQUEST)
        finally:
            await model.close()
            if client:
                await given["client"].close()


def ignore(delta: Delta) -> None:
    """Take a piece."""


@each_api
@pytest.mark.parametrize("name", [None, 5, ["gpt-5-mini"], b"m", "", " ", "m\n"])
def test_a_name_that_is_none_is_refused_when_the_model_is_made(api: str, name: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="name"):
        APIS[api][0](name, api_key=KEY)


@each_api
@pytest.mark.parametrize("given", ["1763827200", "9" * 300])
async def test_a_wait_of_years_is_cut_and_said(api: str, given: str) -> None:
    busy = Bytes(BUSY, status=429, headers={"retry-after": given})
    with pytest.raises(ModelUnavailableError, match=r"after 3600 s, the longest wait") as caught:
        await asked(api, busy, streamed=False)
    assert caught.value.retry_after == LONGEST_WAIT_SECONDS


@pytest.mark.parametrize(
    ("api", "streamed", "client", "status"),
    [("chat", False, False, 429), ("responses", True, True, 503), ("chat", False, True, 503)],
)
async def test_an_error_whose_body_is_cut_is_one_that_time_heals(
    api: str, streamed: bool, client: bool, status: int
) -> None:
    cut = Bytes(BUSY[:20], status=status, missing=100, headers={"retry-after": "7"})
    with pytest.raises(ModelUnavailableError) as caught:
        await asked(api, cut, streamed=streamed, client=client)
    if streamed or not client:
        assert f"HTTP {status}" in str(caught.value)
        assert caught.value.retry_after == 7.0


@each_api
@whole_or_streamed
async def test_an_answer_whose_body_is_no_gzip_is_one_that_cannot_be_read(
    api: str, streamed: bool
) -> None:
    kind = "text/event-stream" if streamed else "application/json"
    broken = Bytes(b"not gzip at all", kind, headers={"content-encoding": "gzip"})
    with pytest.raises(ModelUnavailableError, match=r"cannot be read.*content-encoding"):
        await asked(api, broken, streamed=streamed)


@pytest.mark.parametrize(
    ("api", "streamed", "packed"), [("chat", False, True), ("responses", True, False)]
)
async def test_an_answer_without_end_is_broken_off(api: str, streamed: bool, packed: bool) -> None:
    body = b" " * (LARGEST_BODY_BYTES + 100)
    headers = {"content-encoding": "gzip"} if packed else {}
    kind = "text/event-stream" if streamed else "application/json"
    endless = Bytes(gzip.compress(body, 1) if packed else body, kind, headers=headers)
    with pytest.raises(ModelUnavailableError, match="more than 33554432 bytes"):
        await asked(api, endless, streamed=streamed)


@each_api
async def test_an_answer_in_one_very_long_line_is_read(api: str) -> None:
    body = APIS[api][1]
    padded = sent({**body, "padding": "x" * 4_000_000}, streamed=True)
    assert (await asked(api, padded, streamed=True)).text == "done"


@pytest.mark.parametrize("kind", [["a"], {"a": 1}, 7, None, True], ids=str)
def test_an_item_whose_type_is_no_text_is_of_no_known_type(kind: Any) -> None:
    """Workflow code reads items, where an error would stop the task until the code is mended."""
    items = [{"type": kind, "content": [{"type": kind}]}]
    assert hosted_calls(items) == outlines(items) == ()
    assert run_by_provider(items) == set()
    assert not is_stub(items[0])
    assert without_images({"role": "assistant", **items[0]}) == {"role": "assistant", **items[0]}
    assert raw_of(items[0]) is not None
