"""The desk refuses who is unknown, who may not, what is foreign, and what is too much."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from holdfast import AgentRunner
from holdfast.desk import Identity, Limits, Proxy, desk_app
from tests.support.desk_api import ELSEWHERE, client_of, guarded
from tests.support.rig import MakeAgent, Rig, until_status

PAGES = ("/", "/tasks", "/tasks/t1", "/compare", "/sessions", "/workers")
TRICKS = (
    "../../etc/passwd",
    "..%2f..%2fetc",
    "%00",
    "a%0d%0aSet-Cookie:x=1",
    "t'--",
    "%F0%9F%92%A9",
)


@pytest.fixture
async def runner(rig: Rig, make_agent: MakeAgent) -> AgentRunner:
    await rig.serve(make_agent())
    return rig.runner()


IDS = {"task_id": "t1", "approval_id": "t1:1", "rule_id": "t1:1", "name": "s", "step_id": "s1"}


def routes(app: FastAPI) -> list[tuple[str, str]]:
    """List method and path of each route of the API and of each page."""
    found = [
        (
            method.upper(),
            path.format(task_id="t1", approval_id="t1:1", name="s", step_id="s1", rule_id="t1:1"),
        )
        for path, methods in app.openapi()["paths"].items()
        for method in methods
    ]
    more = [("GET", "/api/v1/openapi.json"), ("POST", "/logout"), ("GET", "/api/x")]
    return [*found, *more, *(("GET", page) for page in PAGES)]


async def test_nothing_is_served_without_an_identity(runner: AgentRunner, tmp_path: Path) -> None:
    app, _ = guarded(runner, tmp_path)
    tried = routes(app)
    assert len(tried) > len(PAGES) + 30
    for headers in ({}, {"authorization": "Bearer hfd_wrong"}, {"cookie": "holdfast_desk=wrong"}):
        async with client_of(app, headers=headers) as client:
            for method, path in tried:
                answered = await client.request(method, path)
                assert answered.status_code == 401, (method, path, answered.text)
                assert answered.headers["www-authenticate"] == "Bearer"
    async with client_of(app, headers={"accept": "text/html"}) as client:
        for page in PAGES:
            answered = await client.get(page)
            assert (answered.status_code, answered.headers["location"]) == (
                303,
                f"/login?next={page}",
            )


async def test_each_verb_needs_its_role(runner: AgentRunner, tmp_path: Path) -> None:
    app, tokens = guarded(runner, tmp_path)
    task = await runner.create_task("hello")
    at = f"/api/v1/tasks/{task.task_id}"
    operating: list[tuple[str, str, Any]] = [
        ("POST", "/api/v1/tasks", {"input": "x"}),
        ("POST", f"{at}/run", None),
        ("POST", f"{at}/finalize", None),
        ("POST", f"{at}/feedback", {"text": "x"}),
        ("POST", f"{at}/pause", {}),
        ("POST", f"{at}/resume", None),
        ("POST", f"{at}/abandon", {"reason": "x"}),
        ("PUT", f"{at}/steps/s1", {"input": "x"}),
        ("DELETE", f"{at}/steps/s1", None),
        ("POST", f"{at}/undo", {}),
        ("POST", f"{at}/rewind", {"to": "s1"}),
        ("POST", f"{at}/fork", {"at": "s1"}),
    ]
    on = f"/api/v1/approvals/{task.task_id}:1"
    deciding: list[tuple[str, str, Any]] = [
        ("POST", f"{on}/approve", {}),
        ("POST", f"{on}/edit", {"arguments": {}}),
        ("POST", f"{on}/reject", {"reason": "x"}),
        ("POST", f"{on}/respond", {"result": 1}),
        ("POST", f"/api/v1/rules/{task.task_id}:1/revoke", None),
    ]
    forbidden = {"vic": [*operating, *deciding], "ole": deciding, "ada": operating}
    for name, verbs in forbidden.items():
        async with client_of(app, token=tokens[name]) as client:
            assert (await client.get(at)).status_code == 200
            for method, path, body in verbs:
                answered = await client.request(method, path, json=body)
                assert (answered.status_code, answered.json()["type"]) == (
                    403,
                    "urn:holdfast:error:NotAllowed",
                ), (name, path)
    assert (await runner.get_task(task)).status == "running"
    async with client_of(app, token=tokens["ole"]) as client:
        assert (await client.post(f"{at}/pause", json={})).status_code == 200
    assert "ole" in (await runner.get_task(task)).paused


async def test_a_rule_of_the_application_decides_beside_the_roles(
    runner: AgentRunner, tmp_path: Path
) -> None:
    asked: list[tuple[str, str, str]] = []

    async def may(identity: Identity, verb: str, subject: str) -> bool:
        asked.append((identity.name, verb, subject))
        return verb == "read"

    app, tokens = guarded(runner, tmp_path, may=may)
    async with client_of(app, token=tokens["ole"]) as client:
        refused = await client.post("/api/v1/tasks/t1/pause", json={})
    assert refused.status_code == 403
    assert asked == [("ole", "read", ""), ("ole", "pause", "t1")]


@pytest.mark.parametrize("where", ["body", "query", "header"])
async def test_nobody_acts_in_another_name(runner: AgentRunner, tmp_path: Path, where: str) -> None:
    app, tokens = guarded(runner, tmp_path)
    task = await runner.create_task("hello")
    at = f"/api/v1/tasks/{task.task_id}/pause"
    async with client_of(app, token=tokens["ole"]) as client:
        if where == "body":
            refused = await client.post(at, json={"reason": "x", "by": "root"})
            assert (refused.status_code, refused.json()["errors"][0]["at"]) == (422, "body.by")
            return
        if where == "query":
            await client.post(at, json={}, params={"by": "root"})
        else:
            await client.post(at, json={}, headers={"X-Forwarded-User": "root", "by": "root"})
    assert (await runner.get_task(task)).paused.startswith("ole")


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:9999"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
async def test_pages_of_other_sites_cannot_act(
    runner: AgentRunner, headers: dict[str, str]
) -> None:
    async with client_of(desk_app(runner)) as client:
        answered = await client.post("/api/v1/tasks", json={"input": "x"}, headers=headers)
        assert (answered.status_code, answered.json()["type"]) == (
            403,
            "urn:holdfast:error:CrossSite",
        )
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


@pytest.mark.parametrize(
    ("peer", "host", "headers"),
    [
        (ELSEWHERE, "localhost", {}),
        (("127.0.0.1", 1), "evil.example", {}),
        (("127.0.0.1", 1), "127.0.0.1.evil.example", {}),
        (("127.0.0.1", 1), "localhost", {"x-forwarded-for": "192.0.2.7"}),
        (("127.0.0.1", 1), "localhost", {"forwarded": "for=192.0.2.7"}),
    ],
)
async def test_a_desk_without_settings_serves_only_its_own_machine(
    runner: AgentRunner, peer: tuple[str, int], host: str, headers: dict[str, str]
) -> None:
    async with client_of(desk_app(runner), peer=peer, host=host, headers=headers) as client:
        for path in ("/api/v1/me", "/", "/login"):
            answered = await client.get(path)
            assert (answered.status_code, answered.json()["status"]) == (401, 401)


@pytest.mark.parametrize("is_declared", [True, False])
async def test_a_large_body_is_refused(runner: AgentRunner, *, is_declared: bool) -> None:
    size, piece = 10 * 1024 * 1024, b"x" * 65_536
    read = 0

    async def pieces() -> Any:
        nonlocal read
        for _ in range(size // len(piece)):
            read += len(piece)
            yield piece

    content: Any = b"x" * size if is_declared else pieces()
    async with client_of(desk_app(runner)) as client:
        answered = await client.post(
            "/api/v1/tasks", content=content, headers={"content-type": "application/json"}
        )
    assert (answered.status_code, answered.json()["status"]) == (413, 413)


async def test_too_many_writes_are_refused_and_reads_are_not(runner: AgentRunner) -> None:
    app = desk_app(runner, limits=Limits(writes_per_second=0.001, burst=3))
    async with client_of(app) as client:
        found = [(await client.post("/api/v1/tasks", json={})).status_code for _ in range(5)]
        assert found == [422, 422, 422, 429, 429]
        answered = await client.post("/api/v1/tasks", json={})
        assert int(answered.headers["retry-after"]) > 0
        assert (await client.get("/api/v1/me")).status_code == 200


async def test_tokens_cannot_be_guessed_by_trying(runner: AgentRunner, tmp_path: Path) -> None:
    app, _ = guarded(runner, tmp_path, limits=Limits(writes_per_second=0.001, burst=3))
    async with client_of(app, peer=ELSEWHERE, host="desk.example") as client:
        found = [
            (await client.post("/login", content=f"token=hfd_{i}")).status_code for i in range(5)
        ]
    assert found == [401, 401, 401, 429, 429]


@pytest.mark.parametrize("trick", TRICKS)
async def test_tricks_in_ids_lead_nowhere(runner: AgentRunner, trick: str) -> None:
    async with client_of(desk_app(runner)) as client:
        for path in (
            f"tasks/{trick}",
            f"tasks/{trick}/audit",
            f"approvals/{trick}",
            f"sessions/{trick}",
        ):
            answered = await client.get(f"/api/v1/{path}")
            assert answered.status_code in (404, 422), (path, answered.text)
            assert answered.headers["content-type"] == "application/problem+json"
            assert "set-cookie" not in answered.headers


async def test_answers_cannot_be_framed_sniffed_or_cached(runner: AgentRunner) -> None:
    async with client_of(desk_app(runner)) as client:
        for path, policy in (("/api/v1/me", "default-src 'none';"), ("/", "default-src 'self';")):
            headers = (await client.get(path)).headers
            assert headers["content-security-policy"].startswith(policy)
            assert headers["x-frame-options"] == "DENY"
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["cache-control"] == "no-store"
            assert "frame-ancestors 'none'" in headers["content-security-policy"]


async def test_a_token_signs_in_a_browser_until_it_is_revoked(
    runner: AgentRunner, tmp_path: Path
) -> None:
    app, tokens = guarded(runner, tmp_path)
    async with client_of(app, peer=ELSEWHERE, host="desk.example") as client:
        assert (await client.get("/login?next=//evil.example")).status_code == 200
        wrong = await client.post("/login", content="token=hfd_wrong")
        assert (wrong.status_code, "set-cookie" in wrong.headers) == (401, False)
        body = f"token={tokens['ada']}&next=//evil.example"
        signed = await client.post("/login", content=body)
        assert (signed.status_code, signed.headers["location"]) == (303, "/")
        cookie = signed.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert (await client.get("/api/v1/me")).json()["name"] == "ada"
        app.state.tokens.revoke("ada")
        assert (await client.get("/api/v1/me")).status_code == 401
    kept = (tmp_path / "tokens.json").read_text(encoding="utf-8")
    assert all(token not in kept for token in tokens.values())
    assert (tmp_path / "tokens.json").stat().st_mode & 0o077 == 0


async def test_a_proxy_is_believed_with_its_secret_alone(runner: AgentRunner) -> None:
    proxy = Proxy(secret="a-shared-secret-0123", roles_header="X-Roles")
    app = desk_app(runner, proxy=proxy)
    known = {"x-forwarded-user": "anna", "x-roles": "approver, operator"}
    async with client_of(app, headers=known) as client:
        assert (await client.get("/api/v1/me")).status_code == 401
    async with client_of(app, headers={**known, "x-desk-secret": "a-shared-secret-0124"}) as client:
        assert (await client.get("/api/v1/me")).status_code == 401
    async with client_of(app, headers={**known, "x-desk-secret": "a-shared-secret-0123"}) as client:
        found = (await client.get("/api/v1/me")).json()
        assert found == {"name": "anna", "roles": ["approver", "operator"], "source": "proxy"}
        odd = await client.get("/api/v1/me", headers={"x-roles": "king"})
        assert odd.status_code == 401


async def test_a_mounted_desk_keeps_its_rules(runner: AgentRunner, tmp_path: Path) -> None:
    app, tokens = guarded(runner, tmp_path)
    outer = FastAPI()
    outer.mount("/desk", app)
    async with client_of(outer) as client:
        assert (await client.get("/desk/api/v1/me")).status_code == 401
        page = await client.get("/desk/tasks", headers={"accept": "text/html"})
        assert page.headers["location"] == "/desk/login?next=/tasks"
    async with client_of(outer, token=tokens["ole"]) as client:
        assert (await client.get("/desk/api/v1/me")).json()["name"] == "ole"
        made = await client.post("/desk/api/v1/tasks", json={"input": "x", "step_mode": "manual"})
        assert made.status_code == 201
    await until_status(runner, made.json()["task_id"], "running")


def test_httpx_sends_what_the_tests_say() -> None:
    assert httpx.Request("GET", "http://x/..%2f").url.raw_path == b"/..%2f"
