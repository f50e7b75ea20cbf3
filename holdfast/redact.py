"""Keep secrets out of errors, records and logs."""

from __future__ import annotations

import os
import re

_SECRET_NAME = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD)$")
_KNOWN_SHAPE = re.compile(r"\b(sk|pk|rk)-[A-Za-z0-9_-]{12,}|Bearer\s+[A-Za-z0-9._~+/=-]{12,}")
SHORTEST_SECRET = 8
REDACTED = "[redacted]"


def redact(text: str) -> str:
    """Replace secrets in a text.

    A secret is the value of an environment variable whose name ends in KEY, TOKEN, SECRET or
    PASSWORD and that has at least eight characters, or a text of the shape of an API key.
    """
    for name, value in os.environ.items():
        if len(value) >= SHORTEST_SECRET and _SECRET_NAME.search(name.upper()):
            text = text.replace(value, REDACTED)
    return _KNOWN_SHAPE.sub(REDACTED, text)
