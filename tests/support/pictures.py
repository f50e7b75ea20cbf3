"""Tiny valid pictures, made in code."""

import base64
import random
import struct
import zlib
from pathlib import Path
from typing import Any

from tests.support.rig import histories


def png(shade: int = 0, *, side: int = 1) -> bytes:
    """Make a grey PNG of `side` by `side` pixels; with many of them, one that does not compress."""
    noise = random.Random(shade)
    row = bytes([shade]) if side == 1 else b""
    rows = b"".join(b"\0" + (row or noise.randbytes(side)) for _ in range(side))
    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    chunks = (b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def url_of(data: bytes, media_type: str = "image/png") -> str:
    """Write bytes as a data: URL."""
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"


async def histories_hold(runner: Any, task: Any, data: bytes) -> bool:
    """Tell whether the history of a task holds the bytes of a picture, plain or as Base64."""
    task_id = task if isinstance(task, str) else task.task_id
    raw = b"".join(
        event.SerializeToString()
        for run in await histories(runner.client, task_id)
        for event in run.events
    )
    middle = len(data) // 2
    pieces = [data[middle : middle + 24]]
    pieces += [base64.b64encode(data[at : at + 24]) for at in (0, middle - middle % 3)]
    return any(piece in raw for piece in pieces)


def copies(directory: str, data: bytes) -> tuple[int, int]:
    """Count the files of an archive that are these bytes, and those that hold them as Base64."""
    encoded = base64.b64encode(data)
    files = [path.read_bytes() for path in Path(directory).rglob("*") if path.is_file()]
    return sum(found == data for found in files), sum(encoded in found for found in files)
