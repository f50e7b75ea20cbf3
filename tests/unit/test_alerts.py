"""Each alert of Prometheus fires when it should, and not before; `promtool` evaluates the rules."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from holdfast.serving.observed.metrics import METRICS
from tests.packaging.checkout import ROOT
from tests.support.debian import PROMTOOL
from tests.support.programs import ran

RULES = ROOT / "deploy" / "prometheus" / "rules.yml"
DASHBOARD = ROOT / "deploy" / "grafana" / "holdfast.json"

Series = dict[str, str]
"""Values of series, a minute apart: `0+6x60` begins with 0 and adds 6 sixty times."""

OPEN = 'holdfast_open_tasks{agent="a",status="%s"}'
WAITING = 'holdfast_approvals_waiting{kind="%s"}'
CLOSED = 'holdfast_closed_tasks{agent="a",status="%s"}'
MODEL = 'holdfast_model_seconds_count{model="m",outcome="%s"}'
TOOL = 'holdfast_tool_seconds_count{tool="t",outcome="%s"}'
ARCHIVE = 'holdfast_archive_seconds_count{operation="read",outcome="%s"}'
SLOW = 'holdfast_archive_seconds_bucket{le="%s"}'
START = 'temporal_activity_schedule_to_start_latency_seconds_bucket{task_queue="q",le="%s"}'

CASES: dict[str, tuple[Series, Series]] = {
    "HoldfastNeedsAttention": (
        {OPEN % "needs_attention": "1x60"},
        {OPEN % "needs_attention": "0x60", OPEN % "waiting": "9x60"},
    ),
    "HoldfastUnknownEffects": (
        {WAITING % "unknown": "1x60"},
        {WAITING % "unknown": "0x60", WAITING % "tool": "3x60"},
    ),
    "HoldfastApprovalsWait": (
        {"holdfast_oldest_approval_seconds": "14401+60x60"},
        {"holdfast_oldest_approval_seconds": "600+60x60"},
    ),
    "HoldfastTasksFail": (
        {CLOSED % "failed": "6x60", CLOSED % "finished": "30x60"},
        {CLOSED % "failed": "6x60", CLOSED % "finished": "90x60"},
    ),
    "HoldfastWorkflowCodeFails": (
        {"holdfast_failing_tasks": "2x60"},
        {"holdfast_failing_tasks": "0x60"},
    ),
    "HoldfastUnserved": (
        {"holdfast_unserved_queues": "1x60"},
        {"holdfast_unserved_queues": "0x60"},
    ),
    "HoldfastNotCounted": (
        {"holdfast_counted_at_seconds": "0x60"},
        {"holdfast_counted_at_seconds": "0+60x60"},
    ),
    "HoldfastRateLimited": (
        {MODEL % "rate_limited": "0+6x60", MODEL % "answered": "0+6x60"},
        {MODEL % "rate_limited": "0+2x60", MODEL % "answered": "0+6x60"},
    ),
    "HoldfastModelFails": (
        {MODEL % "unavailable": "0+3x60", MODEL % "answered": "0+6x60"},
        {MODEL % "unavailable": "0+1x60", MODEL % "answered": "0+6x60"},
    ),
    "HoldfastToolsFail": (
        {TOOL % "failed": "0+4x60", TOOL % "unknown": "0+3x60", TOOL % "done": "0+6x60"},
        {TOOL % "failed": "0+3x60", TOOL % "unknown": "0+1x60", TOOL % "done": "0+6x60"},
    ),
    "HoldfastArchiveFails": (
        {ARCHIVE % "error": "0+1x60", ARCHIVE % "done": "0+9x60"},
        {ARCHIVE % "error": "4x60", ARCHIVE % "done": "0+9x60"},
    ),
    "HoldfastArchiveSlow": (
        {SLOW % "1.0": "0+9x60", SLOW % "2.5": "0+10x60", SLOW % "+Inf": "0+10x60"},
        {SLOW % "1.0": "0+99x60", SLOW % "2.5": "0+100x60", SLOW % "+Inf": "0+100x60"},
    ),
    "HoldfastTooFewWorkers": (
        {START % "5": "0+9x60", START % "10": "0+10x60", START % "+Inf": "0+10x60"},
        {START % "5": "0+99x60", START % "10": "0+100x60", START % "+Inf": "0+100x60"},
    ),
    "HoldfastWorkflowTasksFail": (
        {'temporal_workflow_task_execution_failed_total{task_queue="q"}': "0+1x60"},
        {'temporal_workflow_task_execution_failed_total{task_queue="q"}': "3x60"},
    ),
}
"""Alert to series that make it fire, and to some that are as they should be."""


def rules() -> dict[str, dict[str, Any]]:
    """Return the alerts by name."""
    [group] = yaml.safe_load(RULES.read_text("utf-8"))["groups"]
    return {each["alert"]: each for each in group["rules"]}


def firing(alert: str, series: Series, count: int) -> dict[str, Any]:
    """Return a test of promtool: so many alerts of a name fire after an hour."""
    samples = [{"labels": "{}", "value": count}] if count else []
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})',
                "eval_time": "59m",
                "exp_samples": samples,
            }
        ],
    }


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    return ran([PROMTOOL.program(), *arguments])


def test_every_alert_fires_and_is_quiet_otherwise(tmp_path: Path) -> None:
    assert {*CASES} == {*rules()}
    tests = [
        firing(alert, series, count)
        for alert, both in CASES.items()
        for series, count in zip(both, (1, 0), strict=True)
    ]
    written = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "tests.yml").write_text(yaml.safe_dump(written), "utf-8")
    done = promtool("test", "rules", str(tmp_path / "tests.yml"))
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_says_what_to_do() -> None:
    assert promtool("check", "rules", str(RULES)).returncode == 0
    for name, each in rules().items():
        assert {*each["annotations"]} == {"summary", "action"}, name
        assert each["labels"]["severity"] in {"warning", "critical"}, name


SUFFIX = re.compile(r"_(total|bucket|sum|count)$")


@pytest.mark.parametrize("file", [RULES, DASHBOARD], ids=lambda it: it.name)
def test_rules_and_dashboard_name_metrics_that_there_are(file: Path) -> None:
    named = set(re.findall(r"\bholdfast_\w+", file.read_text("utf-8")))
    assert named
    kinds = {name: METRICS[SUFFIX.sub("", name)].kind for name in named}
    allowed = {"counter": {"total"}, "histogram": {"bucket", "sum", "count"}, "gauge": {""}}
    for name, kind in kinds.items():
        found = SUFFIX.search(name)
        assert (found[1] if found else "") in allowed[kind], name


def test_the_dashboard_shows_every_metric() -> None:
    board = json.loads(DASHBOARD.read_text("utf-8"))
    shown = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    for name in METRICS:
        assert any(name in each for each in shown), name
