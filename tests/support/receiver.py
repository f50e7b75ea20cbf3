"""A receiver of webhooks, as a person's own service is one."""

import base64
import hashlib
import hmac
import json
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@dataclass(frozen=True)
class Received:
    """One request.

    Attributes:
        id: The header webhook-id.
        body: The JSON body.
        is_signed: Whether the signature is right.
    """

    id: str
    body: dict[str, Any]
    is_signed: bool

    @property
    def data(self) -> dict[str, Any]:
        """What the message is about."""
        found: dict[str, Any] = self.body["data"]
        return found


@dataclass
class Receiver:
    """Accepts messages, or refuses them with the statuses that a test has set.

    Attributes:
        url: Its address.
        got: All requests, oldest first.
        statuses: Answers to the next requests; 204 follows them.
        always: The answer to all others.
        is_open: Requests are answered as long as it is set.
    """

    url: str = ""
    got: list[Received] = field(default_factory=list[Received])
    statuses: list[int] = field(default_factory=list[int])
    always: int = 204
    is_open: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        """Answer from the begin."""
        self.is_open.set()

    def ids(self) -> list[str]:
        """Return the id of each request."""
        return [each.id for each in self.got]

    def take(self, headers: Any, body: bytes) -> int:
        """Note a request and return the status of its answer."""
        id, at = headers["webhook-id"], headers["webhook-timestamp"]
        key = base64.b64decode(SECRET.removeprefix("whsec_"))
        digest = hmac.digest(key, f"{id}.{at}.".encode() + body, hashlib.sha256)
        right = "v1," + base64.b64encode(digest).decode()
        is_signed = hmac.compare_digest(right, headers["webhook-signature"])
        self.got.append(Received(id, json.loads(body), is_signed))
        self.is_open.wait()
        return self.statuses.pop(0) if self.statuses else self.always


@contextmanager
def receiving() -> Generator[Receiver]:
    """Run a receiver on a free port."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            status = receiver.take(self.headers, body)
            with suppress(ConnectionError):  # the sender was killed
                self.answer(status)

        def answer(self, status: int) -> None:
            self.send_response(status)
            if status == 307:  # to another path of the same server
                self.send_header("location", "/elsewhere")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the library's name
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        receiver.url = f"http://127.0.0.1:{server.server_port}/hook"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield receiver
        finally:
            receiver.is_open.set()
            server.shutdown()
            thread.join()
