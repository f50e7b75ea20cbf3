"""Models: the one-method protocol, two OpenAI-compatible ones, and one that needs no network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.models.base import Model, ModelAnswer, ModelRequest, OutputSpec, ToolSpec
from holdfast.models.items import from_response_items, to_response_items
from holdfast.models.resolve import DEFAULT_MODEL, close_models, resolve_model

if TYPE_CHECKING:
    from holdfast.models.chat import ChatCompletionsModel
    from holdfast.models.offline import OfflineModel
    from holdfast.models.responses import ResponsesModel

__all__ = [
    "DEFAULT_MODEL",
    "ChatCompletionsModel",
    "Model",
    "ModelAnswer",
    "ModelRequest",
    "OfflineModel",
    "OutputSpec",
    "ResponsesModel",
    "ToolSpec",
    "close_models",
    "from_response_items",
    "resolve_model",
    "to_response_items",
]

_LAZY = {
    "ChatCompletionsModel": "holdfast.models.chat",
    "OfflineModel": "holdfast.models.offline",
    "ResponsesModel": "holdfast.models.responses",
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
