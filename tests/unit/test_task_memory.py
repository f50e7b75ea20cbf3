"""What a worker process remembers of tasks: whose it is, what it weighs, who may change it."""

from __future__ import annotations

import asyncio
import functools
import gc
import threading
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import ActivityEnvironment

from holdfast import Agent, UserError, tool
from holdfast.activities.data import source
from holdfast.activities.data.cache import Cache, Conversation, TaskMemory
from holdfast.activities.data.registry import Registry
from holdfast.activities.data.source import Source, seen_before
from holdfast.activities.tools.lookup import idempotency_key
from holdfast.activities.tools.tool import ToolActivities
from holdfast.archive.archive import Archive
from holdfast.archive.segments import archived_step, uncollected, write_messages, write_segment
from holdfast.errors import ArchiveError, BlobMissingError, NotFoundError
from holdfast.models import resolve_model
from holdfast.models.base import ModelAnswer
from holdfast.task.data.calls import call_digest
from holdfast.task.data.head import RunRules, TaskHead
from holdfast.task.data.records import (
    Entry,
    EventRecord,
    InputRef,
    JournalEntry,
    SegmentRef,
    StepRecord,
)
from holdfast.task.data.wire import ToolInput, View, ViewRequest
from holdfast.task.ledger.recording import output_digest
from holdfast.task.queries.pages import StepView
from holdfast.testing import ScriptedModel
from holdfast.values.base import ChainRef, extend
from holdfast.values.code.code_refs import forget, hold, known, look_up, refer, release, take_back
from holdfast.values.code.user_calls import invoke
from holdfast.values.messages import Blob, ImagePart, Message, ToolCall, assistant, user
from holdfast.values.steps import HistoryRef, TaskStep

ENTRY = JournalEntry(request="r", answer=ModelAnswer(message=assistant("paid")))


def remember(memory: TaskMemory, *messages: Message) -> None:
    memory.append(messages, messages)


# ---- whose memory it is


def test_a_task_id_that_is_used_again_has_no_head_and_no_history() -> None:
    cache = Cache()
    memory = cache.task("t", "run1")
    memory.head = TaskHead(agent="old", snapshot="s")
    memory.put_history(Conversation.of([user("secret")]))
    memory.keep(1, ENTRY)
    again = cache.task("t", "run2")
    assert (again.head, again.history, again.unrecorded(1, "1")) == (None, None, None)
    assert cache.task("t", "run2") is again


def test_a_task_that_continued_as_new_keeps_the_transcript_that_digests_prove() -> None:
    cache = Cache()
    messages = (user("a"), assistant("b"))
    remember(cache.task("t", "run1"), *messages)
    again = cache.task("t", "run2")
    assert again.holds(ChainRef(2, extend("", messages)))
    assert not again.holds(ChainRef(2, extend("", (user("x"), assistant("b")))))


def test_an_activity_of_an_earlier_run_does_not_change_the_new_memory() -> None:
    cache = Cache()
    old = cache.task("t", "run1")
    remember(old, user("a"))
    new = cache.task("t", "run2")
    remember(old, user("b"))
    assert (len(new.recorded), cache.size) == (1, new.size)


# ---- paid answers


def test_an_answer_is_given_again_until_it_was_handed_over() -> None:
    memory = TaskMemory()
    memory.keep(2, ENTRY)
    assert (memory.unrecorded(2, "7"), memory.unrecorded(2, "8")) == (ENTRY, ENTRY)
    assert memory.unrecorded(1, "7") is None
    memory.handed_over(2, "7")
    assert memory.unrecorded(2, "7") == ENTRY
    assert memory.unrecorded(2, "8") is None


# ---- weight


def test_everything_that_is_remembered_is_counted_and_uncounted() -> None:
    cache = Cache()
    memory = cache.task("t", "r")
    empty = cache.size
    big = "x" * 10_000
    call = ToolCall(id="1", name="a", arguments=big)
    remember(memory, user(big), Message(role="assistant", items=({"data": big},)))
    assert cache.size > empty + 20_000
    picture = Message(role="user", content=(ImagePart(kind="image", url=big),))
    memory.put_history(Conversation.of([picture]))
    memory.put_journal(1, (JournalEntry(request="", answer=ModelAnswer(message=assistant(big))),))
    memory.open_calls(1, (call,))
    memory.put_result(1, 0, user(big))
    memory.put_result(1, 0, user(big))
    memory.expect([user(big)])
    memory.keep(1, ENTRY)
    assert empty + 70_000 < cache.size < empty + 75_000
    memory.forget()
    memory.put_history(Conversation())
    memory.drop_journal(1)
    memory.open_calls(1, ())
    memory.drop_result(1, 0)
    assert cache.size < empty + 1000
    cache.drop("t")
    assert cache.size == 0


