"""Models behind LiteLLM: `litellm/PROVIDER/NAME`."""

from __future__ import annotations

import asyncio
import importlib
import os
from typing import Any

from holdfast.models.libraries.library_model import LibraryModel
from holdfast.values.base import Json
from holdfast.values.checks.gate import as_array, as_object, as_text
from holdfast.values.settings import ModelSettings

_OFFLINE = (
    "LITELLM_LOCAL_MODEL_COST_MAP",
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS",
    "LITELLM_OFFLINE_MODE",
)
"""Environment variables without which LiteLLM fetches tables and tokenizers from the network."""

_THOUGHT = "__thought__"
"""What LiteLLM puts between the id of a call and its signature, which the call has besides."""


class LitellmModel(LibraryModel):
    """A model called through LiteLLM, with the constructor of the Agents SDK.

    The first call imports LiteLLM, in a thread: that takes seconds. LiteLLM's tables are those in
    its package: it fetches none, unless LITELLM_LOCAL_MODEL_COST_MAP, LITELLM_OFFLINE_MODE and
    LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS say otherwise.
    """

    library = "litellm"

    def _said(self, given: dict[str, Json]) -> dict[str, Json]:
        """Take the signatures out of the ids of calls: they may be kilobytes long."""
        for call in map(as_object, as_array(given.get("tool_calls"))):
            call_id = as_text(call.get("id"))
            signed = as_object(call.get("provider_specific_fields"))
            if _THOUGHT in call_id and "thought_signature" in signed:
                call["id"] = call_id.partition(_THOUGHT)[0]
        return given

    async def _complete(self, body: dict[str, Json], settings: ModelSettings) -> Any:
        litellm = await asyncio.to_thread(_library)
        place = {"api_base": self._base_url, "api_key": self._api_key}
        given = {name: value for name, value in place.items() if value is not None}
        return await litellm.acompletion(
            **{**body, "model": self.model},
            **given,
            extra_headers=settings.extra_headers,
            timeout=settings.seconds_per_attempt,
            num_retries=0,
            max_retries=0,
        )


def _library() -> Any:
    """Import LiteLLM without its calls to the network and its messages on standard output."""
    for name in _OFFLINE:
        os.environ.setdefault(name, "True")
    litellm: Any = importlib.import_module("litellm")
    litellm.telemetry = False
    litellm.suppress_debug_info = True
    return litellm
