"""Events from elsewhere, by signed webhooks.

Source: Standard Webhooks 1.0, "Signature scheme" and "Verifying webhook authenticity".
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import os
import re
import time
from collections.abc import Iterator, Mapping

from fastapi import APIRouter, Request
from starlette.responses import Response

from holdfast.client.agent_runner.events import EventReceipt
from holdfast.desk.api.access import CleanJSON, IdRoute
from holdfast.desk.identity.protection import HOOKS, Rates, too_many
from holdfast.desk.identity.tokens import NotAuthenticatedError
from holdfast.desk.pages.feed import Desk
from holdfast.errors import InvalidArgumentError
from holdfast.values.checks.gate import is_object

SECRETS_VARIABLE = "HOLDFAST_WEBHOOK_SECRETS"
"""Secrets of webhooks, with spaces between: `whsec_...` for events of any name, `NAME=whsec_...`
for one. Several may hold for a name, while one replaces another."""

WINDOW_SECONDS = 300
"""How far the time of a webhook may be from this machine's: a later one may be a repetition."""

_PREFIX = "whsec_"
_LEAST_SECRET = 16
_SECRET = re.compile(r"(?:([^=]+)=)?(whsec_.*)")


hooks = APIRouter(default_response_class=CleanJSON, route_class=IdRoute)


@hooks.post("/{name:path}", status_code=202, include_in_schema=False, response_model=None)
async def hook(request: Request, name: str) -> EventReceipt | Response:
    """Send an event by a webhook that is signed; its id is that of the event.

    Raises:
        NotAuthenticatedError: It has no signature of this name, or is too old.
        InvalidArgumentError: The body is not a JSON object.
    """
    _signatures(request.headers, now=time.time())  # before a stranger's body is read
    body = await request.body()
    id = checked(name, request.headers, body, now=time.time())
    rates: Rates = request.app.state.rates
    if wait := rates.wait(f"{HOOKS}{name}"):
        return too_many(wait)
    try:
        data: object = json.loads(body)
    except (ValueError, RecursionError):
        data = None
    if not is_object(data):
        msg = "The body of a webhook is a JSON object, the data of an event; this one is not."
        raise InvalidArgumentError(msg)
    desk: Desk = request.app.state.desk
    return await desk.runner.send_event(name, data, id=id)


def checked(name: str, headers: Mapping[str, str], body: bytes, *, now: float) -> str:
    """Return the id of a webhook that someone with a secret of the name has signed, and just now.

    Args:
        name: Name of the event.
        headers: The request's headers; their names in lower case.
        body: Its body.
        now: Time, seconds since the epoch.

    Raises:
        NotAuthenticatedError: No such person has.
    """
    signed = _signatures(headers, now=now)
    id = headers["webhook-id"]
    text = f"{id}.{headers['webhook-timestamp']}.".encode() + body
    for secret in secrets_of(name, os.environ.get(SECRETS_VARIABLE, "")):
        made = base64.b64encode(hmac.digest(secret, text, hashlib.sha256)).decode()
        for each in signed:
            if hmac.compare_digest(each[3:].encode(), made.encode()):
                return id
    raise NotAuthenticatedError(_FOREIGN)


def _signatures(headers: Mapping[str, str], *, now: float) -> list[str]:
    """Return the signatures of a webhook that is of just now.

    Raises:
        NotAuthenticatedError: It has none, or another time.
    """
    id, at = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    signed = [each for each in headers.get("webhook-signature", "").split() if each[:3] == "v1,"]
    if not (id and at.isascii() and at.isdecimal() and signed):
        raise NotAuthenticatedError(_UNSIGNED)
    if abs(now - int(at[:15])) > WINDOW_SECONDS:
        raise NotAuthenticatedError(_STALE)
    return signed


def secrets_of(name: str, given: str) -> Iterator[bytes]:
    """Yield the secrets of an event's name.

    Args:
        name: The name.
        given: The setting.

    Raises:
        InvalidArgumentError: A part of it is not a secret; the text does not show it.
    """
    for number, part in enumerate(given.split(), start=1):
        found = _SECRET.fullmatch(part)
        try:
            secret = (
                base64.b64decode(found[2].removeprefix(_PREFIX), validate=True) if found else b""
            )
        except binascii.Error:
            secret = b""
        if found is None or len(secret) < _LEAST_SECRET:
            raise InvalidArgumentError(
                f"Part {number} of {SECRETS_VARIABLE} is not a secret: that is whsec_ and the"
                f" base64 of at least {_LEAST_SECRET} bytes, with NAME= before it for one name."
            )
        if found[1] in (None, name):
            yield secret


_UNSIGNED = (
    "The webhook is not signed: it needs the headers webhook-id, webhook-timestamp (seconds since"
    " the epoch) and webhook-signature (v1, and a base64), as Standard Webhooks has them."
)
_STALE = (
    f"The time of the webhook is more than {WINDOW_SECONDS} seconds from this machine's. Sign it"
    " anew each time it is sent, with the same id; see that both clocks are right."
)
_FOREIGN = (
    f"No secret of events of this name has signed the webhook. {SECRETS_VARIABLE} of the desk has"
    " them; the signature is over id, time and the body as it is, with full stops between."
)
