"""People sign in to the desk with an OpenID provider, which runs as a process of its own."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from holdfast import AgentRunner
from holdfast.desk import OIDC, Tokens, desk_app
from holdfast.engine.dev_server.process import free_port
from holdfast.errors import InvalidArgumentError
from tests.support.desk_api import client_of
from tests.support.rig import Rig

HOST = "localhost:8400"
BACK = f"http://{HOST}/login/oidc/callback"
ROLES = {"ops": ["operator"], "money": ["approver", "finance"]}
TENANTS = {"acme": "acme", "zeta": "zeta", "all": "*"}
PEOPLE: dict[str, dict[str, Any]] = {
    "1": {"email": "ann@x.org", "email_verified": True, "groups": ["ops", "money", "acme"]},
    "2": {"email": "bo@x.org", "email_verified": True, "groups": ["ops", "all", "acme"]},
    "3": {"email": "cy@x.org", "email_verified": True, "groups": ["acme"]},
    "4": {"email": "di@x.org", "email_verified": True, "groups": ["ops"]},
    "5": {"email": "ed@x.org", "email_verified": True, "groups": ["ops", "acme", "zeta"]},
    "6": {"email": "flo@x.org", "email_verified": False, "groups": ["ops", "acme"]},
    "7": {"email": "gil@x.org", "groups": ["ops", "acme"]},
    "8": {"email": "hal@x.org", "email_verified": "false", "groups": ["ops", "acme"]},
}


@pytest.fixture(scope="module")
async def issuer() -> AsyncGenerator[str]:
    port = free_port()
    options = ("--port", str(port), "--require-nonce", "--require-registration")
    provider = await asyncio.create_subprocess_exec(
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "oidc_provider_mock",
        *options,
        stderr=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
    )
    url = f"http://localhost:{port}"
    async with httpx.AsyncClient() as client:
        while True:
            try:
                await client.get(f"{url}/.well-known/openid-configuration")
                break
            except httpx.HTTPError:
                await asyncio.sleep(0.1)
        for sub, claims in PEOPLE.items():
            (await client.put(f"{url}/users/{sub}", json=claims)).raise_for_status()
    yield url
    provider.terminate()
    await provider.wait()


@pytest.fixture
async def desk(rig: Rig, issuer: str, tmp_path: Path) -> Any:
    await rig.serve(rig.agent())
    runner: AgentRunner = rig.runner()
    registered = httpx.post(f"{issuer}/oauth2/clients", json={"redirect_uris": [BACK]}).json()
    known = {each: registered[each] for each in ("client_id", "client_secret")}
    provider = OIDC(issuer=issuer, roles=ROLES, tenants=TENANTS, label="Ex & Co", **known)
    return desk_app(runner, tokens=Tokens(tmp_path / "tokens.json"), oidc=provider)


async def left(browser: httpx.AsyncClient, wanted: str = "/tasks") -> str:
    """Leave for the provider; return the address."""
    begun = await browser.get("/login/oidc", params={"next": wanted})
    assert begun.status_code == 302, begun.text
    return begun.headers["location"]


async def agreed(at: str, sub: str, **form: str) -> str:
    """Sign in at the provider; return where it sends the browser back to."""
    async with httpx.AsyncClient() as provider:
        sent = await provider.post(at, data={"sub": sub, **form})
    assert sent.status_code == 302, sent.text
    return sent.headers["location"].removeprefix(f"http://{HOST}")


async def test_people_sign_in_with_their_groups_and_tenant_and_out(
    desk: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with client_of(desk, host=HOST) as browser:
        page = await browser.get("/login?next=/tasks")
        assert 'href="/login/oidc?next=/tasks">Sign in with Ex &amp; Co</a>' in page.text
        at = await left(browser)
        asked = parse_qs(urlsplit(at).query)
        assert (asked["redirect_uri"], asked["code_challenge_method"]) == ([BACK], ["S256"])
        assert {"state", "nonce", "code_challenge"} <= {*asked}
        back = await agreed(at, "1")
        signed_in = await browser.get(back, headers={"sec-fetch-site": "cross-site"})
        assert (signed_in.status_code, signed_in.headers["location"]) == (303, "/tasks")
        me = (await browser.get("/api/v1/me")).json()
        assert me == {
            "name": "ann@x.org",
            "roles": ["approver", "finance", "operator"],
            "source": "oidc",
            "tenant": "acme",
        }
        again = await browser.get(back)
        assert again.status_code == 401  # what was begun once is ended once
        foreign = {"origin": "https://evil.example"}
        refused = await browser.post("/logout", headers=foreign)
        assert (refused.status_code, (await browser.get("/api/v1/me")).status_code) == (403, 200)
        await browser.post("/logout")
        assert (await browser.get("/api/v1/me")).status_code == 401
        code = parse_qs(urlsplit(back).query)["code"][0]
        secret = desk.state.provider.given.client_secret
        said = [each.getMessage() for each in caplog.records if each.name.startswith("holdfast")]
        assert not any(code in each or secret in each for each in said)
        assert secret not in repr(desk.state.provider.given)
    assert desk.state.guard.tokens.list() == []


@pytest.mark.parametrize(
    ("sub", "said"),
    [
        ("3", "No group of"),
        ("4", "give no tenant here"),
        ("5", "give several tenants here"),
        ("6", "has not verified the address"),
        ("7", "has not verified the address"),
        ("8", "has not verified the address"),
    ],
)
async def test_who_has_no_role_or_no_tenant_is_told_so(desk: Any, sub: str, said: str) -> None:
    async with client_of(desk, host=HOST) as browser:
        refused = await browser.get(await agreed(await left(browser), sub))
        assert refused.status_code == 403
        assert said in refused.text
        assert (await browser.get("/api/v1/me")).status_code == 401


async def test_who_may_see_all_has_no_tenant(desk: Any) -> None:
    async with client_of(desk, host=HOST) as browser:
        signed_in = await browser.get(await agreed(await left(browser, "//evil.example/"), "2"))
        assert signed_in.headers["location"] == "/"  # to no other site
        me = (await browser.get("/api/v1/me")).json()
        assert (me["name"], me["tenant"]) == ("bo@x.org", "")
        desk.state.guard.tokens.revoke("bo@x.org")  # without a token it has a session alone
        assert (await browser.get("/api/v1/me")).status_code == 401


async def test_a_sign_in_counts_only_in_the_browser_that_began_it(desk: Any) -> None:
    async with client_of(desk, host=HOST) as ann, client_of(desk, host=HOST) as eve:
        back = await agreed(await left(ann), "1")
        await left(eve)
        for browser, at in ((eve, back), (ann, back.replace("state=", "state=x"))):
            refused = await browser.get(at)
            assert refused.status_code == 401
            assert "begun elsewhere" in refused.text
            assert (await browser.get("/api/v1/me")).status_code == 401
    async with client_of(desk, host=HOST) as browser:
        browser.cookies.set("holdfast_oidc", "forged.AAAA.AAAA", domain="localhost")
        assert (await browser.get("/login/oidc/callback?code=x&state=y")).status_code == 401


async def test_an_id_token_of_another_sign_in_is_not_taken(desk: Any) -> None:
    async with client_of(desk, host=HOST) as browser:
        at = await left(browser)
        nonce = parse_qs(urlsplit(at).query)["nonce"][0]
        refused = await browser.get(await agreed(at.replace(nonce, "another"), "1"))
        assert refused.status_code == 401
        assert "cannot be trusted" in refused.text


async def test_who_is_refused_by_the_provider_and_a_provider_that_is_down_are_told_apart(
    rig: Rig, desk: Any, tmp_path: Path
) -> None:
    async with client_of(desk, host=HOST) as browser:
        refused = await browser.get(await agreed(await left(browser), "1", action="deny"))
        assert (refused.status_code, "refused to sign you in" in refused.text) == (403, True)
    gone = OIDC(issuer=f"http://localhost:{free_port()}", client_id="x", roles=ROLES)
    app = desk_app(rig.runner(), tokens=Tokens(tmp_path / "other.json"), oidc=gone)
    async with client_of(app, host=HOST) as browser:
        down = await browser.get("/login/oidc")
        assert (down.status_code, "does not answer" in down.text) == (503, True)


async def test_a_session_ends_with_its_provider_and_with_what_that_may_give(
    desk: Any, tmp_path: Path
) -> None:
    async with client_of(desk, host=HOST) as browser:
        await browser.get(await agreed(await left(browser), "1"))
        assert (await browser.get("/api/v1/me")).status_code == 200
        cookies = dict(browser.cookies)
    given, runner = desk.state.provider.given, desk.state.desk.runner
    tokens = tmp_path / "tokens.json"
    for provider, status in (
        (given, 200),
        (replace(given, tenants={"acme": "zeta"}), 401),
        (None, 401),
    ):
        again = desk_app(runner, tokens=Tokens(tokens), oidc=provider)
        async with client_of(again, host=HOST) as browser:
            browser.cookies.update(cookies)
            assert (await browser.get("/api/v1/me")).status_code == status


async def test_who_has_begun_no_sign_in_keeps_nobody_out_and_forges_no_line(
    desk: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with client_of(desk, host=HOST) as browser:
        for _ in range(100):
            odd = {"error": "x\nERROR forged line"}
            assert (await browser.get("/login/oidc/callback", params=odd)).status_code == 401
        await browser.get(await agreed(await left(browser), "1"))
        assert (await browser.get("/api/v1/me")).status_code == 200
    assert not any("\n" in each.getMessage() for each in caplog.records)


async def test_settings_that_cannot_be_used_are_refused(rig: Rig, tmp_path: Path) -> None:
    usual: dict[str, Any] = {"issuer": "https://idp.example", "client_id": "x", "roles": ROLES}
    odds: list[tuple[dict[str, Any], str]] = [
        ({"issuer": "http://idp.example"}, "https"),
        ({"issuer": "http://localhost:x@evil.example/"}, "https"),
        ({"roles": {}}, "it is empty"),
        ({"roles": "ops"}, "say what groups give"),
        ({"tenants": ["a"]}, "say what groups give"),
        ({"roles": {"ops": ["operater"]}}, "Did you mean 'operator'"),
        ({"tenants": {"x": "a~b"}}, "tenant may not have"),
    ]
    for odd, said in odds:
        with pytest.raises(InvalidArgumentError, match=said):
            OIDC(**usual | odd)
    good = OIDC(**usual)
    with pytest.raises(InvalidArgumentError, match="keeps sessions in a file"):
        desk_app(rig.runner(), oidc=good)
    file = tmp_path / "oidc.toml"
    file.write_text('issuer = "https://idp.example"\nclient_id = "x"\nsecret = "y"\n')
    with pytest.raises(InvalidArgumentError, match="roles, secret"):
        OIDC.read(file)
    file.write_text(
        'issuer = "https://idp.example"\nclient_id = "x"\n[roles]\nops = ["operator"]\n'
    )
    assert OIDC.read(file).roles == {"ops": {"operator"}}
