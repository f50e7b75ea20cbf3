"""Reading commands: whatever comes, nothing is raised."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from holdfast.task.data.commands import SIGNAL, Command, Refusal, decode

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
NEAR = st.fixed_dictionaries(
    {},
    optional={
        "id": st.text(min_size=1) | JSON,
        "verb": st.sampled_from(["pause", "resume", "abandon"]) | JSON,
        "by": st.text() | JSON,
        "branch": st.text() | JSON,
        "body": st.dictionaries(st.text(), JSON, max_size=2) | JSON,
        "more": JSON,
    },
)


@given(st.text(max_size=20), st.lists(st.binary(max_size=50), max_size=3))
def test_bytes_of_any_kind_are_read_without_an_error(name: str, payloads: list[bytes]) -> None:
    assert isinstance(decode(name, payloads), Refusal | Command)
    assert isinstance(decode(SIGNAL, payloads), Refusal | Command)


@given(NEAR)
def test_what_is_nearly_a_command_is_read_without_an_error(data: dict[str, Any]) -> None:
    got = decode(SIGNAL, [json.dumps(data).encode()])
    assert len(got.id) <= 200
    assert len(got.reason) <= 2000
    got.model_dump_json()  # and it can be written down again


@given(st.text(min_size=1, max_size=200), st.sampled_from(["pause", "resume", "abandon"]))
def test_a_command_is_read_as_it_was_sent(identity: str, verb: Any) -> None:
    sent = Command(id=identity, verb=verb, by="ann", body={"reason": "lunch"})
    got = decode(SIGNAL, [sent.model_dump_json().encode()])
    assert got == sent
    assert got.reason == "lunch"


def test_a_refusal_says_why() -> None:
    cases = {
        b"[1]": "JSON object",
        b"nonsense": "not JSON",
        b'{"id":"a","verb":"explode"}': "explode",
        b'{"verb":"pause"}': "id",
        b'{"id":"","verb":"pause"}': "id",
        b'{"id":"a","verb":"pause","body":3}': "body",
        b'{"id":"\\ud800","verb":"pause"}': "surrogate",
    }
    for data, word in cases.items():
        got = decode(SIGNAL, [data])
        assert isinstance(got, Refusal)
        assert word in got.reason
