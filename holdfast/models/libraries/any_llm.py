"""Models behind any-llm: `any-llm/PROVIDER/NAME`."""

from __future__ import annotations

import asyncio
import importlib
from typing import Any
from weakref import WeakKeyDictionary

from holdfast.errors import InvalidArgumentError
from holdfast.models.libraries.library_model import LibraryModel
from holdfast.values.base import Json
from holdfast.values.checks.gate import as_object, as_text
from holdfast.values.settings import ModelSettings
from holdfast.values.text.shown import shown


class AnyLLMModel(LibraryModel):
    """A model called through any-llm, with the constructor of the Agents SDK.

    The package of the provider's client must be installed as well: `any-llm-sdk[PROVIDER]`.
    """

    library = "any-llm"

    def __init__(self, model: str, base_url: str | None = None, api_key: str | None = None) -> None:
        """Remember how to reach the model, as `LibraryModel` does.

        Raises:
            InvalidArgumentError: The name lacks its provider.
        """
        super().__init__(model, base_url, api_key)
        if not all(model.partition("/")):
            raise InvalidArgumentError(
                f"Model name {shown(f'any-llm/{model}')} lacks its provider: write"
                " any-llm/PROVIDER/NAME, as"
                " any-llm/anthropic/claude-sonnet-4-5."
            )
        self._made: WeakKeyDictionary[asyncio.AbstractEventLoop, Any] = WeakKeyDictionary()

    def _said(self, given: dict[str, Json]) -> dict[str, Json]:
        """Take the reasoning by the name that the API's other servers give it."""
        reasoning: Json = given.pop("reasoning", None)
        text = as_text(reasoning) or as_text(as_object(reasoning).get("content"))
        return {**given, "reasoning_content": text} if text else given

    async def opened(self) -> Any:
        """Return any-llm's provider, with a client of its own for the running event loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._made:
            self._made[loop] = await asyncio.to_thread(self.made)
        return self._made[loop]

    async def _complete(self, body: dict[str, Json], settings: ModelSettings) -> Any:
        return await self.asked(await self.opened(), body, settings)

    async def asked(self, provider: Any, body: dict[str, Json], settings: ModelSettings) -> Any:
        """Make one attempt by a provider of any-llm."""
        more: dict[str, Any] = {}
        if settings.extra_headers:
            more["extra_headers"] = settings.extra_headers
        if "max_completion_tokens" in body:  # not every provider of any-llm reads it
            more["max_tokens"] = body.pop("max_completion_tokens")
        # Anthropic's client waits for a long answer only if it is told how long.
        if getattr(provider, "TIMEOUT_SUPPORT", "unsupported") != "unsupported":
            more["timeout"] = settings.seconds_per_attempt
        given = {**body, "model": self.model.partition("/")[2], **more}
        return await provider.acompletion(**given)

    def made(self, **options: Any) -> Any:
        """Make any-llm's provider, whose client makes no retries.

        Args:
            options: Further arguments of the client.
        """
        any_llm = importlib.import_module("any_llm").AnyLLM
        provider = self.provider
        kind = any_llm.get_provider_class(provider)
        counts = getattr(kind, "MAX_RETRIES_SUPPORT", "unsupported") != "unsupported"
        retries: dict[str, Any] = {"max_retries": 0} if counts else {}
        return any_llm.create(
            provider,
            api_key=self._api_key,
            api_base=self._base_url,
            unified_exceptions=True,
            **retries,
            **options,
        )
