"""Which Temporal server is meant, and a connection to its services; errors say what to do.

Importing this module loads no `temporalio.client`, which takes longer than a whole list of tasks.
"""

from __future__ import annotations

import asyncio
import dataclasses
import secrets
import string
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.envconfig import ClientConfig
from temporalio.service import (
    ConnectConfig,
    RPCError,
    RPCStatusCode,
    ServiceClient,
    TLSConfig,
    WorkflowService,
)

from holdfast.engine.dev_server.serverinfo import ServerInfo
from holdfast.engine.runtime import forked, set_runtime
from holdfast.errors import ConnectError

CONNECT_SECONDS = 10.0
DEFAULT_ADDRESS = "localhost:7233"
DEFAULT_NAMESPACE = "default"
IDENTITY_ALPHABET = string.ascii_lowercase + string.digits


@dataclass(frozen=True, kw_only=True)
class Target:
    """A server to connect to, from arguments and environment.

    Attributes:
        address: host:port.
        namespace: Temporal namespace.
        tls: TLS settings; True for the system's authorities; None for TLS if there is an API key.
        api_key: API key; `repr` leaves it out, so that it gets into no error and no log.
        metadata: Further headers of every call.
    """

    address: str
    namespace: str
    tls: bool | TLSConfig | None = dataclasses.field(default=None, repr=False)
    api_key: str | None = dataclasses.field(default=None, repr=False)
    metadata: dict[str, str] = dataclasses.field(default_factory=dict[str, str], repr=False)


def default_identity() -> str:
    """Return a new identity for a client or worker: 4 random letters and digits.

    Short, because ten events of each turn hold it. It only helps people to distinguish workers in a
    history; nothing depends on its being unique.
    """
    return "".join(secrets.choice(IDENTITY_ALPHABET) for _ in range(4))


def resolve_target(
    address: str | None = None,
    *,
    namespace: str | None = None,
    tls: bool | TLSConfig | None = None,
    api_key: str | None = None,
) -> Target:
    """Combine arguments with Temporal's usual environment; arguments take precedence.

    The environment is TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE, TEMPORAL_API_KEY, TEMPORAL_TLS and the
    other TEMPORAL_TLS_* variables, and the profile TEMPORAL_PROFILE in TEMPORAL_CONFIG_FILE.

    Raises:
        ConnectError: The environment or the configuration file cannot be read.
    """
    try:
        found = ClientConfig.load_client_connect_config()
    except (RuntimeError, ValueError, OSError) as error:
        raise ConnectError(
            f"Temporal's environment configuration cannot be read: {error}. Check the TEMPORAL_*"
            " variables and the file that TEMPORAL_CONFIG_FILE names."
        ) from error
    return Target(
        address=address or found.get("target_host") or DEFAULT_ADDRESS,
        namespace=namespace or found.get("namespace") or DEFAULT_NAMESPACE,
        tls=tls if tls is not None else found.get("tls"),
        api_key=api_key or found.get("api_key"),
        metadata=dict(found.get("rpc_metadata") or {}),
    )


def embedded_target(server: ServerInfo) -> Target:
    """Return where an embedded server is.

    The environment is ignored, because an API key for a cluster must not be sent to this server.
    """
    return Target(address=server.address, namespace=DEFAULT_NAMESPACE, tls=False)


async def connect_service(target: Target) -> WorkflowService:
    """Connect to a server's services, and check that the namespace may be used.

    Raises:
        ConnectError: Within 10 s: unreachable, wrong TLS, wrong key, or no such namespace.
    """
    async with connecting(target):
        client = await ServiceClient.connect(
            ConnectConfig(
                target_host=target.address,
                tls=target.tls,
                api_key=target.api_key,
                rpc_metadata=target.metadata,
                identity=default_identity(),
            )
        )
        await check_namespace(client.workflow_service, target.namespace)
        return client.workflow_service


@asynccontextmanager
async def connecting(target: Target) -> AsyncGenerator[None]:
    """Give the connecting in this block a deadline, and errors that say what to do.

    Raises:
        ConnectError: It has failed, or taken 10 s, or a parent process has a runtime.
    """
    set_runtime()
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            yield
    except TimeoutError:
        raise ConnectError(
            f"{_server(target)} did not answer within {CONNECT_SECONDS:.0f} s. Check the address"
            " (TEMPORAL_ADDRESS), the network, and whether the server wants TLS (TEMPORAL_TLS)."
        ) from None
    except RPCError as error:
        raise connect_error(error, target) from error
    except AssertionError as error:
        raise forked(error) from error
    # The SDK reports a failed connection as a RuntimeError. Its text may hold the API key, so ours
    # has a redacted copy, and the original is not chained to it.
    except (RuntimeError, ValueError) as error:
        raise _transport_error(target, str(error)) from None


async def check_namespace(service: WorkflowService, namespace: str) -> None:
    """Describe the namespace: the cheapest call that checks both the key and the namespace."""
    try:
        await service.describe_namespace(
            DescribeNamespaceRequest(namespace=namespace),
            timeout=timedelta(seconds=CONNECT_SECONDS),
        )
    except RPCError as error:
        # A proxy may lack this call and still have all others.
        if error.status != RPCStatusCode.UNIMPLEMENTED:
            raise


def connect_error(error: RPCError, target: Target) -> ConnectError:
    """Make the error for a refused call, which says what to do; it never shows the key."""
    match error.status:
        case RPCStatusCode.UNAUTHENTICATED | RPCStatusCode.PERMISSION_DENIED:
            return _no_access(target, error.status.name)
        case RPCStatusCode.NOT_FOUND:
            return ConnectError(
                f"{_server(target)} has no namespace {target.namespace!r}. Check"
                " TEMPORAL_NAMESPACE, or create it with `temporal operator namespace create"
                f" --namespace {target.namespace} --address {target.address}`."
            )
        case _:
            return _transport_error(target, error.message)


def _no_access(target: Target, status: str) -> ConnectError:
    """Make the error for a refused key or certificate."""
    given = "was refused" if target.api_key else "is missing or was refused"
    return ConnectError(
        f"{_server(target)} does not let us use namespace {target.namespace!r}: the API key or"
        f" certificate {given} ({status}). Check TEMPORAL_API_KEY or the TLS files, and that they"
        " are meant for this namespace and have not expired."
    )


_REASONS = {
    "ConnectionRefused": "nothing listens there (connection refused)",
    "failed to lookup address": "its host name is not known",
    "InvalidContentType": "we use TLS and it does not (an API key turns TLS on)",
    "UnknownIssuer": "its TLS certificate is not signed by an authority we trust",
    "invalid peer certificate": "its TLS certificate is not valid for this name or date",
    "CertificateRequired": "it wants a client certificate (mTLS)",
}
"""Part of the SDK's error text to its meaning."""


def _transport_error(target: Target, detail: str) -> ConnectError:
    """Make the error for a connection that failed."""
    for status in ("Unauthenticated", "PermissionDenied"):
        if f"code: {status}" in detail:
            return _no_access(target, status)
    if target.api_key:
        detail = detail.replace(target.api_key, "[API key]")
    shown = next((text for mark, text in _REASONS.items() if mark in detail), None)
    return ConnectError(
        f"{_server(target)} cannot be reached: {shown or ' '.join(detail.split())[:500]}. Check the"
        " address (TEMPORAL_ADDRESS), that the server runs, and that both sides agree on TLS"
        " (TEMPORAL_TLS and its certificate files)."
    )


def _server(target: Target) -> str:
    """Name the server in a message."""
    return f"The Temporal server at {target.address!r}"
