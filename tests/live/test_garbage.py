"""Values that nothing refers to are put aside, then deleted; no task loses what it needs."""

import asyncio
import json
import os
import time
from pathlib import Path

import pytest
from temporalio.api.common.v1 import Payload

from holdfast import Agent, AgentRunner, Message, ToolCall
from holdfast.activities.erasure import PLACE
from holdfast.archive import Keys
from holdfast.archive.archive import Archive
from holdfast.archive.bytestore import LocalStore, aside_path, blob_path, writing_for
from holdfast.archive.kept_answers import keep_answer
from holdfast.cli.commands.lists.archive import check
from holdfast.cli.commands.lists.garbage import Names, collect, decoded, unused, within
from holdfast.errors import BlobMissingError, CommandRefusedError
from holdfast.models.base import ModelRequest
from holdfast.task.data.state import CommitRef, SessionState
from holdfast.task.data.wire import KeptAnswer
from holdfast.testing import ScriptedModel
from holdfast.values.base import digest
from tests.live.test_erasure import big, finished, marks_in, served, texts
from tests.support.cli import engine_of
from tests.support.master_keys import keys
from tests.support.rig import Rig, forget, until
from tests.support.scale import all_of, times

pytestmark = pytest.mark.usefixtures("logs_told")
DAY = 86_400


def aged(archive: Archive, days: float = 8) -> None:
    """Have what is in a directory been written so long ago."""
    for each in Path(archive.url, "blobs").rglob("*"):
        os.utime(each, (time.time() - days * DAY,) * 2)


async def gc(runner: AgentRunner) -> list[tuple[str, str]]:
    engine = engine_of(runner)
    return [(each.does, each.path) for each in await collect(engine, time.time() - 7 * DAY)]


@pytest.mark.parametrize("own", [all_of(None), keys()], ids=["plain", "encrypted"])
async def test_only_what_nothing_refers_to_is_put_aside_and_deleted_days_later(
    own: Keys | None, tmp_path: Path
) -> None:
    agent = served(*[ToolCall(id="", name="big", arguments='{"text": "x"}'), "open answer"])
    async with AgentRunner.local(agent, data_dir=tmp_path, keys=own) as runner:
        engine, archive = engine_of(runner), runner.archive
        await finished(runner, "MKquestion", session="talk", task_id="t1")
        await runner.run_task(await runner.create_task("open", session="talk"))
        await runner.session("talk").append([Message(role="user", content="appended " * 9000)])
        fork = await runner.fork("t1", at="s1")
        await forget(runner.client, "t1")
        await runner.add_schedule("later", "scheduled " * 9000, every="day 09:00")
        with writing_for("t1"):
            loose = archive.put(b"loose")
        assert await gc(runner) == []  # it is new
        aged(archive)
        before = set(archive.files())
        await runner.hold("task:t1", case="A-17", by="ann")
        with pytest.raises(CommandRefusedError, match="A-17"):
            await gc(runner)
        await runner.end_hold("task:t1", case="A-17", by="ann")
        [(does, path)] = await gc(runner)
        assert (does, path in before) == ("put aside", True)
        assert await gc(runner) == []
        assert (await check(engine))[2] == []
        assert archive.get(loose) == b"loose"  # a read gets it back,
        aged(archive)
        assert await gc(runner) == [("put aside", path)]  # and it begins anew
        aged(archive)
        assert [each.does for each in await unused(engine, time.time() - DAY)] == ["delete"]
        assert await gc(runner) == [("delete", aside_path(path))]
        assert aside_path(path) not in archive.files()
        with pytest.raises(BlobMissingError):
            archive.get(loose)
        await runner.delete_task(fork)
        await runner.delete_task("t1")
        aged(archive)

        async def is_more() -> bool:
            return len(await unused(engine, time.time())) > 1

        await until(is_more)


async def test_tasks_that_write_what_is_put_aside_meanwhile_lose_nothing(tmp_path: Path) -> None:
    def answer(request: ModelRequest) -> ToolCall | str:
        seen = sum(each.role == "tool" for each in request.messages)
        call = ToolCall(id="", name="big", arguments=f'{{"text": "{seen}"}}')
        return call if seen < 4 else "done"

    agent = Agent(name="clerk", model=ScriptedModel(answer), tools=[big])
    async with AgentRunner.local(agent, data_dir=tmp_path) as runner:
        for n in range(times(3, 20)):
            # What the tools write is here, old, and of no task when the first look begins.
            await finished(runner, "first", task_id=f"first{n}")
            await runner.delete_task(f"first{n}")
            aged(runner.archive)
            running = [
                asyncio.create_task(finished(runner, "again", task_id=f"t{n}.{k}"))
                for k in range(4)
            ]
            done = list[tuple[str, str]]()
            while not all(each.done() for each in running):
                done += await gc(runner)
                aged(runner.archive, 6)
            for each in running:
                assert await runner.verify(await each) == []
                assert "MKbig MKbig" in str(await runner.get_completed_steps(await each))
                await runner.delete_task(await each)
            assert "put aside" in {does for does, _ in done}


def erases(task: str) -> CommitRef:
    sha256 = digest(f"in place of {task}".encode())
    return CommitRef(task=f"-erased {task}", sha256=sha256, count=1, erases=task)


