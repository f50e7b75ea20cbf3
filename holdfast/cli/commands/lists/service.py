"""The server of a command that only asks for what it lists: no client, no archive, no agents."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from temporalio.service import WorkflowService

from holdfast.cli.options import Common, check_data
from holdfast.engine.target import connect_service, embedded_target, resolve_target


@dataclass(frozen=True)
class Service:
    """A connection to a server.

    Attributes:
        calls: What the server offers.
        namespace: Temporal namespace.
    """

    calls: WorkflowService
    namespace: str


@asynccontextmanager
async def service_of(common: Common) -> AsyncGenerator[Service]:
    """Connect to the server that the options name; an embedded one is joined, or started.

    Raises:
        EngineError: It cannot be used.
        InvalidArgumentError: The options do not go together, or there is no data directory.
    """
    directory = common.embedded
    if directory is None:
        target = resolve_target(common.address, namespace=common.namespace)
        yield Service(await connect_service(target), target.namespace)
        return
    check_data(directory)
    from holdfast.engine.dev_server.leases import leased_server  # needs the extra `local`

    async with leased_server(directory) as server:
        target = embedded_target(server)
        yield Service(await connect_service(target), target.namespace)
