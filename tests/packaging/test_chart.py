"""The chart: helm renders it, and Kubernetes' own schemas take what it gives."""

import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from referencing import Registry
from referencing.jsonschema import DRAFT7

from tests.packaging.checkout import ROOT
from tests.support.charts import SCHEMAS, helm

CHART = ROOT / "deploy" / "helm" / "holdfast"
LEAST: dict[str, Any] = {
    "image": {"repository": "registry.example/shop", "tag": "2.1"},
    "temporal": {"address": "temporal:7233"},
    "archive": "s3://bucket/holdfast",
    "workers": {"agents": "shop:agents"},
}
ALL: dict[str, Any] = {
    **LEAST,
    "temporal": {"address": "temporal:7233", "namespace": "shop", "secret": "cloud"},
    "secrets": ["openai"],
    "environment": {"HOLDFAST_SESSION_DAYS": 2},
    "workers": {
        "agents": "shop:agents",
        "app": "shop",
        "grace": 600,
        "keda": {"enabled": True, "queues": ["hf.shop"]},
    },
    "desk": {"enabled": True, "tokensSecret": "tokens"},
    "networkPolicy": {
        "deskFrom": [{"podSelector": {"matchLabels": {"app": "proxy"}}}],
        "metricsFrom": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}],
    },
}


def rendered(values: dict[str, Any], home: Path) -> subprocess.CompletedProcess[str]:
    """Render the chart with these values."""
    file = home / "values.yaml"
    file.write_text(json.dumps(values), "utf-8")
    command = [helm(), "template", "shop", str(CHART), "--values", str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def made(values: dict[str, Any], home: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """Return what the chart makes, by kind and name."""
    done = rendered(values, home)
    assert done.returncode == 0, done.stderr
    found = [each for each in yaml.safe_load_all(done.stdout) if each]
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


@cache
def definitions() -> Registry[Any]:
    content = json.loads((SCHEMAS / "_definitions.json").read_text("utf-8"))
    resource = DRAFT7.create_resource(content)
    return Registry().with_resource("_definitions.json", resource)  # type: ignore[no-any-return]


def check(manifest: dict[str, Any]) -> None:
    """Check a manifest by the schema of its kind, in which no unknown field is allowed."""
    group, _, version = manifest["apiVersion"].rpartition("/")
    part = group.partition(".")[0]
    name = "-".join(each for each in (manifest["kind"].lower(), part, version) if each)
    schema = json.loads((SCHEMAS / f"{name}.json").read_text("utf-8"))
    jsonschema.Draft7Validator(schema, registry=definitions()).validate(manifest)


@pytest.mark.parametrize("values", [LEAST, ALL], ids=["least", "all"])
def test_what_the_chart_makes_fits_kubernetes(values: dict[str, Any], tmp_path: Path) -> None:
    found = made(values, tmp_path)
    for (kind, _), manifest in found.items():
        if kind != "ScaledObject":  # KEDA's own
            check(manifest)
    with pytest.raises(jsonschema.ValidationError):
        check({**found["Deployment", "shop-worker"], "unknown": 1})


def test_a_chart_without_a_needed_value_says_which(tmp_path: Path) -> None:
    done = rendered({**LEAST, "archive": ""}, tmp_path)
    assert done.returncode != 0
    assert "set archive" in done.stderr


def test_workers_stop_gently_and_are_asked_for_their_health(tmp_path: Path) -> None:
    found = made(ALL, tmp_path)
    pod = found["Deployment", "shop-worker"]["spec"]["template"]["spec"]
    [worker] = pod["containers"]
    environment = {each["name"]: each["value"] for each in worker["env"]}
    assert environment["HOLDFAST_GRACE"] == "600"
    assert pod["terminationGracePeriodSeconds"] > 600
    health = environment["HOLDFAST_HEALTH"].rpartition(":")[2]
    [port] = [each["containerPort"] for each in worker["ports"] if each["name"] == "health"]
    assert str(port) == health
    assert worker["livenessProbe"]["httpGet"]["path"] == "/live"
    assert worker["readinessProbe"]["httpGet"]["path"] == "/ready"
    assert {each["secretRef"]["name"] for each in worker["envFrom"]} == {"openai", "cloud"}


def test_who_signs_in_can_be_written_next_to_the_tokens_of_the_secret(tmp_path: Path) -> None:
    pod = made(ALL, tmp_path)["Deployment", "shop-desk"]["spec"]["template"]["spec"]
    [desk], [copying] = pod["containers"], pod["initContainers"]
    file = next(e["value"] for e in desk["env"] if e["name"] == "HOLDFAST_DESK_TOKENS")
    volumes = {each["name"]: each for each in pod["volumes"]}
    [mount] = [each for each in desk["volumeMounts"] if file.startswith(each["mountPath"])]
    assert "emptyDir" in volumes[mount["name"]]
    assert not mount.get("readOnly")
    given = {each["mountPath"]: volumes[each["name"]] for each in copying["volumeMounts"]}
    assert copying["command"] == ["cp", "/secret/tokens.json", file]
    assert given["/secret"]["secret"] == {"secretName": "tokens"}
    assert mount["mountPath"] in given


def test_scaling_and_disruption_are_of_the_workers(tmp_path: Path) -> None:
    found = made(ALL, tmp_path)
    deployment = found["Deployment", "shop-worker"]
    assert "replicas" not in deployment["spec"]
    scaled = found["ScaledObject", "shop-worker"]["spec"]
    assert scaled["scaleTargetRef"]["name"] == "shop-worker"
    [trigger] = scaled["triggers"]
    assert trigger["metadata"]["taskQueue"] == "hf.shop"
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    budget = found["PodDisruptionBudget", "shop-worker"]["spec"]["selector"]["matchLabels"]
    assert budget.items() <= labels.items()
    closed = made(LEAST, tmp_path)["NetworkPolicy", "shop"]["spec"]
    assert closed["ingress"] == []


def test_the_controllers_example_has_a_pod_that_fits() -> None:
    file = ROOT / "deploy" / "helm" / "worker-controller.yaml"
    _, deployed = yaml.safe_load_all(file.read_text("utf-8"))
    template = deployed["spec"]["template"]
    labels = {"app": "shop"}
    spec = {
        "selector": {"matchLabels": labels},
        "template": {**template, "metadata": {"labels": labels}},
    }
    check({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": spec})
