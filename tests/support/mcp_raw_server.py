"""An MCP server that answers as it is told: python mcp_raw_server.py ANSWERS, over stdio.

ANSWERS is a JSON object: a method to the members of its response, such as {"result": {...}}. A
cursor in a request is looked for after the method: "tools/list next".
"""

import json
import sys
from typing import Any

TOOL = {
    "name": "go",
    "description": "Go.",
    "inputSchema": {"type": "object", "properties": {"thing": {"type": "string"}}},
}
BEGINNING: dict[str, Any] = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}, "prompts": {}},
    "serverInfo": {"name": "raw", "version": "1"},
}


def main() -> None:
    """Serve until the input ends."""
    answers: dict[str, Any] = {
        "initialize": {"result": BEGINNING},
        "tools/list": {"result": {"tools": [TOOL]}},
        **json.loads(sys.argv[1]),
    }
    unknown = {"error": {"code": -32601, "message": "Method not found"}}
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        cursor = request.get("params", {}).get("cursor")
        asked = f"{request['method']} {cursor}" if cursor else request["method"]
        answer = {"jsonrpc": "2.0", "id": request["id"], **answers.get(asked, unknown)}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
