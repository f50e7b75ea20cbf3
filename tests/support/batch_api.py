"""A fake of OpenAI's and Anthropic's batches over HTTP, that counts what is submitted."""

import itertools
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.parser import BytesParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

Json = dict[str, Any]
ENDS = ("completed", "failed", "expired", "cancelled")


def asked(body: Json) -> str:
    """Return the text of the last message of a request."""
    last = (body.get("input") or body["messages"])[-1]
    content = last.get("output", last.get("content"))
    if isinstance(content, str):
        return content
    part: Json = content[-1]
    return part.get("text") or str(part["content"])


def answered(body: Json) -> Json:
    """Answer a Responses request; a tool that it has is called."""
    part: Json = {"type": "output_text", "text": f"<{asked(body)}>", "annotations": []}
    said: Json = {"type": "message", "id": "msg_1", "role": "assistant", "content": [part]}
    if (tools := body.get("tools")) and "content" in body["input"][-1]:
        said = {"type": "function_call", "call_id": "call_1", "name": tools[0]["name"]}
        said["arguments"] = '{"n": 7}'
    return {
        "id": "resp_1",
        "object": "response",
        "status": "completed",
        "model": f"{body['model']}-2025-08-07",
        "output": [said],
        "usage": {"input_tokens": 1000, "output_tokens": 100, "total_tokens": 1100},
    }


def message(body: Json) -> Json:
    """Answer a request of Anthropic's Messages API; a tool that it has is called."""
    said: Json = {"type": "text", "text": f"<{asked(body)}>"}
    tools = body.get("tools") if len(body["messages"]) == 1 else None
    if tools:
        said = {"type": "tool_use", "id": "toolu_1", "name": tools[0]["name"], "input": {"n": 7}}
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": [said],
        "stop_reason": "tool_use" if tools else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1000, "output_tokens": 100},
    }


@dataclass
class BatchApi:
    """The state of the fake.

    Attributes:
        auto: Looks at a batch after which it is completed; 0 for never.
        lines: Lines of submitted batches, by the text that each asks.
        direct: Requests that were not in batches, likewise.
        batches: Batches by id, as the API shows them.
        files: Files by id.
        outcome: Says of a text what its line becomes: None for an answer, else a line of errors, or
            {} for none at all.
        wait_in: Holds requests whose method and path match this, after they had their effect.
        held: Set when one is held.
        fails: Answers requests with this error, by method and path.
        breaks: Requests, likewise, that have their effect, and get an error for an answer.
        line: The line of the input that a failed batch names as wrong.
        odd: Lines that stand at the end of each file of answers.
        open_status: What a batch is until it is over.
    """

    auto: int = 1
    lines: Counter[str] = field(default_factory=Counter[str])
    direct: Counter[str] = field(default_factory=Counter[str])
    batches: dict[str, Json] = field(default_factory=dict[str, Json])
    files: dict[str, Json] = field(default_factory=dict[str, Json])
    outcome: Callable[[str], Json | None] = lambda _: None
    wait_in: str = ""
    held: threading.Event = field(default_factory=threading.Event)
    fails: dict[str, tuple[int, Json]] = field(default_factory=dict[str, tuple[int, Json]])
    breaks: set[str] = field(default_factory=set[str])
    line: int | None = None
    odd: tuple[bytes, ...] = ()
    open_status: str = "in_progress"
    uploads: int = 0
    base_url: str = ""
    lock: threading.RLock = field(default_factory=threading.RLock)
    numbers: Any = field(default_factory=lambda: itertools.count(1))

    def end(self, status: str = "completed", code: str = "") -> None:
        """End all batches that are open."""
        with self.lock:
            for batch in self.batches.values():
                if batch["status"] not in ENDS:
                    self._end(batch, status, code)

    def serve(self, method: str, path: str, body: bytes, kind: str) -> tuple[int, Any]:
        """Answer a request: the status, and JSON or bytes."""
        with self.lock:
            if (failure := self.fails.get(f"{method} {path}")) is not None:
                return failure[0], {"error": failure[1]}
            match [method, *path.removeprefix("/v1/").split("/")]:
                case ["POST", "files"]:
                    return 200, self._upload(body, kind)
                case ["GET", "files"]:
                    return 200, _page([_shown(each) for each in self.files.values()])
                case ["GET", "files", id, "content"]:
                    return 200, self.files[id]["bytes"]
                case ["DELETE", "files", id]:
                    del self.files[id]
                    return 200, {"id": id, "object": "file", "deleted": True}
                case ["POST", "batches"]:
                    return 200, self._create(json.loads(body))
                case ["GET", "batches"]:
                    return 200, _page(list(self.batches.values()))
                case ["GET", "batches", id]:
                    return 200, self._look(self.batches[id])
                case ["POST", "batches", id, "cancel"]:
                    self.batches[id]["status"] = "cancelling"
                    return 200, self.batches[id]
                case ["POST", "responses"]:
                    given = json.loads(body)
                    self.direct[asked(given)] += 1
                    return 200, answered(given)
                case [_, "messages", *rest]:
                    return 200, self._messages(method, rest[1:] if rest else None, body)
                case _:
                    return 404, {"error": {"message": f"There is no {method} {path}."}}

    def _messages(self, method: str, rest: list[str] | None, body: bytes) -> Any:
        """Answer one of Anthropic's requests; without the rest of a path it is no batch's."""
        if rest is None:
            given = json.loads(body)
            self.direct[asked(given)] += 1
            return message(given)
        match [method, *rest]:
            case ["POST"]:
                lines = json.loads(body)["requests"]
                self.lines.update(asked(each["params"]) for each in lines)
                id = f"msgbatch_{next(self.numbers)}"
                self.batches[id] = {"id": id, "status": "in_progress", "looks": 0, "given": lines}
                return _batch(self.batches[id])
            case ["GET"]:
                data = [_batch(each) for each in self.batches.values()][::-1]
                return {"data": data, "has_more": False, "first_id": None, "last_id": None}
            case ["GET", id]:
                return _batch(self._look(self.batches[id]))
            case ["POST", id, "cancel"]:
                self.batches[id] |= {"status": "cancelling", "is_cancelled": True}
                return _batch(self.batches[id])
            case ["GET", id, "results"]:
                lines = self.batches[id]["given"]
                return b"".join(json.dumps(self._result(each)).encode() + b"\n" for each in lines)
            case _:
                del self.batches[rest[0]]
                return {"id": rest[0], "type": "message_batch_deleted"}

    def _result(self, line: Json) -> Json:
        said = self.outcome(asked(line["params"]))
        good = {"type": "succeeded", "message": message(line["params"])}
        return {"custom_id": line["custom_id"], "result": good if said is None else said}

    def _upload(self, body: bytes, kind: str) -> Json:
        self.uploads += 1
        whole: Any = BytesParser().parsebytes(f"Content-Type: {kind}\r\n\r\n".encode() + body)
        parts = {
            part.get_param("name", header="content-disposition"): part
            for part in whole.get_payload()
        }
        data = parts["file"].get_payload(decode=True)
        return self._keep(parts["file"].get_filename(), data, "batch")

    def _keep(self, name: str, data: bytes, purpose: str) -> Json:
        id = f"file-{next(self.numbers)}"
        self.files[id] = {
            "id": id,
            "object": "file",
            "filename": name,
            "purpose": purpose,
            "created_at": int(time.time()),
            "bytes": data,
            "status": "processed",
        }
        return _shown(self.files[id])

    def _create(self, given: Json) -> Json:
        id = f"batch_{next(self.numbers)}"
        whole = self.files[given["input_file_id"]]["bytes"]
        lines = [json.loads(each) for each in whole.splitlines()]
        self.lines.update(asked(each["body"]) for each in lines)
        self.batches[id] = {
            "id": id,
            "object": "batch",
            "status": self.open_status,
            "created_at": int(time.time()),
            "looks": 0,
            "given": lines,
            **given,
        }
        return self.batches[id]

    def _look(self, batch: Json) -> Json:
        batch["looks"] += 1
        if batch["status"] == "cancelling":
            self._end(batch, "cancelled", "")
        elif batch["status"] not in ENDS and batch["looks"] == self.auto:
            self._end(batch, "completed", "")
        return batch

    def _end(self, batch: Json, status: str, code: str) -> None:
        batch["status"] = status
        if "input_file_id" not in batch:
            return  # one of Anthropic's
        if status == "failed":
            error = {"code": code, "message": "It is so.", "line": self.line}
            batch["errors"] = {"object": "list", "data": [error]}
            return
        good, bad = list[Json](), list[Json]()
        for line in batch["given"]:
            said = self.outcome(asked(line["body"]))
            head = {"id": "batch_req_1", "custom_id": line["custom_id"]}
            if said is None:
                response: Json = {"status_code": 200, "request_id": "req_1"}
                response["body"] = answered(line["body"])
                good.append({**head, "response": response, "error": None})
            elif said:
                bad.append({**head, "response": None, "error": None, **said})
        for name, lines in (("output", good), ("error", bad)):
            if lines:
                data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
                data += b"".join(line + b"\n" for line in self.odd)
                batch[f"{name}_file_id"] = self._keep(f"{name}.jsonl", data, "batch_output")["id"]


