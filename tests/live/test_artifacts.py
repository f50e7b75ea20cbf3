"""Artifacts: kept by tools, read by people, models and near tasks, undone, forked, erased."""

import asyncio
import json
import threading
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from playwright.async_api import Browser

from holdfast import Agent, AgentRunner, RunHooks, ToolCall, ToolContext, tool
from holdfast.agents.tools.artifacts import PAGE, read_artifact
from holdfast.agents.tools.tool import Tool
from holdfast.archive import Keys
from holdfast.cli.commands.lists.archive import check
from holdfast.desk import desk_app
from holdfast.errors import (
    BlobMissingError,
    CommandRefusedError,
    ErasedError,
    InvalidArgumentError,
    NotFoundError,
    TaskNotFoundError,
    UserError,
)
from holdfast.reading.audit import check_bundle
from holdfast.reading.audit.bundle import write_bundle
from holdfast.testing import ScriptedModel, call
from tests.support.cli import Here, engine_of
from tests.support.desk import person, serve_desk
from tests.support.desk_api import client_of
from tests.support.master_keys import keys
from tests.support.pictures import png
from tests.support.rig import run_a_task
from tests.support.runs import Runs
from tests.support.scale import all_of

pytestmark = pytest.mark.usefixtures("logs_told")

MARK = "MKcontent"


def say(called: str, /, **arguments: object) -> ToolCall:
    return ToolCall(id="", name=called, arguments=json.dumps(arguments))


def keep(name: str, text: str) -> ToolCall:
    return say("keep", name=name, text=text)


@tool(name_override="keep", effect="read", inline=False)
def keep_(ctx: ToolContext, name: str, text: str) -> str:
    """Keep a file, from a thread."""
    return ctx.artifacts.put(name, text)


@tool(effect="read")
async def keep_inline(ctx: ToolContext, name: str, text: str) -> str:
    """Keep a file, in the activity of the step."""
    return await ctx.artifacts.aput(name, text)


@tool(effect="read")
def picture(ctx: ToolContext, name: str = "dot.png") -> str:
    """Keep a picture."""
    return ctx.artifacts.put(name, png())


LATE: list[BaseException | str] = []


@tool(effect="read")
def leave_behind(ctx: ToolContext) -> str:
    """Go on in the background after the call has ended."""
    may_go.clear()

    def later() -> None:
        may_go.wait(60)
        try:
            LATE.append(ctx.artifacts.put("late.txt", "late"))
        except UserError as error:
            LATE.append(error)

    threading.Thread(target=later, daemon=True).start()
    return "left"


@tool(effect="read")
def keep_apart(ctx: ToolContext, name: str, text: str) -> str:
    """Keep a file from a thread of the tool's own, which knows of no activity."""
    apart = threading.Thread(target=ctx.artifacts.put, args=(name, text))
    apart.start()
    apart.join()
    return "kept"


may_go = threading.Event()
TOOLS: list[Tool] = [
    keep_,
    keep_apart,
    keep_inline,
    picture,
    leave_behind,
    read_artifact,
]


