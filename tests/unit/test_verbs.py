"""Each verb is declared once, and has all that a user can reach it by."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from holdfast import AgentRunner, sync
from holdfast.cli.app import app
from holdfast.desk.api.writes import writes
from holdfast.desk.identity.tokens import ALLOWED
from holdfast.task.data.commands import ENVELOPE
from holdfast.values.runs.verbs import NAMES, VERBS, Verb
from tests.support.pages import ROOT

SERVED = [verb for verb in NAMES if VERBS[verb].role]


def rows(page: str, column: int) -> Iterator[tuple[set[str], str]]:
    """Yield the code in a column of each row of a page's tables, and the row."""
    for line in (ROOT / "docs" / page).read_text().splitlines():
        cells = line.split(" | ")
        if line.startswith("|") and len(cells) > column:
            yield set(re.findall(r"`(\w+)", cells[column])), line


def test_the_table_has_every_verb_and_no_other() -> None:
    assert set(VERBS) == set(NAMES)


@pytest.mark.parametrize("verb", NAMES)
def test_a_verb_has_a_method_with_a_twin(verb: Verb) -> None:
    method = VERBS[verb].method or verb
    assert getattr(sync.AgentRunner, method).__wrapped__ is getattr(AgentRunner, method)


@pytest.mark.parametrize("verb", SERVED)
def test_a_verb_can_be_reached_from_everywhere(verb: Verb) -> None:
    declared, commands = VERBS[verb], get_command(app)
    assert verb in {getattr(route, "name", "") for route in writes.routes}
    assert verb in ALLOWED[declared.role or "viewer"]
    known: Any = getattr(commands, "commands", {})
    assert verb.replace("_", "-") in known or verb == "uncover"  # which is seen at the desk alone


@pytest.mark.parametrize("verb", NAMES)
def test_the_texts_of_a_verb_name_fields_that_it_knows_and_the_tables_have_it(verb: Verb) -> None:
    declared = VERBS[verb]
    fields = set(re.findall(r'(?<!: )"(\w+)":', declared.body))
    assert fields <= {*declared.arguments, *ENVELOPE, "same", "scope", "until"}
    if declared.role:
        assert [line for names, line in rows("people.md", 1) if (declared.method or verb) in names]
        [row] = [line for names, line in rows("desk.md", 0) if declared.role in names]
        assert f"`{verb}`" in row