def _batch(batch: Json) -> Json:
    """Show a batch as Anthropic's API does."""
    is_over, size = batch["status"] in ENDS, len(batch["given"])
    counts = dict.fromkeys(("canceled", "errored", "expired", "processing", "succeeded"), 0)
    moment = "2026-01-01T00:00:00Z"
    return {
        "id": batch["id"],
        "type": "message_batch",
        "processing_status": "ended" if is_over else "in_progress",
        "created_at": "2126-01-01T00:00:00Z",  # newer than whatever asks
        "expires_at": moment,
        "archived_at": None,
        "ended_at": moment if is_over else None,
        "cancel_initiated_at": moment if batch.get("is_cancelled") else None,
        "request_counts": counts | {"succeeded" if is_over else "processing": size},
        "results_url": f"/v1/messages/batches/{batch['id']}/results" if is_over else None,
    }


def _page(data: list[Json]) -> Json:
    return {"object": "list", "data": data[::-1], "has_more": False}


def _shown(file: Json) -> Json:
    return {**file, "bytes": len(file["bytes"])}


@contextmanager
def serving_batches() -> Generator[BatchApi]:
    """Serve the fake on a free port of this machine."""
    api = BatchApi()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            path = urlsplit(self.path).path
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            kind = self.headers.get("content-type") or ""
            try:
                status, said = api.serve(self.command, path, body, kind)
            except KeyError as error:
                status, said = 404, {"error": {"message": f"There is no {error}."}}
            if f"{self.command} {path}" in api.breaks:
                status, said = 502, {"error": {"message": "Bad gateway."}}
            if api.wait_in and re.fullmatch(api.wait_in, f"{self.command} {path}"):
                api.held.set()
                while api.wait_in:
                    time.sleep(0.01)
            data = said if isinstance(said, bytes) else json.dumps(said).encode()
            try:
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
            except OSError:
                self.close_connection = True  # the client was killed

        do_GET = do_DELETE = do_POST  # noqa: N815

        def log_message(self, *_: object) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    api.base_url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield api
    finally:
        api.wait_in = ""
        server.shutdown()
        server.server_close()
        thread.join()
