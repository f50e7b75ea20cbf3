"""JSON as hypothesis draws it."""

from typing import Any

from hypothesis import strategies as st

SCALARS = st.none() | st.booleans() | st.integers() | st.text()
FINITE = st.floats(allow_nan=False, allow_infinity=False)


def json_of(
    leaves: st.SearchStrategy[Any], keys: st.SearchStrategy[str] | None = None, most: int = 10
) -> st.SearchStrategy[Any]:
    """Draw values with these leaves and keys, texts by default, and so many leaves at most."""
    named = st.text() if keys is None else keys
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(named, inner, max_size=4),
        max_leaves=most,
    )
