"""Notifiers: signed webhooks, the channels of apprise, and what the environment names."""

import asyncio
import json
import logging
from contextlib import suppress

import pytest

from holdfast import Apprise, Notice, Webhook
from holdfast.activities import notices
from holdfast.activities.notices import body_of, checked_notifiers, notifiers_from_environment
from holdfast.errors import InvalidArgumentError, NotificationError
from tests.support.receiver import SECRET, Receiver, receiving

NOTICE = Notice(
    id="t1:2:asked",
    type="approval.asked",
    at=1_700_000_000.9,
    task="t1",
    agent="buyer",
    approval="t1:2",
    kind="tool",
    tool="pay",
    arguments='{"euros": 3}',
    who=("role:finance",),
    url="http://127.0.0.1:8080/?card=t1%3A2",
)


def test_the_example_of_the_specification_has_its_signature() -> None:
    # github.com/standard-webhooks/standard-webhooks, the vector of its libraries' own tests
    headers = Webhook("https://example.com", SECRET).headers(
        "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}'
    )
    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_a_body_has_type_time_and_data() -> None:
    body = json.loads(body_of(NOTICE))
    assert body.pop("data") == {
        "task": "t1",
        "agent": "buyer",
        "approval": "t1:2",
        "kind": "tool",
        "tool": "pay",
        "arguments": '{"euros": 3}',
        "defaults": [],
        "digest": "",
        "text": "",
        "who": ["role:finance"],
        "expires": 0.0,
        "url": "http://127.0.0.1:8080/?card=t1%3A2",
    }
    assert body == {"type": "approval.asked", "timestamp": "2023-11-14T22:13:20Z"}


@pytest.mark.parametrize(
    ("status", "is_final"), [(503, False), (429, False), (408, False), (410, True), (307, True)]
)
async def test_a_refused_message_is_an_error(
    receiver: Receiver, status: int, is_final: bool
) -> None:
    receiver.always = status
    with pytest.raises(NotificationError, match=f"answered {status}") as raised:
        await Webhook(receiver.url, SECRET).send(NOTICE)
    assert raised.value.is_final is is_final
    assert len(receiver.got) == 1  # a redirect is not followed


async def test_a_receiver_that_is_down_is_an_error_to_try_again() -> None:
    with receiving() as gone:
        url = gone.url
    with pytest.raises(NotificationError, match=r"127\.0\.0\.1 did not answer: Connect") as raised:
        await Webhook(url, SECRET).send(NOTICE)
    assert not raised.value.is_final


async def test_an_address_is_not_logged(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    await Webhook(f"{receiver.url}/T0/secret", SECRET).send(NOTICE)
    assert receiver.got
    assert "secret" not in caplog.text


async def test_a_receiver_that_trickles_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "SECONDS", 0.5)

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n")
        with suppress(ConnectionError):
            while True:
                writer.write(b"x-more: 1\r\n")
                await writer.drain()
                await asyncio.sleep(0.1)
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(NotificationError, match="did not answer: TimeoutError"):
            await Webhook(f"http://127.0.0.1:{port}/", SECRET).send(NOTICE)


def test_a_webhook_shows_neither_its_path_nor_its_secret() -> None:
    assert repr(Webhook("https://ann:pw@example.com/T0/B0/xyz", SECRET)) == (
        "<Webhook to example.com>"
    )


@pytest.mark.parametrize("url", ["example.com", "ftp://example.com", "https://", "http://a:b/"])
def test_a_webhook_needs_an_address(url: str) -> None:
    with pytest.raises(InvalidArgumentError, match="url of a Webhook"):
        Webhook(url, SECRET)


@pytest.mark.parametrize(
    "secret", ["", "whsec_", "short", "whsec_c2hvcnQ=", "nöt base64", "A" * 99]
)
def test_a_webhook_needs_a_strong_secret(secret: str) -> None:
    with pytest.raises(InvalidArgumentError, match="openssl rand -base64 32") as raised:
        Webhook("https://example.com", secret)
    assert not secret or secret not in str(raised.value).replace('"whsec_"', "")


async def test_apprise_posts_title_and_body(receiver: Receiver) -> None:
    # The plainest of apprise's channels, which posts JSON to an address.
    got: list[bytes] = []

    def take(headers: object, body: bytes) -> int:
        got.append(body)
        return receiver.always

    receiver.take = take  # type: ignore[method-assign]
    channel = Apprise(receiver.url.replace("http://", "json://"))
    await channel.send(NOTICE)
    assert json.loads(got[0])["title"] == NOTICE.title
    assert "Task t1" in json.loads(got[0])["message"]
    receiver.always = 500
    with pytest.raises(NotificationError, match="did not take the message 't1:2:asked'"):
        await channel.send(NOTICE)


def test_addresses_that_apprise_cannot_read_are_refused_and_not_shown() -> None:
    with pytest.raises(InvalidArgumentError, match=r"Address 2 of Apprise \(nowhere\)") as raised:
        Apprise("json://127.0.0.1", "nowhere://token")
    assert "token" not in str(raised.value)
    with pytest.raises(InvalidArgumentError, match="at least one"):
        Apprise()
    assert repr(Apprise("json://ann:pw@127.0.0.1")) == "<Apprise with 1 channels>"


def test_the_environment_names_notifiers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert notifiers_from_environment() == ()
    monkeypatch.setenv("HOLDFAST_NOTIFY", "https://one.example/x, json://two.example,")
    with pytest.raises(InvalidArgumentError, match="HOLDFAST_NOTIFY_SECRET"):
        notifiers_from_environment()
    monkeypatch.setenv("HOLDFAST_NOTIFY_SECRET", SECRET)
    assert [repr(each) for each in checked_notifiers(None)] == [
        "<Webhook to one.example>",
        "<Apprise with 1 channels>",
    ]
    assert checked_notifiers([]) == ()


class Sends:
    """Has what a notifier has."""

    async def send(self, notice: Notice) -> None: ...


@pytest.mark.parametrize("given", [7, "https://example.com", [7], [Sends], [SECRET]])
def test_what_is_no_notifier_is_refused(given: object) -> None:
    with pytest.raises(InvalidArgumentError, match="notif"):
        checked_notifiers(given)  # type: ignore[arg-type]
