"""The desk refuses who is unknown, who may not, what is foreign, and what is too much."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from nicegui import app as pages
from starlette.routing import Mount
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from holdfast import AgentRunner
from holdfast.desk import Identity, Limits, Proxy, desk_app
from tests.support.desk_api import ELSEWHERE, client_of, guarded
from tests.support.rig import Rig


@pytest.fixture
async def runner(rig: Rig) -> AgentRunner:
    return await rig.make()


IDS = {"task_id": "t1", "approval_id": "t1:1", "rule_id": "t1:1", "name": "s", "step_id": "s1"}
IDS |= {"call_id": "t1:0.1.0.0:5ec4e7"}

BODIES: dict[str, Any] = {
    "create_task": {"input": "x", "step_mode": "manual"},
    "run": None,
    "step": {"input": "x"},
    "finalize": None,
    "feedback": {"text": "x"},
    "pause": {"reason": "x"},
    "resume": None,
    "abandon": {"reason": "x"},
    "edit_step": {"input": "x"},
    "drop_step": None,
    "undo": {"reason": "x"},
    "rewind": {"to": "s1"},
    "fork": {"at": "s1"},
    "revoke": None,
    "uncover": None,
    "approve": {"note": "x", "digest": ""},
    "edit": {"arguments": {}},
    "reject": {"reason": "x"},
    "respond": {"result": 1},
    "snooze": {"until": "2100-01-01T00:00:00Z"},
    "wake": None,
    "complete": {"result": "x"},
    "send_event": {"data": {"x": 1}},
    "erase": {"task": "t1", "reason": "x", "sure": True},
}
"""A body that fits for each route that acts; a new route needs one, and is tested by it."""


@dataclass(frozen=True)
class Known:
    """A method of a route.

    Attributes:
        method: The method.
        path: The path, with names in braces.
        name: Name of the function behind it.
    """

    method: str
    path: str
    name: str

    def at(self, **ids: str) -> str:
        """Return the path with ids in it."""
        return re.sub(
            r"{(\w+)(:path)?}", lambda found: {**IDS, **ids}.get(found[1], "x"), self.path
        )

    @property
    def is_write(self) -> bool:
        return self.method not in ("GET", "HEAD", "OPTIONS")


def routes(app: FastAPI) -> list[Known]:
    """List everything that a desk answers: its API, its pages, and what these load."""
    found: list[Known] = []
    for route in (*app.routes, *pages.routes):
        within: Any = getattr(route, "original_router", None)
        prefix: str = route.include_context.prefix if within is not None else ""  # type: ignore[attr-defined]
        inner: list[Any] = [route] if within is None else within.routes
        for each in inner:
            methods = getattr(each, "methods", None) or ()
            found += [Known(str(method), f"{prefix}{each.path}", each.name) for method in methods]
            if isinstance(each, Mount) and each.path:
                found.append(Known("GET", f"{each.path}/x", "mount"))
    return found


def acting(app: FastAPI) -> list[Known]:
    """List what the API can do, as it stands in its description, too."""
    found = [each for each in routes(app) if each.is_write and each.path.startswith("/api/v1/")]
    described = {
        (method.upper(), path)
        for path, methods in app.openapi()["paths"].items()
        for method in methods
        if method != "get"
    }
    assert {(each.method, each.path.replace(":path", "")) for each in found} == described
    assert {each.name for each in found} == set(BODIES)
    return found


OPEN = {("GET", "/login"), ("HEAD", "/login"), ("POST", "/login")}
PAGES = ("/", "/tasks", "/tasks/t1", "/compare", "/sessions", "/schedules", "/workers")


async def test_nothing_is_served_without_an_identity(runner: AgentRunner, tmp_path: Path) -> None:
    app, _ = guarded(runner, tmp_path)
    tried = {(each.method, each.at()) for each in routes(app)} - OPEN
    assert {path for _, path in tried} >= {*PAGES, "/api/v1/me", "/api/v1/openapi.json", "/api/x"}
    assert any(path.startswith("/_nicegui") for _, path in tried)
    for headers in ({}, {"authorization": "Bearer hfd_wrong"}, {"cookie": "holdfast_desk=wrong"}):
        async with client_of(app, headers=headers) as client:
            for method, path in sorted(tried):
                answered = await client.request(method, path)
                assert answered.status_code == 401, (method, path, answered.text)
                assert answered.headers["www-authenticate"] == "Bearer"
    async with client_of(app, headers={"accept": "text/html"}) as client:
        for page in PAGES:
            answered = await client.get(f"{page}?card=t1:1")
            assert answered.status_code == 303
            assert answered.headers["location"] == f"/login?next={page}%3Fcard%3Dt1%3A1"


async def test_each_verb_needs_its_role(runner: AgentRunner, tmp_path: Path) -> None:
    app, tokens = guarded(runner, tmp_path)
    task = await runner.create_task("hello")
    ids = {"task_id": task.task_id, "approval_id": f"{task.task_id}:1"}
    allowed: dict[str, set[str]] = {name: set() for name in tokens}
    for name, token in tokens.items():
        async with client_of(app, token=token) as client:
            assert (await client.get(f"/api/v1/tasks/{task.task_id}")).status_code == 200
            for each in acting(app):
                at = each.at() if name != "vic" else each.at(**ids)  # else of a task that is none
                answered = await client.request(each.method, at, json=BODIES[each.name])
                if answered.status_code != 403:
                    allowed[name].add(each.name)
                else:
                    assert answered.json()["type"] == "urn:holdfast:error:NotAllowed"
    deciding = {"approve", "edit", "reject", "respond", "snooze", "uncover", "revoke"}
    steering = set(BODIES) - deciding - {"erase"}
    assert allowed == {"vic": set(), "ole": steering, "ada": deciding, "cus": {"erase"}}
    assert (await runner.get_task(task)).status == "running"
    asked: list[tuple[str, str, str]] = []

    async def may(identity: Identity, verb: str, subject: str) -> bool:
        asked.append((identity.name, verb, subject))
        return verb == "read"

    app, tokens = guarded(runner, tmp_path / "ruled", may=may)
    async with client_of(app, token=tokens["ole"]) as client:
        refused = await client.post("/api/v1/tasks/t1/pause", json={})
    assert (refused.status_code, asked) == (403, [("ole", "read", ""), ("ole", "pause", "t1")])


@pytest.mark.parametrize(("on_busy", "verb"), [("interrupt", "abandon"), ("merge", "feedback")])
async def test_a_new_task_does_to_another_one_only_what_its_creator_may(
    runner: AgentRunner, tmp_path: Path, on_busy: str, verb: str
) -> None:
    def may(_: Identity, asked: str, of: str) -> bool:
        return (asked, of) != (verb, "s")

    app, tokens = guarded(runner, tmp_path, may=may)
    body = {"input": "q", "agent": "agent", "session": "s", "on_busy": on_busy}
    async with client_of(app, token=tokens["ole"]) as client:
        assert (await client.post("/api/v1/tasks", json=body)).status_code == 403


async def test_a_rule_of_the_application_tells_a_decision_from_one_for_later_calls(
    runner: AgentRunner, tmp_path: Path
) -> None:
    def may(_: Identity, verb: str, __: str) -> bool:
        return not verb.endswith("_always")

    app, tokens = guarded(runner, tmp_path, may=may)
    bodies = {"approve": {"digest": ""}, "reject": {"reason": "no"}}
    async with client_of(app, token=tokens["ada"]) as client:
        for verb, body in bodies.items():
            on = f"/api/v1/approvals/t1:1/{verb}"
            for always in (True, {"same": ["to"]}):
                assert (await client.post(on, json={**body, "always": always})).status_code == 403
            assert (await client.post(on, json=body)).status_code == 404


async def test_nobody_acts_in_another_name(runner: AgentRunner, tmp_path: Path) -> None:
    app, tokens = guarded(runner, tmp_path)
    task = await runner.create_task("hello")
    async with client_of(app, token=tokens["ole"]) as client:
        named = {"X-Forwarded-User": "root", "by": "root"}
        at = f"/api/v1/tasks/{task.task_id}/pause"
        await client.post(at, json={}, params={"by": "root"}, headers=named)
    assert (await runner.get_task(task)).paused.startswith("ole")
    for each in acting(app):
        if BODIES[each.name] is None:
            continue
        token = tokens["ole"] if each.path.startswith("/api/v1/tasks") else tokens["ada"]
        async with client_of(app, token=token) as client:
            body = {**BODIES[each.name], "by": "root"}
            refused = await client.request(each.method, each.at(), json=body)
            assert refused.status_code == 422, each
            assert refused.json()["errors"][0]["at"] == "body.by"


async def test_pages_of_other_sites_cannot_act(runner: AgentRunner) -> None:
    app = desk_app(runner)
    async with client_of(app) as client:
        for headers in (
            {"origin": "https://evil.example"},
            {"origin": "null"},
            {"origin": "http://localhost:9999"},
            {"sec-fetch-site": "cross-site"},
            {"sec-fetch-site": "same-site"},
        ):
            for each in (each for each in routes(app) if each.is_write):
                answered = await client.request(each.method, each.at(), headers=headers)
                kind = answered.json()["type"]
                assert (answered.status_code, kind) == (403, "urn:holdfast:error:CrossSite"), each
        own = {"origin": "http://localhost:8400", "sec-fetch-site": "same-origin"}
        answered = await client.post("/api/v1/tasks", json={"input": ""}, headers=own)
        assert answered.status_code == 422  # it came through


def test_a_socket_of_another_site_is_not_opened(runner: AgentRunner) -> None:
    app = desk_app(runner)
    client = TestClient(app, base_url="http://localhost:8400", client=("127.0.0.1", 1))
    with (
        pytest.raises(WebSocketDisconnect) as refused,
        client.websocket_connect("/_nicegui_ws/socket.io/", headers={"origin": "http://evil"}),
    ):
        pass
    assert refused.value.code == 1008


async def test_a_desk_without_settings_serves_only_its_own_machine(runner: AgentRunner) -> None:
    app, here = desk_app(runner), ("127.0.0.1", 1)
    for peer, host, headers in (
        (ELSEWHERE, "localhost", dict[str, str]()),
        (here, "evil.example", {}),
        (here, "127.0.0.1.evil.example", {}),
        (here, "localhost", {"x-forwarded-for": "192.0.2.7"}),
        (here, "localhost", {"forwarded": "for=192.0.2.7"}),
    ):
        async with client_of(app, peer=peer, host=host, headers=headers) as client:
            for path in ("/api/v1/me", "/", "/login"):
                answered = await client.get(path)
                assert (answered.status_code, answered.json()["status"]) == (401, 401)


async def test_a_large_body_is_refused(runner: AgentRunner) -> None:
    size, piece = 2 * 1024 * 1024, b"x" * 65_536

    async def pieces() -> Any:
        for _ in range(size // len(piece)):
            yield piece

    headers = {"content-type": "application/json"}
    app = desk_app(runner, limits=Limits(burst=1_000))
    async with client_of(app) as client:
        for each in (each for each in routes(app) if each.is_write):
            contents: list[Any] = [b"x" * size, *([pieces()] if BODIES.get(each.name) else ())]
            for content in contents:
                answered = await client.request(
                    each.method, each.at(), content=content, headers=headers
                )
                assert (answered.status_code, answered.json()["status"]) == (413, 413), each


async def test_too_many_writes_or_reads_are_refused(runner: AgentRunner) -> None:
    few = Limits(writes_per_second=0.001, burst=3, reads_per_second=0.2)
    async with client_of(desk_app(runner, limits=few)) as client:
        found = [(await client.post("/api/v1/tasks", json={})).status_code for _ in range(5)]
        assert found == [422, 422, 422, 429, 429]
        assert int((await client.post("/api/v1/tasks", json={})).headers["retry-after"]) > 0
        found = [(await client.get("/api/v1/me")).status_code for _ in range(4)]
        assert found == [200, 200, 429, 429]


async def test_answers_cannot_be_framed_sniffed_or_cached(runner: AgentRunner) -> None:
    async with client_of(desk_app(runner)) as client:
        for path, policy in (("/api/v1/me", "default-src 'none';"), ("/", "default-src 'self';")):
            headers = (await client.get(path)).headers
            assert headers["content-security-policy"].startswith(policy)
            assert headers["x-frame-options"] == "DENY"
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["cache-control"] == "no-store"
            assert "frame-ancestors 'none'" in headers["content-security-policy"]


async def test_a_proxy_is_believed_with_its_secret_alone(runner: AgentRunner) -> None:
    proxy = Proxy(secret="a-shared-secret-0123", roles_header="X-Roles", tenant_header="X-Tenant")
    app = desk_app(runner, proxy=proxy)
    known = {"x-forwarded-user": "anna", "x-roles": "approver, operator", "x-tenant": "a"}
    async with client_of(app, headers=known) as client:
        assert (await client.get("/api/v1/me")).status_code == 401
    async with client_of(app, headers={**known, "x-desk-secret": "a-shared-secret-0124"}) as client:
        assert (await client.get("/api/v1/me")).status_code == 401
    async with client_of(app, headers={**known, "x-desk-secret": "a-shared-secret-0123"}) as client:
        found = (await client.get("/api/v1/me")).json()
        assert found == {
            "name": "anna",
            "roles": ["approver", "operator"],
            "source": "proxy",
            "tenant": "a",
        }
        for odd in ({"x-roles": "king"}, {"x-tenant": ""}, {"x-tenant": "a' OR '' = '"}):
            assert (await client.get("/api/v1/me", headers=odd)).status_code == 401
        assert (await client.get("/api/v1/me", headers={"x-tenant": "*"})).json()["tenant"] == ""
