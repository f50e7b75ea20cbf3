"""A FastAPI application that runs an agent and mounts the desk; offline.

python examples/desk/expenses.py        (or `make desk`), then open the address that it prints
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import uvicorn
from fastapi import FastAPI

from holdfast import Agent, AgentRunner, Message, ToolCall, tool
from holdfast.desk import desk_app, desk_url
from holdfast.models import ModelAnswer, ModelRequest


@tool(needs_approval=True)
def pay(to: str, euros: int) -> str:
    """Pay an expense."""
    return f"{euros} euros were paid to {to}"


class Clerk:
    """Stands in for a model: asks for the payment that it reads about, then reports it."""

    name = "clerk"

    async def respond(self, request: ModelRequest) -> ModelAnswer:
        """Call the tool once."""
        results = [m.text for m in request.messages if m.role == "tool"]
        found = re.search(r"(\w+): (\d+)", request.messages[-1].text)
        if results or not found:
            return ModelAnswer(message=Message(role="assistant", content=(results or ["Hi."])[-1]))
        arguments = f'{{"to": "{found[1]}", "euros": {found[2]}}}'
        call = ToolCall(id="call_1", name="pay", arguments=arguments)
        said = "The receipt is complete, so I pay."
        return ModelAnswer(message=Message(role="assistant", content=said, calls=(call,)))


runner = AgentRunner.local(Agent(name="expenses", model=Clerk(), tools=[pay]))


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
    async with runner:
        for number, text in enumerate(("Hello!", "Taxi, to be paid to Kim: 40")):
            await runner.create_task(
                text, task_id=f"demo-{number}", step_mode="automatic", exist_ok=True
            )
        url = desk_url(desk, "http://127.0.0.1:8401/desk")
        print(f"The desk is at {url} (Ctrl-C ends it)", flush=True)
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/expenses")
async def expense(text: str) -> dict[str, str]:
    """Begin a task; it goes on by itself, whatever becomes of this process."""
    return {"task": (await runner.create_task(text, step_mode="automatic")).task_id}


desk = desk_app(runner)
app.mount("/desk", desk)

if __name__ == "__main__":
    uvicorn.run(app, port=8401, log_level="warning", proxy_headers=False)
