"""Map every exception of the `openai` client to the two kinds a task knows: wait, or ask a person.

The text holds the provider's own message, the status, the request id and the model's name, never a
key: it is stored in the task's history and shown in the inbox.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import openai
from pydantic import ValidationError

from holdfast.errors import (
    LONGEST_WAIT_SECONDS,
    ModelError,
    ModelRequestError,
    ModelUnavailableError,
    behind,
)
from holdfast.models.base import NOT_HEALED_BY_TIME, is_rate_limit, is_status_passing, is_too_long
from holdfast.values.base import Json
from holdfast.values.checks.gate import as_object
from holdfast.values.messages import ANSWERED, ToolCall, Usage
from holdfast.values.runs.retries import retry_after

_FOLD = (
    "The conversation is too long for the model: start the worker process with"
    " worker=FoldingAgentWorker() for the agent, or fork from an earlier step."
)
_ADVICE = {
    401: "Check the API key (OPENAI_API_KEY, or api_key= of the model).",
    403: "Check what the API key may use: project, model and region.",
    404: "Check the model's name and base_url.",
    413: _FOLD,
}
_KEY = re.compile(
    r"\b(?:sk|pk|key)-[\w\-*.]{4,}|(?i:bearer\s+)[^\s'\",]+|\bAIza[\w\-]{8,}"
    r"|(?<=[?&]key=)[^\s&'\"]+"
)
_LONGEST_MESSAGE = 600

SHORTEST_KEY = 6
"""Characters of the shortest key that is cut out: "x", for a server that wants no key, is a part of
ordinary words and no secret."""


class ErrorStatus(Exception):  # noqa: N818  it stands for the provider's error
    """An error response, with as much of its body as could be read."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes = b"") -> None:
        """Keep what the response says."""
        super().__init__(f"HTTP {status}")
        self.status = status
        self.headers = headers
        self.body = body

    def error(self, model: str, secret: str) -> ModelError:
        """Return the error to raise for this response."""
        try:
            data = as_object(json.loads(self.body))
        except (ValueError, RecursionError):
            data = {"message": self.body.decode("utf-8", "replace")}
        found = as_object(data.get("error")) or data
        made = status_error(self.status, found, model=model, headers=self.headers, secret=secret)
        made.client_error = _of_client(made, self.status, found, self.headers)
        return made


def _of_client(
    made: ModelError, status: int, body: Mapping[str, Json], headers: Mapping[str, str]
) -> openai.APIStatusError:
    """Make the error that the client raises for a status, without the request, which has the key.

    Its own is not kept: its body and its request may hold the key.
    """
    other = openai.InternalServerError if status >= _SERVERS else openai.APIStatusError
    kind = _STATUS_ERRORS.get(status, other)
    response: Any = SimpleNamespace(status_code=status, headers=headers, request=None)
    known = {name: body.get(name) for name in ("code", "type", "param")}
    return kind(made.args[0], response=response, body=known)


_SERVERS = 500
_STATUS_ERRORS: dict[int, type[openai.APIStatusError]] = {
    400: openai.BadRequestError,
    401: openai.AuthenticationError,
    403: openai.PermissionDeniedError,
    404: openai.NotFoundError,
    409: openai.ConflictError,
    422: openai.UnprocessableEntityError,
    429: openai.RateLimitError,
}
"""The client's class for a status."""


def unopened(error: BaseException, *, model: str, secret: str = "") -> ModelError:
    """Map what the client raised before it gave a response, and has no name for.

    It reads the body of an error before it tells of the error: when that cannot be read, the status
    is known to the error that was being handled then.
    """
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ErrorStatus):
            return seen.error(model, secret)
        response: Any = getattr(seen, "response", None)
        if isinstance(getattr(response, "status_code", None), int):
            return ErrorStatus(response.status_code, response.headers).error(model, secret)
        seen = behind(seen)
    return lost(model, type(error).__name__)


def model_error(error: openai.OpenAIError, *, model: str, secret: str = "") -> ModelError:
    """Map an exception of the `openai` client to ours.

    Args:
        error: What the client raised.
        model: Model name, for the text.
        secret: The key in use; it is cut out of the text everywhere, unless it is short.
    """
    match error:
        case openai.APIStatusError():
            found = as_object(error.body) or {"message": error.body}
            headers = error.response.headers
            made = status_error(
                error.status_code, found, model=model, headers=headers, secret=secret
            )
            made.client_error = _of_client(made, error.status_code, found, headers)
            return made
        case openai.APIConnectionError(__cause__=ErrorStatus() as told):
            return told.error(model, secret)
        case openai.APITimeoutError():
            return too_slow(model)
        case openai.APIConnectionError():
            return lost(model, _cause_of(error), secret=secret)
        case openai.APIResponseValidationError():
            return malformed(model, cleaned(str(error), secret))
        case openai.APIError():
            return ModelUnavailableError(
                f"Model {model!r} broke off its answer: {cleaned(error.message, secret)}. The call"
                " is repeated later.",
                is_limit=is_rate_limit(None, codes_of(as_object(error.body)), None),
            )
        case _:
            return ModelRequestError(
                f"The call of model {model!r} could not be made: {cleaned(str(error), secret)}.",
                remedy="Fix the cause, then run the step again.",
            )


