"""Reading commands: whatever comes, nothing is raised."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.task.data.commands import Command, Refusal, decode
from holdfast.task.data.undo import UndoRequest
from holdfast.values.runs.verbs import NAMES as VERB_NAMES
from holdfast.values.runs.verbs import VERBS, Verb
from tests.support.drawn import SCALARS, json_of

JSON = json_of(SCALARS | st.floats())
NEAR = st.fixed_dictionaries(
    {},
    optional={
        "id": st.text() | JSON,
        "by": st.text() | JSON,
        "branch": st.text() | JSON,
        "reason": st.text() | JSON,
        "more": JSON,
    },
)
NAMES = st.sampled_from(VERB_NAMES)


@given(st.text(max_size=20) | NAMES, st.lists(st.binary(max_size=50), max_size=3))
def test_bytes_of_any_kind_are_read_without_an_error(name: str, payloads: list[bytes]) -> None:
    assert isinstance(decode(name, payloads), Refusal | Command)


@given(NAMES, NEAR)
def test_what_is_nearly_a_command_is_read_without_an_error(name: str, data: dict[str, Any]) -> None:
    got = decode(name, [json.dumps(data).encode()])
    assert len(got.id) <= 200
    assert len(got.reason) <= 2000
    got.model_dump_json()  # and it can be written down again


@given(st.text(max_size=200), st.sampled_from(["pause", "resume", "abandon"]))
def test_a_command_is_read_as_it_was_sent(identity: str, verb: Verb) -> None:
    sent = Command(id=identity, verb=verb, by="ann", branch="2", body={"reason": "lunch"})
    got = decode(verb, [json.dumps(sent.sent()).encode()])
    assert got == sent
    assert got.reason == "lunch"


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_knows_the_fields_of_its_description_and_no_others(verb: Verb) -> None:
    named = set(re.findall(r'(?<!: )"(\w+)"', VERBS[verb].body.partition(" or {")[0]))
    assert not Command(verb=verb, body=dict.fromkeys(named)).misspelt
    wrong = Command(verb=verb, body={**dict.fromkeys(named), "bye": "ann"}).misspelt
    assert wrong.startswith(f"Unknown fields of {verb!r}: bye. Did you mean 'by'? There are: ")


def test_an_update_notes_fields_that_it_does_not_have_and_forgets_none_that_it_has() -> None:
    read = UndoRequest.model_validate_json('{"too": 0, "to": 3, "unknown": ["x"]}')
    assert (read.to, read.unknown) == (3, ("too", "unknown"))
    asked = UndoRequest(to=3, by="ann")
    assert (asked.wire(), asked.unknown) == ({"to": 3, "by": "ann"}, ())
    assert UndoRequest.model_validate(asked.wire()) == asked


def test_a_refusal_says_why() -> None:
    cases = {
        b"[1]": "JSON object",
        b'"be brief"': VERBS["pause"].body,
        b"null": "JSON object",
        b"nonsense": "not JSON",
        b'{"id":7}': "id",
        b'{"by":["ann"]}': "by",
        b'{"id":"\\ud800"}': "surrogate",
    }
    for data, word in cases.items():
        got = decode("pause", [data])
        assert isinstance(got, Refusal)
        assert got.verb == "pause"
        assert word in got.reason
    unknown = decode("explode", [b"{}"])
    assert isinstance(unknown, Refusal)
    assert "'explode'" in unknown.reason
    assert "feedback" in unknown.reason
