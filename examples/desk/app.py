"""A FastAPI app that runs an agent and mounts the desk: uvicorn --app-dir examples/desk app:app."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from holdfast import Agent, AgentRunner, tool
from holdfast.desk import desk_app


@tool(needs_approval=True)
def multiply(a: float, b: float) -> float:
    """Multiply two numbers."""
    return a * b


runner = AgentRunner.local(Agent(name="math", model="offline", tools=[multiply]))


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
    async with runner:
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/questions")
async def question(text: str) -> str:
    """Begin a task and return its id; it goes on by itself, whatever becomes of this process."""
    return (await runner.create_task(text, step_mode="automatic")).task_id


app.mount("/desk", desk_app(runner))
