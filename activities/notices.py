"""Messages to people when a task waits for them: webhooks, and the channels of apprise.

The activity `notify` sends them.

A worker that is given notifiers sends a message for each approval that its tasks ask for, and
another one when it is escalated. Temporal retries what cannot be delivered; a message may arrive
more than once, with the same id.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import json
import logging
import os
import string
import time
from collections.abc import Awaitable, Iterable, Sequence
from contextvars import ContextVar
from typing import Any, Protocol, cast, runtime_checkable
from urllib.parse import quote, urlsplit

from pydantic import Field
from temporalio import activity
from temporalio.exceptions import ApplicationError

from holdfast.activities.failures import clean_message, typed_failures
from holdfast.activities.heartbeat import heartbeats
from holdfast.errors import InvalidArgumentError, NotificationError, WrongTypeError
from holdfast.task.data.calls import asked_for
from holdfast.task.data.wire import NoticeInput
from holdfast.values.base import Json, Value
from holdfast.values.checks.gate import check_arguments, is_array, is_object
from holdfast.values.code.extras import needing
from holdfast.values.code.user_calls import invoke_here
from holdfast.values.text.decided import exact, for_decision
from holdfast.values.text.shown import shown

NOTIFY_VARIABLE = "HOLDFAST_NOTIFY"
SECRET_VARIABLE = "HOLDFAST_NOTIFY_SECRET"  # noqa: S105  the name of a variable
DESK_VARIABLE = "HOLDFAST_DESK_URL"

PREFIX = "whsec_"
"""Begins a written secret, as the specification of Standard Webhooks says."""

FEWEST_BYTES, MOST_BYTES = 24, 64
"""Length of a secret, by the same specification."""

SECONDS = 20.0
"""How long one delivery may take."""

PASSING = frozenset({408, 425, 429})
"""Refusals of a request that may be accepted later."""


_posting: ContextVar[bool] = ContextVar("holdfast_posting", default=False)


def _says_no_address(_record: logging.LogRecord) -> bool:
    """Leave out what httpx logs of a message: the whole address, which may be a secret."""
    return not _posting.get()


class Notice(Value):
    """What waits for a person.

    Secrets in its texts are hidden where they are plain key material, with their length and digest.

    Attributes:
        id: Identifies the message: the same at each attempt to deliver it.
        type: "approval.asked", "approval.escalated" once more people may decide: "approval." and
            the last that has happened to it.
        at: When that happened, seconds since the epoch.
        task: Id of the task.
        agent: The agent that asks.
        approval: Id of the approval.
        kind: What must be decided: "tool" is a call before it is made; see `Approval`.
        tool: The tool to be called.
        arguments: Its arguments, JSON text.
        defaults: What the tool fills in for arguments that are left out: "to: 5 (default)".
        digest: Digest of the call as it is now: `Approval(id=..., digest=...)` decides that alone.
        text: Why the question is asked, where there is more to say.
        who: People and roles that may decide; empty for anybody.
        expires: When the approval expires, seconds since the epoch; 0 for never.
        url: Its card in the desk; empty when the worker does not know the desk.
    """

    id: str
    type: str
    at: float
    task: str
    agent: str
    approval: str
    kind: str
    tool: str = ""
    arguments: str = ""
    defaults: tuple[str, ...] = Field(default=())
    digest: str = ""
    text: str = ""
    who: tuple[str, ...] = Field(default=())
    expires: float = 0.0
    url: str = ""

    @property
    def title(self) -> str:
        """The message in one line."""
        stage = self.type.removeprefix("approval.")
        what = asked_for(self.kind, self.tool)
        return f"{self.agent} waits for {what}" + f" ({stage})" * (stage != "asked")

    @property
    def body(self) -> str:
        """The message in a few lines."""
        lines = (self.text, self.arguments, *self.defaults, f"Task {self.task}", self.url)
        return "\n".join(line for line in lines if line)


@runtime_checkable
class Notifier(Protocol):
    """Delivers messages; a class of your own may be one."""

    def send(self, notice: Notice) -> Awaitable[None] | None:
        """Deliver a message: an async method, or a plain one, which is called in a thread.

        Raises:
            NotificationError: It was not delivered, and perhaps never will be.
            Exception: It was not delivered, and must be sent again.
        """
        ...


class Webhook:
    """Posts messages to a URL, signed as the specification of Standard Webhooks says.

    The body is `{"type": ..., "timestamp": ..., "data": {...}}`; `data` has the other fields of the
    Notice. Any answer from 200 to 299 accepts the message. Redirects are not followed.

    Args:
        url: An address that begins with "https://" or "http://".
        secret: Key of the signature: 24 to 64 bytes in base64, with or without "whsec_" before.

    Raises:
        InvalidArgumentError: The URL or the secret cannot be used.
    """

    def __init__(self, url: str, secret: str) -> None:
        """Check the address and the secret."""
        check_arguments(Webhook.__init__, url=url, secret=secret)
        import httpx

        logging.getLogger("httpx").addFilter(_says_no_address)

        try:
            parts = httpx.URL(url)
        except httpx.InvalidURL as error:
            raise InvalidArgumentError(f"The url of a Webhook cannot be used: {error}.") from None
        if parts.scheme not in {"http", "https"} or not parts.host:
            msg = "The url of a Webhook begins with https:// or http:// and names a host."
            raise InvalidArgumentError(msg)
        self._url, self._key = parts, _key_of(secret)

    def __repr__(self) -> str:
        """Name the host; the rest of an address may be secret."""
        return f"<Webhook to {self._url.host}>"

    async def send(self, notice: Notice) -> None:
        """Post a message.

        Raises:
            NotificationError: The receiver refused it, or could not be reached.
        """
        import httpx

        body = body_of(notice)
        headers = {"content-type": "application/json", **self.headers(notice.id, time.time(), body)}
        client = httpx.AsyncClient(timeout=SECONDS, follow_redirects=False)
        token = _posting.set(True)
        try:
            # httpx's own times are for each part: a receiver that trickles would never meet them.
            # Nothing but the status is read: the body may have no end.
            async with (
                asyncio.timeout(SECONDS),
                client,
                client.stream("POST", self._url, content=body, headers=headers) as answer,
            ):
                pass
        except (httpx.HTTPError, TimeoutError) as error:
            msg = f"{self._url.host} did not answer: {type(error).__name__}."
            raise NotificationError(msg) from None
        finally:
            _posting.reset(token)
        if not answer.is_success:
            is_final = not answer.is_server_error and answer.status_code not in PASSING
            msg = f"{self._url.host} answered {answer.status_code} to the message {notice.id!r}."
            raise NotificationError(msg, is_final=is_final)

    def headers(self, id: str, at: float, body: bytes) -> dict[str, str]:
        """Return the headers that identify and sign a message.

        Args:
            id: Identifies the message; what no header can hold is percent-encoded.
            at: When it is sent, seconds since the epoch.
            body: What is sent.
        """
        id = quote(id, safe=string.punctuation)
        signed = b".".join((id.encode(), str(int(at)).encode(), body))
        digest = hmac.new(self._key, signed, hashlib.sha256).digest()
        return {
            "webhook-id": id,
            "webhook-timestamp": str(int(at)),
            "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
        }


class Apprise:
    """Sends messages by any channel of the package apprise: chat, mail, SMS and others.

    Needs the extra `notify`.

    Args:
        urls: Addresses as apprise reads them, such as "slack://..." or "mailto://...".

    Raises:
        InvalidArgumentError: apprise cannot read one of them.
        ModuleNotFoundError: The extra is not installed.
    """

    def __init__(self, *urls: str) -> None:
        """Read the addresses."""
        for i, url in enumerate(cast("tuple[object, ...]", urls)):
            if not isinstance(url, str):
                raise WrongTypeError(f"Address {i + 1} of Apprise is text; it was {shown(url)}.")
        with needing("notify", "Apprise"):
            import apprise
        self._channels: Any = apprise.Apprise()
        for i, url in enumerate(urls):
            if not self._channels.add(url):
                scheme = url.partition(":")[0] if "://" in url else "no scheme"
                msg = f"Address {i + 1} of Apprise ({scheme}) cannot be read by apprise."
                raise InvalidArgumentError(msg)
        if not urls:
            raise InvalidArgumentError("Apprise needs at least one address.")

    def __repr__(self) -> str:
        """Count the channels; their addresses hold passwords."""
        return f"<Apprise with {len(self._channels)} channels>"

    async def send(self, notice: Notice) -> None:
        """Send a message by all channels.

        Raises:
            NotificationError: One of them did not take it; at the next attempt all get it again.
        """
        taken = await asyncio.to_thread(self._channels.notify, title=notice.title, body=notice.body)
        if not taken:
            msg = f"A channel of apprise did not take the message {notice.id!r}; its log says why."
            raise NotificationError(msg)


def body_of(notice: Notice) -> bytes:
    """Return what is posted to a webhook."""
    data: dict[str, Json] = notice.model_dump(mode="json", exclude={"id", "type", "at"})
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(notice.at))
    sent = {"type": notice.type, "timestamp": stamp, "data": data}
    return json.dumps(sent, ensure_ascii=False, separators=(",", ":")).encode()


def card_url(desk: str, approval: str) -> str:
    """Return the address of an approval's card; empty without a desk."""
    return f"{desk.rstrip('/')}/?card={quote(approval, safe='')}" if desk else ""


