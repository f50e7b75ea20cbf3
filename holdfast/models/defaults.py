"""The client, key and API of models that are given none: chosen once for a process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, cast, get_args

from holdfast.errors import UserError
from holdfast.values.text.shown import shown

if TYPE_CHECKING:
    from openai import AsyncOpenAI

Api = Literal["chat_completions", "responses"]


class _Defaults:
    """What `set_default_openai_client` and the like have set in this process."""

    def __init__(self) -> None:
        self.client: AsyncOpenAI | None = None
        self.key = ""
        self.api = ""


_defaults = _Defaults()


def set_default_openai_client(
    client: AsyncOpenAI,
    use_for_tracing: bool = True,  # noqa: FBT001, FBT002  the Agents SDK's signature
) -> None:
    """Call OpenAI's models through this client, unless a model has a client of its own.

    This holds in the process that calls it, so a worker process that serves the agents calls it in
    the module of its agents. The client is used in the loop that runs the models.

    Args:
        client: The client.
        use_for_tracing: Without effect: spans go where OpenTelemetry sends them.

    Raises:
        UserError: It is not an AsyncOpenAI.
    """
    from openai import AsyncOpenAI

    del use_for_tracing
    if not isinstance(cast("object", client), AsyncOpenAI):
        raise UserError(f"client must be an openai.AsyncOpenAI; it was {shown(client)}.")
    _defaults.client = client


def set_default_openai_key(
    key: str,
    use_for_tracing: bool = True,  # noqa: FBT001, FBT002  the Agents SDK's signature
) -> None:
    """Call OpenAI's models with this key in place of OPENAI_API_KEY, in this process.

    Args:
        key: The key. A model or client with a key of its own uses that.
        use_for_tracing: Without effect, as for `set_default_openai_client`.

    Raises:
        UserError: It is not text.
    """
    del use_for_tracing
    if not isinstance(cast("object", key), str):
        raise UserError(f"key must be a text; it was of type {type(key).__name__}.")
    _defaults.key = key


def set_default_openai_api(api: Api) -> None:
    """Choose the API by which plain names of models are called, in this process.

    Args:
        api: "responses" or "chat_completions"; HOLDFAST_MODEL_API says it otherwise.

    Raises:
        UserError: There is no such API.
    """
    if api not in get_args(Api):
        raise UserError(f"api must be one of {', '.join(get_args(Api))}; it was {shown(api)}.")
    _defaults.api = "chat" if api == "chat_completions" else api


def default_client() -> AsyncOpenAI | None:
    """Return the client of `set_default_openai_client`, if there is one."""
    return _defaults.client


def default_key() -> str:
    """Return the key of `set_default_openai_key`, or an empty text."""
    return _defaults.key


def default_api() -> str:
    """Return the API of `set_default_openai_api`, "chat" or "responses"; empty if none was set."""
    return _defaults.api


def forget() -> None:
    """Go back to what the environment says."""
    _defaults.client, _defaults.key, _defaults.api = None, "", ""
