"""From a model's name to a model, and to the settings of one that was given none."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from holdfast.errors import InvalidArgumentError, UserError
from holdfast.models.agents_sdk import AskedModel, AskingModel, ModelProvider, is_asked
from holdfast.models.base import Model, ModelAnswer, ModelRequest, Tell, streamed
from holdfast.models.defaults import default_api, default_client
from holdfast.models.libraries.llama_index import LLM, as_model
from holdfast.models.providers import (
    MultiProviderMap,
    is_openai,
    misdirected,
    model_providers,
    unknown_prefix,
)
from holdfast.values.settings import ModelSettings
from holdfast.values.text.shown import shown

AnyModel = str | Model | LLM | AskedModel
"""What one model may be given as."""

if TYPE_CHECKING:
    from openai import AsyncOpenAI

    from holdfast.models.openai.model import OpenAIModel

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
            has no settings by its name. Of several the first that has a setting counts.

    Returns:
        Short answers and little reasoning for the GPT-5 family; nothing for other names.
    """
    if isinstance(model, tuple):
        joint = ModelSettings()
        for each in reversed(cast("tuple[object, ...]", model)):
            joint = joint.resolve(default_settings(each))
        return joint
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


def taken(given: Any) -> Any:
    """Return what was given as a model, with LLMs of LlamaIndex as models; a list as a tuple."""
    if not isinstance(given, list | tuple):
        return as_model(given)
    several = tuple(map(as_model, cast("Sequence[Any]", given)))
    return several[0] if len(several) == 1 else several


def resolve_model(model: AnyModel | Sequence[AnyModel | None] | None) -> Model:
    """Return the model that a setting names.

    A name means: "offline" the built-in planner, "chat:NAME" Chat Completions, "responses:NAME"
    the Responses API, "PREFIX/NAME" what the provider of that prefix makes of the name:
    "litellm/...", "any-llm/..." or one of `model_providers`. A plain name goes to the API of
    `set_default_openai_api`, else to the one that HOLDFAST_MODEL_API names ("responses", the
    default, or "chat"). None means that of `get_default_model`. Equal names give
    the same object. Of several, the first one that can answers.

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
        if isinstance(model, list | tuple):
            return _fallback(taken(model))
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


def _fallback(models: AnyModel | tuple[AnyModel, ...]) -> Model:
    """Return the model of `taken` models."""
    if not isinstance(models, tuple):
        return resolve_model(models)
    from holdfast.models.fallbacks import FallbackModel

    own = [default_settings(each) for each in models]
    return FallbackModel([*map(resolve_model, models)], own, default_settings(models))


def check_prefix(model: object) -> None:
    """Refuse the name of a model whose prefix has no provider; anything else is not looked at.

    Raises:
        InvalidArgumentError: There is no provider, and no address of another server is set.
    """
    if isinstance(model, tuple):
        for each in cast("tuple[object, ...]", model):
            check_prefix(each)
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
            raise InvalidArgumentError(
                f"The provider of model {name!r} must return a Model from get_model({rest!r}), and"
                f" not as a coroutine; it returned {shown(made)}."
            )
        known = _SERVED[name] = provider, ServedModel(name, resolve_model(made))
    return known[1]


def close_at_end(model: Model) -> None:
    """Have `close_models` close a model that was not made here."""
    _MADE["given", f"{id(model)}"] = model


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


PrefixMode = Literal["alias", "model_id"]
UnknownMode = Literal["error", "model_id"]


_SOCKET = "models are called over HTTP; use OpenAIResponsesModel"
_ABSENT = {
    "websocket_base_url": _SOCKET,
    "use_responses_websocket": _SOCKET,
    "responses_websocket_options": _SOCKET,
    "agent_registration": "agents are not registered at the provider",
}
"""Arguments of the Agents SDK's provider that are not served, and why."""


class OpenAIProvider(ModelProvider):
    """Makes models behind OpenAI's APIs, or another server's that speaks one of them."""

    def __init__(
        self,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        openai_client: AsyncOpenAI | None = None,
        organization: str | None = None,
        project: str | None = None,
        use_responses: bool | None = None,
        strict_feature_validation: bool = False,
        buffer_streamed_tool_calls: bool = False,
        **absent: Any,
    ) -> None:
        """Remember how to reach the server; nothing is opened yet.

        Args:
            api_key: Key; None takes the process's default, else OPENAI_API_KEY.
            base_url: Address; None takes OPENAI_BASE_URL, else OpenAI's.
            openai_client: A client in place of these.
            organization: Organization that the calls belong to.
            project: Project that the calls belong to.
            use_responses: Whether the Responses API is used, else Chat Completions; None takes that
                of `set_default_openai_api`, else of HOLDFAST_MODEL_API, else the Responses API.
            strict_feature_validation: Taken for programs of the Agents SDK: Chat Completions always
                refuses here what it cannot do.
            buffer_streamed_tool_calls: Likewise: a tool always waits for the whole answer.
            absent: Arguments of the Agents SDK that are not served: None or False.

        Raises:
            UserError: There is a client, and one of the settings that it has itself; or an argument
                that is not served.
        """
        del strict_feature_validation, buffer_streamed_tool_calls
        for name, given in absent.items():
            if name not in _ABSENT or given not in (None, False):
                why = _ABSENT.get(name, "there is no such argument")
                raise UserError(f"OpenAIProvider cannot have {name}=: {why}.")
        place = {
            "api_key": api_key,
            "base_url": base_url,
            "organization": organization,
            "project": project,
        }
        self._options: dict[str, Any] = {k: v for k, v in place.items() if v is not None}
        if openai_client is not None:
            if self._options:
                msg = f"openai_client excludes {', '.join(self._options)}: the client has its own."
                raise UserError(msg)
            self._options = {"client": openai_client}
        api = default_api() or os.environ.get("HOLDFAST_MODEL_API")
        self._uses_responses = api != "chat" if use_responses is None else use_responses
        self._made: dict[str, OpenAIModel] = {}

    def get_model(self, model_name: str | None) -> OpenAIModel:
        """Return the model of a name; of None, that of `get_default_model`."""
        name = model_name or get_default_model()
        if name not in self._made:
            self._made[name] = self._new(name)
        return self._made[name]

    def _new(self, name: str) -> OpenAIModel:
        # Imported here: the package of the provider's client takes most of a second to load.
        if self._uses_responses:
            from holdfast.models.openai.responses import ResponsesModel

            return ResponsesModel(name, **self._options)
        from holdfast.models.openai.chat import ChatCompletionsModel

        return ChatCompletionsModel(name, **self._options)

    async def aclose(self) -> None:
        """Close the connections made for the running event loop; a given client stays open."""
        for model in self._made.values():
            await model.close()


