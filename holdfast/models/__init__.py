"""Models: the one-method protocol, OpenAI's, those of LiteLLM and any-llm, and an offline one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.models.base import Model, ModelAnswer, ModelRequest, OutputSpec, ToolSpec
from holdfast.models.openai.items import from_response_items, to_response_items
from holdfast.models.resolve import DEFAULT_MODEL, close_models, resolve_model
from holdfast.values.messages import assistant, user

if TYPE_CHECKING:
    from holdfast.models.libraries.any_llm import AnyLLMModel
    from holdfast.models.libraries.litellm import LitellmModel
    from holdfast.models.offline import OfflineModel
    from holdfast.models.openai.chat import ChatCompletionsModel
    from holdfast.models.openai.responses import ResponsesModel

__all__ = [
    "DEFAULT_MODEL",
    "AnyLLMModel",
    "ChatCompletionsModel",
    "LitellmModel",
    "Model",
    "ModelAnswer",
    "ModelRequest",
    "OfflineModel",
    "OutputSpec",
    "ResponsesModel",
    "ToolSpec",
    "assistant",
    "close_models",
    "from_response_items",
    "resolve_model",
    "to_response_items",
    "user",
]

_LAZY = {
    "AnyLLMModel": "holdfast.models.libraries.any_llm",
    "ChatCompletionsModel": "holdfast.models.openai.chat",
    "LitellmModel": "holdfast.models.libraries.litellm",
    "OfflineModel": "holdfast.models.offline",
    "ResponsesModel": "holdfast.models.openai.responses",
}


def __getattr__(name: str) -> object:
    """Import a model when it is first asked for: the client package is heavy."""
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    """List the public names, the lazy ones too."""
    return __all__
