"""The HTTP API against its own description: any request has an answer of a described shape."""

import asyncio
import json
from typing import Any
from urllib.parse import quote

import httpx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from holdfast import ToolCall, tool
from holdfast.desk import Limits, desk_app
from holdfast.testing import ScriptedModel
from tests.support.desk_api import client_of
from tests.support.rig import Rig, step_a_task
from tests.support.scale import times

STREAMS = ("/events", "/stream")
TRICKS = ("../..", "../../etc/passwd", "..%2f..%2fetc", "%00", "a%0d%0aSet-Cookie:x=1", "t'--")
ODD = st.sampled_from([*TRICKS, "", "none", "\u202e", "9" * 30, "a" * 3_000, "'\"\\", "t:1"])
TEXTS = ODD | st.text(max_size=20)
JUNK = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS


@tool(needs_approval=True)
def pay(to: str) -> str:
    """Pay."""
    return f"paid {to}"


def values(schema: dict[str, Any], document: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Make values that fit a schema, mostly."""
    if "$ref" in schema:
        return values(
            document["components"]["schemas"][schema["$ref"].rpartition("/")[2]], document
        )
    if "anyOf" in schema:
        return st.one_of([values(each, document) for each in schema["anyOf"]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"]) | TEXTS
    match schema.get("type"):
        case "string":
            return TEXTS
        case "boolean":
            return st.booleans() | JUNK
        case "integer" | "number":
            return st.integers(-5, 10**12) | JUNK
        case "array":
            return st.lists(values(schema.get("items", {}), document), max_size=3)
        case "object" if "properties" in schema:
            named = {name: values(each, document) for name, each in schema["properties"].items()}
            needed = set(schema.get("required", ()))
            given_ = {name: each for name, each in named.items() if name in needed}
            more = {name: each for name, each in named.items() if name not in needed}
            return st.fixed_dictionaries(given_, optional=more) | JUNK
        case "object":
            return st.dictionaries(TEXTS, JUNK, max_size=3)
        case _:
            return JUNK


@st.composite
def requests(draw: st.DrawFn, document: dict[str, Any], task: str) -> tuple[str, str, str, Any]:
    """Make a request: its method, the path as described, the address, and the body."""
    routes = [
        (method, path, about)
        for path, methods in document["paths"].items()
        for method, about in methods.items()
        if not path.endswith(STREAMS)
    ]
    method, path, about = draw(st.sampled_from(routes))
    address, query = path, dict[str, str]()
    ids = st.sampled_from([task, f"{task}:1", "s", "s1", "1"])
    for each in about.get("parameters", ()):
        if each["in"] == "path":
            found = quote(draw(ids | TEXTS.filter(bool)), safe="")
            address = address.replace(f"{{{each['name']}}}", found)
        elif each["in"] == "query" and draw(st.booleans()):
            query[each["name"]] = str(draw(values(each["schema"], document)))
    content = about.get("requestBody", {}).get("content", {}).get("application/json")
    body = draw(values(content["schema"], document)) if content else None
    pairs = "&".join(f"{name}={quote(text, safe='')}" for name, text in query.items())
    return method, path, f"{address}?{pairs}", body


def misfits(document: dict[str, Any], path: str, method: str, answer: httpx.Response) -> list[str]:
    """Return how an answer differs from its description."""
    described = document["paths"][path][method]["responses"].get(str(answer.status_code))
    if described is None:
        return [f"{answer.status_code} is not described"]
    kind = answer.headers.get("content-type", "").partition(";")[0]
    content = described.get("content", {})
    if kind not in content:
        return [f"{kind!r} is not described for {answer.status_code}, only {[*content]}"]
    if "json" not in kind or kind == "application/jsonl":
        return []
    schema = {**content[kind]["schema"], "components": document["components"]}
    validator: Any = Draft202012Validator(schema)
    return [error.message[:300] for error in validator.iter_errors(json.loads(answer.content))]


async def test_any_request_has_an_answer_of_a_described_shape(rig: Rig) -> None:
    call = ToolCall(id="", name="pay", arguments='{"to": "kim"}')
    model = ScriptedModel(lambda request: (call,) if len(request.messages) < 2 else "done")
    known = await rig.serving(rig.agent(pay, model=model))
    app = desk_app(known, limits=Limits(writes_per_second=1e6, burst=1_000_000))
    document = app.openapi()
    task = await step_a_task(known, "pay kim", session="s")
    loop = asyncio.get_running_loop()

    async def ask(method: str, path: str, address: str, body: Any) -> None:
        sent = json.dumps(body)  # also Infinity and NaN, which are no JSON
        headers = {"content-type": "application/json"}
        answer = await api.request(method.upper(), address, content=sent, headers=headers)
        # 503 is an answer of a machine too busy to have one in time: nothing is lost by it.
        assert answer.status_code < 500 or answer.status_code == 503, answer.text
        assert not misfits(document, path, method, answer), answer.text[:500]
        assert "set-cookie" not in answer.headers
        assert "root:x:" not in answer.text

    @settings(
        max_examples=times(30, 1_000),
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(requests(document, task.task_id))
    def check(made: tuple[str, str, str, Any]) -> None:
        asyncio.run_coroutine_threadsafe(ask(*made), loop).result()

    async with client_of(app) as api:
        await asyncio.to_thread(check)