def test_the_oldest_tasks_are_dropped_when_there_are_too_many_bytes() -> None:
    cache = Cache(limit_bytes=50_000)
    for k in range(5):
        remember(cache.task(f"t{k}", "r"), user("x" * 20_000))
    assert cache.size <= 50_000 + 22_200
    assert cache.task("t4", "r").recorded
    assert not cache.task("t0", "r").recorded


# ---- reading a task


class Asked(Source):
    """A source whose task answers from a list of messages, slowly."""

    def __init__(self, messages: list[Message]) -> None:
        super().__init__(cast("Archive", None), Cache())
        self.messages = messages
        self.journal_entries: tuple[JournalEntry, ...] = ()

    async def _view(self, asked: ViewRequest) -> View:
        await asyncio.sleep(0.01)
        if asked.journal >= 0:
            return View(journal=self.journal_entries[asked.journal :])
        return View(messages=tuple(self.messages[asked.have : asked.upto]))


async def test_two_attempts_of_a_step_in_one_process_do_not_mix_their_messages() -> None:
    messages = [user(f"m{k}") for k in range(5)]
    source = Asked(messages)
    at = ChainRef(5, extend("", messages))

    async def both() -> list[tuple[Message, ...]]:
        return list(await asyncio.gather(source.transcript(at), source.transcript(at)))

    assert await ActivityEnvironment().run(both) == [tuple(messages)] * 2
    assert (await ActivityEnvironment().run(memory_of, source)).recorded == messages


async def memory_of(source: Source) -> TaskMemory:
    return source.memory()


# ---- the model of a running task


def registry(agent: Agent) -> Registry:
    return Registry([agent], cast("Archive", None))


def test_a_running_task_keeps_the_named_model_it_began_with() -> None:
    before = Agent(name="a", model="chat:before").snapshot("before")
    now = Agent(name="a", model="chat:now")
    assert registry(now).model(now, before, "") is resolve_model("chat:before")
    unnamed = Agent(name="a")
    assert registry(unnamed).model(unnamed, before, "").name == "before"


def test_a_running_task_refuses_another_model_object() -> None:
    before = Agent(name="a", model=ScriptedModel([], name="before")).snapshot("before")
    now = Agent(name="a", model=ScriptedModel([], name="now"))
    with pytest.raises(NotFoundError, match=r"'before'.*'now'"):
        registry(now).model(now, before, "")
    same = Agent(name="a", model=ScriptedModel([], name="before"))
    assert registry(same).model(same, before, "") is same.model


# ---- threads of sync tools


async def test_blocking_tools_leave_the_loops_own_threads_free() -> None:
    release = threading.Event()
    calls = [asyncio.create_task(invoke(release.wait, 100)) for _ in range(60)]
    try:
        await asyncio.sleep(0)
        async with asyncio.timeout(100):
            assert await asyncio.to_thread(lambda: "free") == "free"
            assert await invoke(lambda: "free, too") == "free, too"
    finally:
        release.set()
        await asyncio.gather(*calls)


# ---- the tool activity


@tool
def act(what: str) -> str:
    """Act."""
    return f"did {what}"


class Given(Source):
    """A source that has one call, or the error of looking for it."""

    def __init__(self, call: ToolCall, error: Exception | None = None) -> None:
        super().__init__(cast("Archive", None), Cache())
        self.given = call
        self.error = error
        self.store_error: Exception | None = None
        self.snapshot = ""

    async def head(self, known: str = "") -> TaskHead:
        del known
        return TaskHead(agent="a", snapshot=self.snapshot)

    async def call(self, given: ToolInput) -> tuple[ToolCall, dict[str, Any]]:
        if self.error is not None:
            raise self.error
        return self.given, {}

    async def store(self, text: str, *, is_json: bool = False) -> Blob | None:
        if self.store_error is not None:
            raise self.store_error
        return None


