"""Artifacts: what may be kept, when, and which of them a task has."""

import asyncio
import threading
import unicodedata
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast import ToolContext
from holdfast.archive.archive import Archive
from holdfast.archive.artifacts import MOST_OF_CALL, MOST_VARIABLE, artifact_of
from holdfast.errors import ArchiveError, InvalidArgumentError, UserError
from holdfast.reading.artifacts import KeptArtifact, artifacts_in, named_in, newest
from holdfast.task import waits
from holdfast.task.data.calls import Called, Outcome, Wait
from holdfast.task.data.records import Entry, EventRecord, LeftStep, OpenState, OpenStep, StepRecord
from holdfast.values.messages import Artifact, ToolCall
from holdfast.values.steps import TaskStep
from tests.unit.test_call_states import AT, N, complete, running

E_ACUTE = "\N{LATIN SMALL LETTER E WITH ACUTE}"


class Kept:
    """Keeps in an archive, as the activity of a call does."""

    def __init__(self, place: Path) -> None:
        self.archive = Archive(place)

    async def artifact(self, reference: str) -> tuple[Artifact, bytes]:
        raise AssertionError(reference)


@pytest.fixture
def ctx(tmp_path: Path) -> ToolContext:
    made: ToolContext = ToolContext(task_id="t")
    made.keeper = Kept(tmp_path)
    return made


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "must say something"),
        (" ", "must say something"),
        (" a", "no file can be named so"),
        (".", "no file can be named so"),
        ("..", "no file can be named so"),
        ("a/b", "it has '/'"),
        ("a\\b", r"it has '\\'"),
        ("c:a", "it has ':'"),
        ("a\nb", "control characters"),
        ("a\x00", "control characters"),
        ("a\ud800", "lone surrogates"),
        ("a\N{RIGHT-TO-LEFT OVERRIDE}gpj.exe", "characters that nothing shows"),
        ("x" * 201, "at most 200 characters"),
        (E_ACUTE * 101, "200 bytes"),
        (7, "must be a text"),
        (None, "must be a text"),
    ],
)
def test_a_name_is_that_of_a_file(name: Any, said: str) -> None:
    with pytest.raises(InvalidArgumentError) as raised:
        artifact_of(name, b"")
    assert said in str(raised.value)


def test_names_that_look_alike_are_one() -> None:
    apart = unicodedata.normalize("NFD", f"r{E_ACUTE}sum{E_ACUTE}.txt")
    made, _ = artifact_of(apart, "x")
    assert made.name == f"r{E_ACUTE}sum{E_ACUTE}.txt"
    assert made.name != apart


@pytest.mark.parametrize(
    ("name", "data", "given", "found"),
    [
        ("a.csv", "x", "", "text/csv"),
        ("a.csv", b"x", "text/Plain", "text/plain"),
        ("a", "x", "", "text/plain"),
        ("a", b"x", "", "application/octet-stream"),
        ("a.tar.gz", b"x", "", "application/octet-stream"),
        ("a.svg", b"x", "", "image/svg+xml"),
    ],
)
def test_its_type_is_given_or_told_by_its_name(
    name: str, data: bytes | str, given: str, found: str
) -> None:
    assert artifact_of(name, data, given)[0].media_type == found


@pytest.mark.parametrize(
    "given", ["text", "text/", "a/b; charset=utf-8", "a/b\r\nX: y", "a b/c", f"a/{'b' * 65}", 7]
)
def test_what_is_no_media_type_is_refused(given: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="as 'text/csv', without parameters"):
        artifact_of("a", b"", given)


@pytest.mark.parametrize(
    ("data", "said"),
    [(None, "bytes or a text"), ({"a": 1}, "bytes or a text"), ("\ud800", "UTF-8")],
)
def test_what_is_no_content_is_refused(data: Any, said: str) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        artifact_of("a", data)


