"""A fast server that speaks as much of the Responses API as the benchmark needs.

    python -m benchmarks.http_server

Prints its address, and serves until its standard input is closed.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys

from benchmarks.work import MODEL_BYTES, blob

_LENGTH = re.compile(rb"content-length:\s*(\d+)", re.IGNORECASE)
_TURNS = re.compile(rb"turns=(\d+)")
_RESULT = b'"function_call_output"'


def answer(body: bytes) -> bytes:
    """Answer one request: a tool call until the turns that it asks for are done, then a text."""
    found = _TURNS.search(body)
    wanted, done = int(found[1]) if found else 0, body.count(_RESULT)
    if done < wanted:
        said: dict[str, object] = {
            "type": "function_call",
            "id": f"fc_{done}",
            "call_id": f"call_{done}",
            "name": "lookup",
            "arguments": json.dumps({"query": blob(MODEL_BYTES - 13, done)}),
            "status": "completed",
        }
    else:
        text = {"type": "output_text", "text": blob(MODEL_BYTES, 999), "annotations": list[str]()}
        said = {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [text],
        }
    usage = {"input_tokens": 10, "output_tokens": 10, "total_tokens": 20}
    whole = {"id": f"resp_{done}", "object": "response", "created_at": 1, "model": "m"}
    return json.dumps({**whole, "status": "completed", "output": [said], "usage": usage}).encode()


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = _LENGTH.search(head)
            said = answer(await reader.readexactly(int(length[1]) if length else 0))
            lines = b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(said)
            writer.write(b"HTTP/1.1 200 OK\r\n" + lines + said)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
        pass  # the client has closed the connection, or the benchmark is over
    finally:
        writer.close()


async def main() -> None:
    """Serve on a free port of this machine."""
    server = await asyncio.start_server(_serve, "127.0.0.1", 0, limit=1 << 24)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(main())