class Ours:
    """Takes heartbeats as the server does while the attempt is this worker's."""

    def with_context(self, _: object) -> Ours:
        return self

    async def heartbeat(self, *_details: object, **_options: object) -> None:
        pass


def handle_of(*, task_token: bytes) -> Ours:
    """Return the handle of an activity, as a client does."""
    return Ours()


async def run_tool(source: Given, made: Any = act) -> Any:
    agent = Agent(name="a", model=ScriptedModel([]), tools=[made])
    client = SimpleNamespace(
        identity="w",
        namespace="n",
        data_converter=pydantic_data_converter,
        get_async_activity_handle=handle_of,
    )
    source.archive = Archive(f"memory://{uuid.uuid4().hex}")
    known = Registry([agent], source.archive)
    source.snapshot = (await known.publish("a")).digest
    activities = ToolActivities(known, source)
    given = ToolInput(n=1, sha=call_digest(source.given))
    return await ActivityEnvironment(client=cast("Client", client)).run(activities.tool, given)


GOOD = ToolCall(id="1", name="act", arguments='{"what": "it"}')


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ArchiveError("down"), "NotStarted"),
        (RPCError("gone", RPCStatusCode.UNAVAILABLE, b""), "NotStarted"),
        (BlobMissingError("gone"), "BlobMissingError"),
    ],
)
async def test_trouble_before_a_tool_starts_says_that_it_was_not_started_and_damage_what_it_is(
    error: Exception, kind: str
) -> None:
    with pytest.raises(ApplicationError) as raised:
        await run_tool(Given(GOOD, error))
    assert raised.value.type == kind
    assert raised.value.non_retryable is (kind != "NotStarted")


@pytest.mark.parametrize("error", [ArchiveError("down"), KeyError("bug")])
@pytest.mark.parametrize("fails", [False, True])
async def test_trouble_after_a_tool_started_says_that_its_outcome_is_unknown(
    error: Exception, fails: bool
) -> None:
    @tool(name="act")
    def failing(what: str) -> str:
        """Act."""
        if fails:
            raise ValueError(what)
        return what

    source = Given(GOOD)
    source.store_error = error
    with pytest.raises(ApplicationError) as raised:
        await run_tool(source, failing)
    assert raised.value.type == "Interrupted"


def test_an_idempotency_key_names_a_call_at_its_place() -> None:
    def key(task: str = "t", n: int = 1, i: int = 0, batch: int = 0, branch: int = 0) -> str:
        return idempotency_key(task, ToolInput(n=n, i=i, batch=batch, branch=branch), GOOD)

    other: dict[str, Any] = {"task": "fork", "i": 1, "n": 2, "batch": 1, "branch": 1}
    places: list[dict[str, Any]] = [{}, *({name: value} for name, value in other.items())]
    keys = [key(**place) for place in places]
    assert (len(set(keys)), keys) == (len(keys), [key(**place) for place in places])


async def test_an_answer_too_large_for_history_waits_for_the_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "PATIENCE_SECONDS", (0.0,))
    archive = Archive(tmp_path)
    failures = [ArchiveError("down")]
    put = archive.put

    def failing(data: bytes) -> str:
        if failures:
            raise failures.pop()
        return put(data)

    monkeypatch.setattr(archive, "put", failing)
    stored = await Source(archive, Cache()).store("x" * 20_000)
    assert stored is not None
    assert archive.get(stored.sha256) == b"x" * 20_000


def test_a_loop_that_follows_a_blocked_one_can_ask_a_task_that_was_being_asked() -> None:
    cache = Cache()

    def asking() -> asyncio.Lock:
        return cache.task("t", "run", asyncio.get_running_loop()).asking

    async def ask() -> None:
        async with asking():
            await asyncio.sleep(0)

    async def two() -> None:
        await asyncio.gather(ask(), ask())

    async def left() -> None:
        await two()
        await asking().acquire()

    asyncio.run(left())
    asyncio.run(two())


# ---- what a worker need not read, nor look at, again and again in a long task

PICTURE = Message(role="user", content=(ImagePart(kind="image", url="https://x.test/cat.png"),))


def step(n: int, *adds: Message, output: Any = None) -> Entry:
    made = StepRecord(n=n, step=TaskStep(step_id=f"s{n}"), adds=adds, output=output or f"out {n}")
    return Entry(step=made)


def undone(first: int) -> Entry:
    return Entry(event=EventRecord(kind="undone", at=1.0, body={"n": first, "steps": [first]}))


