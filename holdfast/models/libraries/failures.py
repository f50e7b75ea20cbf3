"""Map what the libraries of other providers raise to the two kinds a task knows: wait, or ask.

Such a library raises errors of its own, or those of each provider's client. All of them are read by
what they carry: a status, the headers of the response, the name of their class.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any, cast

from holdfast.errors import ModelError, ModelRequestError, behind
from holdfast.models.openai.http.failures import (
    SHORTEST_KEY,
    cut_off,
    lost,
    malformed,
    status_error,
    too_slow,
)
from holdfast.values.base import Json

_SECRET = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD")
_SHORTEST_SECRET = 8
_LATE = frozenset({"Timeout", "APITimeoutError", "TimeoutException", "TimeoutError"})
_LOST = frozenset({"APIConnectionError", "TransportError", "ClientConnectionError", "RemoteError"})
_CUT = frozenset({"ClientPayloadError"})
"""Of aiohttp: it counts as a status 400, which the provider has not sent."""

_ADVICE = {401: "Check the key of the model's provider: its environment variable, or api_key=."}


def library_error(error: Exception, *, model: str, key: str | None = None) -> ModelError:
    """Return ours for an error of a library or of a provider's client.

    Args:
        error: What was raised.
        model: Model name, for the text.
        key: The key in use, if it was given; it is cut out of the text, as are those of the
            environment.
    """
    text = _without_secrets(_message_of(error), key)
    found = next(_statuses(error), None)
    names = {base.__name__ for each in _chain(error) for base in type(each).__mro__}
    if names & _LATE or isinstance(error, TimeoutError):
        return too_slow(model)
    if names & _CUT:
        return cut_off(model, text)
    if found is None and (names & _LOST or isinstance(error, ConnectionError)):
        return lost(model, text)
    if (found is None or found == HTTPStatus.UNPROCESSABLE_ENTITY) and _is_misread(error):
        return malformed(model, text.rstrip("."))
    if found is None:
        return ModelRequestError(
            f"The call of model {model!r} could not be made: {type(error).__name__}:"
            f" {text.rstrip('.')}.",
            remedy="Fix the cause, then run the step again.",
        )
    body: dict[str, Json] = {
        "message": text,
        "code": _word(error, "code"),
        "type": _word(error, "type"),
    }
    headers = next((held for each in _chain(error) if (held := _headers_of(each))), None)
    return status_error(found, body, model=model, headers=headers, advice=_ADVICE)


def _is_misread(error: BaseException) -> bool:
    """Whether the library met a body that is no answer of the provider's API."""
    if any(isinstance(each, AttributeError | LookupError) for each in _chain(error)):
        return True
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, json.JSONDecodeError):
        seen = behind(seen)
    return seen is not None


def _statuses(error: BaseException) -> Iterator[int]:
    """Yield the HTTP statuses that an error and its causes carry."""
    for each in _chain(error):
        response: Any = getattr(each, "response", None)
        for holder, name in ((each, "status_code"), (each, "code"), (response, "status_code")):
            status: object = getattr(holder, name, None)
            if isinstance(status, int) and 400 <= status < 600:  # noqa: PLR2004  HTTP's errors
                yield status


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: BaseException | None = error
    passed: set[int] = set()
    while seen is not None and id(seen) not in passed:
        passed.add(id(seen))
        yield seen
        seen = getattr(seen, "original_exception", None) or seen.__cause__


def _headers_of(error: BaseException) -> dict[str, str]:
    """Return the headers of the provider's response, with names in lower case."""
    response: Any = getattr(error, "response", None)
    for found in (
        getattr(error, "litellm_response_headers", None),
        getattr(response, "headers", None),
    ):
        if isinstance(found, Mapping) and found:
            given = cast("Mapping[str, Any]", found)
            return {name.lower(): str(value) for name, value in given.items()}
    return {}


def _message_of(error: Exception) -> str:
    said: object = getattr(error, "message", None)
    return said if isinstance(said, str) and said else str(error) or type(error).__name__


def _word(error: Exception, name: str) -> str | None:
    found: object = getattr(error, name, None)
    return found if isinstance(found, str) else None


def _without_secrets(text: str, key: str | None) -> str:
    """Cut out the key, and every value that the environment keeps under the name of a secret."""
    named = (value for name, value in os.environ.items() if name.upper().endswith(_SECRET))
    for secret in sorted({key or "", *named}, key=len, reverse=True):
        if len(secret) >= (SHORTEST_KEY if secret == key else _SHORTEST_SECRET):
            text = text.replace(secret, "[key]")
    return text
