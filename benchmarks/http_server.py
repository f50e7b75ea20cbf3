"""A fast server that speaks as much of the Responses API as the benchmark needs.

    python -m benchmarks.http_server [SECONDS]

Answers after so many seconds, at once by default. Prints its address, and serves until its standard
input is closed.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys

from benchmarks.shared import ANSWER, MODEL, TOOL, arguments, turns_in

_LENGTH = re.compile(rb"content-length:\s*(\d+)", re.IGNORECASE)
_TURNS = re.compile(rb"turns=\d+")
_RESULT = b'"function_call_output"'
_WHOLE: dict[str, object] = {
    "object": "response",
    "created_at": 1.0,
    "model": MODEL,
    "status": "completed",
    "error": None,
    "incomplete_details": None,
    "instructions": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "temperature": None,
    "tool_choice": "auto",
    "tools": [],
    "top_p": None,
    "usage": {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 10,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 20,
    },
}
"""What all answers have in common: every field that the API documents as always there."""


def answer(body: bytes) -> bytes:
    """Return the response to a request: a tool call until its turns are done, then a text."""
    found = _TURNS.search(body)
    wanted, done = turns_in(found[0].decode()) if found else 0, body.count(_RESULT)
    if done < wanted:
        output: dict[str, object] = {
            "type": "function_call",
            "id": f"fc_{done}",
            "call_id": f"call_{done}",
            "name": TOOL,
            "arguments": json.dumps(arguments(done)),
            "status": "completed",
        }
    else:
        output = {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": ANSWER, "annotations": list[str]()}],
        }
    return json.dumps({**_WHOLE, "id": f"resp_{done}", "output": [output]}).encode()


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = _LENGTH.search(head)
            body = answer(await reader.readexactly(int(length[1]) if length else 0))
            await asyncio.sleep(float(sys.argv[1]) if len(sys.argv) > 1 else 0)
            lines = b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
            writer.write(b"HTTP/1.1 200 OK\r\n" + lines + body)
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