class Reading(Archive):
    """Says which of its objects were read."""

    def __init__(self) -> None:
        super().__init__(f"memory://{id(self)}")
        self.read: list[str] = []

    async def aget(self, sha256: str) -> bytes:
        self.read.append(sha256)
        return await super().aget(sha256)


async def segments(archive: Archive, *parts: Sequence[Entry]) -> list[SegmentRef]:
    """Write a ledger in parts, oldest first; return all of them."""
    made: list[SegmentRef] = []
    for entries in parts:
        made.append(await write_segment(archive, entries, made[-1] if made else None))
    return made


class Archived(Source):
    """A source whose task has the messages up to `base` in the archive, the others itself."""

    def __init__(self, archive: Archive, newest: SegmentRef, base: int) -> None:
        super().__init__(archive, Cache())
        self.newest = newest
        self.base = base
        self.said: list[Message] = []

    async def _view(self, asked: ViewRequest) -> View:
        here = self.said[max(asked.have - self.base, 0) : max(asked.upto - self.base, 0)]
        segment = self.newest if asked.have < self.base else None
        return View(messages=tuple(here), segment=segment, base=self.base)

    async def _query(self, name: str, kind: Any, *args: object) -> Any:
        assert (name, kind) == ("step", StepView)
        return StepView(segment=self.newest)

    def knows(self, *messages: Message) -> None:
        self.memory().append(messages, messages)


SAID = [user("q"), *(assistant(f"a{k}") for k in range(5))]
"""What a task has said in six steps, of which each has added one message."""

WHOLE = ChainRef(6, extend("", SAID))


async def three_parts(archive: Archive) -> list[SegmentRef]:
    entries = [step(n, said) for n, said in enumerate(SAID, 1)]
    return await segments(archive, entries[:2], entries[2:4], entries[4:])


# ---- the transcript


@pytest.mark.parametrize(("known", "read"), [(0, 3), (1, 3), (2, 2), (3, 2), (4, 1), (5, 1)])
async def test_a_worker_that_knows_the_first_messages_reads_the_segments_of_the_others(
    known: int, read: int
) -> None:
    archive = Reading()
    parts = await three_parts(archive)
    source = Archived(archive, parts[-1], base=6)

    async def transcript() -> tuple[Message, ...]:
        source.knows(*SAID[:known])
        return await source.transcript(WHOLE)

    assert await ActivityEnvironment().run(transcript) == tuple(SAID)
    assert archive.read == [each.sha256 for each in reversed(parts)][:read]


async def test_what_an_undo_took_from_the_archive_is_not_in_the_transcript() -> None:
    archive = Reading()
    kept, other = SAID[:3], [assistant("b3"), assistant("b4")]
    [*_, newest] = await segments(
        archive,
        [step(n, said) for n, said in enumerate(SAID, 1)],
        [undone(4), step(4, other[0]), step(5, other[1])],
    )
    source = Archived(archive, newest, base=5)
    at = ChainRef(5, extend("", [*kept, *other]))

    async def transcript() -> tuple[Message, ...]:
        source.knows(*kept)
        return await source.transcript(at)

    assert await ActivityEnvironment().run(transcript) == (*kept, *other)


def test_what_is_expected_next_outlives_a_task_that_continued_as_new() -> None:
    cache = Cache()
    before = cache.task("t", "run1")
    before.append(SAID[:2], SAID[:2])
    before.put_result(2, 0, SAID[3])
    before.expect([SAID[2], (2, 0)])
    after = cache.task("t", "run2")
    assert after.guess(ChainRef(4, extend("", SAID[:4]))) == SAID[2:4]
    assert after.guess(ChainRef(4, extend("", [*SAID[:3], user("x")]))) is None
    assert cache.size == after.size
    before.expect([])
    before.clear_results()
    assert after.guess(ChainRef(4, extend("", SAID[:4]))) == SAID[2:4]


# ---- outputs


async def test_the_output_of_an_archived_step_is_read_from_the_newest_segment_that_has_it() -> None:
    archive = Reading()
    first, second = step(2, output="undone"), step(2, output="repeated")
    parts = await segments(archive, [step(1)], [first, undone(2), second], [step(3)])
    assert await archived_step(archive, parts[-1], 2) == second.step
    assert archive.read == [parts[2].sha256, parts[1].sha256]
    assert await archived_step(archive, parts[-1], 4) is None
    assert await archived_step(archive, None, 1) is None
    source = Archived(archive, parts[-1], base=0)
    assert second.step is not None
    ref = InputRef(2, output_digest(second.step))

    async def output() -> Any:
        return await source.output(ref)

    assert await ActivityEnvironment().run(output) == "repeated"


