"""Errors as problem details (RFC 9457)."""

from __future__ import annotations

import http
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from holdfast.desk.identity.tokens import NotAllowedError, NotAuthenticatedError
from holdfast.errors import (
    EngineError,
    HoldfastError,
    InvalidArgumentError,
    NotFoundError,
    TaskExistsError,
    UserError,
)
from holdfast.values.base import Json
from holdfast.values.text.logs import log
from holdfast.values.text.redact import redact

MEDIA_TYPE = "application/problem+json"


class Problem(BaseModel):
    """What went wrong (RFC 9457).

    Attributes:
        type: Kind of the problem: `urn:holdfast:error:` and the name of Holdfast's error, or
            "about:blank" for what HTTP itself says.
        title: The status in words.
        status: The HTTP status.
        detail: What was wrong, why, and what to do.
        errors: The fields of the request that do not fit, with their places and why.
    """

    type: str = "about:blank"
    title: str
    status: int
    detail: str = ""
    errors: list[dict[str, Any]] = Field(default_factory=list[dict[str, Any]])


def status_of(error: HoldfastError) -> int:
    """Return the HTTP status of an error; the classes are those of the CLI's exit codes."""
    match error:
        case NotAuthenticatedError():
            return 401
        case NotAllowedError():
            return 403
        case NotFoundError():
            return 404
        case TaskExistsError():
            return 409
        case InvalidArgumentError() | UserError():
            return 422
        case EngineError():
            return 503
        case _:
            return 409


def problem(
    status: int,
    detail: str,
    *,
    kind: str = "",
    errors: list[dict[str, Json]] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Make the answer for a problem."""
    body = Problem(
        type=f"urn:holdfast:error:{kind}" if kind else "about:blank",
        title=http.HTTPStatus(status).phrase,
        status=status,
        detail=redact(detail),
        errors=errors or [],
    )
    content = body.model_dump(mode="json", exclude_defaults=False)
    if not body.errors:
        del content["errors"]
    return JSONResponse(content, status, headers=headers, media_type=MEDIA_TYPE)


def problem_of(error: HoldfastError) -> Response:
    """Make the answer for an error."""
    status = status_of(error)
    headers = {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": "2"}}.get(status)
    kind = type(error).__name__.removesuffix("Error")
    return problem(status, str(error), kind=kind, headers=headers)


ANSWERED = (HoldfastError, TimeoutError, RequestValidationError)
"""Errors that the API answers itself."""


def answer_of(error: Exception) -> Response:
    """Make the answer for one of these errors."""
    if isinstance(error, HoldfastError):
        return problem_of(error)
    if not isinstance(error, RequestValidationError):
        detail = "No worker process has answered in time. Ask again; nothing is lost."
        return problem(503, detail, kind="NoWorker", headers={"Retry-After": "2"})
    found = [
        {"at": ".".join(map(str, each["loc"])), "why": str(each["msg"])} for each in error.errors()
    ]
    detail = "; ".join(f"{each['at']}: {each['why']}" for each in found)
    return problem(422, f"The request does not fit: {detail}.", errors=found)


def answer_problems(app: FastAPI) -> None:
    """Have an application answer its errors as problem details."""

    async def answered(_request: Request, error: Exception) -> Response:
        return answer_of(error)

    for each in ANSWERED:
        app.add_exception_handler(each, answered)

    @app.exception_handler(HTTPException)
    async def _(_request: Request, error: HTTPException) -> Response:
        return problem(error.status_code, str(error.detail), headers=error.headers)

    @app.exception_handler(Exception)
    async def _(request: Request, error: Exception) -> Response:
        log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        detail = "The desk itself has failed. Its log has the error; the tasks are not affected."
        return problem(500, detail)
