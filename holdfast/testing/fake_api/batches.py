"""OpenAI's files and batches on the fake: lines of a batch are answered from the script."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from email.parser import BytesParser
from functools import partial

from holdfast.values.base import Json
from holdfast.values.checks.gate import as_object, as_text
from holdfast.values.code.extras import needing

with needing("testing", "The fake OpenAI API"):
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

BATCHES = "/v1/batches"
"""Path of the requests that come in batches, as the fake records them."""

Answer = Callable[[Request, str, dict[str, Json]], Awaitable[Response]]
"""Answers a line: the request during which it is answered, its endpoint, and its body."""


class FakeBatches:
    """Files and batches. A batch is answered, and completed, when it is looked at."""

    def __init__(self, answer: Answer, next_id: Callable[[str], str]) -> None:
        """Keep none yet."""
        self._answer, self._next_id = answer, next_id
        self._data: dict[str, bytes] = {}
        self._files: dict[str, dict[str, Json]] = {}
        self._batches: dict[str, dict[str, Json]] = {}
        file, batch = "/v1/files/{id}", f"{BATCHES}/{{id}}"
        self.routes = [
            Route("/v1/files", self._upload, methods=["POST"]),
            Route("/v1/files", partial(_listed, self._files), methods=["GET"]),
            Route(f"{file}/content", self._content, methods=["GET"]),
            Route(file, self._delete, methods=["DELETE"]),
            Route(BATCHES, self._create, methods=["POST"]),
            Route(BATCHES, partial(_listed, self._batches), methods=["GET"]),
            Route(batch, self._look, methods=["GET"]),
            Route(f"{batch}/cancel", self._cancel, methods=["POST"]),
        ]

    def reset(self) -> None:
        """Forget all."""
        for each in (self._data, self._files, self._batches):
            each.clear()

    async def _upload(self, http: Request) -> Response:
        head = f"Content-Type: {http.headers['content-type']}\r\n\r\n".encode()
        form = BytesParser().parsebytes(head + await http.body())
        for part in form.walk():
            data = part.get_payload(decode=True)
            if (name := part.get_filename()) and isinstance(data, bytes):
                return JSONResponse(self._keep(name, data, "batch"))
        return _missing("A file")

    def _keep(self, name: str, data: bytes, purpose: str) -> dict[str, Json]:
        id = self._next_id("file-")
        self._data[id] = data
        self._files[id] = {
            "id": id,
            "object": "file",
            "filename": name,
            "purpose": purpose,
            "bytes": len(data),
            "created_at": int(time.time()),
            "status": "processed",
        }
        return self._files[id]

    async def _content(self, http: Request) -> Response:
        data = self._data.get(http.path_params["id"])
        return _missing("The file") if data is None else Response(data)

    async def _delete(self, http: Request) -> Response:
        id = http.path_params["id"]
        if self._files.pop(id, None) is None:
            return _missing("The file")
        del self._data[id]
        return JSONResponse({"id": id, "object": "file", "deleted": True})

    async def _create(self, http: Request) -> Response:
        given: object = json.loads(await http.body())
        if as_text(as_object(given).get("input_file_id")) not in self._data:
            return _missing("The input file")
        id = self._next_id("batch_")
        made = {"object": "batch", "status": "in_progress", "created_at": int(time.time())}
        self._batches[id] = {"id": id, **made, **as_object(given)}
        return JSONResponse(self._batches[id])

    async def _look(self, http: Request) -> Response:
        batch = self._batches.get(http.path_params["id"])
        if batch is None:
            return _missing("The batch")
        if batch["status"] == "in_progress":
            batch["status"] = "finalizing"
            await self._complete(http, batch)
        return JSONResponse(batch)

    async def _complete(self, http: Request, batch: dict[str, Json]) -> None:
        """Answer each line; errors are in a file of their own."""
        good, bad = list[bytes](), list[bytes]()
        for text in self._data[as_text(batch["input_file_id"])].splitlines():
            line = json.loads(text)
            endpoint = "responses" if line["url"] == "/v1/responses" else "chat"
            made = await self._answer(http, endpoint, line["body"])
            response = {"status_code": made.status_code, "body": json.loads(bytes(made.body))}
            said = {"custom_id": line["custom_id"], "response": response, "error": None}
            is_good = made.status_code < 300  # noqa: PLR2004
            (good if is_good else bad).append(json.dumps(said).encode() + b"\n")
        for name, lines in (("output", good), ("error", bad)):
            if lines:
                kept = self._keep(f"{name}.jsonl", b"".join(lines), "batch_output")
                batch[f"{name}_file_id"] = kept["id"]
        batch["status"] = "completed"

    async def _cancel(self, http: Request) -> Response:
        batch = self._batches.get(http.path_params["id"])
        if batch is None:
            return _missing("The batch")
        if batch["status"] == "in_progress":
            batch["status"] = "cancelled"
        return JSONResponse(batch)


async def _listed(kept: dict[str, dict[str, Json]], _: Request) -> Response:
    data = [*kept.values()][::-1]
    return JSONResponse({"object": "list", "data": data, "has_more": False})


def _missing(what: str) -> Response:
    return JSONResponse({"error": {"message": f"{what} does not exist."}}, status_code=404)