# ---- images


@pytest.mark.parametrize(
    ("skip", "places"), [(None, (1, 2, 4)), (0, (1, 2, 4)), (1, (1, 3)), (3, (1,))]
)
async def test_the_places_of_images_are_those_of_what_the_agent_sees(
    skip: int | None, places: tuple[int, ...]
) -> None:
    archive = Reading()
    own = [PICTURE, user("a"), PICTURE]
    earlier = [user("earlier"), PICTURE]
    stored = await write_messages(archive, earlier)
    source = Archived(archive, await write_segment(archive, []), base=0)
    head = TaskHead(agent="a", snapshot="s", history=stored)
    view = None if skip is None else HistoryRef(sha256=stored, skip=skip)
    at = ChainRef(3, extend("", own))

    async def seen() -> Any:
        source.knows(*own, PICTURE)  # of a message that an undo takes
        return await seen_before(source, head, TaskStep(history=view), at)

    found = await ActivityEnvironment().run(seen)
    assert found.whole.messages == (*earlier, *own[skip or 0 :])
    assert found.whole.not_text == places
    assert (found.given, found.transcript) == (2, tuple(own[skip or 0 :]))


# ---- garbage collection


def test_nothing_is_collected_until_the_last_thread_has_left() -> None:
    inside, leave = threading.Event(), threading.Event()

    def other() -> None:
        with uncollected():
            inside.set()
            leave.wait(100)

    thread = threading.Thread(target=other)
    assert gc.isenabled()
    with uncollected(), uncollected():
        thread.start()
        assert inside.wait(100)
        assert not gc.isenabled()
    assert not gc.isenabled()
    leave.set()
    thread.join()
    assert gc.isenabled()


# ---- names of code: what they lead to, and what they must never lead to


@dataclass
class Caller:
    name: str


def greet(name: str) -> str:
    return f"hello {name}"


def greet_of(agent: object, ctx: object) -> str:
    return f"{agent} {ctx}"


@pytest.fixture
def registry_of(tmp_path: Path) -> Registry:
    agent = Agent(name="a", tools=[tool(effect="read")(greet)])
    return Registry([agent], Archive(tmp_path))


def test_what_a_module_defines_is_found_by_its_name() -> None:
    ref = refer(greet)
    forget([ref])
    assert ref == f"{__name__}:greet"
    assert look_up(ref, {__name__}) is greet


@pytest.mark.parametrize("name", ["subprocess.getoutput", "subprocess", "OrderedDict", "greet.x"])
def test_what_a_module_only_imports_is_not_found_through_it(name: str) -> None:
    with pytest.raises(NotFoundError, match="lacks"):
        look_up(f"{__name__}:{name}", {__name__})


def test_an_agent_whose_code_is_wrapped_by_the_standard_library_does_not_serve_that(
    tmp_path: Path,
) -> None:
    agent = Agent(name="a", instructions=functools.partial(greet_of, "x"))
    with pytest.raises(NotFoundError, match="serves the modules"):
        Registry([agent], Archive(tmp_path)).code("functools:reduce")


def test_a_context_is_made_by_its_class_and_by_nothing_else(registry_of: Registry) -> None:
    def head(ref: str) -> TaskHead:
        return TaskHead(agent="a", run=RunRules(context=ref))

    state = {"context": {"name": "ann"}}
    assert registry_of.context(head(f"{__name__}:Caller"), dict(state)) == Caller("ann")
    with pytest.raises(UserError, match="must be a dataclass"):
        registry_of.context(head(f"{__name__}:greet"), dict(state))


def test_what_tasks_hold_is_released_once_for_each() -> None:
    def thing() -> None: ...

    refs = [refer(thing), refer(thing), refer(thing)]
    hold("one", refs[:1])
    hold("two", refs[1:2])
    for _ in range(2):
        release("one")
        release("two", ["another"])
        assert known(refs[0]) is thing
    hold("two", refs[2:])
    take_back("two", refs[2:])
    assert known(refs[0]) is thing
    release("two", refs[:1])
    assert known(refs[0]) is None
