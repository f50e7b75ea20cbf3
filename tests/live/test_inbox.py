"""`holdfast inbox`: driven by lines on stdin, and by single keys on a terminal."""

import os
import pty
import subprocess
import sys
import termios
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.support import forked
from tests.support.cli import Cli, Here, make_cli


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Generator[Cli]:
    cli = make_cli(tmp_path_factory.mktemp("inbox"))
    with cli.running("dev", "examples.expense_approval:agents", "--json") as dev:
        assert dev.first_json()["agents"] == ["clerk"]
        yield cli
        assert dev.end().code == 0


def ask(cli: Cli, *names: str, euros: int, more: tuple[str, ...] = ()) -> list[str]:
    """Create tasks that want to pay, and wait until they are listed as asking, in this order."""
    here = Here(cli.home, cli.data_dir)
    for name in names:
        wish = f"Please pay {name} {euros} euros."
        here("run", "clerk", wish, "--task-id", name, "--detach", *more)
        for _ in range(200):
            if f"{name}:1" in here("approvals", "--json").out:
                break
            time.sleep(0.1)
        else:
            raise AssertionError(cli("show", name).out)
    return [f"{name}:1" for name in names]


def sweep(cli: Cli, lines: str, *options: str, expect: int = 0) -> tuple[list[Any], str]:
    """Go through the inbox with these lines; return the decisions and what was said."""
    done = cli("inbox", "--json", *options, lines=lines, expect=expect)
    return done.lines, done.err


def test_each_thing_that_waits_is_decided_with_one_line(cli: Cli) -> None:
    assert sweep(cli, "") == ([], "Nothing waits for a person.\n")
    ask(cli, "ada", "bob", "cyd", "dan", "eve", euros=500)
    ask(
        cli, "fay", euros=7, more=("--max-turns", "1")
    )  # used up after the payment, which is too small to ask
    script = [
        "x",  # no such key: help
        "a looks right",
        "n",  # not meant
        "a looks right",
        "y",
        "e",
        "not JSON",
        'e {"to": "bob", "euros": "many"}',  # the tool's schema refuses it: it stays open
        "y",
        'e {"to": "bob", "euros": 500}',  # as it was
        'e {"to": "bob", "euros": 5}',
        "",  # shown, and not meant
        'e {"to": "bob", "euros": 50}',
        "y",
        "r",
        "",  # no reason, no decision
        "r too much",
        "v",
        "paid last week",
        "s",
        "e",  # a budget has no arguments
        "r",
        "enough",
    ]
    decisions, said = sweep(cli, "\n".join([*script, ""]), "--by", "ann", expect=3)
    assert [(d["approval"], d["decision"], d["text"]) for d in decisions] == [
        ("ada:1", "approved", "looks right"),
        ("bob:1", "edited", ""),
        ("cyd:1", "rejected", "too much"),
        ("dan:1", "responded", "paid last week"),
        ("eve:1", "skipped", ""),
        ("fay:1", "rejected", "enough"),
    ]
    assert {(d["by"], d["agent"], d["status"] or "left") for d in decisions} == {
        ("ann", "clerk", "applied"),
        ("ann", "clerk", "left"),
    }
    assert decisions[1]["arguments"] == {"to": "bob", "euros": 50}
    for text in (
        "1 of 6: approval of pay",
        "asked for Please pay ada 500 euros.",
        '"euros": 500',
        "expires   never",
        "q  quit",
        "a Run pay, e Edit arguments, r Do not run pay, v Enter a result, z Snooze, s skip",
        "pay cannot be undone. Press y if you mean it",
        "pay runs with:",
        '"euros": 5\n',
        "so nothing was decided",
        "a Allow one more model call, r Finish now, z Snooze, s skip",
        "must be a JSON object",
        "do not fit",
        "as they were",
        "nothing was decided",
        "6 of 6: a decision on its budget",
        "5 decided, 1 left",
    ):
        assert text in said, said
    assert cli("attach", "ada").out.startswith("500 euros were paid to ada")
    assert cli("attach", "bob").out.startswith("50 euros were paid to bob | ann changed")
    assert "rejected by ann: too much" in cli("attach", "cyd").out
    assert cli("attach", "dan").out.startswith("paid last week")
    cli("abandon", "eve", "--reason", "the end of the test")


