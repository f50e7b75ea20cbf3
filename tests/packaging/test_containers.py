"""The compose file and the Dockerfile, as far as they can be checked without an engine."""

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.client import Client

from holdfast.engine.dev_server.command import find_cli
from holdfast.engine.dev_server.process import free_port, wait_ready
from holdfast.engine.dev_server.serverinfo import ServerInfo
from holdfast.engine.search_attributes import SEARCH_ATTRIBUTES
from tests.packaging.checkout import MAPPED, ROOT
from tests.support.programs import ran
from tests.support.rig import Engine
from tests.support.serving import running

COMPOSE = ROOT / "docker-compose.yml"
TLS = ROOT / "deploy" / "compose" / "tls.yml"
VARIABLE = re.compile(r"\$\{(?P<name>\w+)(?::(?:-(?P<default>[^}]*)|\?[^}]*))?\}")


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    """Return the compose file."""
    content: dict[str, Any] = yaml.safe_load(COMPOSE.read_text("utf-8"))
    return content


def check_schema(path: Path) -> subprocess.CompletedProcess[str]:
    """Check a file against the JSON schema of the Compose Specification."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    return ran([*command, str(path)])


def interpolated(text: str) -> str:
    """Return a value as compose reads it with nothing set."""
    return VARIABLE.sub(lambda match: match["default"] or "", text).replace("$$", "$")


@asynccontextmanager
async def bare_server(directory: Path) -> AsyncGenerator[str]:
    """Run a Temporal server that knows nothing of Holdfast; give its address."""
    port = free_port()
    flags = ["server", "start-dev", "--headless", "--ip", "127.0.0.1", "--port", str(port)]
    with (
        (directory / "log").open("wb") as log,
        subprocess.Popen([str(find_cli()), *flags], stdout=log, stderr=log) as process,
    ):
        try:
            assert await wait_ready(f"127.0.0.1:{port}", seconds=60) is not None
            yield f"127.0.0.1:{port}"
        finally:
            process.kill()


def run_with_cli(
    text: str, environment: dict[str, str], home: Path
) -> subprocess.CompletedProcess[str]:
    """Run a script of the admin tools' image, which has the command `temporal`."""
    path = f"{find_cli().parent}:{os.environ['PATH']}"
    given = {**environment, "PATH": path, "HOME": str(home)}
    return ran(["/bin/sh", "-euc", text], environment=given)


def script(service: dict[str, Any]) -> str:
    """Return the shell script that a service runs."""
    assert service["entrypoint"] == ["/bin/sh", "-euc"]
    (text,) = service["command"]
    return interpolated(text)


def test_compose_file_obeys_the_specification() -> None:
    for file in (COMPOSE, TLS):
        done = check_schema(file)
        assert done.returncode == 0, done.stdout


def test_every_service_has_a_fixed_image_limits_and_its_secrets_from_variables_of_this_machine(
    compose: dict[str, Any],
) -> None:
    published: list[str] = []
    for name, service in compose["services"].items():
        _, _, tag = interpolated(service["image"]).rpartition(":")
        assert re.fullmatch(r"v?\d[\w.-]*", tag), name
        assert service["deploy"]["resources"]["limits"].keys() == {"cpus", "memory"}, name
        for variable, value in service.get("environment", {}).items():
            if re.search("PASSWORD|PWD", variable):
                assert ":?" in value, name  # no default
            if re.search("PASSWORD|PWD|KEY|SECRET|TOKEN", variable):
                assert value is None or VARIABLE.fullmatch(value), variable
        published += service.get("ports", [])
    assert published
    assert [port for port in published if not port.startswith("127.0.0.1:")] == []


def test_two_workers_share_the_archive(compose: dict[str, Any]) -> None:
    worker = compose["services"]["worker"]
    assert worker["deploy"]["replicas"] == 2
    assert "container_name" not in worker
    assert "ports" not in worker
    archive = interpolated(worker["environment"]["HOLDFAST_ARCHIVE"]).removeprefix("file://")
    assert f"archive:{archive}" in worker["volumes"]