def notifiers_from_environment() -> tuple[Notifier, ...]:
    """Return what HOLDFAST_NOTIFY names: addresses with commas between; none if it is not set.

    An address that begins with "https://" or "http://" is a Webhook's, with the secret in
    HOLDFAST_NOTIFY_SECRET; all others are apprise's.

    Raises:
        InvalidArgumentError: An address or the secret cannot be used.
        ModuleNotFoundError: The extra `notify` is needed and not installed.
    """
    urls = [part.strip() for part in os.environ.get(NOTIFY_VARIABLE, "").split(",")]
    urls = [url for url in urls if url]
    secret = os.environ.get(SECRET_VARIABLE, "")
    webhooks = [url for url in urls if urlsplit(url).scheme in {"http", "https"}]
    if webhooks and not secret:
        msg = f"{NOTIFY_VARIABLE} names a webhook, which needs a secret in {SECRET_VARIABLE}."
        raise InvalidArgumentError(msg)
    others = [url for url in urls if url not in webhooks]
    made: list[Notifier] = [Webhook(url, secret) for url in webhooks]
    return (*made, *([Apprise(*others)] if others else []))


def checked_notifiers(given: Iterable[Notifier] | None) -> tuple[Notifier, ...]:
    """Return notifiers that were given to a worker; those of the environment when none were.

    Raises:
        InvalidArgumentError: One has no method `send`.
    """
    if given is None:
        return notifiers_from_environment()
    if not isinstance(cast("object", given), Iterable):
        msg = f"notify is a list of notifiers, such as Webhook(url, secret); it was {shown(given)}."
        raise InvalidArgumentError(msg)
    every = tuple(cast("Iterable[object]", given))
    for each in every:
        if not isinstance(each, Notifier) or isinstance(each, type):
            msg = f"notify lists notifiers, such as Webhook(url, secret); {shown(each)} is not one."
            raise InvalidArgumentError(msg)
    return cast("tuple[Notifier, ...]", every)