class MultiProvider(ModelProvider):
    """Chooses a provider by the part of a model's name before the first slash.

    Prefixes of its map come first, then those of `holdfast.model_providers`, which every process
    has: `litellm/` and `any-llm/`, and what was added. `openai/NAME` is NAME of OpenAI, as are
    names without a prefix.
    """

    def __init__(
        self,
        *,
        provider_map: MultiProviderMap | None = None,
        openai_api_key: str | None = None,
        openai_base_url: str | None = None,
        openai_client: AsyncOpenAI | None = None,
        openai_organization: str | None = None,
        openai_project: str | None = None,
        openai_use_responses: bool | None = None,
        openai_strict_feature_validation: bool = False,
        openai_buffer_streamed_tool_calls: bool = False,
        openai_prefix_mode: PrefixMode = "alias",
        unknown_prefix_mode: UnknownMode = "error",
        **absent: Any,
    ) -> None:
        """Make a provider; arguments that begin with `openai_` are those of `OpenAIProvider`.

        Args:
            provider_map: Providers by prefix.
            openai_api_key: As for OpenAIProvider.
            openai_base_url: As for OpenAIProvider.
            openai_client: As for OpenAIProvider.
            openai_organization: As for OpenAIProvider.
            openai_project: As for OpenAIProvider.
            openai_use_responses: As for OpenAIProvider.
            openai_strict_feature_validation: As for OpenAIProvider.
            openai_buffer_streamed_tool_calls: As for OpenAIProvider.
            openai_prefix_mode: "alias": `openai/` is left out of a name. "model_id": it is a part.
            unknown_prefix_mode: "error": another prefix is refused. "model_id": it is a part of the
                name, for servers whose models are named so.
            absent: As for OpenAIProvider.

        Raises:
            UserError: There is no such mode, or as for OpenAIProvider.
        """
        for name, mode, modes in (
            ("openai_prefix_mode", openai_prefix_mode, get_args(PrefixMode)),
            ("unknown_prefix_mode", unknown_prefix_mode, get_args(UnknownMode)),
        ):
            if mode not in modes:
                msg = f"MultiProvider {name} must be one of {modes}; it was {shown(mode)}."
                raise UserError(msg)
        self.provider_map = provider_map
        self.openai_provider = OpenAIProvider(
            api_key=openai_api_key,
            base_url=openai_base_url,
            openai_client=openai_client,
            organization=openai_organization,
            project=openai_project,
            use_responses=openai_use_responses,
            strict_feature_validation=openai_strict_feature_validation,
            buffer_streamed_tool_calls=openai_buffer_streamed_tool_calls,
            **{name.removeprefix("openai_"): given for name, given in absent.items()},
        )
        self._is_alias = openai_prefix_mode == "alias"
        self._refuses = unknown_prefix_mode == "error"

    def get_model(self, model_name: str | None) -> Any:
        """Return the model of a name.

        Raises:
            UserError: Its prefix has no provider.
        """
        prefix, slash, name = (model_name or "").partition("/")
        if not slash:
            return self.openai_provider.get_model(model_name)
        provider = None if self.provider_map is None else self.provider_map.get_provider(prefix)
        provider = provider or model_providers.get_provider(prefix)
        if provider is not None:
            return provider.get_model(name)
        if prefix == "openai":
            return self.openai_provider.get_model(name if self._is_alias else model_name)
        if self._refuses:
            msg = f"Unknown prefix: {prefix!r} of model {model_name!r} has no provider in the map."
            raise UserError(msg)
        return self.openai_provider.get_model(model_name)

    async def aclose(self) -> None:
        """Close the providers of the map, and OpenAI's."""
        others = {} if self.provider_map is None else self.provider_map.get_mapping()
        for provider in (self.openai_provider, *others.values()):
            close = getattr(provider, "aclose", None)
            if close is not None:
                await close()