def until_raw(terminal: int) -> None:
    """Wait until a key is read: a terminal drops what was typed before it gives single keys."""
    for _ in range(10_000):
        if not termios.tcgetattr(terminal)[3] & termios.ICANON:
            return
        time.sleep(0.01)
    raise AssertionError


def test_on_a_terminal_one_key_is_enough_and_the_editor_is_opened(cli: Cli, tmp_path: Path) -> None:
    ask(cli, "ian", "joe", "leo", "kay", euros=800)
    editor = tmp_path / "editor.py"
    editor.write_text(
        "import pathlib, sys\n"
        "file = pathlib.Path(sys.argv[1])\n"
        "file.write_text(file.read_text().replace('800', '8'))\n"
    )
    master, slave = pty.openpty()
    with subprocess.Popen(
        forked.command("-m", "holdfast.cli", "inbox", "--by", "ann"),
        cwd=cli.home,
        env=cli.environment(EDITOR=f"{sys.executable} {editor}"),
        stdin=slave,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        os.close(slave)
        assert process.stderr is not None
        try:
            told = ""
            pressed = (b"a", b"y", b"e", b"y", b"a", b"y", b"\x03")  # the last is Ctrl-C
            for number, keys in enumerate(pressed):
                said = ""
                while not said.endswith(("help > ", "mean it > ")):
                    said += process.stderr.read(1)
                told += said
                if number == 4:
                    cli("approve", "leo:1", "--by", "bob")  # meanwhile
                until_raw(master)
                os.write(master, keys)
            out, rest = process.communicate(timeout=100)
        finally:
            process.kill()
            os.close(master)
    assert process.returncode == 130, rest
    assert out.splitlines()[:2] == ["ian:1 approved by ann", "joe:1 edited by ann"]
    assert "approve by bob" in told
    assert cli("attach", "joe").out.startswith("8 euros were paid to joe")
    assert "kay:1" in cli("approvals").out
    cli("abandon", "kay", "--reason", "the end of the test")


CASHIER = """
import time
from pathlib import Path
from holdfast import Agent, ToolCall, tool
from holdfast.testing import ScriptedModel


@tool(timeout=2)
def pay(to: str, method: str = "wire") -> str:
    "Pay, once the file `open` is there."
    with Path(to).open("a") as book:
        book.write("x")
    while not Path("open").exists():
        time.sleep(0.02)
    return f"paid {to}"


def answer(request):
    said = [m.text for m in request.messages if m.role == "tool"]
    if said:
        return said[-1]
    to = request.messages[-1].text
    return ToolCall(id="", name="pay", arguments=f'{{"to": "{to}"}}')


cashier = Agent(name="cashier", model=ScriptedModel(answer), tools=[pay])
"""


def test_calls_that_may_have_happened_are_decided_by_keys_that_say_so(tmp_path: Path) -> None:
    cli = make_cli(tmp_path)
    (cli.home / "cashier.py").write_text(CASHIER, encoding="utf-8")
    keys = {"Kim": "h\nv\nreceipt 7\n", "Lea": "a\nno\na\ny\n", "Max": "r the bank is closed\n"}
    with cli.running("dev", "cashier:cashier", "--json") as dev:
        dev.first_json()
        here = Here(cli.home, cli.data_dir)
        for name in keys:
            here("run", "cashier", name, "--task-id", name, "--detach")
        while len(listed := here("approvals", "--json").lines) < 3:
            time.sleep(0.1)
        (cli.home / "open").touch()
        decided, said = sweep(cli, "".join(keys[line["id"][:3]] for line in listed), "--by", "ann")
        assert "a It did not happen: pay now, v It happened: enter the result, r Give it up" in said
        assert "approve" not in said
        assert said.count('method: "wire" (default)') == 3
        assert said.count("it happens twice. Press y if you mean it") == 2
        assert {(d["approval"], d["decision"], d["kind"]) for d in decided} == {
            ("Kim:1", "responded", "unknown"),
            ("Lea:1", "approved", "unknown"),
            ("Max:1", "rejected", "unknown"),
        }
        for name, says in zip(keys, ("receipt 7", "paid Lea", "not known"), strict=True):
            assert says in here("attach", name).out
        assert [(cli.home / name).read_text("utf-8") for name in keys] == ["x", "xx", "x"]
        assert dev.end().code == 0