def _key_of(secret: str) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not FEWEST_BYTES <= len(key) <= MOST_BYTES:
        raise InvalidArgumentError(
            f"The secret of a Webhook is {FEWEST_BYTES} to {MOST_BYTES} bytes in base64, with or"
            f' without "{PREFIX}" before it. Make one with: openssl rand -base64 32'
        )
    return key


LONGEST_SECONDS = 30.0
"""How long a notifier may take; the attempt of the activity takes at most a minute."""


class NoticeActivities:
    """Sends messages for the tasks of one worker process."""

    def __init__(self, notifiers: Sequence[Notifier]) -> None:
        """Send messages by these."""
        self.notifiers = notifiers

    @activity.defn(name="notify")
    async def notify(self, given: NoticeInput) -> None:
        """Send a message by each notifier that has not delivered it at an earlier attempt.

        They send side by side, each within its time: one that hangs keeps no other from sending.
        """
        if not self.notifiers:
            msg = "This worker process has no notifiers, though another one of its app has."
            raise ApplicationError(msg, type="NotificationError")
        with typed_failures():
            notice = notice_of(given)
            async with heartbeats() as pulse:
                sent = _sent_before()
                pulse.carry(lambda: {"sent": [*sent]})

                async def send(n: int) -> Exception | None:
                    failure = await _failure(self.notifiers[n], notice)
                    if failure is None:
                        sent.append(n)
                        pulse.beat_soon()
                    return failure

                left = [n for n in range(len(self.notifiers)) if n not in sent]
                ends = await asyncio.gather(*map(send, left))
                failures = [each for each in ends if each is not None]
        if failures:
            text = " ".join(clean_message(each) for each in failures)
            is_final = all(isinstance(e, NotificationError) and e.is_final for e in failures)
            raise ApplicationError(text, type="NotificationError", non_retryable=is_final)


async def _failure(notifier: Notifier, notice: Notice) -> Exception | None:
    """Send a message by one notifier; return why it was not delivered, or None."""
    try:
        async with asyncio.timeout(LONGEST_SECONDS):
            # A plain method runs in a daemon thread: it may hang.
            await invoke_here(notifier.send, notice)
    except TimeoutError:
        text = f"{type(notifier).__name__} has not delivered the message {notice.id!r} in time."
        return NotificationError(text)
    except Exception as error:  # noqa: BLE001  the others get the message all the same
        return error
    return None


def notice_of(given: NoticeInput) -> Notice:
    """Make the message, without secrets."""
    approval = given.approval
    return Notice(
        id=given.id,
        type=f"approval.{approval.stage}",
        at=approval.stage_began,
        task=activity.info().workflow_id or "",
        agent=exact(approval.agent),
        approval=approval.id,
        kind=approval.kind,
        tool=exact(approval.tool),
        arguments=for_decision(approval.as_agreed),
        defaults=tuple(map(for_decision, approval.filled_in)),
        text=for_decision(approval.text),
        digest=approval.bound or approval.digest,
        who=approval.may_decide,
        expires=approval.expires,
        url=card_url(os.environ.get(DESK_VARIABLE, ""), approval.id),
    )


def _sent_before() -> list[int]:
    """Return the positions of the notifiers that have delivered the message already."""
    for details in activity.info().heartbeat_details:
        if is_object(details) and is_array(numbers := details.get("sent")):
            return [number for number in numbers if isinstance(number, int)]
    return []
