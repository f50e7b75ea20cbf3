"""The desk: every task in a browser, an inbox for people, an HTTP API for programs."""

from holdfast.values.code.extras import needing
from holdfast.values.code.stub_names import late_names

__all__, __dir__, _load = late_names(__name__, __file__)


def __getattr__(name: str) -> object:
    """Load a name when it is used: most of them need the extra `desk`."""
    with needing("oidc" if name == "OIDC" else "desk", "The desk"):
        return _load(name)
