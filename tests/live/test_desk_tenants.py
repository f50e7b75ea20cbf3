"""Who is of one tenant sees nothing of another: on no page and no route, by no id, in no list."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import httpx
import pytest
from playwright.async_api import Browser
from temporalio.service import RPCError

from holdfast import AgentRunner, Task
from holdfast.desk import Identity, Tokens, desk_app
from holdfast.desk.identity.tenants import runner_of
from holdfast.desk.identity.tokens import Subject
from holdfast.desk.pages.feed import read_sessions
from holdfast.errors import InvalidArgumentError, TaskNotFoundError
from tests.live.test_desk_security import BODIES, routes
from tests.support.desk import person, serve_desk
from tests.support.desk_agent import rig_of_desk, runner
from tests.support.desk_api import client_of
from tests.support.rig import finish_a_task, forget, run_a_task, until

__all__ = ["rig_of_desk", "runner"]

MARKS = ("BRAVO", "bravo")
"""All that tenant b has is named by one of them."""

ROLES = ("operator", "approver")


@dataclass(frozen=True)
class Theirs:
    """What a tenant has; all of it is named by `name`."""

    name: str
    open: Task
    closed: Task
    forgotten: Task
    fork: Task
    ids: dict[str, list[str]]


async def possessions(runner: AgentRunner, tenant: str, name: str) -> Theirs:
    """Give a tenant one of each thing that the desk shows."""
    session = f"{name}-talk"
    open_ = await run_a_task(
        runner, f"pay {name} 3", task_id=f"{name}-open", tenant=tenant, session=session
    )
    closed, forgotten = [
        await runner.create_task(
            f"say {name}", task_id=f"{name}-{each}", tenant=tenant, session=session
        )
        for each in ("closed", "forgotten")
    ]
    for each in (closed, forgotten):
        await runner.run_task(each)
        await runner.finalize_response(each)
    fork = await runner.fork(closed, "s1", f"again {name}", task_id=f"{name}-fork", session=session)
    rule = f"{open_.task_id}:1"
    await runner.add_schedule(f"{name}-daily", f"say {name}", every="day 09:00", tenant=tenant)
    await forget(runner, forgotten)
    tasks = [open_.task_id, closed.task_id, forgotten.task_id, fork.task_id]
    ids = {
        "task_id": tasks,
        "approval_id": [rule],
        "rule_id": [rule],
        "name": [session, f"{tenant}~{session}"],
        "step_id": ["s1"],
        "call_id": [f"{open_.task_id}:0.1.0.0:5ec4e7"],
    }
    return Theirs(name, open_, closed, forgotten, fork, ids)


@pytest.fixture(scope="module")
async def both(runner: AgentRunner) -> AsyncGenerator[tuple[Theirs, Theirs]]:
    """Give two tenants one of each thing."""
    unique = uuid4().hex[:8]  # tests of one module may run in several processes
    alfa = await possessions(runner, "a", f"ALFA{unique}")
    bravo = await possessions(runner, "b", f"BRAVO{unique}")

    async def listed() -> bool:
        waits = {each.id for each in await runner.pending_approvals()}
        return {*alfa.ids["approval_id"], *bravo.ids["approval_id"]} <= waits

    await until(listed)
    yield alfa, bravo
    for each in (alfa, bravo):
        await runner.delete_schedule(f"{each.name}-daily")


@pytest.fixture
def app(runner: AgentRunner, tmp_path: Path) -> Any:
    return desk_app(runner, tokens=Tokens(tmp_path / "tokens.json"))


def token(app: Any, tenant: str) -> str:
    made: str = app.state.guard.tokens.make(f"of-{tenant or 'all'}", ROLES, tenant=tenant)
    return made


def asks(app: Any, ids: dict[str, list[str]]) -> list[tuple[str, str, str]]:
    """Make every request of the API, with each of the ids that its address takes."""
    known = [each for each in routes(app) if each.path.startswith("/api/v1/")]
    described = {
        (method.upper(), path)
        for path, methods in app.openapi()["paths"].items()
        for method in methods
    }
    found = {(each.method, each.path.replace(":path", "")): each.name for each in known}
    assert described <= {*found}
    asked: list[tuple[str, str, str]] = []
    for method, path in sorted(described):
        named = [each for each in ids if f"{{{each}}}" in path]
        for i in range(max([len(ids[each]) for each in named], default=1)):
            at = path
            for each in named:
                id = quote(ids[each][i % len(ids[each])], safe="")
                at = at.replace(f"{{{each}}}", id)
            asked.append((method, at, found[method, path]))
    return asked


async def crawled(
    app: Any, token: str, ids: dict[str, list[str]], *, own: bool = False
) -> dict[str, httpx.Response]:
    """Ask all of it, the reads first; of one's own, only reads that end."""
    answers: dict[str, httpx.Response] = {}
    async with client_of(app, token=token) as client:
        for method, at, name in sorted(asks(app, ids), key=lambda each: each[0] != "GET"):
            is_stream = at.endswith(("/events", "/stream"))
            if own and (method != "GET" or is_stream or at.endswith(("/response", "/artifact"))):
                continue
            body = None if method == "GET" else BODIES[name]
            asked = {} if is_stream else {"q": "o", "name": "o"}
            async with asyncio.timeout(30):
                answers[f"{method} {at}"] = await client.request(
                    method, at, json=body, params=asked
                )
    return answers


