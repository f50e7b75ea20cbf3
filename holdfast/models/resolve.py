"""From a model's name to a model, and to the settings of one that was given none."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Awaitable, Callable
from typing import Any, cast

from holdfast.errors import InvalidArgumentError
from holdfast.models.agents_sdk import AskedModel, AskingModel, is_asked
from holdfast.models.base import Model, ModelAnswer, ModelRequest, Tell, streamed
from holdfast.models.defaults import default_api, default_client
from holdfast.models.libraries.llama_index import LLM, as_model
from holdfast.models.providers import is_openai, misdirected, model_providers, unknown_prefix
from holdfast.values.settings import ModelSettings
from holdfast.values.text.shown import shown

_TEXT_ONLY = re.compile(r"gpt-5(\.[123])?-chat-latest")
"""Names of the family that refuse to be asked for reasoning."""

_DATED = r"(-\d{4}-\d{2}-\d{2})?"
_EFFORTS = {
    "low": re.compile(rf"gpt-5{_DATED}|gpt-5\.2-codex"),
    "medium": re.compile(rf"gpt-5\.[24]-pro{_DATED}"),
    "none": re.compile(
        rf"gpt-5\.[12456]{_DATED}|gpt-5\.3-codex|gpt-5\.4-(mini|nano){_DATED}"
        rf"|gpt-5\.6-(sol|terra|luna){_DATED}"
    ),
}
"""Reasoning effort to the names that are asked for it. Of others it is not known what they take."""


def reasons(name: str) -> bool:
    """Whether a name is one of a reasoning model of the GPT-5 family."""
    return name.startswith("gpt-5") and _TEXT_ONLY.fullmatch(name) is None


def default_settings(model: object) -> ModelSettings:
    """Return the settings with which the Agents SDK calls a model when an agent is given none.

    Args:
        model: The model's name, with or without the API before it ("chat:gpt-5"); another object
            has no settings by its name.

    Returns:
        Short answers and little reasoning for the GPT-5 family; nothing for other names.
    """
    name = model if isinstance(model, str) else ""
    api, colon, rest = name.partition(":")
    plain = rest if colon and api in ("chat", "responses") else name
    if not reasons(plain):
        return ModelSettings()
    efforts = (effort for effort, names in _EFFORTS.items() if names.fullmatch(plain))
    effort = next(efforts, None)
    reasoning = None if effort is None else {"effort": effort}
    return ModelSettings(reasoning=reasoning, verbosity="low")


class NoSettings(ModelSettings):  # noqa: PLW1641  # pydantic makes the hash of a frozen class
    """The settings of an agent that was given none, equal to a `ModelSettings()` that was given.

    A copy of the agent, by whatever means, was given none either.
    """

    def __eq__(self, other: object) -> bool:
        """Compare the fields."""
        return isinstance(other, ModelSettings) and vars(self) == vars(other)

    def __repr_name__(self) -> str:
        """Return the name that people know."""
        return ModelSettings.__name__


def were_given(settings: ModelSettings) -> bool:
    """Whether an agent was given settings, be it an empty `ModelSettings()`."""
    return not isinstance(settings, NoSettings) or settings != ModelSettings()


DEFAULT_MODEL = "gpt-5-mini"
"""Name of the model of an agent that names none."""


_MADE: dict[tuple[str, str], Model] = {}
_SERVED: dict[str, tuple[Any, ServedModel]] = {}


def get_default_model() -> str:
    """Return the name of the model of an agent that names none.

    It is that of `HOLDFAST_MODEL`, else of `OPENAI_DEFAULT_MODEL`, which the Agents SDK reads.
    """
    named = os.environ.get("HOLDFAST_MODEL") or os.environ.get("OPENAI_DEFAULT_MODEL", "").lower()
    return named or DEFAULT_MODEL


def is_gpt_5_default() -> bool:
    """Whether the model of an agent that names none is a reasoning model of the GPT-5 family.

    For settings and filters that such models alone want, or refuse.
    """
    return reasons(re.split("[:/]", get_default_model().lower())[-1])


def get_default_model_settings(model: str | None = None) -> ModelSettings:
    """Return the settings with which a model is called for an agent that is given none.

    Args:
        model: Its name; None is that of an agent that names none.
    """
    return default_settings(get_default_model() if model is None else model)


def resolve_model(model: str | Model | LLM | AskedModel | None) -> Model:
    """Return the model that a setting names.

    A name means: "offline" the built-in planner, "chat:NAME" Chat Completions, "responses:NAME"
    the Responses API, "PREFIX/NAME" what the provider of that prefix makes of the name:
    "litellm/...", "any-llm/..." or one of `model_providers`. A plain name goes to the API of
    `set_default_openai_api`, else to the one that HOLDFAST_MODEL_API names ("responses", the
    default, or "chat"). None means that of `get_default_model`. Equal names give
    the same object.

    Raises:
        InvalidArgumentError: The name is empty, has a prefix without a provider, or is that of
            another provider's model while no address of another server is set; or
            HOLDFAST_MODEL_API names no API.
        ModuleNotFoundError: The library of its prefix is not installed.
    """
    if model is None:
        model = get_default_model()
    if not isinstance(model, str):
        if callable(getattr(model, "respond", None)):  # ours, whatever else it has
            return cast("Model", model)
        made: Model = AskingModel(model) if is_asked(model) else as_model(model)
        return made
    if model == "offline":
        return _make("offline", model)
    prefix, slash, rest = model.partition("/")
    if slash and (provider := model_providers.get_provider(prefix)) is not None:
        return _served(model, provider, rest)
    api, colon, name = model.partition(":")
    # A colon is also part of names: "llama3:8b", "ft:gpt-4o:...".
    if not colon or api not in ("chat", "responses"):
        api, name = default_api() or os.environ.get("HOLDFAST_MODEL_API") or "responses", model
        if api not in ("chat", "responses"):
            raise InvalidArgumentError(
                f"HOLDFAST_MODEL_API is {api!r}; it must be 'responses' or 'chat'."
            )
    if not name.strip():
        raise InvalidArgumentError(
            f"Model name {model!r} is empty. Pass the provider's name of a model, or 'offline'."
        )
    if is_openai(_place()):
        name = name.removeprefix("openai/")  # which is a part of the name at other servers
    if wrong := misdirected(name, _place()):
        raise InvalidArgumentError(wrong)
    return _make(api, name)


def check_prefix(model: object) -> None:
    """Refuse the name of a model whose prefix has no provider; anything else is not looked at.

    Raises:
        InvalidArgumentError: There is no provider, and no address of another server is set.
    """
    if isinstance(model, str) and (wrong := unknown_prefix(model, _place())):
        raise InvalidArgumentError(wrong)


def _place() -> str | None:
    """Return the address at which plain names are asked for; None for OpenAI's."""
    client = default_client()
    return os.environ.get("OPENAI_BASE_URL") if client is None else str(client.base_url)