def test_it_has_a_largest_size(ctx: ToolContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MOST_VARIABLE, "10")
    assert ctx.artifacts.put("a", b"x" * 10)
    with pytest.raises(InvalidArgumentError, match=r"11 bytes; there may be 10\. Make it smaller"):
        ctx.artifacts.put("a", b"x" * 11)
    monkeypatch.setenv(MOST_VARIABLE, "10 MB")
    with pytest.raises(InvalidArgumentError, match="number of bytes"):
        ctx.artifacts.put("a", b"")


async def test_the_bytes_are_in_the_archive_once_it_returns(
    ctx: ToolContext, tmp_path: Path
) -> None:
    for data in (b"\x00\xff", bytearray(b"x"), memoryview(b"y"), E_ACUTE):
        reference = await ctx.artifacts.aput("a.bin", cast("bytes", data), "a/b")
        [*_, kept] = ctx.kept
        plain = data.encode() if isinstance(data, str) else bytes(data)
        assert Archive(tmp_path).get(kept.stored.sha256) == plain
        assert (kept.stored.size, kept.reference) == (len(plain), reference)


def test_a_context_made_by_hand_checks_and_remembers() -> None:
    ctx: ToolContext = ToolContext()
    assert ctx.artifacts.put("a.txt", "hello") == "a.txt@2cf24dba5fb0"
    assert [each.name for each in ctx.kept] == ["a.txt"]
    with pytest.raises(InvalidArgumentError):
        ctx.artifacts.put("a/b", "hello")


async def test_nothing_is_kept_or_read_once_the_call_is_over(ctx: ToolContext) -> None:
    ctx.artifacts.put("a", b"1")
    ctx.keeper = None
    with pytest.raises(UserError, match="The call has ended"):
        ctx.artifacts.put("b", b"2")
    with pytest.raises(UserError, match="The call has ended"):
        await ctx.artifacts.read("a")
    assert [each.name for each in ctx.kept] == ["a"]


async def test_a_put_that_ends_after_the_call_is_refused(ctx: ToolContext) -> None:
    keeper = cast("Kept", ctx.keeper)
    put = keeper.archive.put

    def slow(data: bytes) -> str:
        ctx.keeper = None  # the tool ends while the archive writes
        return put(data)

    vars(keeper.archive)["put"] = slow
    with pytest.raises(UserError, match="The call has ended"):
        await ctx.artifacts.aput("a", b"1")


