"""Who gets into a desk: tokens, the sessions that they begin, and the token of the local user."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from holdfast import Agent, AgentRunner
from holdfast.desk import Identity, Limits, Tokens, desk_app, desk_url
from holdfast.desk.identity.guard import Guard
from holdfast.desk.identity.protection import VISITOR, Protection, Rates
from holdfast.desk.identity.tokens import LocalTokens
from holdfast.errors import InvalidArgumentError
from tests.support.desk_api import ELSEWHERE, client_of

HTTPS = {"x-forwarded-proto": "https"}
DOORS = ("/api/v1/me", "/api/v1/tasks", "/api/v1/tasks/t/events", "/api/v1/tasks/t/stream", "/x")


@pytest.fixture
def runner(tmp_path: Path) -> AgentRunner:
    """Read no task: what is tested happens before."""
    return AgentRunner.local(Agent(name="a", model="offline"), data_dir=tmp_path / "data")


@pytest.fixture
def tokens(tmp_path: Path) -> Tokens:
    return Tokens(tmp_path / "t.json")


async def test_a_local_desk_serves_who_can_read_its_users_token_and_no_other_user_or_proxy(
    runner: AgentRunner, tmp_path: Path
) -> None:
    app = desk_app(runner)
    # What another user sends, and what a proxy without settings passes on, is the same: a request
    # from and to this machine that has no token.
    async with client_of(app, token="") as client:
        for door in DOORS:
            assert (await client.get(door)).status_code == 401, door
        page = await client.get("/?card=t:1", headers={"accept": "text/html"})
        assert (page.status_code, page.headers["location"]) == (303, "/login?next=/%3Fcard%3Dt%3A1")
        file = tmp_path / "data" / "desk-local-token"
        assert str(file) in (await client.get("/login")).text
    token = file.read_text(encoding="utf-8").strip()
    assert desk_url(app, "http://x/desk/") == f"http://x/desk/login#token={token}"
    async with client_of(app, token=token) as client:
        me = (await client.get("/api/v1/me")).json()
        assert (me["source"], len(me["roles"])) == ("local", 4)
        forwarded = await client.get("/api/v1/me", headers={"x-forwarded-for": "192.0.2.7"})
        assert forwarded.status_code == 401


async def test_a_local_token_that_others_could_read_is_replaced_and_its_sessions_end(
    runner: AgentRunner, tmp_path: Path
) -> None:
    app, again = desk_app(runner), desk_app(runner)
    token = app.state.guard.tokens.own()
    assert again.state.guard.tokens.own() == token
    session = again.state.guard.tokens.begin_session(token)
    assert app.state.guard.tokens.session_identity(session).source == "local"
    (tmp_path / "data" / "desk-local-token").chmod(0o644)
    assert app.state.guard.tokens.session_identity(session) is None
    assert app.state.guard.tokens.own() != token
    assert again.state.guard.tokens.identity(token) is None


async def test_the_first_token_of_others_ends_the_local_one_at_once_and_for_good(
    runner: AgentRunner, tmp_path: Path
) -> None:
    others = Tokens(tmp_path / "t.json")
    app = desk_app(runner, tokens=LocalTokens(tmp_path, others))
    mine = app.state.guard.tokens.own()
    session = app.state.guard.tokens.begin_session(mine)
    async with client_of(app, token="") as client:
        sent = [{"authorization": f"Bearer {mine}"}, {"cookie": f"holdfast_desk={session}"}]

        async def known(headers: dict[str, str]) -> tuple[int, str | None]:
            answer = await client.get("/api/v1/me", headers=headers)
            return answer.status_code, answer.json().get("source")

        assert [await known(each) for each in sent] == [(200, "local")] * 2
        token = Tokens(others.file).make("ann", ["viewer"])  # as another process makes it
        assert [await known(each) for each in sent] == [(401, None)] * 2
        assert await known({"authorization": f"Bearer {token}"}) == (200, "token")
        signed = await client.post("/login", content=f"token={token}")
        assert (signed.status_code, signed.headers["location"]) == (303, "/")
        others.revoke("ann")
        client.cookies.clear()
        assert [await known(each) for each in sent] == [(401, None)] * 2
    assert desk_url(app, "http://x/desk") == "http://x/desk"


@pytest.mark.parametrize(
    ("headers", "url", "is_secure"),
    [
        ({}, "desk.example", False),
        (HTTPS, "desk.example", True),
        ({"origin": "https://desk.example", "sec-fetch-site": "same-origin"}, "desk.example", True),
    ],
)
async def test_a_browser_gets_a_session_and_not_the_token_and_over_https_it_is_secure(
    runner: AgentRunner, tokens: Tokens, headers: dict[str, str], url: str, *, is_secure: bool
) -> None:
    token = tokens.make("anna", ["viewer"])
    app = desk_app(runner, tokens=tokens)
    async with client_of(app, token="", peer=ELSEWHERE, host=url) as client:
        body = f"token={token}&next=//evil.example"
        signed = await client.post("/login", content=body, headers=headers)
        assert (signed.status_code, signed.headers["location"]) == (303, "/")
        cookie = signed.headers["set-cookie"]
        assert token not in cookie
        assert ("Secure" in cookie, cookie.startswith("__Host-")) == (is_secure, is_secure)
        assert all(each in cookie for each in ("Path=/;", "HttpOnly", "SameSite=lax"))
        name, session = cookie.partition(";")[0].split("=")
        client.cookies.clear()
        sent = {"cookie": f"{name}={session}"}
        assert (await client.get("/api/v1/me", headers=sent)).json()["name"] == "anna"
        for wrong in (
            {"authorization": f"Bearer {session}"},
            {"cookie": f"{name}={token}"},
            *([{"cookie": f"holdfast_desk={session}", **HTTPS}] if is_secure else []),
        ):
            assert (await client.get("/api/v1/me", headers=wrong)).status_code == 401, wrong
    kept = tokens.file.read_text(encoding="utf-8")
    assert (session in kept, token in kept) == (False, False)
    assert tokens.file.stat().st_mode & 0o077 == 0


async def test_a_session_ends_with_its_token_and_when_its_browser_signs_out(
    runner: AgentRunner, tokens: Tokens
) -> None:
    made = {name: tokens.make(name, ["viewer"]) for name in ("anna", "bo")}
    app = desk_app(runner, tokens=tokens)
    async with client_of(app, token="") as client:
        for name, token in made.items():
            await client.post("/login", content=f"token={token}")
            sent = {"cookie": "; ".join(f"{k}={v}" for k, v in client.cookies.items())}
            assert (await client.get("/api/v1/me", headers=sent)).json()["name"] == name
            if name == "anna":
                tokens.revoke("anna")
            else:
                await client.post("/logout")
            client.cookies.clear()
            assert (await client.get("/api/v1/me", headers=sent)).status_code == 401
    assert [each.name for each in tokens.list()] == ["bo"]


async def test_guesses_from_an_address_keep_nobody_there_from_signing_in(
    runner: AgentRunner, tokens: Tokens
) -> None:
    token = tokens.make("anna", ["viewer"])
    app = desk_app(runner, tokens=tokens, limits=Limits(writes_per_second=0.001, burst=2))
    async with client_of(app, token="") as client:
        wrong = [await client.post("/login", content="token=x") for _ in range(3)]
        assert [each.status_code for each in wrong] == [401, 401, 429]
        assert "set-cookie" not in wrong[0].headers
        tried = [
            (await client.post("/login", content=f"token={token}")).status_code for _ in range(3)
        ]
        assert tried == [303, 303, 429]


def test_two_writers_at_once_lose_no_token_and_bring_none_back(tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    bad = Tokens(file).make("mallory", ["operator"])

    def make(name: str) -> None:
        Tokens(file).make(name, ["viewer"])

    with ThreadPoolExecutor(8) as pool:
        made = [pool.submit(make, f"p{k}") for k in range(40)]
        pool.submit(Tokens(file).revoke, "mallory").result()
        for each in made:
            each.result()
    assert {each.name for each in Tokens(file).list()} == {f"p{k}" for k in range(40)}
    for odd in (float("nan"), -1.0):  # it would never end
        with pytest.raises(InvalidArgumentError, match="expires="):
            Tokens(file).make("p0", ["viewer"], expires=odd)
    assert Tokens(file).identity(bad) is None


async def test_a_sender_has_so_many_requests_open_and_no_more_and_others_have_theirs(
    tokens: Tokens,
) -> None:
    end = asyncio.Event()
    made = {name: tokens.make(name, ["viewer"]) for name in ("anna", "bo")}
    made["acme's anna"] = tokens.make("anna", ["viewer"], tenant="acme")
    entered = asyncio.Queue[str]()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        entered.put_nowait(scope[VISITOR].name)
        await end.wait()
        await PlainTextResponse("done")(scope, receive, send)

    limits = Limits(open_requests=2)
    app = Protection(slow, guard=Guard(tokens), limits=limits, rates=Rates(1, 1))
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://desk") as client:

        async def get(name: str) -> int:
            headers = {"authorization": f"Bearer {made[name]}"}
            return (await client.get("/x", headers=headers)).status_code

        running = [asyncio.create_task(get(name)) for name in (*made, "anna")]
        for _ in running:
            await asyncio.wait_for(entered.get(), 100)
        assert await asyncio.wait_for(get("anna"), 100) == 429
        end.set()
        assert (await asyncio.gather(*running), await get("anna")) == ([200] * 4, 200)


@pytest.mark.parametrize(
    ("roles", "why"),
    [
        (["finance"], "Roles are viewer, operator, approver, custodian; 'finance' was given"),
        ([], "no role was given"),
        (["viewer", "approvr"], "Did you mean 'approver'"),
        (["viewer", "role:finance"], "without 'role:'"),
        (["viewer", " "], "A role is a name"),
    ],
)
def test_a_token_has_a_role_and_any_groups(tokens: Tokens, roles: list[str], why: str) -> None:
    with pytest.raises(InvalidArgumentError, match=why):
        tokens.make("anna", roles)
    anna = tokens.identity(tokens.make("anna", ["approver", "finance"]))
    assert anna is not None
    assert (anna.can("approve"), anna.can("run"), *anna.groups) == (True, False, "finance")


async def test_rules_of_an_application_get_the_task_of_a_call_and_not_its_token(
    runner: AgentRunner, tokens: Tokens
) -> None:
    asked: list[tuple[str, str]] = []

    def may(_: Identity, verb: str, subject: str) -> bool:
        asked.append((verb, subject))
        return verb == "read"

    app = desk_app(runner, tokens=tokens, may=may)
    async with client_of(app, token=tokens.make("ole", ["operator"])) as client:
        at = "/api/v1/calls/trip%2Fx:0.1.0.0:5ec4e7/complete"
        refused = await client.post(at, json={"result": "done"})
    assert (refused.status_code, "5ec4e7" in refused.text) == (403, False)
    assert asked == [("read", ""), ("complete", "trip/x")]


@pytest.mark.parametrize(
    "odd",
    [{"tenant": None}, {"tenant": "a' OR '' = '"}, {"roles": "operators"}, {"name": "ann\0b"}],
)
def test_an_identity_that_an_application_makes_is_checked(odd: dict[str, Any]) -> None:
    given: dict[str, Any] = {"name": "ann", "roles": ["operator"], "tenant": "a"}
    assert Identity(**given).roles == {"operator"}
    with pytest.raises(InvalidArgumentError):
        Identity(**given | odd)
