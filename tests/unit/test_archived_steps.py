"""The lines that are carried of archived steps."""

import hashlib
from collections.abc import Iterator

import pytest

from holdfast.task.data.calls import Outcome
from holdfast.task.data.records import Entry, JournalEntry, StepRecord
from holdfast.task.ledger.recording import (
    CHUNK,
    LINES_KEPT,
    TEXTS_KEPT,
    Packed,
    line_of,
    lines_after,
    unpacked,
)
from holdfast.values.messages import Blob, Message, ToolCall
from holdfast.values.steps import TaskStep


def record(n: int, output: object = "", **more: object) -> StepRecord:
    return StepRecord.model_validate(
        {"n": n, "step": TaskStep(step_id=f"s{n}"), "output": output, **more}
    )


def entries(*records: StepRecord) -> list[Entry]:
    return [Entry(step=each) for each in records]


@pytest.mark.parametrize(
    ("made", "output"),
    [
        (record(1, "a\n\n b"), "a b"),
        (record(1, "x" * 100), "x" * 39 + "…"),
        (record(1, {"a": [1]}), '{"a":[1]}'),
        (
            record(1, stored=Blob(sha256="f" * 64, size=99)),
            f"[99 bytes in the archive as {'f' * 11}…",
        ),
    ],
)
def test_a_line_has_the_beginning_of_the_output(made: StepRecord, output: str) -> None:
    assert line_of(made) == (1, "s1", (), output)


def test_a_line_names_the_tools_in_call_order_and_marks_effects() -> None:
    def call(name: str) -> ToolCall:
        return ToolCall(id=name, name=name)

    journal = JournalEntry(
        request="r", calls=(call("look"),), outcomes=(Outcome(content="l", effect="read"),)
    )
    made = record(
        1,
        journal=(journal,),
        calls=(call("pay"), call("refused")),
        outcomes=(
            Outcome(content="paid 7", effect="irreversible"),
            Outcome(at=0, attempts=0, effect="irreversible"),
        ),
        adds=(Message(role="tool", call_id="refused", content="rejected"),),
    )
    assert line_of(made) == (1, "s1", ("look", "pay!", "refused"), "rejected")


def test_no_part_of_a_secret_is_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_PASSWORD", "correcthorsebatterystaplezz9")
    made = record(1, "The word that you want is correcthorsebatterystaplezz9, and more")
    assert line_of(made).output == "The word that you want is [redacted], a…"


def test_lines_of_steps_that_were_undone_or_done_again_are_replaced() -> None:
    packed = lines_after((), entries(*(record(n, f"old {n}") for n in (1, 2, 3))), 3)
    again = [record(2, "new 2"), record(3, "undone"), record(3, "new 3"), record(4, "undone")]
    packed = lines_after(packed, entries(*again), 3)
    assert [line.output for line in unpacked(packed)] == ["old 1", "new 2", "new 3"]
    assert [line.n for line in unpacked(lines_after(packed, [], 1))] == [1]


def rolled(steps: int, every: int = 170) -> Iterator[Packed]:
    """Archive so many steps, some at a time; yield the packed lines each time."""
    packed: Packed = ()
    texts = [hashlib.sha256(bytes([k])).hexdigest() for k in range(250)]
    for first in range(1, steps + 1, every):
        last = min(first + every - 1, steps)
        made = [record(n, texts[n % len(texts)]) for n in range(first, last + 1)]
        packed = lines_after(packed, entries(*made), last)
        yield packed


def test_a_long_task_carries_little_more_than_a_short_one() -> None:
    sizes = [sum(map(len, packed)) for packed in rolled(10_000)]
    short, long = sizes[: 1000 // 170], sizes[3000 // 170 :]
    assert max(long) < 2 * max(short)


def test_the_newest_lines_have_outputs_and_the_oldest_are_dropped() -> None:
    steps = LINES_KEPT + 2 * CHUNK
    *_, packed = rolled(steps)
    kept = unpacked(packed)
    assert [line.n for line in kept] == list(range(steps - len(kept) + 1, steps + 1))
    assert LINES_KEPT <= len(kept) <= LINES_KEPT + CHUNK
    with_output = [line.n for line in kept if line.output]
    assert with_output == list(range(with_output[0], steps + 1))
    assert TEXTS_KEPT <= len(with_output) <= TEXTS_KEPT + CHUNK
    assert {line.step_id for line in kept} == {f"s{line.n}" for line in kept}
