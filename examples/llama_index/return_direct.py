"""Tools whose result is the answer: a table is booked in a few turns; the model is offline.

python examples/llama_index/return_direct.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from holdfast import ToolCall
from holdfast.llama_index import AgentRunner, FunctionCallingAgentWorker, FunctionTool
from holdfast.models.base import ModelRequest
from holdfast.testing import ScriptedModel

BOOKINGS = Path(sys.argv[1] if len(sys.argv) > 1 else "bookings.json")


def bookings() -> dict[str, dict[str, str]]:
    """Read the book."""
    found: dict[str, dict[str, str]] = json.loads(BOOKINGS.read_text() or "{}")
    return found


def create_booking(user_id: str) -> str:
    """Open a booking for a guest."""
    BOOKINGS.write_text(json.dumps({user_id: {}}))
    return "The booking is open. Which name, and which day?"


def update_booking(user_id: str, field: str, value: str) -> str:
    """Write down one detail of a booking."""
    known = bookings()
    known[user_id][field] = value
    BOOKINGS.write_text(json.dumps(known))
    return f"{field} is {value}"


def confirm_booking(user_id: str) -> str:
    """Confirm a booking that has a name and a day."""
    missing = [field for field in ("name", "day") if field not in bookings()[user_id]]
    if missing:
        msg = f"Still missing: {', '.join(missing)}"
        raise ValueError(msg)
    return f"The booking of {bookings()[user_id]['name']} is confirmed."


def call(name: str, **arguments: str) -> ToolCall:
    """Make a call."""
    return ToolCall(id="", name=name, arguments=json.dumps({"user_id": "guest-1", **arguments}))


def model(request: ModelRequest) -> str | ToolCall | tuple[ToolCall, ...]:
    """Stand in for a model that fills in a form."""
    print("(the model is asked)", flush=True)
    last = request.messages[-1]
    if "table" in last.text:
        return call("create_booking")
    if "Ada" in last.text and last.role == "user":
        return call("update_booking", field="name", value="Ada")
    if "Friday" in last.text and last.role == "user":
        return call("update_booking", field="day", value="Friday")
    return call("confirm_booking") if "Friday" in last.text else "Thank you. Which day?"


def main() -> None:
    """Book a table."""
    tools = [
        FunctionTool.from_defaults(create_booking, return_direct=True, idempotent=True),
        FunctionTool.from_defaults(update_booking, idempotent=True),
        FunctionTool.from_defaults(confirm_booking, return_direct=True, effect="read"),
    ]
    worker = FunctionCallingAgentWorker.from_tools(
        tools,
        llm=ScriptedModel(model, name="waiter"),
        system_prompt="You book tables. Write down only what the guest has said.",
        allow_parallel_tool_calls=False,
    )
    agent = AgentRunner(worker)
    for said in ("I would like a table.", "My name is Ada.", "Friday would be fine."):
        print(f"{said} -> {agent.chat(said)}", flush=True)
    print(bookings()["guest-1"])


if __name__ == "__main__":
    main()
