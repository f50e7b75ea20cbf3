"""The desk's API in an app that knows its people itself: a real FastAPI app, over HTTP."""

import json
from collections.abc import AsyncGenerator, Iterator
from typing import Annotated

import httpx
import pytest
from fastapi import FastAPI, Header, HTTPException

from holdfast import AgentRunner, tool
from holdfast.contrib.fastapi import Identity, tasks_router
from holdfast.desk.identity.tokens import Subject
from holdfast.testing import FakeOpenAI, FakeRequest, Reply, call, reply
from tests.support.desk import serve_app
from tests.support.rig import Rig, until_status

ROLES = {"ann": ["operator", "approver"], "vic": ["viewer"], "bob": ["operator"]}


@tool(needs_approval=True)
async def pay(to: str) -> str:
    """Pay an expense."""
    return f"{to} is paid"


def answer(request: FakeRequest) -> Reply:
    """Pay once, then say so."""
    results = list(request.results.values())
    return reply(results[-1]) if results else call("pay", {"to": request.last_user})


async def current_user(user: Annotated[str, Header()] = "") -> Identity | str:
    """Stand in for the sign-in of an app."""
    if user == "nobody":
        return "nobody"  # which is no identity
    if user not in ROLES:
        raise HTTPException(401, "Sign in first.")
    return Identity(user, frozenset(ROLES[user]))


def may(identity: Identity, verb: str, subject: Subject) -> bool:
    """Keep bob from what is secret."""
    return identity.name != "bob" or "secret" not in subject


@pytest.fixture
def model() -> Iterator[FakeOpenAI]:
    with FakeOpenAI(answer) as fake:
        yield fake


@pytest.fixture
async def runner(rig: Rig) -> AgentRunner:
    await rig.serve(rig.agent(pay))
    return rig.runner()


@pytest.fixture
async def client(runner: AgentRunner) -> AsyncGenerator[httpx.AsyncClient]:
    app = FastAPI()
    app.include_router(tasks_router(runner, identity=current_user, may=may), prefix="/agents")
    async with (
        serve_app(app) as url,
        httpx.AsyncClient(base_url=f"{url}/agents", timeout=60, headers={"user": "ann"}) as made,
    ):
        yield made


def problem(found: httpx.Response) -> tuple[int, str]:
    """Return status and kind of a refusal, which says why as well."""
    body = found.json()
    assert body["detail"]
    return found.status_code, body["type"].rpartition(":")[2]


async def test_a_task_is_begun_followed_decided_and_told_by_the_names_that_the_app_gives(
    client: httpx.AsyncClient, runner: AgentRunner
) -> None:
    task = (await client.post("/tasks", json={"input": "kim", "streams": True})).json()["task_id"]
    await until_status(runner, task, "waiting")
    [asked] = (await client.get(f"/tasks/{task}/approvals")).json()
    assert asked["tool"] == "pay"
    given = {"digest": asked["bound"] or asked["digest"]}
    assert (await client.post(f"/approvals/{asked['id']}/approve", json=given)).status_code == 200
    [decided] = [each for each in await runner.audit(task) if each.kind == "command"]
    assert (decided.actor, decided.verb) == ("ann", "approve")
    await until_status(runner, task, "answered")
    assert (await client.post(f"/tasks/{task}/finalize")).json()["response"] == "kim is paid"
    assert "id: " in (await client.get(f"/tasks/{task}/events")).text
    assert "kim is paid" in (await client.get(f"/tasks/{task}/stream")).text


async def test_feedback_rejection_and_abandonment_have_their_routes(
    client: httpx.AsyncClient, runner: AgentRunner
) -> None:
    task = (await client.post("/tasks", json={"input": "kim"})).json()["task_id"]
    await until_status(runner, task, "waiting")
    [asked] = (await client.get(f"/tasks/{task}/approvals")).json()
    for path, body in (
        (f"/tasks/{task}/feedback", {"text": "Hurry."}),
        (f"/approvals/{asked['id']}/reject", {"reason": "Too much."}),
        (f"/tasks/{task}/abandon", {"reason": "It is late."}),
    ):
        done = await client.post(path, json=body)
        assert done.status_code == 200, done.text
    await until_status(runner, task, "abandoned")
    sent = await client.post("/events/order.paid", json={"data": {"id": 1}, "id": f"{task}-1"})
    assert sent.status_code == 202


async def test_refusals_are_problem_details_and_what_the_app_itself_refuses_stays_its_own(
    client: httpx.AsyncClient, runner: AgentRunner
) -> None:
    unknown = await client.get("/tasks", headers={"user": "eve"})
    assert (unknown.status_code, unknown.json()) == (401, {"detail": "Sign in first."})
    assert problem(await client.get("/tasks", headers={"user": "nobody"})) == (422, "User")
    wrong = await client.post("/tasks", json={"inputs": "kim"})
    assert (wrong.status_code, wrong.headers["content-type"]) == (422, "application/problem+json")
    assert problem(await client.get("/tasks/none")) == (404, "TaskNotFound")
    vic = await client.post("/tasks", json={"input": "kim"}, headers={"user": "vic"})
    assert problem(vic) == (403, "NotAllowed")
    await runner.create_task("kim", task_id=f"{runner.app}-secret")
    bob = await client.get(f"/tasks/{runner.app}-secret", headers={"user": "bob"})
    assert problem(bob) == (403, "NotAllowed")
    assert "a rule of the application forbids it" in bob.json()["detail"]
    assert json.loads((await client.get("/me")).text)["name"] == "ann"
