"""A key of a provider goes where the model's own key went, or the model is refused."""

from typing import Any

import pytest
from openai import AsyncAzureOpenAI, AsyncOpenAI

from holdfast.agents_sdk import OpenAIChatCompletionsModel, set_default_openai_client
from holdfast.errors import UserError
from holdfast.models import ChatCompletionsModel
from holdfast.models.defaults import _defaults, default_client
from holdfast.serving.governor.models import _reached

OWN = AsyncOpenAI(base_url="http://127.0.0.1:9/v1", api_key="own")
AZURE = AsyncAzureOpenAI(
    azure_endpoint="http://127.0.0.1:9", api_version="2024-10-21", api_key="own"
)


def client_with_key(model: Any, monkeypatch: pytest.MonkeyPatch) -> AsyncOpenAI:
    """Return the client that calls of a model use with a key of its provider."""
    monkeypatch.setenv("KEY_2", "second")
    found: AsyncOpenAI = _reached(model, "KEY_2", lambda _: None)._connection.client()
    return found


@pytest.mark.parametrize("client", [OWN, AZURE], ids=["own", "azure"])
async def test_a_client_of_the_caller_keeps_its_address(
    client: AsyncOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = OpenAIChatCompletionsModel("llama", client)
    used = client_with_key(model, monkeypatch)
    assert (type(used), used.api_key, used.base_url) == (type(client), "second", client.base_url)
    assert model._connection.client().api_key == "own"


async def test_the_default_client_of_the_process_keeps_its_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = default_client()
    set_default_openai_client(OWN)
    try:
        used = client_with_key(OpenAIChatCompletionsModel("llama"), monkeypatch)
    finally:
        _defaults.client = before
    assert (used.api_key, used.base_url) == ("second", OWN.base_url)


async def test_an_address_and_no_client_gets_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    model = ChatCompletionsModel("llama", base_url="http://127.0.0.1:9/v1", api_key="own")
    used = client_with_key(model, monkeypatch)
    assert (used.api_key, str(used.base_url)) == ("second", "http://127.0.0.1:9/v1/")


async def test_a_stand_in_for_a_client_takes_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    class StandIn:
        class chat:  # noqa: N801  OpenAI's name
            class completions:  # noqa: N801  likewise
                @staticmethod
                async def create(**_: Any) -> None: ...

    model = OpenAIChatCompletionsModel("llama", StandIn())  # type: ignore[arg-type]
    with pytest.raises(UserError, match="Leave keys= out"):
        client_with_key(model, monkeypatch)