def test_a_turn_is_unused_once_its_task_is_erased_and_its_own_session_has_another() -> None:
    names, own = Names(["tasks/t1.json", "tasks/t2.json"]), "sessions/s.json"
    turns = {each: digest(each.encode()) for each in ("t1", "t2", "t3", "page")}
    commits = [CommitRef(task=task, sha256=name, count=1).wire() for task, name in turns.items()]
    page = json.dumps(commits[:2]).encode()
    # Erased in another session, or by what is of none; and what only looks like a turn.
    for owner in ("sessions/other.json", "tasks/t.json", ""):
        left = names.within(json.dumps(erases("t1").wire()).encode(), owner)
        assert left == {erases("t1").sha256}
    assert names.within(page, "") == {turns["t1"], turns["t2"]}
    for odd in ([{**commits[0], "x": 1}], {**commits[0], "count": None}, [commits[0], "x"]):
        assert names.within(json.dumps(odd).encode(), own) == {turns["t1"]}
    assert names.within(page[:-1], own) == {turns["t1"], turns["t2"]}
    assert names.of_turns() == set()

    state = {"older": [turns["page"]], "commits": [commits[2]], "recent": [turns["t2"]]}
    assert names.within(json.dumps(state).encode(), own) == {*turns.values()} - {turns["t1"]}
    assert names.within(page, turns["page"]) == set()
    assert names.of_turns() == {turns["t1"], turns["t2"]}
    names.within(json.dumps(erases("t1").wire()).encode(), own)
    assert names.of_turns() == {turns["t2"]}
    twin = [*commits[:1], {**commits[2], "sha256": turns["t1"]}]
    assert names.within(json.dumps(twin).encode(), own) == {turns["t1"]}


async def test_what_comes_after_the_erasure_of_its_task_is_removed_and_its_turn(
    tmp_path: Path,
) -> None:
    async with AgentRunner.local(served("MKanswer"), data_dir=tmp_path) as runner:
        for id, session in (("t1", "talk"), ("t2", "other")):
            await finished(runner, "MKquestion", session=session, task_id=id)
        talk, place = runner.session("talk"), Path(runner.archive.url)

        async def collected() -> dict[str, set[str]]:
            for _ in range(2):
                aged(runner.archive)
                await gc(runner)
            return marks_in(place)

        await runner.erase("t1", by="ann", reason="r")
        await collected()
        assert await texts(runner.session("other")) == ["MKquestion", "MKanswer"]  # the same turn
        await runner.erase("t2", by="ann", reason="r")
        assert await collected() == {}
        assert (await texts(talk), await talk.verify()) == ([PLACE], [])
        assert (await check(engine_of(runner)))[2] == []
        late = runner.archive.put(b"MKanswer")
        await keep_answer(runner.archive, "t1", 2, KeptAnswer(activity="a", runs={0: late}))
        aged(runner.archive)
        await gc(runner)
        assert await runner.archive.alist_records("answers") == []
        assert ("put aside", blob_path(late)) in await gc(runner)


async def test_a_large_payload_is_read_through_its_encryption(tmp_path: Path) -> None:
    async with AgentRunner.local(served(), data_dir=tmp_path, keys=keys()) as runner:
        engine, codec = engine_of(runner), runner.client.data_converter
        assert codec.payload_codec is not None
        data = f'"{digest(b"named")}"'.encode()
        plain = Payload(metadata={"encoding": b"json/plain"}, data=data)
        [sealed] = await codec.payload_codec.encode([plain])
        with writing_for("t1"):
            name = runner.archive.put(sealed.SerializeToString())
            names = Names(["tasks/t1.json"])
            assert await within(engine, name, names) == {digest(b"named")}
            # So is a session's memory: the turn of an erased task is named by no other data.
            turns = [CommitRef(task="t1", sha256=digest(b"turn"), count=2), erases("t1")]
            plain.data = SessionState(commits=tuple(turns)).model_dump_json().encode()
            [sealed] = await codec.payload_codec.encode([plain])
            name = runner.archive.put(sealed.SerializeToString())
        assert names.within(f'"{name}"'.encode(), "sessions/s.json") == {name}
        assert await within(engine, name, names) == {digest(b"in place of t1")}
        assert names.of_turns() == set()


@pytest.mark.parametrize(
    ("coding", "data"),
    [
        (b"binary/encrypted", b"of a codec that is not here"),
        (b"json/external-storage-reference", b'{"driver_name":"theirs"}'),
    ],
)
async def test_nothing_is_collected_beside_values_that_cannot_be_read(
    rig: Rig, coding: bytes, data: bytes
) -> None:
    with pytest.raises(CommandRefusedError, match="cannot read"):
        await decoded(rig.engine.client, [Payload(metadata={"encoding": coding}, data=data)])


@pytest.mark.parametrize("operation", ["read", "write", "delete"])
def test_a_blob_is_nowhere_at_no_moment_at_which_gc_is_killed(
    operation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    archive = Archive(tmp_path)
    name = archive.put(b"value")
    with monkeypatch.context() as patched:
        patched.setattr(LocalStore, operation, killed)
        with pytest.raises(KeyboardInterrupt):
            archive.put_aside(blob_path(name))
    assert archive.get(name) == b"value"
    archive.put_aside(blob_path(name))
    assert blob_path(name) not in archive.files()
    assert archive.get(name) == b"value"
