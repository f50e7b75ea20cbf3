"""Providers of models: OpenAI's, and one that chooses a provider by the prefix of a name."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal, get_args

from holdfast.errors import UserError
from holdfast.models.agents_sdk import ModelProvider
from holdfast.models.defaults import default_api
from holdfast.models.providers import MultiProviderMap, model_providers
from holdfast.models.resolve import get_default_model
from holdfast.values.text.shown import shown

if TYPE_CHECKING:
    from openai import AsyncOpenAI

    from holdfast.models.openai.model import OpenAIModel

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
                msg = f"OpenAIProvider cannot have {name}=: {why}."
                raise UserError(msg)
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