async def test_a_crawler_of_one_tenant_gets_no_byte_of_another(
    both: tuple[Theirs, Theirs], app: Any, runner: AgentRunner
) -> None:
    alfa, bravo = both
    before = await runner.ledger(bravo.open)
    answers = await crawled(app, token(app, "a"), bravo.ids)
    for at, answered in answers.items():
        said = answered.text if answered.is_success else unnamed(answered.text, bravo.ids)
        assert not any(mark in said for mark in MARKS), at
        if "BRAVO" in at:
            assert answered.status_code == 404, (at, answered.text)
    assert len(answers) > 100
    assert await runner.ledger(bravo.open) == before
    mine = await crawled(app, token(app, "a"), alfa.ids, own=True)
    for at in ("GET /api/v1/tasks", "GET /api/v1/approvals", "GET /api/v1/sessions"):
        assert "ALFA" in mine[at].text, at
    assert f"{alfa.name}-daily" in mine["GET /api/v1/schedules"].text
    for at, answered in mine.items():
        if "ALFA" in at and not at.endswith(("forgotten/approvals", "forgotten/rules")):
            assert answered.status_code == 200, (at, answered.text)


async def test_an_identity_without_a_tenant_sees_all(both: tuple[Theirs, Theirs], app: Any) -> None:
    async with client_of(app, token=token(app, "")) as client:
        for at in ("tasks", "approvals", "sessions", "schedules"):
            listed = (await client.get(f"/api/v1/{at}")).text
            assert "ALFA" in listed or at == "approvals"
            assert "BRAVO" in listed
        for each in both:
            for id in each.ids["task_id"]:
                assert (await client.get(f"/api/v1/tasks/{id}")).status_code == 200


async def test_pages_show_no_byte_of_another_tenant(
    both: tuple[Theirs, Theirs], runner: AgentRunner, browser: Browser
) -> None:
    bravo = both[1]
    async with serve_desk(runner) as desk:
        desk.people.tokens.make("ops", ["viewer"])
        made = desk.people.tokens.make("ann", ROLES, tenant="a")
        desk.people._made["ann"] = made
        async with person(browser, desk) as page:
            await page.goto(f"{desk.url}/tasks")
            await page.get_by_text("say ALFA").first.wait_for()
            shown = [await page.content()]
            for at in pages(bravo):
                await page.goto(f"{desk.url}{at}")
                await page.wait_for_function("!document.querySelector('.q-skeleton')")
                shown.append((await page.content()).replace(quote(at), "").replace(at, ""))
        for at, text in zip(("/tasks", *pages(bravo)), shown, strict=True):
            assert not any(mark in unnamed(text, bravo.ids) for mark in MARKS), at


def unnamed(said: str, ids: dict[str, list[str]]) -> str:
    """Return a text without the ids that were sent: an error repeats them."""
    for id in sorted({id for each in ids.values() for id in each}, key=len, reverse=True):
        said = said.replace(id, "").replace(quote(id, safe=""), "")
    return said


def pages(theirs: Theirs) -> list[str]:
    """List the pages, each with what is a tenant's."""
    task = theirs.closed.task_id
    tabs = [f"/tasks/{task}?tab={tab}" for tab in ("timeline", "effects", "transcript", "branches")]
    named = [f"/compare?left={task}&right={theirs.open.task_id}", "/schedules", "/charts"]
    sessions = [f"/sessions?name={quote(name)}" for name in theirs.ids["name"]]
    card = f"/?card={theirs.ids['approval_id'][0]}"
    return [
        "/",
        card,
        *tabs,
        f"/tasks/{theirs.open.task_id}",
        *named,
        "/sessions",
        *sessions,
        "/rules",
        "/workers",
        "/tasks?q=say",
    ]


