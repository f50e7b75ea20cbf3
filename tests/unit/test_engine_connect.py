"""Servers that no dev server can play: one that refuses the key, one that never answers."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast.engine.connect import connect_client
from holdfast.engine.target import Target, resolve_target
from holdfast.errors import ConnectError

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(handler: Handler) -> AsyncGenerator[str]:
    server = await asyncio.start_server(handler, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """Return one HTTP/2 frame."""
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload


def field(name: bytes, value: bytes) -> bytes:
    """Return one header, literal and not indexed."""
    return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value


def refusing(status: int) -> Handler:
    """Answer each gRPC call with a status and nothing else."""
    headers = b"\x88" + field(b"content-type", b"application/grpc")
    headers += field(b"grpc-status", str(status).encode()) + field(b"grpc-message", b"no")

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readexactly(24)
            writer.write(frame(4, 0, 0, b""))
            while True:
                head = await reader.readexactly(9)
                await reader.readexactly(int.from_bytes(head[:3]))
                if head[3] == 4 and not head[4] & 1:
                    writer.write(frame(4, 1, 0, b""))
                if head[3] == 1:
                    writer.write(frame(1, 5, int.from_bytes(head[5:]), headers))
        except asyncio.IncompleteReadError:
            writer.close()

    return handle


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for name in ("ADDRESS", "NAMESPACE", "API_KEY", "TLS", "PROFILE"):
        monkeypatch.delenv(f"TEMPORAL_{name}", raising=False)
    path = tmp_path / "temporal.toml"
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(path))
    return path


@pytest.mark.parametrize("status", [16, 7])
async def test_a_refused_key_is_explained_and_never_shown(status: int) -> None:
    async with listening(refusing(status)) as address:
        with pytest.raises(ConnectError, match=r"API key or certificate was refused") as caught:
            await connect_client(address, api_key="secret-key", tls=False)
    error = caught.value
    assert "secret-key" not in f"{error} {error.__cause__!r} {error.__context__!r}"
    assert "TEMPORAL_API_KEY" in str(error)


async def test_a_server_that_never_answers_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.engine.target.CONNECT_SECONDS", 0.2)

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with listening(silent) as address:
        with pytest.raises(ConnectError, match="did not answer"):
            await connect_client(address)


def test_arguments_win_and_the_rest_comes_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert resolve_target() == Target(address="localhost:7233", namespace="default")
    monkeypatch.setenv("TEMPORAL_ADDRESS", "env:1")
    monkeypatch.setenv("TEMPORAL_NAMESPACE", "env")
    monkeypatch.setenv("TEMPORAL_API_KEY", "secret-key")
    found = resolve_target("arg:2")
    assert (found.address, found.namespace, found.api_key) == ("arg:2", "env", "secret-key")
    assert "secret-key" not in repr(found)


def test_a_profile_of_the_configuration_file_is_read(environment: Path) -> None:
    environment.write_text(
        '[profile.default]\naddress = "toml:3"\nnamespace = "toml"\n', encoding="utf-8"
    )
    assert resolve_target().address == "toml:3"
    assert resolve_target(namespace="arg").namespace == "arg"


def test_a_configuration_that_cannot_be_read_is_explained(environment: Path) -> None:
    environment.write_text("not toml [", encoding="utf-8")
    with pytest.raises(ConnectError, match="TEMPORAL_CONFIG_FILE"):
        resolve_target()