def test_an_archive_that_refuses_is_asked_again(
    ctx: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    monkeypatch.setattr("holdfast.archive.artifacts.time.sleep", waited.append)
    keeper, tries = cast("Kept", ctx.keeper), [0]
    put = keeper.archive.put

    def failing(data: bytes) -> str:
        tries[0] += 1
        if tries[0] < 3:
            msg = "full"
            raise ArchiveError(msg)
        return put(data)

    vars(keeper.archive)["put"] = failing
    assert ctx.artifacts.put("a", b"1")
    assert waited == [0.1, 0.2]

    def broken(data: bytes) -> str:
        raise ArchiveError("gone")

    vars(keeper.archive)["put"] = broken
    with pytest.raises(ArchiveError, match="gone"):
        ctx.artifacts.put("b", b"1")
    assert [each.name for each in ctx.kept] == ["a"]
    assert 60 <= sum(waited) < 90


def test_threads_of_a_tool_lose_none(ctx: ToolContext) -> None:
    names = [f"f{k}" for k in range(MOST_OF_CALL)]
    threads = [threading.Thread(target=ctx.artifacts.put, args=(name, name)) for name in names]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(each.name for each in ctx.kept) == sorted(names)
    with pytest.raises(InvalidArgumentError, match="A call may keep 100 artifacts"):
        ctx.artifacts.put("one more", b"")
    assert ctx.artifacts.put(names[0], names[0])  # as a tool that is tried again does


def test_a_tool_that_is_called_by_another_one_keeps_with_its_call(ctx: ToolContext) -> None:
    inner: ToolContext = ToolContext.from_agent_context(
        ctx, "c2", tool_name="inner", tool_arguments="{}"
    )
    inner.artifacts.put("a", b"1")
    assert [each.name for each in ctx.kept] == ["a"]


async def test_a_tool_that_is_tried_again_keeps_equal_files_once(ctx: ToolContext) -> None:
    for _ in range(2):
        await asyncio.gather(*(ctx.artifacts.aput("a", text) for text in ("1",)))
        ctx.artifacts.put("b", "2")
    assert [each.name for each in ctx.kept] == ["a", "b"]


def outcome(*names: str, **more: Any) -> Outcome:
    kept = tuple(artifact_of(*name.split("="))[0] for name in names)
    return Outcome(artifacts=kept, ended=5.0, **more)


def step(n: int, *outcomes: Outcome, **more: Any) -> Entry:
    calls = tuple(ToolCall(id=f"c{n}.{i}", name="write") for i in range(len(outcomes)))
    of = TaskStep(step_id=f"s{n}")
    return Entry(step=StepRecord(n=n, step=of, calls=calls, outcomes=outcomes, **more))


def undone(n: int) -> Entry:
    return Entry(event=EventRecord(kind="undone", at=1.0, body={"n": n, "steps": [f"s{n}"]}))


def told(found: list[KeptArtifact]) -> list[str]:
    return [f"{each.step_id}@{each.branch} {each.name} v{each.version}" for each in found]


def test_a_task_has_those_of_its_active_steps_the_newest_of_each_name() -> None:
    first, second = step(1, outcome("a=1")), step(2, outcome("a=2", "b=1"), outcome("a=3"))
    found = artifacts_in([first, second])
    assert told(found) == ["s1@0 a v1", "s2@0 a v2", "s2@0 b v1", "s2@0 a v3"]
    assert told(newest(found)) == ["s2@0 b v1", "s2@0 a v3"]
    again = step(2, outcome("a=4"), branch=1)
    found = artifacts_in([first, second, undone(2), again])
    assert (told(found), artifacts_in([first, undone(1)])) == (["s1@0 a v1", "s2@1 a v2"], [])


def test_an_open_step_has_those_of_calls_that_have_ended_or_wait() -> None:
    calls = tuple(ToolCall(id=f"c{i}", name="write") for i in range(3))
    waits_for_it = outcome("b=1", asks=Wait(waits="answer"))
    current = OpenState(
        open=OpenStep(step=TaskStep(step_id="s1")),
        n=1,
        started=1.0,
        calls=calls,
        outcomes={0: outcome("a=1", is_error=True, status="failed")},
        waiting={1: waits_for_it},
        called={1: Called(at=1.0), 2: Called(at=1.0)},
    )
    opened = artifacts_in([step(1, outcome("x=1")), undone(1)], [current])
    assert told(opened) == ["s1@1 a v1", "s1@1 b v1"]
    assert artifacts_in([Entry(left=LeftStep(was=current, at=2.0, why="undone"))]) == []


def test_one_is_found_by_its_reference_its_name_and_its_version() -> None:
    found = artifacts_in([step(1, outcome("a=1")), step(2, outcome("a=2"))])
    old, new = found
    assert named_in(found, "a") is new
    assert named_in(found, "a", 1) is old
    assert named_in(found, old.reference) is old
    assert named_in(found, "a", 3) is None
    assert named_in(found, "a@000000000000") is None
    alike = artifacts_in([step(1, outcome("a=1")), step(2, outcome(f"{old.reference}=2"))])
    assert named_in(alike, old.reference) == old


@pytest.mark.parametrize("early", [False, True], ids=["late", "early"])
def test_a_call_that_waits_keeps_them_whenever_its_outcome_comes(*, early: bool) -> None:
    ledger = running()
    made = outcome("a=1", asks=Wait(waits="answer"))
    if early:
        complete(ledger)
    waits.begin(ledger, N, AT, made)
    if not early:
        complete(ledger)
    done = ledger.at(N).outcomes[AT]
    assert (done.content, [each.name for each in done.artifacts]) == ("paid", ["a"])


def test_an_outcome_without_any_is_written_as_before() -> None:
    assert "artifacts" not in Outcome(content="x").wire()
    assert Outcome.model_validate(outcome("a=1").wire()) == outcome("a=1")
