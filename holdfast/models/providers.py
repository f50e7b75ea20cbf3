"""Whose model a name means: the providers of prefixes, and names that are not OpenAI's."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import urlsplit
from weakref import WeakSet

from holdfast.errors import UserError
from holdfast.values.code.extras import PACKAGES, needing
from holdfast.values.text.shown import shown

_PROVIDERS = frozenset(
    {
        "ai21",
        "anthropic",
        "azure",
        "azure_ai",
        "bedrock",
        "cerebras",
        "cohere",
        "databricks",
        "deepseek",
        "fireworks",
        "fireworks_ai",
        "gemini",
        "github",
        "google",
        "google-gla",
        "google-vertex",
        "google_genai",
        "groq",
        "huggingface",
        "meta-llama",
        "mistral",
        "mistralai",
        "moonshot",
        "moonshotai",
        "nvidia",
        "ollama",
        "openrouter",
        "perplexity",
        "qwen",
        "replicate",
        "sagemaker",
        "together",
        "together_ai",
        "vertex_ai",
        "vertexai",
        "vllm",
        "watsonx",
        "x-ai",
        "xai",
        "z-ai",
    }
)
"""Names of providers, as other libraries write them before the name of a model."""

_OPENAI = frozenset({"openai", "openai-chat", "openai-responses"})

_FAMILIES = {
    "claude": "Anthropic",
    "gemini": "Google",
    "gemma": "Google",
    "palm-": "Google",
    "mistral": "Mistral",
    "mixtral": "Mistral",
    "codestral": "Mistral",
    "magistral": "Mistral",
    "deepseek": "DeepSeek",
    "grok": "xAI",
    "command-": "Cohere",
    "sonar": "Perplexity",
    "qwen": "Alibaba",
    "kimi": "Moonshot",
    "glm-": "Z.ai",
    "llama": "Meta",
    "meta-llama": "Meta",
    "phi-": "Microsoft",
    "nova-": "Amazon",
    "minimax": "MiniMax",
    "jamba": "AI21",
}
"""How the names of other providers' models begin."""


_OBJECT = " Or pass a Model object of your own: `name` and `async def respond(request)`."

_maps: WeakSet[MultiProviderMap] = WeakSet()


class MultiProviderMap:
    """Which provider makes the models whose names have a prefix, as in `prefix/name`."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._providers: dict[str, Any] = {}
        _maps.add(self)

    def has_prefix(self, prefix: str) -> bool:
        """Whether a prefix has a provider."""
        return prefix in self._providers

    def get_mapping(self) -> dict[str, Any]:
        """Return a copy of the map."""
        return dict(self._providers)

    def set_mapping(self, mapping: Mapping[str, Any]) -> None:
        """Replace the whole map."""
        self._providers = dict(mapping)

    def get_provider(self, prefix: str) -> Any:
        """Return the provider of a prefix; None when it has none."""
        return self._providers.get(prefix)

    def add_provider(self, prefix: str, provider: Any) -> None:
        """Give a prefix a provider: any object with `get_model(name)`.

        Raises:
            UserError: The prefix is not valid, or the object has no such method.
        """
        if not isinstance(cast("object", prefix), str) or not prefix or set(prefix) & set("/: "):
            raise UserError(
                "A prefix is the part before the first slash of a model's name, as 'acme' in"
                f" 'acme/small'; it was {shown(prefix)}."
            )
        if isinstance(provider, type) or not callable(getattr(provider, "get_model", None)):
            raise UserError(
                f"The provider of prefix {prefix!r} must have a method get_model(name), which"
                f" returns a Model; it was {shown(provider)}."
            )
        self._providers[prefix] = provider

    def remove_provider(self, prefix: str) -> None:
        """Take the provider from a prefix.

        Raises:
            KeyError: It has none.
        """
        del self._providers[prefix]


class LibraryProvider:
    """Makes the models of a library, which is imported only when one of them is asked.

    Attributes:
        extra: The extra that installs the library.
    """

    def __init__(self, extra: str, module: str, name: str) -> None:
        """Make models of this class."""
        self.extra = extra
        self._module = module
        self._name = name

    def get_model(self, model_name: str | None) -> Any:
        """Return the model of a name such as `anthropic/claude-sonnet-4-5`.

        Raises:
            ModuleNotFoundError: The library is not installed.
            InvalidArgumentError: The name is empty, or lacks what the library needs.
        """
        package = PACKAGES[self.extra][0]
        with needing(self.extra, f"Model '{self.extra}/{model_name}'"):
            if importlib.util.find_spec(package) is None:
                raise ModuleNotFoundError(f"No module named {package!r}", name=package)
        return getattr(importlib.import_module(self._module), self._name)(model_name or "")


def _with_libraries() -> MultiProviderMap:
    made = MultiProviderMap()
    for extra, module, name in (
        ("litellm", "litellm", "LitellmModel"),
        ("any-llm", "any_llm", "AnyLLMModel"),
    ):
        made.add_provider(
            extra, LibraryProvider(extra, f"holdfast.models.libraries.{module}", name)
        )
    return made


model_providers = _with_libraries()
"""The providers of this process by prefix: `model="acme/small"` asks that of `acme` for `small`.

