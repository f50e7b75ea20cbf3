"""Every failure of a model call is one of two: time heals it, or a person must."""

from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import httpx2
import openai
import pytest

from holdfast.errors import ModelError, ModelRequestError, ModelUnavailableError
from holdfast.models import ChatCompletionsModel, ModelRequest, ResponsesModel
from holdfast.models.base import foreign_error
from holdfast.models.openai.http.failures import model_error
from holdfast.testing import FakeOpenAI
from holdfast.values.messages import user
from holdfast.values.runs.retries import retry_after
from holdfast.values.settings import ModelSettings

KEY = "sk-very-secret-0123456789"


async def failure(api: FakeOpenAI, kind: Any = ResponsesModel, timeout: float = 60) -> ModelError:
    model = kind("some-model", base_url=api.base_url, api_key=KEY)
    settings = ModelSettings(timeout_seconds=timeout)
    request = ModelRequest(model="some-model", messages=(user("x"),), settings=settings)
    with pytest.raises(ModelError) as caught:
        await model.respond(request)
    await model.close()
    error = caught.value
    assert KEY not in str(error)
    assert "'some-model'" in str(error)
    assert error.__cause__ is None, "a cause is stored with the task, and may hold the key"
    return error


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 529])
async def test_what_time_heals(api: FakeOpenAI, status: int) -> None:
    api.fail(status, message="Try again")
    error = await failure(api)
    assert isinstance(error, ModelUnavailableError)
    assert error.retry_after is None
    assert f"HTTP {status}, request id req_1): Try again. The call is repeated later." in str(error)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
async def test_what_time_does_not_heal(api: FakeOpenAI, status: int) -> None:
    api.fail(status, message="No.")
    error = await failure(api)
    assert isinstance(error, ModelRequestError)
    assert error.status == status
    assert f"(HTTP {status}, request id req_1): No. " in str(error)
    assert str(error).endswith("run the step again.")


@pytest.mark.parametrize("kind", [ResponsesModel, ChatCompletionsModel])
async def test_used_up_quota_is_not_waited_for(api: FakeOpenAI, kind: Any) -> None:
    api.fail(429, message="You exceeded your quota", code="insufficient_quota", retry_after=1)
    error = await failure(api, kind)
    assert isinstance(error, ModelRequestError)
    assert error.status == 429
    assert "billing" in str(error)


@pytest.mark.parametrize("headers", [{}, {"x-should-retry": "false"}])
async def test_a_conversation_that_another_request_uses_is_waited_for(
    api: FakeOpenAI, headers: dict[str, str]
) -> None:
    api.fail(400, message="locked", code="conversation_locked", headers=headers)
    assert isinstance(await failure(api), ModelUnavailableError)


@pytest.mark.parametrize(
    ("status", "code", "is_waited_for"),
    [(400, "conversation_locked", True), (429, "insufficient_quota", False), (400, None, False)],
)
def test_an_error_that_a_program_s_own_model_raises_is_told_apart_by_its_code(
    status: int, code: str | None, *, is_waited_for: bool
) -> None:
    response = httpx2.Response(status, request=httpx2.Request("POST", "http://localhost"))
    error = openai.APIStatusError("no", response=response, body={"code": code})
    assert isinstance(foreign_error(error, "it failed"), ModelUnavailableError) is is_waited_for


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after-ms": "1500", "retry-after": "7"}, 1.5),
        ({"retry-after": "Thu, 01 Jan 1970 00:02:00 GMT"}, 20.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-5"}, 0.0),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "Mon, 31 Feb 2099 99:99:99 GMT"}, None),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after-ms": "soon", "retry-after": "3"}, 3.0),
    ],
)
def test_forms_of_retry_after(headers: dict[str, str], expected: float | None) -> None:
    assert retry_after(headers, now=100.0) == expected


@pytest.mark.parametrize("kind", [ResponsesModel, ChatCompletionsModel])
async def test_timeout(api: FakeOpenAI, kind: Any) -> None:
    api.hang()
    error = await failure(api, kind, timeout=1.0)  # longer than a connection takes under load
    assert isinstance(error, ModelUnavailableError)
    assert "did not answer in time" in str(error)
    await api.until_held(0)


@pytest.mark.parametrize("kind", [ResponsesModel, ChatCompletionsModel])
async def test_body_that_is_not_json(api: FakeOpenAI, kind: Any) -> None:
    api.malformed()
    error = await failure(api, kind)
    assert isinstance(error, ModelUnavailableError)
    assert "the body is not JSON" in str(error)
    assert "req_1" in str(error)


@pytest.mark.parametrize(
    "message",
    [
        f"Incorrect API key provided: {KEY}.",
        "Incorrect API key provided: sk-proj-abc***wxyz. Find yours.",
        f"Header was 'Authorization: Bearer {KEY}'",
        "bearer abcdefg is unknown",
    ],
)
async def test_keys_are_cut_out_of_the_text(api: FakeOpenAI, message: str) -> None:
    api.fail(401, message=message)
    text = str(await failure(api))
    assert "[key]" in text
    assert "sk-" not in text
    assert "abcdefg" not in text


async def test_missing_key_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    request = ModelRequest(model="m", messages=(user("x"),))
    for model in (ResponsesModel("m"), ChatCompletionsModel("m"), ResponsesModel("m", api_key="")):
        with pytest.raises(ModelRequestError, match="Set OPENAI_API_KEY") as caught:
            await model.respond(request)
        assert "'m'" in str(caught.value)
        assert "offline" in str(caught.value)


def all_errors(kind: type[BaseException]) -> Iterator[type[BaseException]]:
    for each in kind.__subclasses__():
        yield each
        yield from all_errors(each)


@pytest.mark.parametrize("kind", sorted(set(all_errors(openai.OpenAIError)), key=str))
def test_every_error_of_the_client_is_mapped(kind: type[openai.OpenAIError]) -> None:
    """A new error class of the client must not pass as something else."""
    error = kind.__new__(kind)
    error.args = ("what it says",)
    if isinstance(error, openai.APIError):
        error.message = "what it says"
        error.body = None
    if isinstance(error, openai.APIStatusError):
        error.response = Mock(headers={})
        error.status_code = getattr(kind, "status_code", 418)
    mapped = model_error(error, model="m")
    assert isinstance(mapped, ModelUnavailableError | ModelRequestError)
    assert "'m'" in str(mapped)


@pytest.mark.parametrize(
    ("code", "expected"), [(429, ModelUnavailableError), (402, ModelRequestError)]
)
async def test_error_in_a_body_of_status_200(
    api: FakeOpenAI, code: int, expected: type[Exception]
) -> None:
    api.raw({"error": {"code": code, "message": "Not now"}})
    error = await failure(api, ChatCompletionsModel)
    assert isinstance(error, expected)
    assert "Not now" in str(error)
