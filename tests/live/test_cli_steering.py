"""Approvals, feedback, undo, rewind, fork, audit by command; `holdfast dev` runs beside them."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Generator
from typing import Any

import pytest

from holdfast.archive.archive import Archive
from tests.support.cli import Cli, Here, make_cli

DESK = '''
"""A desk that does what its input says: `do pay 5; book rome`."""
import json
from pathlib import Path

from holdfast import Agent, ApprovalRule, ToolCall, tool
from holdfast.testing import ScriptedModel


@tool(needs_approval=True)
def pay(what: str) -> str:
    """Pay."""
    return f"paid {what}"


@tool(undo=lambda effect: f"cancelled {effect.arguments['what']}")
def book(what: str) -> str:
    """Book."""
    return f"booked {what}"


@tool(needs_approval=ApprovalRule(by="role:boss"))
def grant(what: str) -> str:
    """Grant."""
    return f"granted {what}"


def respond(request):
    last = max(k for k, m in enumerate(request.messages) if m.text.startswith("do "))
    after = request.messages[last + 1 :]
    if not any(m.role == "tool" for m in after):
        wanted = [each.split() for each in request.messages[last].text[3:].split(";")]
        return tuple(ToolCall(id="", name=n, arguments=json.dumps({"what": w})) for n, w in wanted)
    said = [m.text for m in after if m.role != "assistant"]
    return request.instructions + ": " + " | ".join(said)


def made(name):
    model = ScriptedModel(respond)
    tools = [pay, book, grant]
    return Agent(name=name, instructions=name, model=model, tools=tools)


def delegate(request):
    said = [m.text for m in request.messages if m.role == "tool"]
    if len(said) < 2:
        return ToolCall(id="", name="book", arguments=json.dumps({"what": str(len(said))}))
    if len(said) == 2:
        return ToolCall(id="", name="helper", arguments=json.dumps({"input": "do pay 5"}))
    return said[-1]


boss = Agent(name="boss", model=ScriptedModel(delegate), tools=[book, made("helper").as_tool()])
agents = [made("desk"), made("other"), boss]
'''


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Generator[Cli]:
    cli = make_cli(tmp_path_factory.mktemp("steering"))
    (cli.home / "desk.py").write_text(DESK, encoding="utf-8")
    with cli.running("dev", "desk:agents", "--json") as dev:
        assert dev.first_json()["agents"][:3] == ["desk", "other", "boss"]
        yield cli
        assert dev.end().code == 0


@pytest.fixture
def run(cli: Cli) -> Here:
    """Run a command in this process and check its exit code."""
    return Here(cli.home, cli.data_dir)


def create(run: Here, task_id: str, wish: str, *more: str) -> str:
    run("run", "desk", f"do {wish}", "--task-id", task_id, "--manual", *more)
    return task_id


def events(run: Here, task: str) -> list[Any]:
    return run("audit", task).lines


def test_calls_are_approved_edited_rejected_and_answered_by_command(run: Here) -> None:
    create(run, "pays-a-lot", "pay 1; pay 2; pay 3; book rome")
    waiting = run("step", "pays", expect=3)
    assert "pays-a-lot:1 tool pay" in waiting.err
    assert "holdfast inbox" in waiting.err
    listed = run("approvals", "pays", "--json").lines
    assert [(each["id"], each["task_id"], each["kind"]) for each in listed] == [
        (f"pays-a-lot:{n}", "pays-a-lot", "tool") for n in (1, 2, 3)
    ]
    assert [line.split()[:3] for line in run("approvals", "pays").out.splitlines()] == [
        ["approval", "agent", "kind"],
        *([f"pays-a-lot:{n}", "desk", "tool"] for n in (1, 2, 3)),
    ]
    open_now = run("show", "pays").out
    assert open_now.count("\nwaits for  pays-a-lot:") == 3
    assert len(re.findall(r"waiting +waits[^:\n]*: approval of pay\n", open_now)) == 3

    assert "Name one of them" in run("approve", "pays", expect=2).err
    assert "JSON object" in run("approve", "pays:1", "--arguments", "[1]", expect=2).err
    for _ in range(2):  # it stays open, so nothing says that it was decided
        unfit = run("approve", "pays:1", "--arguments", '{"who": 1}', expect=1).err
        assert "do not fit" in unfit
        assert "decided already" not in unfit
    edited = ("--arguments", '{"what": "11"}', "--note", "a typo")
    got = run("approve", "pays:1", *edited, "--by", "ann", "--json").json
    assert (got["approval"], got["verb"], got["status"]) == ("pays-a-lot:1", "approve", "applied")
    twice = run("reject", "pays:1", "--reason", "no", expect=1).err
    assert re.search(r"approved by ann already, at 20\d\d-\d\d-\d\d [\d:]{8} UTC", twice)
    still = run("reject", "pays:3", "--reason", "too much", "--by", "bob", "--wait", expect=3)
    assert "pays-a-lot:2" in still.err
    settled = run("respond", "pays", "paid by hand", "--by", "cyd", "--wait", "--json").json
    assert settled["task_status"] == "running"
    assert [each["content"] for each in settled["output"]["sources"]] == [
        "paid 11",
        "paid by hand",
        "The call was not run: it was rejected by bob: too much",
        "booked rome",
    ]
    assert [each["task_id"] for each in run("approvals", "--json").lines] == []
    late = run("approve", "pays:2", expect=1).err
    assert re.search(r"pays-a-lot:2.* decided already: respond by cyd at 20\d\d-", late)
    run("step", "pays")  # gives the step that was decided on
    assert "ann changed the arguments of pay" in run("step", "pays").out
    shown = run("show", "pays").out
    assert re.search(r"done +waits[^:]*: approval of pay: approved by ann\n", shown)
    for said in (
        "approve by ann pays-a-lot:1 arguments={'what': '11'} note=a typo",
        'pay {"what": "11"} -> paid 11',
        'not run    pay {"what": "3"} -> The call was not run',
        "reject by bob pays-a-lot:3: too much",
        "respond by cyd pays-a-lot:2 result=paid by hand",
    ):
        assert said in shown, shown


def test_steps_are_undone_rewound_and_forked_from_any_branch(run: Here) -> None:
    task = create(run, "travels", "book rome; book oslo")
    run("step", task)
    run("step", task)
    receipt = run("undo", "travels", "--by", "ann", "--reason", "wrong words", "--json").json
    assert (receipt["steps"], receipt["undone"], receipt["by"]) == (["s2"], [], "ann")
    told = run("step", task).out
    assert "Steps after number 1 were undone by ann" in told
    assert "wrong words" in told
    assert "no step 's7'; it has: s1, s2." in run("rewind", task, "--to", "s7", expect=4).err
    run("feedback", task, "shorter please", "--by", "ann", "--queued")
    for command in (("drop-step", task, "s9"), ("edit-step", task, "s9", "hi")):
        failed = run(*command, "--json", expect=4)
        assert "Could not find step_id: s9" in failed.err
        assert failed.json["error"]["type"] == "StepNotFoundError"
    [upcoming] = run("show", task, "--json").json["upcoming"]
    assert "says something" in run("edit-step", task, upcoming["step_id"], " ", expect=1).err
    run("edit-step", task, upcoming["step_id"], "do book bonn", "--by", "bob")
    assert run("step", task).code == 0
    rewound = run("rewind", task, "--to", "1", "--by", "ann")
    assert rewound.out.splitlines() == [
        f"left steps: s2, {upcoming['step_id']}",
        'undone: book({"what": "bonn"})',
    ]
    assert "waits for  `holdfast attach` or `holdfast step`" in run("show", task).out
    [left] = run("show", task, "--json").json["upcoming"]
    run("drop-step", task, left["step_id"], "--by", "ann")
    assert run("show", task, "--json").json["upcoming"] == []

    fork = run(
        "fork", task, "--at", "s2@0", "--input", "do book lima", "--agent", "other", "--json"
    )
    assert fork.json["forked_from"] == {"task_id": "travels", "step": "s2", "branch": 0}
    assert "may be gone from the world" in fork.err
    forked = fork.json["task_id"]
    assert run("attach", forked).out.startswith("other: booked lima")
    same = run(
        "fork", "travels", "--at", "1", "--feedback", "in French", "--task-id", "f", "--wait"
    )
    assert "in French" in same.out
    shown = run("show", "f", "--json").json
    assert shown["forked_from"] == {"task_id": "travels", "n": 1}
    assert "from travels after step 1" in run("show", "f").out

    shown = run("show", task).out
    assert len(re.findall(r"undone +step [23] s[23]", shown)) == 3
    for said in ("s2@0", "s2@1", "undone by ann steps s2: wrong words", "edit-step by bob"):
        assert said in shown, shown
    states = [(s["n"], s["branch"], s["status"]) for s in run("show", task, "--json").json["steps"]]
    assert states == [(1, 0, "done"), (2, 0, "undone"), (2, 1, "undone"), (3, 1, "undone")]
    run("abandon", task, "--reason", "enough")
    assert run("fork", task, "--at", "1", "--task-id", "late").out == "late\n"
    assert "closed" in run("undo", task, expect=1).err


def asked(run: Here, task: str, number: int) -> list[Any]:
    """Wait until so many things wait in a task; return them by their arguments."""
    for _ in range(200):
        found = run("approvals", task, "--json").lines
        if len(found) == number:
            return sorted(found, key=lambda each: str(each["arguments"]))
        time.sleep(0.1)
    raise AssertionError(run("show", task).out)


def test_a_wait_for_what_a_task_of_a_task_asked_ends_with_that_step(run: Here) -> None:
    task = "nested"
    run("run", "boss", "go", "--task-id", task, "--detach")
    [nested] = asked(run, task, 1)
    assert nested["task_id"] != task
    settled = run("approve", task, "--by", "ann", "--wait", "--json").json
    assert settled["approval"] == nested["id"]
    [source] = settled["output"]["sources"]
    assert (source["tool_name"], source["content"]) == ("helper", "helper: paid 5")


def test_decisions_for_later_calls_are_listed_and_revoked_by_command(run: Here) -> None:
    task = create(run, "pays-again", "pay 7; pay 8")
    run("step", task, expect=3)
    run("approve", f"{task}:1", "--same", "what", "--by", "ann", "--role", "boss")
    [rule] = run("rules", task, "--json").lines
    assert (rule["id"], rule["values"], rule["by"]) == (f"{task}:1", {"what": "7"}, "ann")
    assert "until" in run("rules", task).out
    assert "no argument 'who'" in run("approve", f"{task}:2", "--same", "who", expect=1).err
    assert "there are" in run("revoke", f"{task}:9", expect=1).err
    run("revoke", f"{task}:1", "--by", "ben")
    assert "No decision" in run("rules", task).err
    task = create(run, "pays-in-session", "pay 7", "--session", "books")
    run("step", task, expect=3)
    run("approve", f"{task}:1", "--in-session", "--same", "what", "--by", "ann", "--wait")
    [rule] = run("rules", "--session", "books", "--json").lines
    assert (rule["id"], rule["session"], rule["values"]) == (f"{task}:1", "books", {"what": "7"})
    create(run, "pays-unasked", "pay 7", "--session", "books")
    run("step", "pays-unasked")
    assert "session books" in run("rules").out
    assert "name one of them" in run("rules", task, "--session", "books", expect=2).err
    run("revoke", rule["id"], "--session", "books", "--by", "ben")
    assert "No decision" in run("rules", "--session", "books").err


def test_mine_lists_what_a_person_can_decide(run: Here) -> None:
    task = create(run, "granted", "grant 7")
    run("step", task, expect=3)
    mine = ("approvals", task, "--mine", "--by", "eve")
    assert "Nothing waits" in run(*mine).err
    [found] = run(*mine, "--role", "boss", "--json").lines
    assert found["id"] == f"{task}:1"
    refused = run("approve", f"{task}:1", "--by", "eve", expect=1).err
    assert "eve (no roles) may not decide" in refused
    assert "If eve is of such a group, add --role boss." in refused
    assert "--role" not in run("approve", f"{task}:2", "--by", "eve", expect=1).err
    run("approve", f"{task}:1", "--by", "eve", "--role", "boss")


def test_a_name_that_does_not_exist_is_answered_with_the_nearest_or_with_all(run: Here) -> None:
    task = create(run, "orders-9", "pay 1; pay 2")
    run("step", task, expect=3)
    run("run", "desk", "do book rome", "--session", "winter")
    for wrong, code, said in (
        (("show", "orders-8"), 4, "Did you mean 'orders-9'?"),
        (("show", "zzz"), 4, "There are: "),
        (("approve", "orders:7"), 1, "Open are: orders-9:1, orders-9:2."),
        (("drop-step", task, "s9"), 4, "They are: none."),
        (("sessions", "wimter"), 4, "Did you mean 'winter'?"),
        (("run", "dsk", "go"), 5, "Did you mean agent 'desk' (queue 'hf:desk')? Served are: agent"),
        (("shwo",), 2, "Did you mean 'show'?"),
    ):
        assert said in run(*wrong, expect=code).err, wrong


def test_the_audit_tells_all_hides_secrets_and_proves_itself(run: Here, cli: Cli) -> None:
    task = create(run, "audited", "pay pin-1234")
    run("step", task, expect=3)
    run("approve", task, "--by", "ann", "--wait")
    run("step", task)
    run("step", task)
    kinds = [each["kind"] for each in events(run, task)]
    assert kinds[:4] == ["created", "model_call", "asked", "command"]
    assert {"tool_call", "step"} <= set(kinds)
    [decided] = [each for each in events(run, task) if each["kind"] == "command"]
    assert decided["actor"] == "ann"
    hidden = run("audit", task, "--secret", "pin-1234", "--secret", "other").out
    assert "pin-1234" not in hidden
    assert "[redacted]" in hidden
    said = run("audit", task, "--verify").out
    assert said.startswith("The record of audited is intact.\nproved: The steps, events,")
    run("finalize", task)
    assert run("audit", task, "--verify", "--json").json["intact"] is True
    assert [each["kind"] for each in events(run, task)] == [*kinds, "closed"]


def test_a_report_answers_what_is_open_and_a_session_is_exported(run: Here, cli: Cli) -> None:
    task = create(run, "reported", "pay 7; book oslo", "--session", "evidence", "--by", "zoe")
    run("step", task, expect=3)
    said = run("report", task, "--json").json
    [waits] = said["What is still open in the world?"]
    assert (waits["what"], waits["why"]) == ('pay {"what": "7"}', "waits for a person")
    assert [each["outcome"] for each in said["What did it do outside?"]] == [
        "done"
    ]  # not what waits
    run("approve", task, "--by", "ann", "--note", "small <b>", "--wait")
    run("resume", task, "--by", "kim", expect=1)  # it is not paused
    run("feedback", task, "cheaper", "--by", "kim")
    run("step", task)
    run("step", task)
    run("finalize", task)
    said = run("report", task, "--json").json
    asked, decided, refused, wished = said["Who decided what, and why?"]
    assert (wished["what"], wished["why"]) == ("feedback", "cheaper")
    assert (asked["who"], asked["what"]) == ("zoe", "created")
    assert (refused["who"], refused["what"]) == ("kim", "resume (refused)")
    assert decided["about"] == 'pay {"what": "7"}'
    assert (decided["who"], decided["what"], decided["why"]) == ("ann", "approved", "small <b>")
    assert [each["outcome"] for each in said["What did it do outside?"]] == ["done", "done"]
    page = cli.home / "report.html"
    run("report", task, "--html", str(page))
    assert "small &lt;b&gt;" in page.read_text(encoding="utf-8")
    told = run("export", "--session", "evidence", "--out", str(cli.home / "e.zip"), "--json").json
    assert told["tasks"] == [task]
    run("export", "--out", str(cli.home / "f.zip"), expect=2)


def test_only_a_whole_id_is_erased_and_twice_gives_one_certificate(run: Here) -> None:
    task = create(run, "to-be-erased", "")
    run("abandon", task, "--reason", "no longer wanted")
    assert "to-be-er" in run("erase", "to-be-er", "--reason", "asked for", expect=4).err
    first = run("erase", task, "--reason", "asked for", "--json").json
    assert run("erase", task, "--reason", "again", "--json").json == first
    assert first["reason"] == "asked for"


def test_what_is_held_stays_and_a_session_is_listed_before_it_is_erased(run: Here) -> None:
    task = create(run, "to-be-held", "")
    run("abandon", task, "--reason", "no longer wanted")
    run("hold", "add", f"task:{task}", "--case", "A-17", "--reason", "court")
    assert "A-17" in run("erase", task, "--reason", "asked for", expect=1).err
    assert run("hold", "list", "--json").json["name"] == task
    run("hold", "end", f"task:{task}", "--case", "A-17")
    assert "A-17" in run("hold", "list", "--ended").out
    run("run", "desk", "do book rome", "--session", "gone")
    listed = run("erase", "session:gone", "--reason", "asked for", expect=1)
    assert "Nothing was erased" in listed.err
    assert "gone" in listed.out
    run("erase", "session:gone", "--reason", "asked for", "--yes", "--abandon-open")
    assert "was erased" in run("run", "desk", "hi", "--session", "gone", expect=5).err
    run("retention", "set", "--agent", "desk", "--days", "90")
    assert run("retention", "list", "--json").json["days"] == 90
    run("retention", "end", "--agent", "desk")


def test_sessions_are_listed_and_one_is_shown_and_verified(run: Here) -> None:
    assert "No sessions" in run("sessions", "--app", "without-any").err
    run("run", "desk", "do book rome", "--session", "trip", "--task-id", "first")
    run("run", "desk", "do book oslo", "--session", "trip", "--task-id", "second")
    found = {each["session"]: each for each in run("sessions", "--json").lines}
    assert found["trip"] == {"session": "trip", "turns": 2, "last_task": "second"}
    assert ["trip", "2", "second"] in [line.split() for line in run("sessions").out.splitlines()]
    assert "--limit" in run("sessions", "--limit", "1").err
    shown = run("sessions", "trip").out.splitlines()
    assert [line for line in shown if line.startswith("user")] == [
        "user       do book rome",
        "user       do book oslo",
    ]
    assert "calls book" in "\n".join(shown)
    assert "no session 'nobody'" in run("sessions", "nobody", expect=4).err
    said = run("audit", "--session", "trip", "--verify").out
    assert said.startswith("Session trip is intact.\nproved: The turns of the session")
    told = run("audit", "--session", "trip", "--json").json
    assert (told["session"], told["intact"], told["unproved"]) == ("trip", True, [])
    assert run("audit", "--session", "typo", "--json", expect=4).json["exit_code"] == 4


def test_a_broken_record_is_told_with_its_place_and_exit_code_1(
    run: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast.reading.reader import Reader

    task = create(run, "forged", "book rome")
    run("step", task)
    run("step", task)
    whole = Reader.pages

    async def forged(reader: Reader, task_id: str, *, even_closed: bool) -> Any:
        page, entries = await whole(reader, task_id, even_closed=even_closed)
        text = json.dumps([entry.model_dump(mode="json") for entry in entries])
        data = json.loads(text.replace("booked rome", "booked oslo"))
        return page, [type(entries[0]).model_validate(each) for each in data]

    monkeypatch.setattr(Reader, "pages", forged)
    found = run("audit", task, "--verify", expect=1)
    assert found.out.startswith("the ledger has ")
    assert "\nstep s1 on branch 0: its messages do not give its digest\n" in found.out
    broken = run("audit", task, "--verify", "--json", expect=1).json
    assert (broken["intact"], broken["findings"][1]["step"]) == (False, "s1")


def test_the_login_name_is_recorded_when_nobody_is_named(
    run: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGNAME", "zoe")
    task = create(run, "named", "pay 1")
    run("step", task, expect=3)
    assert run("reject", task, "--reason", "no", "--json").json["by"] == "zoe"


def test_a_copy_of_the_archive_is_compared_with_its_manifest(run: Here, cli: Cli) -> None:
    run("run", "desk", "do book rome", "--task-id", "to-be-copied")
    copy, manifest = cli.home / "copy", str(cli.home / "manifest.json")
    run("backup", manifest)
    shutil.copytree(next(each.parent for each in cli.home.rglob("archive.json")), copy)
    assert run("backup", manifest, "--copy", str(copy), "--json").json["broken"] == []
    Archive(copy).put_aside(str(next(copy.glob("blobs/??/*")).relative_to(copy)))
    assert run("backup", manifest, "--copy", str(copy), "--json").json["broken"] == []
    record = next(copy.glob("tasks/*.json"))
    record.write_bytes(record.read_bytes()[:-9])
    [broken] = run("backup", manifest, "--copy", str(copy), "--json", expect=1).json["broken"]
    assert broken["what"] == f"tasks/{record.name}"
    record.unlink()
    broken = run("backup", manifest, "--copy", str(copy), "--json", expect=1).json["broken"]
    assert broken == [{"what": f"tasks/{record.name}", "why": "missing"}]
    (cli.home / "manifest.json").write_text("{}")
    assert (
        "another file than a manifest" in run("backup", manifest, "--copy", str(copy), expect=2).err
    )
