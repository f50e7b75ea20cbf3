"""Connect to a Temporal server, with a deadline and with errors that say what to do."""

from __future__ import annotations

import asyncio
import dataclasses
import secrets
import string
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client, Plugin
from temporalio.converter import DataConverter
from temporalio.envconfig import ClientConfig
from temporalio.service import RPCError, RPCStatusCode, TLSConfig

from holdfast.engine.dev_server.serverinfo import ServerInfo
from holdfast.engine.runtime import set_runtime
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


async def connect_client(
    address: str | None = None,
    *,
    namespace: str | None = None,
    tls: bool | TLSConfig | None = None,
    api_key: str | None = None,
    plugins: Sequence[Plugin] = (),
    identity: str | None = None,
    data_converter: DataConverter | None = None,
    lazy: bool = False,
) -> Client:
    """Connect to a cluster, and check that the namespace may be used.

    Missing arguments come from Temporal's usual environment (see `resolve_target`), so none are
    needed if the `temporal` command works. For the embedded server use `connect_embedded`.

    Args:
        address: host:port of the gRPC frontend.
        namespace: Temporal namespace.
        tls: True for the system's certificate authorities, or settings for mTLS.
        api_key: API key, sent as a bearer token.
        plugins: Temporal plugins; workers made from the client use them too.
        identity: Name of this process in histories; `default_identity()` when None.
        data_converter: Temporal's default when None; plugins may replace it.
        lazy: Connect at the first call instead; nothing is checked then.

    Raises:
        ConnectError: Within 10 s: unreachable, wrong TLS, wrong key, or no such namespace.
    """
    target = resolve_target(address, namespace=namespace, tls=tls, api_key=api_key)
    return await _connect(
        target, plugins=plugins, identity=identity, data_converter=data_converter, lazy=lazy
    )


async def connect_embedded(
    server: ServerInfo,
    *,
    plugins: Sequence[Plugin] = (),
    identity: str | None = None,
    data_converter: DataConverter | None = None,
) -> Client:
    """Connect to an embedded server.

    The environment is ignored, because an API key for a cluster must not be sent to this server.

    Raises:
        ConnectError: The server does not answer within 10 s.
    """
    target = Target(address=server.address, namespace=DEFAULT_NAMESPACE, tls=False)
    return await _connect(
        target, plugins=plugins, identity=identity, data_converter=data_converter, lazy=False
    )


async def _connect(
    target: Target,
    *,
    plugins: Sequence[Plugin],
    identity: str | None,
    data_converter: DataConverter | None,
    lazy: bool,
) -> Client:
    """Connect and check the namespace, with one deadline for both."""
    set_runtime()
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            client = await Client.connect(
                target.address,
                namespace=target.namespace,
                tls=target.tls,
                api_key=target.api_key,
                rpc_metadata=target.metadata,
                plugins=plugins,
                identity=identity or default_identity(),
                data_converter=data_converter or DataConverter.default,
                lazy=lazy,
            )
            if not lazy:
                await _check_namespace(client)
            return client
    except TimeoutError:
        raise ConnectError(
            f"{_server(target)} did not answer within {CONNECT_SECONDS:.0f} s. Check the address"
            " (TEMPORAL_ADDRESS), the network, and whether the server wants TLS (TEMPORAL_TLS)."
        ) from None
    except RPCError as error:
        raise connect_error(error, target) from error
    # The SDK reports a failed connection as a RuntimeError. Its text may hold the API key, so ours
    # has a redacted copy, and the original is not chained to it.
    except (RuntimeError, ValueError) as error:
        raise _transport_error(target, str(error)) from None


async def _check_namespace(client: Client) -> None:
    """Describe the namespace: the cheapest call that checks both the key and the namespace."""
    try:
        await client.workflow_service.describe_namespace(
            DescribeNamespaceRequest(namespace=client.namespace),
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
