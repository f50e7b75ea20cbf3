"""`doctor`: say what works, what does not, and what to do about it."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, TypeVar

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest, GetSystemInfoRequest
from temporalio.client import Client
from temporalio.service import RPCError

from holdfast.archive.archive import Archive
from holdfast.archive.bytestore import KEYS_VARIABLE
from holdfast.cli import output
from holdfast.cli.connection import load_agents
from holdfast.cli.exits import ExitCode
from holdfast.cli.options import Common
from holdfast.engine.cluster import are_usable, has_workers
from holdfast.engine.connect import connect_client, connect_embedded
from holdfast.errors import ConnectError, HoldfastError
from holdfast.serving.names import check_archive
from holdfast.serving.plugin import HoldfastPlugin
from holdfast.serving.unserved import unserved
from holdfast.serving.worker_process import App, default_archive
from holdfast.values.code.extras import DISTRIBUTION
from holdfast.values.text.redact import redact

Level = Literal["ok", "warning", "error"]
T = TypeVar("T")

_STRANGER = "holdfast"
_PACKAGES = (DISTRIBUTION, "temporalio", "pydantic", "openai", "litellm", "any-llm-sdk", "nicegui")
_KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "TEMPORAL_API_KEY")
_SECONDS = timedelta(seconds=10)
_LISTED = 500
_STYLES = {"ok": "green", "warning": "yellow", "error": "red"}


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        level: How it is.
        subject: What was looked at.
        text: What was found.
        remedy: What to do about it; empty when it is well.
    """

    level: Level
    subject: str
    text: str
    remedy: str = ""


async def doctor_command(common: Common, *, agents: str | None, app: str | None) -> ExitCode:
    """Look at everything that tasks need, and report each thing on a line of its own."""
    findings = [*_python(), *_packages(), *_keys()]
    here = None
    if agents is not None:
        here, found = _tried("agents", lambda: load_agents(agents, app))
        findings.append(found or Finding("ok", "agents", f"{agents} can be imported"))
    findings += await _engine(common, here)
    if common.json:
        listed = [vars(each) for each in findings]
        output.emit({"findings": listed, "ok": not _has(findings, "error")})
    else:
        for each in findings:
            remedy = f" {each.remedy}" if each.remedy else ""
            output.out().print(
                f"{each.level:<8} {each.subject}: {each.text}.{remedy}", style=_STYLES[each.level]
            )
    return ExitCode.FAILED if _has(findings, "error") else ExitCode.OK


def _has(findings: list[Finding], level: Level) -> bool:
    return any(each.level == level for each in findings)


def _tried(subject: str, do: Callable[[], T]) -> tuple[T | None, Finding | None]:
    """Do something; what it raises becomes a finding."""
    try:
        return do(), None
    except HoldfastError as error:
        return None, _of(subject, error)


def _of(subject: str, error: HoldfastError, level: Level = "error") -> Finding:
    return Finding(level, subject, redact(str(error)).rstrip("."))


def _python() -> Iterator[Finding]:
    yield Finding("ok", "python", f"{platform.python_version()} at {sys.executable}")


def _packages() -> Iterator[Finding]:
    found: list[str] = []
    for name in _PACKAGES:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    yield Finding("ok", "packages", ", ".join(found))
    with suppress(importlib.metadata.PackageNotFoundError):
        version = importlib.metadata.version(_STRANGER)
        yield Finding(
            "warning",
            "distribution",
            f"{_STRANGER} {version} is another project, whose files are in the way of ours",
            f"Run `pip uninstall {_STRANGER}`, then install {DISTRIBUTION} again.",
        )


def _keys() -> Iterator[Finding]:
    """Say which keys are set, and never what they are."""
    given = [name for name in _KEYS if os.environ.get(name)]
    odd = [name for name in given if os.environ[name] != os.environ[name].strip()]
    if odd:
        text = f"{', '.join(odd)} begins or ends with a blank or a line break"
        yield Finding("warning", "keys", text, "Set it again without.")
    if given:
        yield Finding("ok", "keys", f"set here: {', '.join(given)}")
    else:
        yield Finding(
            "warning",
            "keys",
            "none is set here",
            "Set OPENAI_API_KEY, or that of another provider, where workers run.",
        )


async def _engine(common: Common, here: App | None) -> list[Finding]:
    """Connect as any command does, but start no server and add nothing to the namespace."""
    try:
        client, archive = await _connected(common)
    except HoldfastError as error:
        return [_of("engine", error)]
    findings = [await _version(client)]
    findings += await _namespace(client)
    if archive is None:
        remedy = "Set HOLDFAST_ARCHIVE, or pass --archive."
        findings.append(Finding("error", "archive", "none is named", remedy))
    else:
        findings.append(await _archive(client, archive))
        findings += await _encryption(client, archive)
    findings += await _queues(client, here)
    return findings