async def test_a_new_task_of_a_tenants_visitor_is_the_tenants(
    both: tuple[Theirs, Theirs], app: Any, runner: AgentRunner
) -> None:
    async with client_of(app, token=token(app, "a")) as client:
        talk = f"{both[1].name}-talk"
        sent = {"input": "say hello", "session": talk}
        made = (await client.post("/api/v1/tasks", json=sent)).json()
        assert made["session"] == f"a~{talk}"
        taken = {**sent, "task_id": both[1].open.task_id}
        refused = await client.post("/api/v1/tasks", json=taken)
    assert (refused.status_code, (await runner.reader.head(made["task_id"])).tenant) == (409, "a")
    described = await runner.reader.describe(made["task_id"])
    assert described.raw_description.workflow_execution_info.priority.fairness_key == "a"
    assert described.typed_search_attributes is not None
    with pytest.raises(TaskNotFoundError):
        await runner_of(runner, "b").get_task(made["task_id"])


async def test_requests_that_nobody_has_thought_of_are_refused(
    both: tuple[Theirs, Theirs], runner: AgentRunner
) -> None:
    own = runner_of(runner, "a")
    handle = own.client.get_workflow_handle(both[1].open.task_id)
    for ask in (handle.describe, handle.cancel, handle.terminate, handle.fetch_history):
        with pytest.raises(RPCError, match="not found"):
            await ask()
    for task in (both[1].open, both[1].closed, both[1].forgotten):
        with pytest.raises(TaskNotFoundError):
            await own.delete_task(task)
        with pytest.raises(TaskNotFoundError):
            await own.pause(task, by="mallory")  # also once the runner of all has sent something
        with pytest.raises(TaskNotFoundError):
            await anext(aiter(own.stream_events(task)))
    assert (await runner.get_task(both[1].forgotten)).status == "finished"
    with pytest.raises(InvalidArgumentError, match="may not have the character"):
        await runner.create_task("x", tenant="a' OR HfTenant = 'b")


async def test_tenants_that_differ_by_case_alone_are_two(
    both: tuple[Theirs, Theirs], runner: AgentRunner
) -> None:
    talk = f"{both[0].name}-case"
    other = await finish_a_task(runner, "say hello", tenant="A", session=talk)

    async def listed() -> bool:
        return any(each.name == f"A~{talk}" for each in await read_sessions(runner))

    await until(listed)
    mine = await read_sessions(runner_of(runner, "a"))
    assert f"a~{both[0].name}-talk" in {each.name for each in mine}
    assert all(each.name.startswith("a~") for each in mine)
    listed_tasks = {each.task_id for each in await runner_of(runner, "a").list_tasks()}
    assert both[0].open.task_id in listed_tasks
    assert other.task_id not in listed_tasks


async def test_a_rule_of_the_application_is_told_whose_a_task_is(
    both: tuple[Theirs, Theirs], runner: AgentRunner, tmp_path: Path
) -> None:
    asked: list[tuple[str, str, str]] = []

    def may(_: Identity, verb: str, subject: Subject) -> bool:
        asked.append((verb, subject, subject.tenant))
        return subject.tenant != "b"

    tokens = Tokens(tmp_path / "tokens.json")
    app = desk_app(runner, tokens=tokens, may=may)
    ids = both[1].ids
    async with client_of(app, token=tokens.make("ole", ROLES)) as client:
        for id in ids["task_id"]:
            assert (await client.get(f"/api/v1/tasks/{id}/steps")).status_code == 403
        assert (await client.get(f"/api/v1/approvals/{ids['approval_id'][0]}")).status_code == 403
        assert (await client.get(f"/api/v1/sessions/b~{both[1].name}-talk")).status_code == 403
        paused = await client.post(f"/api/v1/tasks/{ids['task_id'][0]}/pause", json={})
        assert paused.status_code == 403
        assert (await client.get(f"/api/v1/tasks/{both[0].fork.task_id}")).status_code == 200
    assert ("read", ids["task_id"][2], "b") in asked
    assert ("pause", ids["task_id"][0], "b") in asked
    talk = f"{both[0].name}-talk"
    async with client_of(app, token=tokens.make("ole", ROLES, tenant="a")) as client:
        assert (await client.get(f"/api/v1/sessions/{talk}")).status_code == 200
    assert ("read", talk, "a") in asked


async def test_one_key_of_equal_names_of_two_tenants_names_two_tasks(
    both: tuple[Theirs, Theirs], runner: AgentRunner, tmp_path: Path
) -> None:
    tokens, ids = Tokens(tmp_path / "tokens.json"), list[str]()
    app = desk_app(runner, tokens=tokens)
    for tenant in ("a", "b", "b"):
        async with client_of(app, token=tokens.make("ole", ROLES, tenant=tenant)) as client:
            sent = {"input": f"say {both[0].name}"}
            made = await client.post("/api/v1/tasks", json=sent, headers={"Idempotency-Key": "7"})
        ids.append(made.json()["task_id"])
    assert (ids[0] != ids[1], ids[1]) == (True, ids[2])
