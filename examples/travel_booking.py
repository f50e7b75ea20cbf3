"""A trip that is booked, undone with its side effects, and booked in another way.

python examples/travel_booking.py

Each tool says how it is undone. Undoing the step calls those functions, newest booking first, and
the model reads what was undone and why before it goes on.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

from holdfast import Agent, AgentRunner, Effect, ToolCall, tool
from holdfast.models.base import ModelRequest
from holdfast.testing import ScriptedModel

bookings: dict[str, str] = {}
"""The world outside: bookings by their number."""


def cancel(effect: Effect) -> str:
    """Take a booking back; `effect.result` is what the tool had returned."""
    what = bookings.pop(effect.result)
    print(f"  cancelled {what}")
    return f"cancelled {what}"


def book(what: str) -> str:
    number = f"B{len(bookings) + 1}"
    bookings[number] = what
    print(f"  booked {what} as {number}")
    return number


@tool(effect="read")
def search(city: str) -> str:
    """Find ways to a city."""
    return f"to {city}: flight 320 euros, train 140 euros"


@tool(undo=cancel)
async def book_flight(city: str) -> str:
    """Book a flight."""
    return book(f"a flight to {city}")


@tool(undo=cancel)
async def book_train(city: str) -> str:
    """Book a train."""
    return book(f"a train to {city}")


@tool(undo=cancel)
async def book_hotel(city: str) -> str:
    """Book a hotel."""
    return book(f"a hotel in {city}")


def agent_model(request: ModelRequest) -> str | tuple[ToolCall, ...]:
    """Stand in for a model, offline: search, book, report; prefer trains once told to."""
    told = " ".join(m.text for m in request.messages if m.role == "system")
    done = sum(m.role == "tool" for m in request.messages)
    if done == 0:
        return calls(["search"])
    if done == 1:
        return calls(["book_train" if "train" in told else "book_flight", "book_hotel"])
    return "Your trip to Rome is booked."


def calls(names: Sequence[str]) -> tuple[ToolCall, ...]:
    return tuple(ToolCall(id="", name=n, arguments=json.dumps({"city": "Rome"})) for n in names)


travel = Agent(
    name="travel",
    instructions="Book the trips that you are asked for.",
    model=ScriptedModel(agent_model, name="offline-travel"),
    tools=[search, book_flight, book_train, book_hotel],
)
agents = [travel]


async def main() -> None:
    """Book, undo, book again."""
    async with AgentRunner.local(travel, data_dir=None) as runner:
        task = await runner.create_task("Book me a trip to Rome.")
        found = await runner.run_step(task)
        print("Step 1:", found.sources[0].content)
        print("Step 2:")
        await runner.run_step(task)
        print("In the world:", ", ".join(sorted(bookings.values())))

        print("Undo of step 2:")
        receipt = await runner.undo_step(task, by="ann", reason="too expensive: take the train")
        print("Undone:", ", ".join(receipt.undone))
        print("In the world:", ", ".join(sorted(bookings.values())) or "nothing")

        print("On with the same task, from after step 1:")
        await runner.run_task(task)
        print("In the world:", ", ".join(sorted(bookings.values())))
        print("Answer:", await runner.finalize_response(task))


if __name__ == "__main__":
    asyncio.run(main())
