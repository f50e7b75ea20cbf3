"""A model's server that answers with given bytes: bodies that no honest server sends."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any


@dataclass(frozen=True)
class Bytes:
    """One answer, byte for byte.

    Attributes:
        body: The body.
        kind: Its media type.
        status: HTTP status.
        headers: More headers.
        missing: Bytes of the body that are promised and never come.
    """

    body: bytes
    kind: str = "application/json"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    missing: int = 0

    def written(self) -> bytes:
        """Write it as HTTP."""
        headers = {
            "content-type": self.kind,
            "content-length": str(len(self.body) + self.missing),
            "connection": "close",
            **self.headers,
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        phrase = HTTPStatus(self.status).phrase
        return f"HTTP/1.1 {self.status} {phrase}\r\n{lines}\r\n".encode() + self.body


class HostileServer:
    """Answers each request with what `answer` gives for its path and body.

    Attributes:
        base_url: Address for a client.
        requests: The bodies of all requests so far.
    """

    def __init__(self, answer: Callable[[str, dict[str, Any]], Bytes]) -> None:
        """Answer by this function."""
        self.base_url = ""
        self.requests: list[dict[str, Any]] = []
        self._answer = answer

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection, which is closed after its answer."""
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = head.split("\r\n")
            if not first.startswith("POST"):
                writer.write(Bytes(b"", status=405).written())
                return
            sizes = [line for line in lines if line.lower().startswith("content-length:")]
            body = json.loads(await reader.readexactly(int(sizes[0].partition(":")[2])))
            self.requests.append(body)
            writer.write(self._answer(first.split()[1], body).written())
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            return  # the client has gone
        finally:
            writer.close()


@asynccontextmanager
async def hostile_server(
    answer: Callable[[str, dict[str, Any]], Bytes],
) -> AsyncGenerator[HostileServer]:
    """Serve on a free port of this machine."""
    made = HostileServer(answer)
    async with await asyncio.start_server(made.handle, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        made.base_url = f"http://127.0.0.1:{port}/v1"
        yield made


def in_turn(*answers: Bytes) -> Callable[[str, dict[str, Any]], Bytes]:
    """Give these answers one after the other, the last one again and again."""
    left = list(answers)

    def answer(path: str, body: dict[str, Any]) -> Bytes:
        del path, body
        return left.pop(0) if len(left) > 1 else left[0]

    return answer


def responses(*output: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Make a body of the Responses API."""
    body = {"id": "r", "object": "response", "status": "completed", "model": "m"}
    return {**body, "output": list(output), **changes}


def message(text: str) -> dict[str, Any]:
    """Make an item of the Responses API that says something."""
    part: dict[str, Any] = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "id": "m", "role": "assistant", "content": [part]}


def chat(said: dict[str, Any], finish: str = "stop", **changes: Any) -> dict[str, Any]:
    """Make a body of the Chat Completions API."""
    choice = {"index": 0, "message": {"role": "assistant", **said}, "finish_reason": finish}
    return {"id": "c", "object": "chat.completion", "model": "m", "choices": [choice], **changes}


def events(body: dict[str, Any]) -> bytes:
    """Write a body of either API as the events that stream it."""
    if "choices" in body:
        [choice] = body["choices"]
        said = dict(choice["message"])
        calls = [{"index": i, **call} for i, call in enumerate(said.pop("tool_calls", None) or [])]
        delta = {**said, **({"tool_calls": calls} if calls else {})}
        chunk = {**body, "object": "chat.completion.chunk"}
        end = {"index": 0, "delta": dict[str, Any](), "finish_reason": choice["finish_reason"]}
        told: list[dict[str, Any]] = [
            {**chunk, "choices": [{"index": 0, "delta": delta}]},
            {**chunk, "choices": [end]},
        ]
    else:
        told = [{"type": "response.completed", "response": body}]
    return b"".join(b"data: " + json.dumps(each).encode() + b"\n\n" for each in told)


def sent(body: dict[str, Any], *, streamed: bool = False) -> Bytes:
    """Send a body as a server of the API does."""
    if streamed:
        return Bytes(events(body), "text/event-stream")
    return Bytes(json.dumps(body).encode())
