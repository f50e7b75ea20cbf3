"""The desk's HTTP API over a real server and the fake model API."""

import asyncio
import dataclasses
import json
import time
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import httpx
import pytest

from holdfast import Agent, AgentRunner, ApprovalRule, Task, ToolCall, tool
from holdfast.client.agent_runner import approvals
from holdfast.desk import Tokens, desk_app
from holdfast.desk.identity.tenants import runner_of
from holdfast.desk.pages.feed import Feed
from holdfast.engine import cluster
from holdfast.errors import InvalidArgumentError
from holdfast.reading import queries
from holdfast.testing import FakeOpenAI, FakeRequest, Reply, ScriptedModel, calls, reply
from tests.support.desk import serve_desk
from tests.support.desk_api import client_of
from tests.support.rig import Rig, finish_a_task, run_a_task, until, until_status

SECRET = "sk-proj-0123456789abcdefghijklmnop"
EXISTS = "urn:holdfast:error:TaskExists"


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
async def runner(rig: Rig) -> AgentRunner:
    return await rig.make(pay)


@pytest.fixture
async def api(runner: AgentRunner) -> AsyncGenerator[httpx.AsyncClient]:
    async with client_of(desk_app(runner)) as client:
        yield client


async def test_a_card_knows_its_tool_while_no_worker_process_is_up(
    rig: Rig, runner: AgentRunner, api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = await run_a_task(runner, "pay kim 9")
    await rig.stop()
    monkeypatch.setattr("holdfast.desk.pages.feed.PATIENCE_SECONDS", 0.2)
    context = await Feed(runner).context(task.task_id)
    assert context.snapshot is not None
    [spec] = context.snapshot.tools
    assert spec.parameters["properties"]["euros"]["type"] == "integer"
    monkeypatch.setattr("holdfast.desk.api.reads.RUN_SECONDS", 0.2)
    card = await api.get(f"/api/v1/approvals/{task.task_id}:1")
    assert (card.status_code, card.json()["approval"]["tool"]) == (200, "pay")


async def test_charts_read_an_open_task_again_and_a_closed_one_once(
    runner: AgentRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = runner_of(runner, uuid4().hex)  # tasks of other tests change meanwhile
    read: Counter[str] = Counter()
    ledger = runner.reader.ledger

    async def counted(task_id: str, **options: Any) -> Any:
        read[task_id] += 1
        return await ledger(task_id, **options)

    monkeypatch.setattr(runner.reader, "ledger", counted)
    monkeypatch.setattr("holdfast.desk.pages.feed.REST", 0)
    monkeypatch.setattr("holdfast.desk.pages.feed.DETAIL_SECONDS", 0.5)  # of tasks without a worker
    feed = Feed(runner)
    opened, closed = [await runner.create_task(f"pay {name} 1") for name in ("kim", "ann")]

    async def again(task: Task) -> None:
        """Read the charts until a task was read twice more."""
        most = read[task.task_id] + 2

        async def is_read() -> bool:
            await feed.charts("day")
            return read[task.task_id] >= most

        await until(is_read)

    for task in (opened, closed):
        await runner.run_task(task)
        await again(task)
    await runner.approve(f"{closed.task_id}:1", by="ann")
    await until_status(runner, closed, "answered")
    await runner.finalize_response(closed)

    async def is_whole() -> bool:  # also what the model said just before the end
        # First: a task that is listed as open is read once more when it is listed as closed.
        is_listed = closed.task_id in {t.task_id for t in await runner.list_tasks("finished")}
        shown, fresh = await feed.charts("day"), await Feed(runner).charts("day")
        return is_listed and [each.words for each in shown] == [each.words for each in fresh]

    await until(is_whole)
    often = read[closed.task_id]
    await again(opened)
    assert read[closed.task_id] == often


async def got(api: httpx.AsyncClient, path: str, **params: Any) -> Any:
    """Return what an address gives."""
    answered = await api.get(f"/api/v1/{path}", params=params)
    assert answered.status_code == 200, answered.text
    return answered.json()


async def done(api: httpx.AsyncClient, path: str, key: str = "", **body: Any) -> Any:
    """Return the receipt of a change."""
    headers = {"Idempotency-Key": key} if key else {}
    answered = await api.post(f"/api/v1/{path}", json=body, headers=headers)
    assert answered.is_success, answered.text
    return answered.json()


async def created(api: httpx.AsyncClient, wish: str, **more: Any) -> str:
    """Create a task, and return its id."""
    made = await done(api, "tasks", input=wish, **more)
    assert made["created"] > 0
    return str(made["task_id"])


async def asking(api: httpx.AsyncClient, task_id: str) -> tuple[str, str]:
    """Wait until a task has asked for an approval; return its address and its digest."""
    [found] = await until(lambda: got(api, f"tasks/{task_id}/approvals"))
    return f"approvals/{found['id']}", found["digest"]


async def test_arguments_are_edited_by_who_asks_and_all_of_it_can_be_read(
    api: httpx.AsyncClient, runner: AgentRunner
) -> None:
    me = (await got(api, "me"))["name"]
    task_id = await created(api, f"pay bo 30 {SECRET}", session="trip")
    at, (approval, _) = f"tasks/{task_id}", await asking(api, task_id)
    card = await got(api, approval)
    assert (card["title"], card["why"]) == ("pay", "I pay now.")
    fewer = {"to": "bo", "euros": 3}
    edited = await done(api, f"{approval}/edit", arguments=fewer, note="too much")
    assert edited["verb"] == "approve"
    await until_status(runner, task_id, "answered")
    steps = await got(api, f"{at}/steps")
    assert (len(steps["completed"]), steps["upcoming"]) == (2, [])
    [effect] = await got(api, f"{at}/effects")
    assert (effect["tool"], effect["by"], effect["edited"]) == ("pay", me, True)
    made = await got(api, f"{at}/calls")
    assert [each["kind"] for each in made] == ["model_call", "tool_call", "model_call"]
    assert "3 euros were paid to bo" in (await api.get(f"/api/v1/{at}/transcript")).text
    assert (await got(api, f"{at}/usage"))["total"]["requests"] == 2
    lines = (await api.get(f"/api/v1/{at}/audit")).text.splitlines()
    assert any(json.loads(line).get("approver") == me for line in lines)
    assert (await got(api, f"{at}/verify"))["intact"]
    assert len(await got(api, f"{at}/branches")) == 1
    assert (await got(api, f"{at}/timeline"))["lanes"]
    for path in ("", "/transcript", "/audit", "/steps", "/events?until=answered"):
        assert SECRET not in (await api.get(f"/api/v1/{at}{path}")).text
    assert (await done(api, f"{at}/finalize"))["response"].startswith("Done: pay bo 30")
    assert (await got(api, "sessions/trip"))["tasks"] == [task_id]
    assert (await got(api, at))["status"] == "finished"


async def test_who_may_decide_uncovers_what_looks_like_a_secret_and_it_is_recorded(
    api: httpx.AsyncClient, runner: AgentRunner
) -> None:
    account = "sk-1MalloryTheAttackersAccount9000"
    task_id = await created(api, f"pay {account} 30")
    approval, _ = await asking(api, task_id)
    card = await got(api, approval)
    assert "[hidden: 34 characters, sha256 6c5ece62ebcfb7cd]" in card["approval"]["arguments"]
    assert "A part of the call is hidden." in card["buttons"][0]["warning"]
    assert account not in json.dumps(card)
    assert json.loads((await done(api, f"{approval}/uncover"))["arguments"])["to"] == account
    me = (await got(api, "me"))["name"]
    shown = [e for e in await runner.audit(task_id) if e.verb == "uncover"]
    assert [(e.actor, e.approval, e.decision) for e in shown] == [(me, f"{task_id}:1", "")]


async def test_groups_of_a_token_decide_and_a_card_says_who_may_not(
    runner: AgentRunner, rig: Rig, tmp_path: Path
) -> None:
    rule = ApprovalRule(by="role:finance", not_asker=True)
    await rig.serve(rig.agent(dataclasses.replace(pay, needs_approval=rule)))
    tokens = Tokens(tmp_path / "tokens.json")
    roles = {"anna": ["finance"], "ole": ["operator", "finance"], "eve": []}
    made = {name: tokens.make(name, ["approver", *more]) for name, more in roles.items()}
    app = desk_app(runner, tokens=tokens)

    async def is_mine(api: httpx.AsyncClient) -> bool:
        found = await got(api, "approvals", mine=True)
        return approval in [f"approvals/{each['id']}" for each in found]

    async with (
        client_of(app, token=made["ole"]) as ole,
        client_of(app, token=made["eve"]) as eve,
        client_of(app, token=made["anna"]) as anna,
    ):
        approval, digest = await asking(ole, await created(ole, "pay kim 9"))
        for who, why in ((ole, "ole created the task"), (eve, "these may: role:finance")):
            card = await got(who, approval)
            assert all(why in each["barred"] for each in card["buttons"])
            refused = await who.post(f"/api/v1/{approval}/approve", json={"digest": digest})
            assert why in refused.json()["detail"]
        await until(lambda: is_mine(anna))
        assert (await is_mine(ole), await is_mine(eve)) == (False, False)
        assert all(not each["barred"] for each in (await got(anna, approval))["buttons"])
        assert (await got(anna, "me"))["roles"] == ["approver", "finance"]
        await done(anna, f"{approval}/snooze", until=time.time() + 600)
        await done(anna, f"{approval}/approve", digest=digest)


async def test_a_new_task_without_an_agent_is_told_which_are_served(rig: Rig) -> None:
    await rig.serve(rig.agent(name="clerk"))
    await rig.runner("clerk").create_task("q")
    other = rig.runner("")
    async with client_of(desk_app(other)) as api:
        refused = await api.post("/api/v1/tasks", json={"input": "q"})
    assert refused.status_code == 422
    assert "'agent' is missing" in refused.text
    assert "clerk" in refused.text
    with pytest.raises(InvalidArgumentError, match="pass agent="):
        await other.create_task("q")


async def test_a_decision_for_later_calls_is_bounded_listed_and_revoked(
    api: httpx.AsyncClient, runner: AgentRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(approvals, "LISTED_SECONDS", 0.5)  # for what other tests have left
    task_id = await created(api, "pay bo 30")
    approval, digest = await asking(api, task_id)
    for body, status, why in (
        ({}, 422, ""),
        ({"digest": "0" * 64}, 409, ""),
        ({"always": {"same": ["whom"]}, "digest": digest}, 409, "whom"),
    ):
        refused = await api.post(f"/api/v1/{approval}/approve", json=body)
        assert refused.status_code == status, refused.text
        assert why in refused.text
    bounds = {"same": ["to"], "until": "2999-01-01T00:00:00+00:00"}
    await done(api, f"{approval}/approve", always=bounds, digest=digest)
    await until_status(runner, task_id, "answered")
    [rule] = await got(api, f"tasks/{task_id}/rules")
    assert (rule["values"], rule["until"] > 30e9) == ({"to": "bo"}, True)
    revoking = f"rules/{rule['id']}/revoke"
    assert (await done(api, revoking))["verb"] == "revoke"
    assert await got(api, f"tasks/{task_id}/rules") == []
    assert (await api.post(f"/api/v1/{revoking}")).status_code == 409

    approval, digest = await asking(api, await created(api, "pay bo 30", session="books"))
    bounds = {"same": ["to"], "scope": "session"}
    await done(api, f"{approval}/approve", always=bounds, digest=digest)

    async def listed() -> list[dict[str, Any]]:
        return [each for each in await got(api, "rules") if each["id"] in approval]

    [rule] = await until(listed)
    assert (rule["session"], rule["values"]) == ("books", {"to": "bo"})
    await until(runner.session("books").standing_rules)  # until then, the task has it
    revoking = f"/api/v1/rules/{rule['id']}/revoke"
    assert (await api.post(revoking)).status_code == 409  # the task has no such rule
    ended = await api.post(revoking, params={"session": "books"})
    assert (ended.status_code, ended.json()["status"]) == (200, "applied")
    assert await listed() == []


async def test_a_key_creates_forks_steps_and_undoes_once_and_another_input_is_refused(
    api: httpx.AsyncClient, runner: AgentRunner
) -> None:
    hello = {"input": "hello", "step_mode": "manual", "max_output_attempts": 5}
    [first] = {(await done(api, "tasks", "order 7", **hello))["task_id"] for _ in range(2)}
    assert (await runner.reader.head(first)).run.output_attempts == 5
    for other, status in (({"input": "bye"}, 409), ({"input": "hello", "task_id": "mine"}, 422)):
        headers = {"Idempotency-Key": "order 7"}
        refused = await api.post("/api/v1/tasks", json=other, headers=headers)
        assert (refused.status_code, refused.json()["type"] == EXISTS) == (status, status == 409)
    at = f"tasks/{first}"
    for key, more, steps in (("one", {}, 1), ("more", {"input": "thanks"}, 2)):
        for _ in range(2):
            stepped = await done(api, f"{at}/step", key, **more)
            assert (stepped["status"], stepped["steps"]) == ("answered", steps)
    forks = {(await done(api, f"{at}/fork", "f", at="s1"))["task_id"] for _ in range(2)}
    assert len(forks) == 1
    for _ in range(2):
        await done(api, f"{at}/undo", "u", reason="wrong")
    assert ((await got(api, at))["steps"], len(await got(api, f"{at}/branches"))) == (1, 2)


async def test_a_run_that_takes_long_goes_on_behind_its_answer(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
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
    runner = await rig.serving(rig.agent(wait, name="slow", model=script))
    async with client_of(desk_app(runner)) as api:
        task_id = await created(api, "wait", step_mode="manual")
        answered = await api.post(f"/api/v1/tasks/{task_id}/run")
        assert (answered.status_code, answered.json()["status"]) == (202, "running")
    await begun.wait()
    go_on.set()
    await until_status(runner, task_id, "answered")


async def test_a_task_is_paused_told_edited_and_given_up_and_without_a_worker_reads_say_so(
    api: httpx.AsyncClient, runner: AgentRunner, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    task_id = await created(api, "hello", step_mode="manual")
    at = f"tasks/{task_id}"
    body: dict[str, str]
    for verb, body in (
        ("pause", {"reason": "lunch"}),
        ("feedback", {"text": "be brief"}),
        ("resume", {"reason": "lunch is over"}),
    ):
        assert (await done(api, f"{at}/{verb}", **body))["verb"] == verb
    step = f"/api/v1/{at}/steps/s1"
    edited = await api.put(step, json={"input": "hello again", "reason": "too short"})
    assert edited.json()["verb"] == "edit_step"
    gone = await api.request("DELETE", step, json={"reason": "not needed"})
    assert gone.json()["verb"] == "drop_step"
    told = [e.reason for e in await runner.audit(task_id) if e.kind == "command"]
    assert told[-3:] == ["lunch is over", "too short", "not needed"]
    forced = await api.post(f"/api/v1/{at}/abandon", json={"reason": "late", "force": True})
    assert (forced.status_code, "without force" in forced.text) == (409, True)
    assert (await done(api, f"{at}/abandon", reason="late"))["verb"] == "abandon"
    assert (await api.post(f"/api/v1/{at}/abandon", json={"reason": "again"})).status_code == 409
    other = await created(api, "hello", step_mode="manual")
    await rig.stop()
    monkeypatch.setattr(queries, "FRESH_SECONDS", 0.0)
    monkeypatch.setattr(cluster, "POLLER_SECONDS", 0.0)
    answered = await api.get(f"/api/v1/tasks/{other}")
    assert (answered.status_code, answered.json()["title"]) == (503, "Service Unavailable")
    assert answered.headers["retry-after"]


async def test_a_task_is_found_by_its_encoded_id_also_where_that_ends_like_a_route(
    api: httpx.AsyncClient,
) -> None:
    ids = ("x", "x/steps", "x/steps/s2", "x/../y", "what?now#ü", "x%2Fsteps")
    paths = {each: quote(each, safe="") for each in ids} | {"x/y": "x/y"}  # ends like no route
    for task_id in paths:
        await created(api, f"of {task_id}", task_id=task_id, step_mode="manual")
    for task_id, path in paths.items():
        assert (await got(api, f"tasks/{path}"))["task_id"] == task_id
        [queued] = (await got(api, f"tasks/{path}/steps"))["upcoming"]
        assert (queued["task_id"], queued["input"]) == (task_id, f"of {task_id}")


async def test_lists_have_filters_and_pages(api: httpx.AsyncClient, runner: AgentRunner) -> None:
    ids = [await created(api, f"hello {i}", session="of the list") for i in range(3)]
    for each in ids:
        await until_status(runner, each, "answered")
    await done(api, f"tasks/{ids[0]}/finalize")

    async def listed() -> bool:
        tasks = (await got(api, "tasks", status="answered"))["tasks"]
        sessions = {each["name"] for each in await got(api, "sessions")}
        agents = {e["name"] for e in await got(api, "agents") if e["is_served"] and e["workers"]}
        is_there = {each["task_id"] for each in tasks} >= {*ids[1:]}
        return is_there and "of the list" in sessions and "agent" in agents

    await until(listed)
    page = await got(api, "tasks", size=2)
    assert (len(page["tasks"]), page["more"]) == (2, True)
    following = await got(api, "tasks", size=2, after=page["next"])
    second = await got(api, "tasks", size=2, page=2)
    assert [each["task_id"] for each in following["tasks"]] == [
        each["task_id"] for each in second["tasks"]
    ]
    refused = await api.get("/api/v1/tasks", params={"after": "nonsense"})
    assert refused.status_code == 422
    assert "is not a token of a list" in refused.text
    refused = await api.get("/api/v1/tasks", params={"page": 101})
    assert (refused.status_code, "Go on with `after`" in refused.text) == (422, True)
    first = await got(api, "tasks", q="hello", size=1)
    assert (first["more"], first["next"]) == (True, "")
    assert (await got(api, "tasks", q="hello", size=1, page=2))["tasks"] != first["tasks"]
    found = (await got(api, "tasks", q="hello 1"))["tasks"]
    assert {each["task_id"] for each in found} & {*ids} == {ids[1]}
    assert any(queue["workers"] for queue in await got(api, "workers"))


async def test_events_and_tokens_go_on_after_the_last_one_that_a_client_has(
    api: httpx.AsyncClient, runner: AgentRunner
) -> None:
    task_id = await created(api, "hello", streams=True)
    await until_status(runner, task_id, "answered")

    async def events(path: str, last: str = "") -> list[dict[str, str]]:
        headers = {"Last-Event-ID": last} if last else {}
        return _events((await api.get(f"/api/v1/tasks/{task_id}/{path}", headers=headers)).text)

    whole = await events("events?until=answered")
    assert [each["event"] for each in whole] == ["chat_start", "step_start", "step_end", "end"]
    assert await events("events?until=answered", whole[1]["id"]) == whole[2:]
    whole = await events("stream?until=waiting")
    items = [each for each in whole if each["event"] == "run_item_stream_event"]
    assert json.loads(items[-1]["data"])["name"] == "message_output_created"
    assert [e["event"] for e in await events("stream?until=waiting", items[-1]["id"])] == ["end"]


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
            [last] = _events("\n".join([line async for line in lines]))
    assert (last["event"], json.loads(last["data"])["status"]) == ("error", 401)


ERRORS: tuple[tuple[str, Any, int, str], ...] = (
    ("GET /api/v1/tasks/none/events", None, 404, "TaskNotFound"),
    ("GET /api/v1/approvals/none:1", None, 404, "TaskNotFound"),
    ("POST /api/v1/tasks", {"input": ""}, 422, "InvalidArgument"),
    ("POST /api/v1/tasks/none/abandon", {"reason": " \n"}, 422, ""),
    ("GET /api/v1/nothing", None, 404, ""),
    ("PATCH /api/v1/tasks", {}, 405, ""),
    ("GET /api/v1/sessions/none", None, 404, "NotFound"),
    ("GET /api/v1/tasks?status=asleep", None, 422, ""),
)


async def test_errors_are_problem_details(api: httpx.AsyncClient) -> None:
    for line, body, status, kind in ERRORS:
        answered = await api.request(*line.split(), json=body)
        found = answered.json()
        assert (answered.status_code, found["status"]) == (status, status), line
        assert answered.headers["content-type"] == "application/problem+json"
        assert found["type"] == (f"urn:holdfast:error:{kind}" if kind else "about:blank")
        assert found["detail"]
    odd = {"Last-Event-ID": "9" * 5000}
    assert (await api.get("/api/v1/tasks/none/events", headers=odd)).status_code == 422


def _events(text: str) -> list[dict[str, str]]:
    """Read server-sent events; comments and the `retry` line are left out."""
    found: list[dict[str, str]] = []
    for block in text.split("\n\n"):
        lines = [line.partition(": ") for line in block.splitlines() if not line.startswith(":")]
        fields = {name: value for name, _, value in lines}
        if "event" in fields:
            found.append({"id": fields.get("id", ""), **fields})
    return found


async def test_an_erasure_of_a_person_needs_leave_for_each_task(tmp_path: Path) -> None:
    tokens, clerk = Tokens(tmp_path / "tokens.json"), Agent(name="clerk", model="offline")
    # A server of its own: all tasks are looked at, and those of other tests may have no worker.
    async with AgentRunner.local(clerk, data_dir=None) as runner:
        task = await finish_a_task(runner, "hello", by="kim")
        app = desk_app(
            runner, tokens=tokens, may=lambda _, verb, of: verb != "erase" or of != task.task_id
        )
        async with client_of(app, token=tokens.make("cus", ["custodian"])) as client:
            body = {"person": "kim", "reason": "asked for", "sure": True}
            assert (await client.post("/api/v1/erasures", json=body)).status_code == 403
        assert (await runner.get_task(task)).status == "finished"


async def test_an_erasure_is_listed_before_it_is_made(rig: Rig, tmp_path: Path) -> None:
    runner = await rig.serving(rig.agent(name="clerk", model=ScriptedModel(["Done."])))
    task = await finish_a_task(runner, "hello")
    tokens = Tokens(tmp_path / "tokens.json")
    app = desk_app(runner, tokens=tokens)
    async with client_of(app, token=tokens.make("cus", ["custodian"])) as client:
        body: dict[str, Any] = {"task": task.task_id, "reason": "asked for"}
        listed = (await client.post("/api/v1/erasures", json=body)).json()
        assert (listed["erased"], listed["tasks"]) == (False, [task.task_id])
        assert (await runner.get_task(task)).status == "finished"
        done = (await client.post("/api/v1/erasures", json={**body, "sure": True})).json()
        assert (done["by"], done["tasks"]) == ("cus", [task.task_id])
        assert "was erased by cus" in (await client.get(f"/api/v1/tasks/{task.task_id}")).text
        held = await client.post(
            "/api/v1/erasures", json={"task": "t", "session": "s", "reason": "r"}
        )
        assert held.status_code == 422


async def test_a_message_to_a_session_in_which_a_task_runs_follows_its_mode(
    api: httpx.AsyncClient, runner: AgentRunner
) -> None:
    first = {"input": "pay kim 9", "session": "s", "on_busy": "queue"}
    holder = (await api.post("/api/v1/tasks", json=first)).json()["task_id"]
    await until_status(runner, holder, "waiting")
    later = {"input": "and then?", "session": "s"}
    refused = await api.post("/api/v1/tasks", json={**later, "on_busy": "refuse"})
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:holdfast:error:SessionBusy")
    assert holder in refused.json()["detail"]
    merged = await api.post("/api/v1/tasks", json={**later, "on_busy": "merge"})
    assert merged.json()["task_id"] == holder
    waits = (await api.post("/api/v1/tasks", json={**later, "on_busy": "queue"})).json()["task_id"]

    async def says_so() -> bool:
        found = (await api.get(f"/api/v1/tasks/{waits}")).json()
        return bool(found["waits"] == f"waits for task {holder!r} of session 's'")

    await until(says_so)
    new = {**later, "on_busy": "interrupt"}
    newest = (await api.post("/api/v1/tasks", json=new)).json()["task_id"]
    await until_status(runner, holder, "abandoned")
    await until_status(runner, waits, "answered")
    await runner.abandon(waits, "no", by="ann")
    await until_status(runner, newest, "answered")