async def _connected(common: Common) -> tuple[Client, Archive | None]:
    directory = common.embedded
    if directory is None:
        url = common.archive or os.environ.get("HOLDFAST_ARCHIVE")
        archive = Archive(url or default_archive()) if url else None
        plugins = [] if archive is None else [HoldfastPlugin(archive=archive)]
        client = await connect_client(common.address, namespace=common.namespace, plugins=plugins)
        return client, archive
    from holdfast.engine.dev_server.server import find_server  # needs the extra `local`

    server = find_server(directory)
    if server is None:
        raise ConnectError(
            f"No server is running in {str(directory)!r}. `holdfast dev MODULE:AGENTS` starts one;"
            " a cluster is named with --address or TEMPORAL_ADDRESS."
        )
    archive = Archive(directory / "archive")
    return await connect_embedded(server, plugins=[HoldfastPlugin(archive=archive)]), archive


async def _version(client: Client) -> Finding:
    address = client.service_client.config.target_host
    try:
        found = await client.workflow_service.get_system_info(
            GetSystemInfoRequest(), timeout=_SECONDS
        )
    except RPCError as error:
        return Finding("warning", "engine", f"{address} does not tell its version: {error.message}")
    return Finding("ok", "engine", f"Temporal {found.server_version} at {address}")


async def _namespace(client: Client) -> list[Finding]:
    name = client.namespace
    try:
        found = await client.workflow_service.describe_namespace(
            DescribeNamespaceRequest(namespace=name), timeout=_SECONDS
        )
        days = found.config.workflow_execution_retention_ttl.ToTimedelta() / timedelta(days=1)
        findings = [Finding("ok", "namespace", f"{name}, closed tasks are kept for {days:g} days")]
    except RPCError as error:
        findings = [Finding("warning", "namespace", f"{name} is not described: {error.message}")]
    try:
        is_usable = await are_usable(client)
    except HoldfastError as error:
        return [*findings, _of("search attributes", error)]
    if is_usable:
        return [*findings, Finding("ok", "search attributes", "HfStatus, HfAgent, HfApprovals")]
    remedy = "Any worker process adds them if it may, else an operator: see docs/production.md."
    return [*findings, Finding("error", "search attributes", "missing", remedy)]


async def _archive(client: Client, archive: Archive) -> Finding:
    """Write a record, read it, delete it; see that the archive is the namespace's own."""
    name = f"doctor/{uuid.uuid4().hex}"
    try:
        await archive.aput_record(name, {"at": time.time()})
        await archive.aget_record(name)
        await archive.adelete_record(name)
        await check_archive(client, archive)
    except HoldfastError as error:
        return _of("archive", error)
    return Finding("ok", "archive", f"{redact(archive.url)} can be read and written")


async def _encryption(client: Client, archive: Archive) -> list[Finding]:
    """Say whether there are keys, and which ids say in plain text who a task is about."""
    if archive.encrypted is None:
        return [Finding("ok", "encryption", f"off: {KEYS_VARIABLE} names no keys")]
    findings = [Finding("ok", "encryption", f"{KEYS_VARIABLE} encrypts history and archive")]
    try:
        async for each in client.list_workflows(limit=_LISTED):
            if "@" in each.id:
                text = f"ids stay in plain text, and {each.id!r} looks like the address of a person"
                remedy = "Name sessions and tasks by holdfast.archive.hashed(...)."
                return [*findings, Finding("warning", "encryption", text, remedy)]
    except RPCError as error:
        findings.append(Finding("warning", "encryption", f"ids are not listed: {error.message}"))
    return findings


async def _queues(client: Client, here: App | None) -> list[Finding]:
    findings: list[Finding] = []
    try:
        for queue in () if here is None else here.queues:
            if await has_workers(client, queue):
                findings.append(Finding("ok", "queue", f"{queue} is served"))
            else:
                text = f"no worker process serves {queue}"
                remedy = "Start one: holdfast worker MODULE:AGENTS."
                findings.append(Finding("warning", "queue", text, remedy))
        left = await unserved(client, ())
    except HoldfastError as error:
        return [*findings, _of("tasks", error)]
    for each in left:
        text = f"open tasks of queue {each.queue}, such as {each.task_id}, have no worker process"
        remedy = "Nothing is lost: start a worker that serves them, or abandon them."
        findings.append(Finding("warning", "stranded", text, remedy))
    if not left:
        findings.append(Finding("ok", "stranded", "no open task waits for a worker process"))
    return findings
