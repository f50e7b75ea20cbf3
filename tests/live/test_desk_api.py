"""The desk's HTTP API over a real server and the fake model API."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from holdfast import AgentRunner, ApprovalRule, ToolCall, tool
from holdfast.cli.arguments import login_name
from holdfast.desk import desk_app
from holdfast.testing import FakeOpenAI, FakeRequest, Reply, ScriptedModel, calls, reply
from tests.support.desk import serve_desk
from tests.support.desk_api import client_of
from tests.support.rig import MakeAgent, Rig, until, until_status

SECRET = "sk-proj-0123456789abcdefghijklmnop"


@tool(needs_approval=True)
async def pay(to: str, euros: int) -> str:
    """Pay an expense."""
    return f"{euros} euros were paid to {to}"


def answer(request: FakeRequest) -> Reply:
    """Pay what is asked for, `pay NAME EUROS`; else answer."""
    said = request.last_user.split()
    if said[0] == "pay" and not any(message.role == "tool" for message in request.messages):
        return calls([("pay", {"to": said[1], "euros": int(said[2])})], text="I pay now.")
    return reply(f"Done: {request.last_user}")


@pytest.fixture
def model() -> Iterator[FakeOpenAI]:
    with FakeOpenAI(answer) as fake:
        yield fake


@pytest.fixture
async def runner(rig: Rig, make_agent: MakeAgent) -> AgentRunner:
    await rig.serve(make_agent(pay))
    return rig.runner()


@pytest.fixture
async def api(runner: AgentRunner) -> AsyncGenerator[httpx.AsyncClient]:
    async with client_of(desk_app(runner)) as client:
        yield client


async def created(api: httpx.AsyncClient, wish: str, **more: Any) -> str:
    """Create a task, and return its id."""
    answered = await api.post("/api/v1/tasks", json={"input": wish, **more})
    assert answered.status_code == 201, answered.text
    task_id: str = answered.json()["task_id"]
    assert answered.json()["created"] > 0
    return task_id


async def asking(api: httpx.AsyncClient, task_id: str) -> tuple[str, str]:
    """Wait until a task has asked for an approval; return its id and its digest."""
    found: list[Any] = []

    async def is_there() -> bool:
        found[:] = (await api.get(f"/api/v1/tasks/{task_id}/approvals")).json()
        return bool(found)

    await until(is_there)
    return str(found[0]["id"]), str(found[0]["digest"])


async def test_arguments_are_edited_by_who_asks_and_all_of_it_can_be_read(
    api: httpx.AsyncClient, runner: AgentRunner
) -> None:
    me = (await api.get("/api/v1/me")).json()
    task_id = await created(api, "pay bo 30", session="trip")
    approval, _ = await asking(api, task_id)
    card = (await api.get(f"/api/v1/approvals/{approval}")).json()
    assert (card["title"], card["goal"], card["why"]) == ("pay", "pay bo 30", "I pay now.")
    body = {"arguments": {"to": "bo", "euros": 3}, "note": "too much"}
    receipt = await api.post(f"/api/v1/approvals/{approval}/edit", json=body)
    assert (receipt.status_code, receipt.json()["verb"]) == (200, "approve")
    await until_status(runner, task_id, "answered")
    at = f"/api/v1/tasks/{task_id}"
    steps = (await api.get(f"{at}/steps")).json()
    assert (len(steps["completed"]), steps["upcoming"]) == (2, [])
    done = (await api.get(f"{at}/effects")).json()
    assert [(each["tool"], each["by"], each["edited"]) for each in done] == [
        ("pay", me["name"], True)
    ]
    made = (await api.get(f"{at}/calls")).json()
    assert [each["kind"] for each in made] == ["model_call", "tool_call", "model_call"]
    assert "3 euros were paid to bo" in (await api.get(f"{at}/transcript")).text
    assert (await api.get(f"{at}/usage")).json()["total"]["requests"] == 2
    lines = (await api.get(f"{at}/audit")).text.splitlines()
    assert any(json.loads(line).get("approver") == me["name"] for line in lines)
    assert (await api.get(f"{at}/verify")).json()["intact"]
    assert len((await api.get(f"{at}/branches")).json()) == 1
    assert (await api.get(f"{at}/timeline")).json()["lanes"]
    assert (await api.post(f"{at}/finalize")).json()["response"] == "Done: pay bo 30"
    session = (await api.get("/api/v1/sessions/trip")).json()
    assert (session["tasks"], session["messages"][0]["content"]) == ([task_id], "pay bo 30")
    assert (await api.get(at)).json()["status"] == "finished"


async def test_who_may_decide_uncovers_what_looks_like_a_secret_and_it_is_recorded(
    api: httpx.AsyncClient, runner: AgentRunner
) -> None:
    account = "sk-1MalloryTheAttackersAccount9000"
    task_id = await created(api, f"pay {account} 30")
    approval, _ = await asking(api, task_id)
    at = f"/api/v1/approvals/{approval}"
    card = (await api.get(at)).json()
    assert "[hidden: 34 characters, sha256 6c5ece62ebcfb7cd]" in card["approval"]["arguments"]
    assert "A part of the call is hidden." in card["buttons"][0]["warning"]
    assert account not in json.dumps(card)
    whole = (await api.post(f"{at}/uncover")).json()
    assert json.loads(whole["arguments"])["to"] == account
    me = (await api.get("/api/v1/me")).json()["name"]
    shown = [e for e in await runner.audit(task_id) if e.verb == "uncover"]
    assert [(e.actor, e.approval, e.decision) for e in shown] == [(me, approval, "")]


async def test_a_decision_for_later_calls_is_bounded_listed_and_revoked(
    api: httpx.AsyncClient, runner: AgentRunner
) -> None:
    me = (await api.get("/api/v1/me")).json()
    task_id = await created(api, "pay bo 30")
    approval, digest = await asking(api, task_id)
    at = f"/api/v1/approvals/{approval}"
    odd = await api.post(f"{at}/approve", json={"always": {"same": ["whom"]}, "digest": digest})
    assert odd.status_code in (400, 409, 422)
    assert "whom" in odd.text
    bounds = {"same": ["to"], "until": "2999-01-01T00:00:00+00:00"}
    assert (
        await api.post(f"{at}/approve", json={"always": bounds, "digest": digest})
    ).status_code == 200
    await until_status(runner, task_id, "answered")
    [rule] = (await api.get(f"/api/v1/tasks/{task_id}/rules")).json()
    assert (rule["id"], rule["by"], rule["values"]) == (approval, me["name"], {"to": "bo"})
    assert rule["until"] > 30e9
    revoking = f"/api/v1/rules/{rule['id']}/revoke"
    assert (await api.post(revoking)).json()["verb"] == "revoke"
    assert (await api.get(f"/api/v1/tasks/{task_id}/rules")).json() == []
    assert (await api.post(revoking)).status_code == 409
    other = await created(api, "pay bo 30")
    body = {"reason": "never", "always": True}
    rejecting = f"/api/v1/approvals/{(await asking(api, other))[0]}/reject"
    assert (await api.post(rejecting, json=body)).status_code == 200
    await until_status(runner, other, "answered")
    [rule] = (await api.get(f"/api/v1/tasks/{other}/rules")).json()
    assert (rule["verb"], rule["values"], rule["until"]) == ("reject", {}, 0.0)


async def test_a_rule_of_a_session_is_listed_with_all_others_and_revoked(
    api: httpx.AsyncClient, runner: AgentRunner
) -> None:
    made = await api.post("/api/v1/tasks", json={"input": "pay bo 30", "session": "books"})
    approval, digest = await asking(api, made.json()["task_id"])
    body = {"always": {"same": ["to"], "scope": "session"}, "digest": digest}
    done = await api.post(f"/api/v1/approvals/{approval}/approve", json=body)
    assert done.status_code == 200
    await until_status(runner, made.json()["task_id"], "answered")

    async def listed() -> list[dict[str, Any]]:
        found = (await api.get("/api/v1/rules")).json()
        return [each for each in found if each["id"] == approval]

    [rule] = await until(listed)
    assert (rule["session"], rule["values"]) == ("books", {"to": "bo"})
    revoking = f"/api/v1/rules/{approval}/revoke"
    assert (await api.post(revoking)).status_code == 409  # the task has no such rule
    ended = await api.post(revoking, params={"session": "books"})
    assert (ended.status_code, ended.json()["status"]) == (200, "applied")
    assert await listed() == []


async def test_mine_is_what_the_sender_can_decide(rig: Rig, make_agent: MakeAgent) -> None:
    ours, theirs = (
        replace(pay, needs_approval=ApprovalRule(by=by)) for by in ("role:ours", "role:theirs")
    )
    await rig.serve(make_agent(ours, name="ours"), make_agent(theirs, name="theirs"))
    name = login_name()
    runner = rig.runner(agent="ours", roles={"ours": [name], "theirs": ["bo"]})
    async with client_of(desk_app(runner)) as api:
        mine = await created(api, "pay bo 30")
        other = await created(api, "pay bo 30", agent="theirs")
        both = {(await asking(api, mine))[0], (await asking(api, other))[0]}

        async def listed() -> bool:
            found = (await api.get("/api/v1/approvals")).json()
            return both <= {each["id"] for each in found}

        await until(listed)
        found = (await api.get("/api/v1/approvals", params={"mine": True})).json()
        assert {each["id"] for each in found} & both == {f"{mine}:1"}


async def test_a_key_creates_one_task_and_one_fork_and_another_input_is_refused(
    api: httpx.AsyncClient, runner: AgentRunner
) -> None:
    headers = {"Idempotency-Key": "order 7"}

    async def twice(path: str, body: dict[str, Any], *others: tuple[str, dict[str, Any]]) -> str:
        """Send a request twice; others of its key are refused."""
        made = [await api.post(path, json=body, headers=headers) for _ in range(2)]
        [task_id] = {each.json()["task_id"] for each in made}
        for there, other in others:
            refused = await api.post(there, json=other, headers=headers)
            kind = refused.json()["type"]
            assert (refused.status_code, kind) == (409, "urn:holdfast:error:TaskExists")
        return str(task_id)

    at, hello = "/api/v1/tasks", {"input": "hello"}
    first = await twice(at, hello, (at, {"input": "bye"}), (at, {**hello, "agent": "another"}))
    both = {"input": "hello", "task_id": "mine"}
    assert (await api.post(at, json=both, headers=headers)).status_code == 422
    second = await created(api, "hello")
    for each in (first, second):
        await until_status(runner, each, "answered")
    headers["Idempotency-Key"] = "fork 7"
    fork = {"at": "s1", "input": "and now?"}
    await twice(f"{at}/{first}/fork", fork, (f"{at}/{second}/fork", fork))


async def test_a_task_is_run_step_by_step_and_an_undo_with_a_key_is_made_once(
    api: httpx.AsyncClient, runner: AgentRunner
) -> None:
    task_id = await created(api, "pay bo 30", step_mode="manual")
    at = f"/api/v1/tasks/{task_id}"
    done = await api.post(f"{at}/step")
    assert (done.status_code, done.json()["status"]) == (202, "waiting")
    body = {"reason": "no", "message": "no money"}
    assert (await api.post(f"/api/v1/approvals/{task_id}:1/reject", json=body)).status_code == 200
    await until_status(runner, task_id, "running")
    for status in ("running", "answered"):  # the step that has waited, then the next one
        assert (await api.post(f"{at}/step", json={})).json()["status"] == status
    more = {"input": "thanks"}
    for _ in range(2):
        done = await api.post(f"{at}/step", json=more, headers={"Idempotency-Key": "more"})
        assert (done.json()["status"], done.json()["steps"]) == ("answered", 3)
    for _ in range(2):
        undone = await api.post(f"{at}/undo", json={}, headers={"Idempotency-Key": "u1"})
        assert undone.status_code == 200
    assert (await api.get(at)).json()["steps"] == 2


async def test_a_run_that_takes_long_goes_on_behind_its_answer(
    rig: Rig, make_agent: MakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        begun.set()
        await go_on.wait()
        return "waited"

    monkeypatch.setattr("holdfast.desk.api.access.RUN_SECONDS", 0.1)
    script = ScriptedModel([ToolCall(id="", name="wait", arguments="{}"), "It is over."])
    await rig.serve(make_agent(wait, name="slow", model=script))
    runner = rig.runner(agent="slow")
    async with client_of(desk_app(runner)) as api:
        task_id = await created(api, "wait", step_mode="manual")
        answered = await api.post(f"/api/v1/tasks/{task_id}/run")
        assert (answered.status_code, answered.json()["status"]) == (202, "running")
    await begun.wait()
    go_on.set()
    await until_status(runner, task_id, "answered")


async def test_steps_are_undone_and_a_task_is_forked_paused_and_given_up(
    api: httpx.AsyncClient, runner: AgentRunner
) -> None:
    task_id = await created(api, "hello")
    await until_status(runner, task_id, "answered")
    at = f"/api/v1/tasks/{task_id}"
    fork = await api.post(f"{at}/fork", json={"at": "s1", "input": "and now?"})
    assert fork.status_code == 201
    undone = await api.post(
        f"{at}/undo", json={"reason": "wrong"}, headers={"Idempotency-Key": "u"}
    )
    assert undone.status_code == 200, undone.text
    assert len((await api.get(f"{at}/branches")).json()) == 2
    paused = await api.post(f"{at}/pause", json={"reason": "lunch"})
    assert paused.json()["verb"] == "pause"
    said = await api.post(f"{at}/feedback", json={"text": "be brief"})
    assert said.json()["verb"] == "feedback"
    assert (await api.post(f"{at}/resume")).json()["verb"] == "resume"
    again = await api.post(f"{at}/pause", json={"reason": "tea"})
    assert again.json()["status"] == "applied"
    back = await api.post(f"{at}/resume", json={"reason": "tea is over"})
    assert back.json()["status"] == "applied"
    step = f"{at}/steps/{(await runner.get_upcoming_steps(task_id))[0].step_id}"
    edited = await api.put(step, json={"input": "hello again", "reason": "too short"})
    assert edited.json()["verb"] == "edit_step"
    gone = await api.request("DELETE", step, json={"reason": "not needed"})
    assert gone.json()["verb"] == "drop_step"
    told = [e.reason for e in await runner.audit(task_id) if e.kind == "command"]
    assert told[-3:] == ["tea is over", "too short", "not needed"]
    other = f"/api/v1/tasks/{fork.json()['task_id']}"
    ended = await api.post(f"{other}/abandon", json={"reason": "not needed"})
    assert ended.json()["verb"] == "abandon"
    closed = await api.post(f"{other}/abandon", json={"reason": "again"})
    assert closed.status_code == 409


ODD_IDS = ("x", "x/steps", "x/steps/s2", "x/../y", "what?now#ü", "x%2Fsteps")


async def test_a_task_is_found_by_its_encoded_id_also_where_that_ends_like_a_route(
    api: httpx.AsyncClient,
) -> None:
    for task_id in ODD_IDS:
        await created(api, "hello", task_id=task_id, step_mode="manual")
        at = f"/api/v1/tasks/{quote(task_id, safe='')}"
        edited = await api.put(f"{at}/steps/s1", json={"input": f"of {task_id}"})
        assert edited.json()["status"] == "applied", edited.text
    for task_id in ODD_IDS:
        at = f"/api/v1/tasks/{quote(task_id, safe='')}"
        assert (await api.get(at)).json()["task_id"] == task_id
        assert (await api.get(f"{at}/effects")).json() == []
        [queued] = (await api.get(f"{at}/steps")).json()["upcoming"]
        assert (queued["task_id"], queued["input"]) == (task_id, f"of {task_id}")
    await created(api, "hello", task_id="x/y", step_mode="manual")  # ends like no route
    assert (await api.get("/api/v1/tasks/x/y")).json()["task_id"] == "x/y"
    assert (await api.get("/api/v1/tasks/x/y/steps")).json()["upcoming"][0]["task_id"] == "x/y"


async def test_lists_have_filters_and_pages(api: httpx.AsyncClient, runner: AgentRunner) -> None:
    ids = [await created(api, f"hello {i}", session="of the list") for i in range(3)]
    for each in ids:
        await until_status(runner, each, "answered")
    await api.post(f"/api/v1/tasks/{ids[0]}/finalize")

    async def listed() -> bool:
        found = (await api.get("/api/v1/tasks", params={"status": "answered"})).json()
        sessions = {each["name"] for each in (await api.get("/api/v1/sessions")).json()}
        agents = (await api.get("/api/v1/agents")).json()
        served = {each["name"] for each in agents if each["is_served"] and each["workers"]}
        is_there = {each["task_id"] for each in found["tasks"]} >= {*ids[1:]}
        return is_there and "of the list" in sessions and "agent" in served

    await until(listed)
    page = (await api.get("/api/v1/tasks", params={"size": 2})).json()
    assert (len(page["tasks"]), page["more"]) == (2, True)
    found = (await api.get("/api/v1/tasks", params={"q": "hello 1"})).json()["tasks"]
    assert {each["task_id"] for each in found} & {*ids} == {ids[1]}
    queues = (await api.get("/api/v1/workers")).json()
    assert any(queue["workers"] for queue in queues)


async def test_events_go_on_after_the_last_one_that_a_client_has(
    api: httpx.AsyncClient, runner: AgentRunner
) -> None:
    task_id = await created(api, "pay bo 30")
    approval, digest = await asking(api, task_id)
    at = f"/api/v1/approvals/{approval}/approve"
    assert (await api.post(at, json={"digest": "0" * 64})).status_code == 409
    assert (await api.post(at, json={})).status_code == 422
    await api.post(at, json={"digest": digest})
    await until_status(runner, task_id, "answered")
    url = f"/api/v1/tasks/{task_id}/events?until=answered"
    whole = _events((await api.get(url)).text)
    names = [event["event"] for event in whole]
    assert (names[0], names[-1]) == ("chat_start", "end")
    assert {"waiting", "approval_decided", "tool_done"} <= set(names)
    middle = whole[2]["id"]
    rest = _events((await api.get(url, headers={"Last-Event-ID": middle})).text)
    assert rest == [each for each in whole if each["id"] == "" or int(each["id"]) > int(middle)]
    for given in ("yesterday", "9" * 5000):
        wrong = await api.get(url, headers={"Last-Event-ID": given})
        kind = wrong.headers["content-type"]
        assert (wrong.status_code, kind) == (422, "application/problem+json")


async def test_a_stream_ends_when_its_token_is_revoked(runner: AgentRunner) -> None:
    task = await runner.create_task("pay bo 30", step_mode="automatic")
    await until_status(runner, task.task_id, "waiting")
    async with serve_desk(runner) as desk:
        headers = {"Authorization": f"Bearer {desk.people.token('ole')}"}
        url = f"{desk.url}/api/v1/tasks/{task.task_id}/events?until=answered"
        client = httpx.AsyncClient(headers=headers, timeout=60)
        async with client, client.stream("GET", url) as stream:
            lines = stream.aiter_lines()
            async for line in lines:
                if line == "event: waiting":
                    break
            desk.people.tokens.revoke("ole")
            await runner.reject(f"{task.task_id}:1", "bo", "no")
            rest = [line async for line in lines]
    [name] = [line for line in rest if line.startswith("event: ")]
    assert name == "event: error"
    assert '"status":401' in rest[-2] or '"status":401' in rest[-1]


async def test_tokens_of_a_streamed_task_come_as_events(
    api: httpx.AsyncClient, runner: AgentRunner
) -> None:
    task_id = await created(api, "hello", streams=True)
    await until_status(runner, task_id, "answered")
    url = f"/api/v1/tasks/{task_id}/stream?until=waiting"
    whole = _events((await api.get(url)).text)
    items = [each for each in whole if each["event"] == "run_item_stream_event"]
    assert json.loads(items[-1]["data"])["name"] == "message_output_created"
    rest = _events((await api.get(url, headers={"Last-Event-ID": items[-1]["id"]})).text)
    assert [each["event"] for each in rest] == ["end"]


ERRORS: tuple[tuple[str, Any, int, str], ...] = (
    ("GET /api/v1/tasks/none", None, 404, "TaskNotFound"),
    ("GET /api/v1/tasks/none/events", None, 404, "TaskNotFound"),
    ("GET /api/v1/approvals/none:1", None, 404, "TaskNotFound"),
    ("POST /api/v1/tasks", {"input": ""}, 422, "InvalidArgument"),
    ("POST /api/v1/tasks", {"input": "x", "by": "eve"}, 422, ""),
    ("POST /api/v1/tasks/none/abandon", {"reason": ""}, 422, ""),
    ("POST /api/v1/tasks/none/abandon", {"reason": " \n"}, 422, ""),
    ("POST /api/v1/tasks/none/pause", {}, 404, "TaskNotFound"),
    ("GET /api/v1/nothing", None, 404, ""),
    ("PATCH /api/v1/tasks", {}, 405, ""),
    ("DELETE /api/v1/tasks/none/steps", None, 405, ""),
    ("GET /api/v1/sessions/none", None, 404, "NotFound"),
    ("POST /api/v1/tasks/none/run", None, 404, "TaskNotFound"),
    ("POST /api/v1/tasks/none/step", {}, 404, "TaskNotFound"),
    ("POST /api/v1/rules/none:1/revoke", None, 404, "TaskNotFound"),
    ("GET /api/v1/tasks?size=0", None, 422, ""),
    ("GET /api/v1/tasks?status=asleep", None, 422, ""),
)


async def test_errors_are_problem_details(api: httpx.AsyncClient) -> None:
    for request_line, body, status, kind in ERRORS:
        answered = await api.request(*request_line.split(), json=body)
        assert answered.status_code == status, answered.text
        assert answered.headers["content-type"] == "application/problem+json"
        found = answered.json()
        assert found["status"] == status
        assert found["type"] == (f"urn:holdfast:error:{kind}" if kind else "about:blank")
        assert found["detail"]


async def test_without_a_worker_a_read_says_what_is_missing(
    rig: Rig, api: httpx.AsyncClient
) -> None:
    task_id = await created(api, "hello", step_mode="manual")
    await rig.stop()
    answered = await api.get(f"/api/v1/tasks/{task_id}")
    assert (answered.status_code, answered.json()["title"]) == (503, "Service Unavailable")
    assert answered.headers["retry-after"]


async def test_answers_hold_no_secrets(api: httpx.AsyncClient, runner: AgentRunner) -> None:
    task_id = await created(api, f"my key is {SECRET}")
    await until_status(runner, task_id, "answered")
    for path in ("", "/transcript", "/audit", "/steps", "/events?until=answered"):
        answered = await api.get(f"/api/v1/tasks/{task_id}{path}")
        assert answered.status_code == 200
        assert SECRET not in answered.text
        assert "my key is" in answered.text or path == "/audit"


async def test_the_description_of_the_api_has_models_and_problems(api: httpx.AsyncClient) -> None:
    found = (await api.get("/api/v1/openapi.json")).json()
    create = found["paths"]["/api/v1/tasks"]["post"]
    assert create["requestBody"]["content"]["application/json"]["schema"]["$ref"].endswith(
        "NewTask"
    )
    assert create["responses"]["201"]["content"]["application/json"]["schema"]["$ref"]
    assert [*create["responses"]["409"]["content"]] == ["application/problem+json"]
    streams = found["paths"]["/api/v1/tasks/{task_id}/events"]["get"]["responses"]["200"]
    assert [*streams["content"]] == ["text/event-stream"]
    for path, methods in found["paths"].items():
        for method, facts in methods.items():
            assert facts.get("description"), (path, method)
            good = next(facts["responses"][each] for each in facts["responses"] if each < "300")
            [content] = good["content"].values()
            assert content["schema"], (path, method)  # every answer has a type


def _events(text: str) -> list[dict[str, str]]:
    """Read server-sent events; comments and the `retry` line are left out."""
    found: list[dict[str, str]] = []
    for block in text.split("\n\n"):
        lines = [line.partition(": ") for line in block.splitlines() if not line.startswith(":")]
        fields = {name: value for name, _, value in lines}
        if "event" in fields:
            found.append({"id": fields.get("id", ""), **fields})
    return found
