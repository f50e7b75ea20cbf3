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
from holdfast.engine.dev_server.health import wait_ready
from holdfast.engine.dev_server.process import free_port
from holdfast.engine.dev_server.serverinfo import ServerInfo
from holdfast.engine.search_attributes import SEARCH_ATTRIBUTES
from tests.packaging.checkout import MAPPED, ROOT
from tests.support.rig import Engine

COMPOSE = ROOT / "docker-compose.yml"
ENVIRONMENT = ("TEMPORAL_ADDRESS", "TEMPORAL_NAMESPACE", "HOLDFAST_ARCHIVE", "OPENAI_API_KEY")
VARIABLE = re.compile(r"\$\{(?P<name>\w+)(?::-(?P<default>[^}]*))?\}")


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    """Return the compose file."""
    content: dict[str, Any] = yaml.safe_load(COMPOSE.read_text("utf-8"))
    return content


def check_schema(path: Path) -> subprocess.CompletedProcess[str]:
    """Check a file against the JSON schema of the Compose Specification."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    return subprocess.run([*command, str(path)], capture_output=True, text=True, check=False)


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
    return subprocess.run(
        ["/bin/sh", "-euc", text],
        env={**environment, "PATH": path, "HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def script(service: dict[str, Any]) -> str:
    """Return the shell script that a service runs."""
    assert service["entrypoint"] == ["/bin/sh", "-euc"]
    (text,) = service["command"]
    return interpolated(text)


def test_compose_file_obeys_the_specification() -> None:
    done = check_schema(COMPOSE)
    assert done.returncode == 0, done.stdout


def test_schema_check_can_fail(tmp_path: Path) -> None:
    broken = tmp_path / "docker-compose.yml"
    broken.write_text(COMPOSE.read_text("utf-8").replace("restart:", "restarts:"), "utf-8")
    assert check_schema(broken).returncode == 1


def test_dependencies_exist_and_have_what_they_are_waited_for(compose: dict[str, Any]) -> None:
    services = compose["services"]
    waits = [
        wait for service in services.values() for wait in service.get("depends_on", {}).items()
    ]
    assert waits
    for name, wait in waits:
        assert name in services
        if wait["condition"] == "service_healthy":
            assert "healthcheck" in services[name]
        if wait["condition"] == "service_completed_successfully":
            assert services[name]["restart"].startswith("on-failure")


def test_every_image_has_a_fixed_tag(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        _, _, tag = interpolated(service["image"]).rpartition(":")
        assert re.fullmatch(r"\d[\w.-]*", tag), name


def test_images_of_temporal_are_of_one_version(compose: dict[str, Any]) -> None:
    images = [service["image"] for service in compose["services"].values()]
    tags = {
        image.partition(":")[2] for image in images if re.match(r"temporalio/(server|admin)", image)
    }
    assert len(tags) == 1


def test_every_service_that_stays_has_a_health_check(compose: dict[str, Any]) -> None:
    staying = {
        name: service
        for name, service in compose["services"].items()
        if service["restart"] == "unless-stopped"
    }
    assert {"postgresql", "temporal", "temporal-ui", "worker"} <= set(staying)
    assert [name for name, service in staying.items() if "healthcheck" not in service] == []


def test_named_volumes_and_configs_are_declared_and_used(compose: dict[str, Any]) -> None:
    services = compose["services"].values()
    mounts = [mount for service in services for mount in service.get("volumes", [])]
    sources = {interpolated(mount).partition(":")[0] for mount in mounts}
    assert {name for name in sources if name[0] not in "./"} == set(compose["volumes"])
    configs = {config["source"] for service in services for config in service.get("configs", [])}
    assert configs == set(compose["configs"])


def test_two_workers_share_the_archive(compose: dict[str, Any]) -> None:
    worker = compose["services"]["worker"]
    assert worker["deploy"]["replicas"] == 2
    assert "container_name" not in worker
    assert "ports" not in worker
    archive = interpolated(worker["environment"]["HOLDFAST_ARCHIVE"]).removeprefix("file://")
    assert f"archive:{archive}" in worker["volumes"]


def test_workers_get_their_environment(compose: dict[str, Any]) -> None:
    worker = compose["services"]["worker"]
    assert set(ENVIRONMENT) <= set(worker["environment"])
    host, _, port = worker["environment"]["TEMPORAL_ADDRESS"].partition(":")
    assert host in compose["services"]
    assert port == "7233"


def test_workers_have_time_to_finish_when_stopped(compose: dict[str, Any]) -> None:
    assert int(compose["services"]["worker"]["stop_grace_period"].removesuffix("s")) > 30


def test_every_secret_comes_from_a_variable(compose: dict[str, Any]) -> None:
    for service in compose["services"].values():
        for name, value in service.get("environment", {}).items():
            if re.search("PASSWORD|PWD|KEY|SECRET|TOKEN", name):
                assert value is None or VARIABLE.fullmatch(value), name


def test_ports_are_published_to_this_machine_only(compose: dict[str, Any]) -> None:
    ports = [port for service in compose["services"].values() for port in service.get("ports", [])]
    assert ports
    assert [port for port in ports if not port.startswith("127.0.0.1:")] == []


@pytest.mark.parametrize("name", ["temporal-schema", "temporal-namespace"])
def test_set_up_script_is_valid_shell(compose: dict[str, Any], name: str) -> None:
    text = script(compose["services"][name])
    subprocess.run(["sh", "-n"], input=text, text=True, check=True)


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


def test_health_of_a_worker_is_a_command_that_uses_namespace_and_archive(
    compose: dict[str, Any], server: ServerInfo, engine: Engine, tmp_path: Path
) -> None:
    kind, name, *arguments = compose["services"]["worker"]["healthcheck"]["test"]
    assert (kind, name) == ("CMD", "holdfast")

    def health(archive: str) -> int:
        environment = {"TEMPORAL_ADDRESS": server.address, "HOLDFAST_ARCHIVE": archive}
        command = [sys.executable, "-m", "holdfast", *arguments]
        env = os.environ | environment
        return subprocess.run(command, env=env, capture_output=True, check=False).returncode

    assert health(engine.archive.url) == 0
    assert health(str(tmp_path / "another")) == 5


def test_settings_for_development_are_not_used(compose: dict[str, Any]) -> None:
    text = compose["configs"]["temporal-dynamic-config"]["content"]
    assert "forceSearchAttributesCacheRefreshOnRead" not in text


def test_image_has_all_three_trees_and_another_user() -> None:
    lines = (ROOT / "Dockerfile").read_text("utf-8").splitlines()
    for tree in ("holdfast", *MAPPED):
        assert f"COPY {tree} {tree}" in lines
    users = [line for line in lines if line.startswith("USER ")]
    assert users == ["USER holdfast"]
    assert lines.index("USER holdfast") > max(i for i, line in enumerate(lines) if "pip" in line)


def test_image_copies_only_what_exists() -> None:
    for line in (ROOT / "Dockerfile").read_text("utf-8").splitlines():
        if line.startswith("COPY ") and "--from=" not in line:
            for source in line.split()[1:-1]:
                assert (ROOT / source).exists(), source


def test_image_installs_locked_distributions_only() -> None:
    text = (ROOT / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
    for command in re.findall(r"pip (?:install|wheel)[^&\n]*", text):
        own = command.split()[-1] == "$PACKAGES"  # the user's
        assert own or "--require-hashes" in command or "--no-deps" in command