@pytest.fixture(scope="module", params=[all_of(None), keys()], ids=["plain", "encrypted"])
async def runner(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[AgentRunner]:
    idle = Agent(name="idle", model=ScriptedModel([]))
    own: Keys | None = request.param
    home = tmp_path_factory.mktemp("artifacts")
    async with AgentRunner.local(idle, data_dir=home, keys=own) as made:
        yield made


async def ran(runner: AgentRunner, *turns: Any, tools: Any = TOOLS, **options: Any) -> str:
    """Run a task whose model takes these turns, with an agent of its own; return its id."""
    name = f"w{uuid4().hex[:8]}"
    await runner.ensure_agent(
        Agent(name=name, model=ScriptedModel([*turns, "done", "again"]), tools=tools)
    )
    return (await run_a_task(runner, "write", agent=name, **options)).task_id


async def names(runner: AgentRunner, task: str, **options: Any) -> list[str]:
    return [f"{each.name} v{each.version}" for each in await runner.artifacts(task, **options)]


async def results(runner: AgentRunner, task: str) -> list[str]:
    return [each.text for each in await runner.transcript(task) if each.role == "tool"]


async def test_they_are_kept_with_their_steps_and_read_by_all(
    runner: AgentRunner, tmp_path: Path
) -> None:
    task = await ran(
        runner,
        keep("a.txt", "one"),
        (say("keep_inline", name="a.txt", text="two"), keep("a.txt", "three"), say("picture")),
    )
    assert await names(runner, task) == ["a.txt v3", "dot.png v1"]
    found = await runner.artifacts(task, versions=True)
    assert [(each.step_id, each.tool) for each in found] == [
        ("s1", "keep"),
        ("s2", "keep_inline"),
        ("s2", "keep"),
        ("s2", "picture"),
    ]
    assert await results(runner, task) == [each.reference for each in found]
    assert await runner.read_artifact(task, "a.txt") == b"three"
    assert await runner.read_artifact(task, "a.txt", version=1) == b"one"
    assert await runner.read_artifact(task, found[1].reference) == b"two"
    for wrong in ("b.txt", "a.txt@000000000000"):
        with pytest.raises(NotFoundError, match=r"Did you mean 'a\.txt'|There are: a\.txt"):
            await runner.read_artifact(task, wrong)
    with pytest.raises(NotFoundError, match="with version 9"):
        await runner.read_artifact(task, "a.txt", version=9)
    with pytest.raises(InvalidArgumentError):
        await runner.artifacts(task, versions="yes")  # type: ignore[arg-type]

    [step, *_] = await runner.get_completed_steps(task)
    assert [each.name for each in step.sources[0].artifacts] == ["a.txt"]
    [told, *_] = [each for each in await runner.audit(task) if each.kind == "tool_call"]
    [kept] = told.body["artifacts"]
    assert (kept["name"], kept["stored"]["sha256"]) == ("a.txt", found[0].sha256)
    await runner.finalize_response(task)
    assert await names(runner, task) == ["a.txt v3", "dot.png v1"]
    assert await runner.read_artifact(task, "a.txt") == b"three"
    assert await runner.verify(task) == []

    assert (await write_bundle(runner.reader, [task], tmp_path / "bundle.zip")).tasks == {task: []}
    assert (await check(engine_of(runner)))[2] == []


async def test_a_bundle_holds_their_bytes_and_a_changed_one_is_found(
    runner: AgentRunner, tmp_path: Path
) -> None:
    task = await ran(runner, keep("a.txt", f"{MARK} of {uuid4()}"))
    await runner.finalize_response(task)
    bundle = await write_bundle(runner.reader, [task], tmp_path / "bundle.zip")
    [kept] = await runner.artifacts(task)
    with zipfile.ZipFile(bundle.file) as archive:
        assert MARK.encode() in archive.read(check_bundle.value_name(kept.sha256))
    blobs = [p for p in Path(runner.archive.url).rglob("*") if kept.sha256 in p.name]
    if runner.archive.encrypted is None:
        whole = blobs[0].read_bytes()
        blobs[0].write_bytes(b"changed")
        [finding] = await runner.verify(task)
        assert kept.sha256[:8] in finding.text
        blobs[0].write_bytes(whole)  # others check the archive as well


async def test_nothing_is_kept_once_the_call_has_ended(runner: AgentRunner) -> None:
    LATE.clear()
    task = await ran(runner, say("leave_behind"))
    may_go.set()
    while not LATE:
        await asyncio.sleep(0.01)
    assert isinstance(LATE[0], UserError)
    assert "The call has ended" in str(LATE[0])
    assert await names(runner, task) == []


async def test_an_agent_reads_its_own_by_name_in_pages_and_no_other_tasks(
    runner: AgentRunner,
) -> None:
    long = "x" * PAGE + "yz"
    other = await ran(runner, keep("secret.txt", "secret"))
    [foreign] = await runner.artifacts(other)
    task = await ran(
        runner,
        (keep("long.txt", long), say("picture")),
        (
            say("read_artifact", reference="long.txt"),
            say("read_artifact", reference="long.txt", offset=PAGE),
            say("read_artifact", reference="long.txt", offset=-1),
            say("read_artifact", reference="dot.png"),
            say("read_artifact", reference=foreign.reference),
            say("read_artifact", reference="secret.txt"),
        ),
    )
    first, second, odd, binary, *others = (await results(runner, task))[2:]
    assert first.endswith(f"x\n[2 more characters: offset={PAGE}]")
    assert second.endswith(":\nyz")
    assert "offset=-1 is not among them" in odd
    assert "is no text, and cannot be shown here" in binary
    for said in others:
        assert "There is no artifact" in said
        assert said.count("secret") == 1  # what was asked for


async def test_a_child_task_reads_its_parents_by_reference_and_a_parent_its_childs(
    runner: AgentRunner,
) -> None:
    reference, answer = (
        ToolContext().artifacts.put(name, text)
        for name, text in (("plan.txt", "the plan"), ("draft.txt", "the draft"))
    )
    helper = Agent(
        name=f"h{uuid4().hex[:8]}",
        model=ScriptedModel(
            [
                say("read_artifact", reference="plan.txt"),
                say("read_artifact", reference=reference),
                keep("draft.txt", "the draft"),
                "Written.",
            ]
        ),
        tools=TOOLS,
    )
    task = await ran(
        runner,
        keep("plan.txt", "the plan"),
        say("helper", input=f"Write by {reference}"),
        (say("read_artifact", reference=answer), say("read_artifact", reference="draft.txt")),
        tools=[*TOOLS, helper.as_tool("helper", "Write.")],
    )
    [*_, mine, by_name] = await results(runner, task)
    assert mine.endswith(":\nthe draft")
    assert "There is no artifact" in by_name
    [child] = [each.child for each in await runner.audit(task) if each.child]
    by_name, theirs, _ = await results(runner, child)
    assert "There is no artifact" in by_name
    assert theirs.endswith(":\nthe plan")
    assert await names(runner, task) == ["plan.txt v1"]
    assert await names(runner, child) == ["draft.txt v1"]


async def test_an_undo_leaves_them_in_the_audit_alone_and_a_fork_has_those_it_keeps(
    runner: AgentRunner,
) -> None:
    task = await ran(runner, keep("a.txt", "one"), keep("a.txt", "two"), keep("b.txt", "three"))
    fork = await runner.fork(task, "s2")
    await runner.rewind(task, "s1", by="ann")
    assert await names(runner, task) == ["a.txt v1"]
    assert await runner.read_artifact(task, "a.txt") == b"one"
    kept = [each.body["artifacts"] for each in await runner.audit(task) if "artifacts" in each.body]
    assert [each[0]["name"] for each in kept] == ["a.txt", "a.txt", "b.txt"]
    assert await names(runner, fork.task_id, versions=True) == ["a.txt v1", "a.txt v2"]
    assert await runner.read_artifact(fork, "a.txt") == b"two"


async def test_nothing_of_them_is_left_after_an_erasure_and_a_fork_is_in_its_way(
    runner: AgentRunner,
) -> None:
    place, mark = Path(runner.archive.url), f"{MARK}{uuid4()}"
    is_encrypted = runner.archive.encrypted is not None

    def files() -> list[Path]:
        return [each for each in place.rglob("*") if each.is_file()]

    def left() -> list[Path]:
        return [each for each in files() if mark.encode() in each.read_bytes()]

    apart = say("keep_apart", name="b.txt", text=f"{mark} apart")
    task = await ran(runner, keep("a.txt", mark), apart)
    found = await runner.artifacts(task)
    assert [each.name for each in found] == ["a.txt", "b.txt"]
    await runner.finalize_response(task)
    fork = await runner.fork(task, "s1")
    with pytest.raises(CommandRefusedError, match="has forks"):
        await runner.erase(task, by="ann", reason="asked to")
    assert await runner.read_artifact(fork, "a.txt") == mark.encode()
    await runner.erase(task, by="ann", reason="asked to", forks="erase", open_tasks="abandon")
    for each in (task, fork.task_id):
        with pytest.raises((ErasedError, TaskNotFoundError)):
            await runner.artifacts(each)
    for kept in found if is_encrypted else ():
        with pytest.raises(BlobMissingError):
            runner.archive.get(kept.sha256)
    assert is_encrypted != bool(left())


async def test_the_command_lists_them_and_writes_one(runner: AgentRunner, tmp_path: Path) -> None:
    if runner.archive.encrypted is not None:
        return  # the command has no keys here
    task = await ran(runner, keep("a.txt", "one"), keep("a.txt", "two"))
    cli = Here(tmp_path, Path(runner.archive.url).parent)

    def run(*arguments: str, expect: int = 0) -> Any:
        return asyncio.to_thread(cli, "artifacts", task, *arguments, expect=expect)

    [one] = (await run("--json")).lines
    assert (one["name"], one["version"], one["size"]) == ("a.txt", 2, 3)
    assert len((await run("--versions", "--json")).lines) == 2
    table = (await run()).out
    assert "a.txt  2        text/plain  3      s2    keep" in table
    assert (await run("--get", "a.txt")).out == "two"
    said = (await run("--get", "a.txt@7692c3ad3540", "-o", "out.txt")).err
    assert "3 bytes" in said
    assert (tmp_path / "out.txt").read_bytes() == b"one"
    assert "no artifact 'b.txt'" in (await run("--get", "b.txt", expect=4)).err
    assert "name it with --get" in (await run("-o", "out.txt", expect=2)).err
    assert "cannot be written" in (await run("--get", "a.txt", "-o", "no/out", expect=2)).err
    assert "artifact   a.txt 3 bytes, step s2" in (await asyncio.to_thread(cli, "show", task)).out


async def test_the_desk_lists_them_and_a_browser_runs_none(
    runner: AgentRunner, tmp_path: Path
) -> None:
    evil = "<script>alert(1)</script>"
    named = 'x"; filename=evil.html; é.html'
    task = await ran(
        runner,
        (keep("page.html", evil), keep("page.svg", evil), keep(named, evil), say("picture")),
        task_id=f"of a/{uuid4().hex[:8]}",
    )
    async with client_of(desk_app(runner)) as api:
        at = f"/api/v1/tasks/{task.replace('/', '%2F')}"
        listed = (await api.get(f"{at}/artifacts")).json()
        assert [each["name"] for each in listed] == ["page.html", "page.svg", named, "dot.png"]
        for each, media_type in zip(
            listed, ["application/octet-stream"] * 3 + ["image/png"], strict=True
        ):
            got = await api.get(f"{at}/artifact", params={"name": each["reference"]})
            headers = got.headers
            assert got.status_code == 200
            assert headers["content-type"] == media_type
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["content-security-policy"].startswith("default-src 'none'")
            assert headers["content-disposition"].startswith("attachment; filename*=UTF-8''")
            assert headers["content-disposition"].count(";") == 1
        assert (
            "%C3%A9.html"
            in (await api.get(f"{at}/artifact", params={"name": named})).headers[
                "content-disposition"
            ]
        )
        assert (await api.get(f"{at}/artifact", params={"name": "no"})).status_code == 404
        assert (await api.get(f"{at}/artifact")).status_code == 422


async def test_runs_of_runner_keep_them_as_well(run: Runs) -> None:
    run.model.add(call("keep", {"name": "a.txt", "text": "one"}), "done")
    refused: list[str] = []

    class Hooks(RunHooks):
        async def on_tool_end(self, context: Any, *_: Any) -> None:
            with pytest.raises(UserError, match="this is a hook") as raised:
                context.artifacts.put("b.txt", "two")
            refused.append(str(raised.value))

    result = await run("write", keep_, hooks=Hooks())
    assert (result.final_output, len(refused)) == ("done", 1)
    assert await names(run.runner, result.task_id) == ["a.txt v1"]


async def test_a_page_shows_them_with_pictures_and_runs_no_script(
    runner: AgentRunner, browser: Browser
) -> None:
    task = await ran(runner, (keep("page.html", "<script>alert(1)</script>"), say("picture")))
    async with serve_desk(runner) as desk, person(browser, desk) as page:
        await page.goto(f"{desk.url}/tasks/{task}?tab=artifacts")
        listed = page.get_by_role("list", name="Artifacts")
        await listed.get_by_role("link", name="page.html").wait_for()
        await (
            listed.get_by_role("img", name="dot.png").locator("img.q-img__image--loaded").wait_for()
        )
        async with page.expect_download() as downloading:
            await listed.get_by_role("link", name="page.html").click()
        assert (await downloading.value).suggested_filename == "page.html"