def test_the_tls_file_changes_services_that_there_are(compose: dict[str, Any]) -> None:
    changed = yaml.safe_load(TLS.read_text("utf-8"))["services"]
    assert changed.keys() <= compose["services"].keys()
    services = compose["services"].items()
    ours = {name for name, each in services if "TEMPORAL_ADDRESS" in each.get("environment", {})}
    assert ours <= changed.keys()
    for name in ours - {"temporal-ui"}:
        assert changed[name]["environment"]["TEMPORAL_TLS"] == "true"


def test_what_is_mounted_from_the_checkout_is_there(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        for each in service.get("volumes", []):
            if each.startswith("./"):
                assert (ROOT / each.partition(":")[0]).is_dir(), name
    content = yaml.safe_load(interpolated(compose["configs"]["prometheus"]["content"]))
    [job] = content["scrape_configs"]
    [found] = job["dns_sd_configs"]
    for name in found["names"]:
        given = interpolated(compose["services"][name]["environment"]["HOLDFAST_METRICS"])
        assert given == f"0.0.0.0:{found['port']}"


def test_scripts_are_written_in_shell(compose: dict[str, Any]) -> None:
    for name in ("temporal-schema", "temporal-namespace", "backup"):
        text = script(compose["services"][name])
        assert subprocess.run(["sh", "-n", "-c", text], check=False).returncode == 0, name


async def test_set_up_makes_namespace_and_search_attributes_on_a_bare_server(
    compose: dict[str, Any], tmp_path: Path
) -> None:
    service = compose["services"]["temporal-namespace"]
    async with bare_server(tmp_path) as address:
        environment = {"TEMPORAL_ADDRESS": address, "TEMPORAL_NAMESPACE": "ours", "RETENTION": "3d"}
        assert set(environment) == set(service["environment"])
        for _ in range(2):  # it is run at each `up`
            done = await asyncio.to_thread(run_with_cli, script(service), environment, tmp_path)
            assert done.returncode == 0, done.stderr
        client = await Client.connect(address, namespace="ours")
        listed = await client.operator_service.list_search_attributes(
            ListSearchAttributesRequest(namespace="ours")
        )
    names = {"Keyword": 2, "Int": 3}
    made = dict(listed.custom_attributes)
    assert {name: made[name] for name in SEARCH_ATTRIBUTES} == {
        name: names[kind] for name, kind in SEARCH_ATTRIBUTES.items()
    }


def test_health_of_a_worker_is_asked_by_a_command_that_the_image_has(
    compose: dict[str, Any], server: ServerInfo, engine: Engine, tmp_path: Path
) -> None:
    worker = compose["services"]["worker"]
    kind, program, *arguments = worker["healthcheck"]["test"]
    assert (kind, program) == ("CMD", "python")
    given = worker["environment"]["HOLDFAST_HEALTH"]
    assert f"http://{given}/ready" in arguments[-1]
    port = free_port()
    arguments[-1] = arguments[-1].replace(given, f"127.0.0.1:{port}")

    def is_healthy() -> bool:
        command = [sys.executable, *arguments]
        return not subprocess.run(command, capture_output=True, check=False).returncode

    assert not is_healthy()
    environment = {"TEMPORAL_ADDRESS": server.address, "HOLDFAST_ARCHIVE": engine.archive.url}
    environment |= {"HOLDFAST_HEALTH": f"127.0.0.1:{port}", "HOLDFAST_APP": "healthy"}
    agents = 'from holdfast import Agent\nagents = Agent(name="a", model="offline")\n'
    with running("worker", "mine:agents", home=tmp_path, agents=agents, **environment) as it:
        it.wait_for("Serving")
        assert any(is_healthy() for _ in range(20))  # asked again, as compose does


def test_image_has_all_three_trees_and_another_user() -> None:
    lines = (ROOT / "Dockerfile").read_text("utf-8").splitlines()
    for tree in ("holdfast", *MAPPED):
        assert f"COPY {tree} {tree}" in lines
    users = [line for line in lines if line.startswith("USER ")]
    assert users == ["USER holdfast"]
    assert lines.index("USER holdfast") > max(i for i, line in enumerate(lines) if "pip" in line)


def test_image_installs_locked_distributions_only() -> None:
    text = (ROOT / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
    for command in re.findall(r"pip (?:install|wheel)[^&\n]*", text):
        own = command.split()[-1] == "$PACKAGES"  # the user's
        assert own or "--require-hashes" in command or "--no-deps" in command
