"""Connect a client to a Temporal server, with a deadline and with errors that say what to do."""

from __future__ import annotations

from collections.abc import Sequence

from temporalio.client import Client, Plugin
from temporalio.converter import DataConverter
from temporalio.service import TLSConfig

from holdfast.engine.dev_server.serverinfo import ServerInfo
from holdfast.engine.target import (
    Target,
    check_namespace,
    connecting,
    default_identity,
    embedded_target,
    resolve_target,
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

    Raises:
        ConnectError: The server does not answer within 10 s.
    """
    target = embedded_target(server)
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
    async with connecting(target):
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
            await check_namespace(client.workflow_service, client.namespace)
        return client
