"""The client of sessions that the provider keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.models.defaults import default_client

if TYPE_CHECKING:
    from openai import AsyncOpenAI


def client_of(given: AsyncOpenAI | None) -> AsyncOpenAI:
    """Return the given client, else the default one, else one made of the environment."""
    if given is not None:
        return given
    known = default_client()
    if known is not None:
        return known
    from openai import AsyncOpenAI

    return AsyncOpenAI()
