"""From a model's name to a model."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable

from holdfast.errors import InvalidArgumentError
from holdfast.models.agents_sdk import AskedModel, AskingModel, is_asked
from holdfast.models.base import Model
from holdfast.models.defaults import default_api, default_client
from holdfast.models.llama_index import LLM, as_model
from holdfast.models.providers import misdirected

DEFAULT_MODEL = "gpt-5-mini"
"""Name of the model of an agent that names none."""

_ADAPTERS = ("litellm", "any-llm")
"""The Agents SDK's; their names would be sent to OpenAI as they are."""

_MADE: dict[tuple[str, str], Model] = {}


def resolve_model(model: str | Model | LLM | AskedModel | None) -> Model:
    """Return the model that a setting names.

    A name means: "offline" the built-in planner, "chat:NAME" Chat Completions, "responses:NAME"
    the Responses API. A plain name goes to the API of `set_default_openai_api`, else to the one
    that HOLDFAST_MODEL_API names ("responses", the default, or "chat"). None means the name in
    HOLDFAST_MODEL, else gpt-5-mini. Equal names give the same object.

    Raises:
        InvalidArgumentError: The name is empty, has the prefix of an adapter that there is none
            of, or is that of another provider's model while no address of another server is set; or
            HOLDFAST_MODEL_API names no API.
    """
    if model is None:
        model = os.environ.get("HOLDFAST_MODEL") or DEFAULT_MODEL
    if not isinstance(model, str):
        made: Model = AskingModel(model) if is_asked(model) else as_model(model)
        return made
    if model == "offline":
        return _make("offline", model)
    api, colon, name = model.partition(":")
    # A colon is also part of names: "llama3:8b", "ft:gpt-4o:...".
    if not colon or api not in ("chat", "responses"):
        api, name = default_api() or os.environ.get("HOLDFAST_MODEL_API") or "responses", model
        if api not in ("chat", "responses"):
            raise InvalidArgumentError(
                f"HOLDFAST_MODEL_API is {api!r}; it must be 'responses' or 'chat'."
            )
    adapter = name.partition("/")[0]
    if adapter in _ADAPTERS:  # a slash is also part of names: "meta-llama/Llama-3-8B"
        raise InvalidArgumentError(
            f"Model name {model!r} asks for the adapter {adapter!r}, which Holdfast does not have."
            ' Pass "chat:NAME" with OPENAI_BASE_URL for a server with the Chat Completions API, or'
            " a Model object of your own: `name` and `async def respond(request)`."
        )
    if not name.strip():
        raise InvalidArgumentError(
            f"Model name {model!r} is empty. Pass the provider's name of a model, or 'offline'."
        )
    client = default_client()
    place = os.environ.get("OPENAI_BASE_URL") if client is None else str(client.base_url)
    if wrong := misdirected(name, place):
        raise InvalidArgumentError(wrong)
    return _make(api, name)


async def close_models() -> None:
    """Close the connections that the models made here hold for the running event loop.

    For the end of a worker: a loop that ends with open connections leaks them.
    """
    for model in list(_MADE.values()):
        close: Callable[[], Awaitable[None]] | None = getattr(model, "close", None)
        if close is not None:
            await close()


def _make(kind: str, name: str) -> Model:
    if (kind, name) not in _MADE:
        _MADE[kind, name] = _new(kind, name)
    return _MADE[kind, name]


def _new(kind: str, name: str) -> Model:
    # Imported here: the package of the provider's client takes most of a second to load.
    if kind == "offline":
        from holdfast.models.offline import OfflineModel

        return OfflineModel()
    if kind == "chat":
        from holdfast.models.openai.chat import ChatCompletionsModel

        return ChatCompletionsModel(name)
    from holdfast.models.openai.responses import ResponsesModel

    return ResponsesModel(name)
