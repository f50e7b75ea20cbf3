"""The desk: every task in a browser, an inbox for people, an HTTP API for programs."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from holdfast.values.code.extras import needing

if TYPE_CHECKING:
    from holdfast.desk.identity.guard import Proxy
    from holdfast.desk.identity.oidc import OIDC
    from holdfast.desk.identity.protection import Limits
    from holdfast.desk.identity.tokens import Identity, May, Role, Tokens
    from holdfast.desk.server import desk_app, desk_url

_LATE = {
    "Identity": "holdfast.desk.identity.tokens",
    "Limits": "holdfast.desk.identity.protection",
    "May": "holdfast.desk.identity.tokens",
    "OIDC": "holdfast.desk.identity.oidc",
    "Proxy": "holdfast.desk.identity.guard",
    "Role": "holdfast.desk.identity.tokens",
    "Tokens": "holdfast.desk.identity.tokens",
    "desk_app": "holdfast.desk.server",
    "desk_url": "holdfast.desk.server",
}

__all__ = ["OIDC", "Identity", "Limits", "May", "Proxy", "Role", "Tokens", "desk_app", "desk_url"]


def __getattr__(name: str) -> object:
    """Load a name when it is used: most of them need the extra `desk`."""
    if name not in _LATE:
        raise AttributeError(f"module 'holdfast.desk' has no attribute {name!r}")
    with needing("oidc" if name == "OIDC" else "desk", "The desk"):
        return getattr(importlib.import_module(_LATE[name]), name)