class ServedModel:
    """A model of a provider, under the whole name by which it can be had again.

    Attributes:
        name: Prefix and name.
        model: The model that the provider made.
    """

    def __init__(self, name: str, model: Model) -> None:
        """Name a model."""
        self.name = name
        self.model = model

    @property
    def provider(self) -> str:
        """The provider, as traces name it."""
        return str(getattr(self.model, "provider", self.name.partition("/")[0]))

    async def respond(self, request: ModelRequest) -> ModelAnswer:
        """Answer one request.

        Raises:
            ModelUnavailableError: It may pass with time.
            ModelRequestError: A person must fix the cause.
        """
        return await self.model.respond(request)

    async def stream(self, request: ModelRequest, tell: Tell) -> ModelAnswer:
        """Answer one request, in pieces if the model can.

        Raises:
            ModelUnavailableError: It may pass with time.
            ModelRequestError: A person must fix the cause.
        """
        return await streamed(self.model, request, tell)

    async def close(self) -> None:
        """Close what the model holds for the running event loop."""
        close: Callable[[], Awaitable[None]] | None = getattr(self.model, "close", None)
        if close is not None:
            await close()


def _served(name: str, provider: Any, rest: str) -> Model:
    """Return what a provider makes of a name, the same for the same provider.

    Raises:
        InvalidArgumentError: It is not a model.
    """
    known = _SERVED.get(name)
    if known is None or known[0] is not provider:
        made = provider.get_model(rest)
        if inspect.iscoroutine(made):
            made.close()
        if inspect.isawaitable(made) or made is None or isinstance(made, str):
            msg = (
                f"The provider of model {name!r} must return a Model from get_model({rest!r}), and"
                f" not as a coroutine; it returned {shown(made)}."
            )
            raise InvalidArgumentError(msg)
        known = _SERVED[name] = provider, ServedModel(name, resolve_model(made))
    return known[1]


async def close_models() -> None:
    """Close the connections that the models made here hold for the running event loop.

    For the end of a worker: a loop that ends with open connections leaks them.
    """
    for model in [*_MADE.values(), *(served for _, served in _SERVED.values())]:
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
