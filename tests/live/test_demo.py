"""The demo: the worker process is killed in mid-call, the answer is right, nothing is repeated."""

import signal
import threading
from pathlib import Path

import psutil
import pytest

from holdfast.testing import FakeOpenAI, FakeRequest, call, hang
from tests.support.cli import Cli, unforked

KEY = "sk-of-the-tests-0123456789"


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path)


def test_the_demo_survives_the_kill_and_repeats_nothing_that_was_done(cli: Cli) -> None:
    report = cli("demo", "--data-dir", "here", "--json").json
    assert report["answer"] == "The result of (121 * 3) + 42 is 405."
    assert (report["expected"], report["correct"]) == (405.0, True)
    first, second = report["workers"]
    assert report["kill"] == {"pid": first, "during": "model call 2, attempt 1"}
    calls = [(c["kind"], c["starts"], c["completions"], c["pids"]) for c in report["calls"]]
    assert calls == [
        ("model", 1, 1, [first]),
        ("tool", 1, 1, [first]),
        ("model", 2, 1, [first, second]),
        ("tool", 1, 1, [second]),
        ("model", 1, 1, [second]),
    ]
    assert report["repeated"] == []
    assert not psutil.pid_exists(first)
    assert not psutil.pid_exists(second)
    # The same, as the ledger of the data directory has it.
    shown = cli("show", report["task_id"], "--data-dir", "here", "--json").json
    assert shown["task"]["status"] == "finished"
    assert sum(step["model_calls"] for step in shown["steps"]) == 3
    cli("stop", "--data-dir", "here")


def test_a_demo_that_is_stopped_leaves_no_process(cli: Cli) -> None:
    with cli.running("demo", "--json", python=unforked) as demo:
        demo.until_said("Running step")
        family = psutil.Process(demo.process.pid).children(recursive=True)
        assert family
        assert demo.end(signal.SIGINT).code == 130
    _, alive = psutil.wait_procs(family, timeout=100)
    assert alive == []


def test_the_demo_uses_a_real_model_when_there_is_a_key_and_tells_its_story_in_plain_lines(
    cli: Cli,
) -> None:
    killed = threading.Event()
    add = call("add", {"a": 363, "b": 42})
    with FakeOpenAI() as fake:
        fake.add(call("multiply", {"a": 121, "b": 3}), "The result is 405.")
        # The kill may come before the request of the worker process that it hits, or after it: each
        # request of this turn gets the same answer, and none gets it while that process lives.
        fake.when(lambda asked: is_second(asked) and not killed.is_set(), hang(add))
        fake.when(is_second, add)
        with cli.running("demo", environment=real_model(fake)) as demo:
            told = ""
            while "kill -9" not in told:
                line = demo.out.readline()
                assert line, demo.err.read()
                told += line
            killed.set()
            fake.release()
            ran = demo.finish()
    told += ran.out
    assert ran.code == 0, ran.err
    for text in ("gpt-of-the-tests", "effect='read'", "The result is 405."):
        assert text in told
    assert "\x1b" not in told
    assert KEY not in told + ran.err
    assert list(cli.home.iterdir()) == []


def is_second(asked: FakeRequest) -> bool:
    """Tell whether a request is of the second turn, in which the worker process is killed."""
    return len(asked.results) == 1


@pytest.mark.exhaustive
def test_a_wrong_answer_and_a_kill_that_came_too_late_are_told(cli: Cli) -> None:
    with FakeOpenAI() as fake:
        fake.reply("I think it is 7.")
        told = cli("demo", expect=1, environment=real_model(fake)).out
    assert "the answer is WRONG" in told
    assert "No worker was killed" in told


def real_model(fake: FakeOpenAI) -> dict[str, str]:
    return {
        "OPENAI_API_KEY": KEY,
        "OPENAI_BASE_URL": fake.base_url,
        "HOLDFAST_MODEL": "gpt-of-the-tests",
    }