def status_error(
    status: int,
    body: Mapping[str, Json],
    *,
    model: str,
    headers: Mapping[str, str] | None = None,
    secret: str = "",
    advice: Mapping[int, str] | None = None,
) -> ModelError:
    """Map an HTTP error status and the provider's error object to ours.

    Args:
        status: The status.
        body: The error object: `message`, and `code` or `type`.
        model: Model name, for the text.
        headers: The response's headers.
        secret: The key in use; it is cut out of the text.
        advice: What to do about a status, where that is other than for OpenAI.
    """
    headers = headers or {}
    request_id = headers.get("x-request-id") or headers.get("request-id")
    where = f"HTTP {status}" + (f", request id {request_id}" if request_id else "")
    said = cleaned(_message_in(body), secret)
    codes = codes_of(body)
    if codes & NOT_HEALED_BY_TIME:
        return ModelRequestError(
            f"Model {model!r} refused the request ({where}): {said}.",
            remedy="Waiting does not help: check plan and billing at the provider, then run the"
            " step again.",
            status=status,
        )
    may_repeat = headers.get("x-should-retry") != "false"
    if is_status_passing(status, codes, may_repeat=may_repeat):
        asked = retry_after(headers)
        wait = None if asked is None else min(asked, LONGEST_WAIT_SECONDS)
        when = "later" if wait is None else f"after {wait:g} s, as the provider asks"
        if asked is not None and asked > LONGEST_WAIT_SECONDS:
            when = f"after {wait:g} s, the longest wait, though the provider asks for {asked:g} s"
        return ModelUnavailableError(
            f"Model {model!r} is not available ({where}): {said}. The call is repeated {when}.",
            retry_after=wait,
            code=str(body.get("code") or ""),
            is_limit=is_rate_limit(status, codes, asked),
        )
    known = {**_ADVICE, **(advice or {})}
    what = known.get(status, "Fix what the provider names.")
    if is_too_long(f"{said} {body.get('code')}"):
        what = _FOLD
    return ModelRequestError(
        f"Model {model!r} refused the request ({where}): {said}.",
        remedy=f"{what} Then run the step again.",
        status=status,
        code=str(body.get("code") or ""),
    )


def codes_of(body: Mapping[str, Json]) -> set[str]:
    """Return the words by which a provider's error object says what it is."""
    return {str(body.get("code")), str(body.get("type"))}


def too_slow(model: str) -> ModelUnavailableError:
    """Make the error for an answer that did not come in time."""
    made = ModelUnavailableError(
        f"Model {model!r} did not answer in time and the call is repeated later.",
        remedy="Raise ModelSettings.timeout_seconds if its answers normally take longer.",
    )
    made.client_error = openai.APITimeoutError(request=cast("Any", None))
    return made


def cut_off(
    model: str, reason: str, *, secret: str = "", codes: Collection[str] = ()
) -> ModelUnavailableError:
    """Make the error for a streamed answer that ends before it is complete."""
    return ModelUnavailableError(
        f"Model {model!r} broke off its answer in the middle ({cleaned(reason, secret)}). The call"
        " is repeated later.",
        is_limit=is_rate_limit(None, codes, None),
    )


def lost(model: str, reason: str, *, secret: str = "") -> ModelUnavailableError:
    """Make the error for a connection that ended before the answer was there."""
    made = ModelUnavailableError(
        f"The connection to model {model!r} failed or was cut ({cleaned(reason, secret)}); the call"
        " is repeated later."
    )
    made.client_error = openai.APIConnectionError(message=str(made), request=cast("Any", None))
    return made


def malformed(
    model: str,
    reason: str,
    *,
    request_id: str | None = None,
    usage: Usage = ANSWERED,
    calls: Iterable[ToolCall] = (),
) -> ModelUnavailableError:
    """Make the error for an answer that is not what the API promises."""
    where = f" (request id {request_id})" if request_id else ""
    made = ModelUnavailableError(
        f"Model {model!r} sent an answer that cannot be read{where}: {reason.rstrip('.')}.",
        remedy="It is asked again a few times; if it stays so, check that base_url is such an API.",
    )
    made.usage, made.open_calls = usage, tuple(calls)
    return made


def first_problem(error: ValidationError) -> str:
    """Say where a body differs from the expected shape, without quoting what is there."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"


def refuse_missing_key(model: str) -> NoReturn:
    """Raise the error for a model without a key."""
    raise ModelRequestError(
        f"Model {model!r} cannot be called: there is no API key.",
        remedy="Set OPENAI_API_KEY where the worker runs, or pass api_key= to the model, then run"
        " the step again. For a server that wants no key pass any text;"
        ' model="offline" needs neither key nor network.',
    )


def _message_in(body: Mapping[str, Json]) -> str:
    error = as_object(body.get("error")) or body
    message = error.get("message") or body.get("detail")
    return str(message).strip() if message else "the provider gave no reason"


def _cause_of(error: BaseException) -> str:
    cause = error.__cause__
    return f"{type(cause).__name__}: {cause}" if cause is not None else str(error)


def cleaned(text: str, secret: str) -> str:
    """Cut keys out of a text, and the text to a readable length."""
    if len(secret) >= SHORTEST_KEY:
        text = text.replace(secret, "[key]")
    text = _KEY.sub("[key]", text)
    text = text if len(text) <= _LONGEST_MESSAGE else text[:_LONGEST_MESSAGE] + "..."
    return text.rstrip(".")
