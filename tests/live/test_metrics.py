"""`HOLDFAST_METRICS`: one port has the SDK's metrics and ours, and one process counts all tasks."""

import json
import re
import threading
import urllib.request
from collections import defaultdict
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

from holdfast.engine.dev_server.process import free_port
from holdfast.serving.observed.metrics import METRICS
from holdfast.testing import FakeOpenAI
from tests.support.rig import until, until_status
from tests.support.serving import running, worker_of

AGENTS = """
from holdfast import Agent, tool

@tool(effect="read")
def look() -> str:
    "Look."
    return "milk"

@tool
def pay() -> str:
    "Pay."
    raise ValueError("the purse is empty")

@tool(needs_approval=True)
def send() -> str:
    "Send."
    return "sent"

agents = Agent(name="buyer", model="gpt-5-mini", tools=[look, pay, send])
"""
WAITING = 'agent="buyer",status="waiting"'
SAMPLE = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")

Samples = dict[str, dict[str, float]]
"""Name of a metric to its labels, as they are written, to its value."""


def scraped(port: int) -> Samples:
    """Return what a port gives to Prometheus."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=100) as answer:
        text = answer.read().decode()
    found: Samples = defaultdict(dict)
    for line in text.splitlines():
        if line and not line.startswith("#"):
            [(name, labels, value)] = SAMPLE.findall(line)
            found[name][labels] = float(value)
    return found


def own_metrics(samples: Samples) -> dict[str, set[str]]:
    """Return our metrics among samples, each with the names of its labels."""
    found: dict[str, set[str]] = defaultdict(set)
    for name, values in samples.items():
        plain = re.sub(r"_(total|bucket|sum|count)$", "", name)
        if plain in METRICS:
            labels = re.findall(r'(\w+)="', " ".join(values))
            found[plain] |= {*labels} - {"le"}
    return found


async def test_a_port_has_all_metrics_of_the_table_and_no_label_is_an_id(
    model: FakeOpenAI, tmp_path: Path
) -> None:
    prices, providers = tmp_path / "prices.json", tmp_path / "providers.toml"
    prices.write_text(json.dumps({"gpt-5-mini": {"input": 1, "output": 2}}), "utf-8")
    providers.write_text("[openai]\nrequests_per_minute = 6000\n", "utf-8")
    port, counting = free_port(), free_port()
    own = {"HOLDFAST_PROVIDERS": str(providers), "HOLDFAST_PRICES": str(prices)}
    model.fail(429, retry_after=0)
    model.calls([("look", {}), ("pay", {})])
    model.reply("sorry")
    model.call("send", match="second")
    given: Any = {**own, "HOLDFAST_METRICS": f"127.0.0.1:{port}"}
    async with worker_of(model, tmp_path, AGENTS, **given) as (_, runner):
        counts = ("metrics", "--data-dir", str(tmp_path / "data"))
        ids = [(await runner.chat("first")).task_id]
        waiting = await runner.create_task("second", step_mode="automatic")
        ids.append(waiting.task_id)
        await until_status(runner, waiting, "waiting")
        own["HOLDFAST_METRICS"] = f"127.0.0.1:{counting}"
        with running(*counts, home=tmp_path / "c", **own) as counter:
            counter.wait_for("Counting")

            async def counted() -> bool:
                found = scraped(counting)
                is_listed = found["holdfast_open_tasks"].get(WAITING) == 1
                return is_listed and bool(found["holdfast_counted_at_seconds"])

            await until(counted)
            gauges, samples = scraped(counting), scraped(port)
    assert own_metrics(samples).keys() | own_metrics(gauges).keys() == METRICS.keys()
    for found in (own_metrics(samples), own_metrics(gauges)):
        assert {name: {*METRICS[name].labels} for name in found} == dict(found)
    assert not [id for id in ids if id in str(samples) + str(gauges)]
    calls = samples["holdfast_model_seconds_count"]
    assert calls == {
        'model="gpt-5-mini",outcome="answered"': 3,
        'model="gpt-5-mini",outcome="rate_limited"': 1,
    }
    assert samples["holdfast_steps_total"] == {'queue="hf:buyer"': 3}
    assert samples["holdfast_tool_seconds_count"] == {
        'outcome="done",tool="look"': 1,
        'outcome="failed",tool="pay"': 1,
    }
    assert set(samples["holdfast_model_tokens_total"]) == {
        f'kind="{kind}",model="gpt-5-mini"' for kind in ("input", "cached", "output")
    }
    assert samples["holdfast_model_dollars_sum"]['model="gpt-5-mini"'] > 0
    assert samples["holdfast_archive_seconds_count"]['operation="write",outcome="done"'] > 0
    named = (Path(__file__).parents[2] / "deploy/prometheus/rules.yml").read_text("utf-8")
    known = {*samples, "temporal_workflow_task_execution_failed_total"}  # none has failed
    assert {*re.findall(r"\btemporal_\w+", named)} <= known
    assert gauges["holdfast_closed_tasks"]['agent="buyer",status="finished"'] == 1
    assert gauges["holdfast_approvals_waiting"]['kind="tool"'] == 1
    assert gauges["holdfast_approvals_waiting"]['kind="unknown"'] == 0
    assert gauges["holdfast_oldest_approval_seconds"][""] >= 0
    assert gauges["holdfast_unserved_queues"] == {"": 0}
    assert gauges["holdfast_failing_tasks"] == {"": 0}


@contextmanager
def collector() -> Generator[tuple[int, list[bytes]]]:
    """Run a collector of OTLP; yield its port, and what it was sent."""
    got: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(self.path.encode() + self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  its name there
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port, got
        server.shutdown()


async def test_a_collector_gets_them_by_otlp(tmp_path: Path) -> None:
    arguments = ("dev", "mine:agents", "--port", "0", "--data-dir", str(tmp_path / "data"))
    agents = 'from holdfast import Agent\nagents = Agent(name="a", model="offline")\n'
    with collector() as (port, got):
        url = f"otlp=http://127.0.0.1:{port}/v1/metrics"
        with running(*arguments, home=tmp_path / "w", agents=agents, HOLDFAST_METRICS=url):
            names = (b"holdfast_counted_at_seconds", b"temporal_request")
            await until(lambda: all(name in b"".join(got) for name in names))
    assert got[0].startswith(b"/v1/metrics")


def test_an_address_that_is_taken_or_none_is_an_error(tmp_path: Path) -> None:
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        taken = f"127.0.0.1:{server.server_port}"
        for given, code, text in (
            (taken, 5, "the metrics cannot be exported so: .*Address already in use"),
            ("prometheus", 2, "it is host:port"),
            ("", 2, "Where the metrics go is not named"),
        ):
            arguments = ("metrics", "--data-dir", str(tmp_path / "data"))
            with running(*arguments, home=tmp_path / "w", HOLDFAST_METRICS=given) as program:
                assert program.process.wait(timeout=60) == code, program.text
            assert re.search(text, program.text)