Add one's own in the module of the agents, so that worker processes have it as well.
"""


def unknown_prefix(name: str, base_url: str | None) -> str:
    """Say that the prefix of a name has no provider, or return an empty text.

    The names of other servers may have slashes of their own, as in "meta-llama/Llama-3-8B"; those
    of OpenAI have none.

    Args:
        name: The model's name.
        base_url: Address of the API; None for OpenAI's.
    """
    prefix, slash, rest = name.strip().partition("/")
    if not slash or ":" in prefix or not is_openai(base_url):
        return ""
    if prefix.lower() in _OPENAI or any(each.has_prefix(prefix) for each in _maps):
        return ""
    known = ", ".join(f"{each}/" for each in sorted({"openai", *model_providers.get_mapping()}))
    return (
        f"Model name {name!r} has the prefix {prefix + '/'!r}, which has no provider. Known are"
        f" {known}. For a model of many providers pass 'litellm/{prefix}/{rest}'; for a provider of"
        f" your own call holdfast.model_providers.add_provider({prefix!r}, ...) before the agent is"
        " made; where the slash belongs to the name at another server, set OPENAI_BASE_URL or pass"
        f" 'chat:{name.strip()}'."
    )


def is_openai(base_url: str | None) -> bool:
    """Whether an address is OpenAI's own; none is."""
    if not base_url:
        return True
    host = (urlsplit(base_url).hostname or "").rstrip(".").lower()
    return host == "openai.com" or host.endswith(".openai.com")


def misdirected(name: str, base_url: str | None) -> str:
    """Say why a model cannot be asked for at an address, or return an empty text.

    Args:
        name: The model's name.
        base_url: Address of the API; None for OpenAI's.
    """
    if not is_openai(base_url):
        return ""
    lower = name.strip().lower()
    prefix = lower.replace("/", ":").partition(":")[0] if ":" in lower or "/" in lower else ""
    if prefix in _OPENAI:
        bare = name.strip()[len(prefix) + 1 :]
        return (
            f"Model name {name!r} has the prefix {prefix!r}, which is not a part of it for OpenAI."
            f" Pass {bare!r}."
        )
    if prefix in _PROVIDERS:
        whose = f"a model of {prefix!r}"
    else:
        parts = lower.split(".")  # as in us.anthropic.claude-sonnet-4-5
        family = next(
            (begin for begin in _FAMILIES for part in parts if part.startswith(begin)), None
        )
        if family is None:
            wrong = unknown_prefix(name, base_url)
            return wrong + _OBJECT if wrong else ""
        whose = f"a model of {_FAMILIES[family]}"
    return (
        f"Model name {name!r} is that of {whose}, but no address of another server is set, so it"
        " would be asked for at OpenAI. Pass 'litellm/PROVIDER/NAME' for a model of many"
        ' providers, or set OPENAI_BASE_URL and pass "chat:NAME" for a server with the Chat'
        " Completions API." + _OBJECT
    )
