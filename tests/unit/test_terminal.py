"""What models, tools and users write is shown by a terminal, and never obeyed."""

import json
import logging
import unicodedata
from io import StringIO
from types import SimpleNamespace
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from holdfast.cli import output
from holdfast.cli.following.live import LiveView
from holdfast.reading.step_events import ChatEnd, ToolCalled, print_event
from holdfast.values.messages import ToolCall
from holdfast.values.runs.status import TaskStatus
from holdfast.values.text.logs import log
from holdfast.values.text.terminal import INVISIBLE, printable, printable_json

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\x08\x7f\u202eevil\u2066[red]markup[/red][/]"


def is_harmless(text: str) -> bool:
    """Whether a terminal only shows a text."""
    return all(each in "\n\t" or unicodedata.category(each) not in ("Cc", "Cs") for each in text)


@given(st.text(st.characters()))
def test_no_text_has_anything_to_obey(text: str) -> None:
    assert is_harmless(printable(text))
    assert is_harmless(printable_json(json.dumps(text, ensure_ascii=False)))


@given(st.text(st.characters(exclude_categories=["Cc", "Cf", "Cs", "Zl", "Zp"])))
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    text = INVISIBLE.sub("", text)
    assert printable(text) == text


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_json_keeps_its_value(text: str) -> None:
    assert json.loads(printable_json(json.dumps({text: text}, ensure_ascii=False))) == {text: text}


def test_characters_without_width_are_written_out() -> None:
    assert printable("pay\u200bpal\ufeff\u00ad") == "pay\\u200bpal\\ufeff\\xad"
    assert printable("a\U000e0070\U000e0061") == "a\\U000e0070\\U000e0061"
    assert printable("pay\u200dpal") == "pay\\u200dpal"
    family = "\U0001f469\u200d\U0001f467"  # one sign, of two and a joiner
    persian = "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"
    assert (printable(family), printable(persian)) == (family, persian)
    hidden = "".join(map(chr, (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))))
    assert printable(f"pay{hidden}\u3164\u2800\u115f") == "pay" + "".join(
        f"\\u{ord(c):04x}" if ord(c) < 0x10000 else f"\\U{ord(c):08x}"
        for c in f"{hidden}\u3164\u2800\u115f"
    )
    assert printable(" \u200d \u200c") == " \\u200d \\u200c"
    heart_and_keycap = "\u2764\ufe0f 1\ufe0f\u20e3"
    assert printable(heart_and_keycap) == heart_and_keycap
    assert printable_json('"\U000e0070"') == '"\\udb40\\udc70"'


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the consoles anew, so that they write to what pytest captures; without colours."""
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    output.out.cache_clear()
    output.err.cache_clear()


@pytest.mark.usefixtures("plain")
def test_everything_that_the_command_line_prints_is_harmless(
    capsys: pytest.CaptureFixture[str],
) -> None:
    output.answer(HOSTILE)
    output.say(HOSTILE)
    output.emit({"said": HOSTILE})
    output.out().print(f"{'event':<10} {HOSTILE}", HOSTILE, style="red")
    output.table(output.out(), ("task", "input"), [("t", HOSTILE)])
    print_event(ChatEnd(number=1, task_id="t", status="failed", error=HOSTILE))
    got = capsys.readouterr()
    assert is_harmless(got.out + got.err), got
    assert got.out.count("\\x1b]0;owned") == 5
    assert "[red]markup[/red][/]" in got.err
    assert json.loads(got.out.splitlines()[1])["said"] == HOSTILE


def test_a_state_has_the_desks_colour_on_a_terminal_unless_colours_are_unwanted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    lines = [("a", "running", "x" * 60), ("b", "needs attention: why", "y"), ("c", "undone", "z")]
    for unwanted, escapes in ((None, True), ("1", False)):
        if unwanted is not None:
            monkeypatch.setenv("NO_COLOR", unwanted)
        file = StringIO()
        console = type(output.out())(file=file, force_terminal=True, width=40)
        output.table(console, ("task", "status", "input"), lines, state=1)
        drawn = file.getvalue()
        assert ("\x1b[34mrunning" in drawn, "\x1b[31mneeds" in drawn) == (escapes, escapes)
        assert max(map(len, Text.from_ansi(drawn).plain.splitlines())) <= 40
    assert [output.colour(each) for each in get_args(TaskStatus)] == [
        *("blue", "yellow", "dim", "red", "green", "green", "red", "dim")
    ]


def test_the_last_line_of_the_live_view_is_harmless_and_no_markup(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The name of a tool is the model's word when no tool has it."""
    file = StringIO()
    console = type(output.out())(file=file, force_terminal=True, color_system=None, markup=False)
    assert isinstance(console, Console)
    runner: Any = SimpleNamespace(reader=None, response=None)
    view = LiveView(runner, "t", console)
    call = ToolCall(id="c", name=HOSTILE, arguments="{}")
    with console.status("waiting") as status:
        monkeypatch.setattr(view, "_status", status)
        view.take(ToolCalled(number=1, task_id="t", step_id="s1", call=call))
    said = file.getvalue()
    assert "\x1b]" not in said
    assert not set(said) & {"\x07", "\x9b", "\u202e"}
    assert "[red]markup[/red][/]" in said


def test_what_is_logged_is_harmless(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="holdfast"):
        try:
            raise ValueError(HOSTILE)
        except ValueError:
            log.warning("it said %s", HOSTILE, exc_info=True)
    assert is_harmless(caplog.text)
    assert caplog.text.count("\\x1b]0;owned") == 2
