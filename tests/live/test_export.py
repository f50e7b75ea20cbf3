"""Bundles: all evidence of a task in one file, which Python alone verifies."""

import json
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.commands.lists.report import (
    _of_session,  # pyright: ignore[reportPrivateUsage]
)
from holdfast.errors import InvalidArgumentError, TaskNotFoundError
from holdfast.reading.audit import check_bundle
from holdfast.reading.audit.bundle import Bundle, write_bundle
from holdfast.reading.audit.verification import evidence
from holdfast.testing import call
from holdfast.values.base import canonical, digest, extend_json
from tests.live.test_audit import long_task
from tests.support.cli import engine_of
from tests.support.programs import ran
from tests.support.rig import Rig, finish_a_task, until_status
from tests.support.runs import look, serve_nested
from tests.support.scale import all_of

Files = dict[str, bytes]


def read(bundle: Path) -> Files:
    with zipfile.ZipFile(bundle) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def verified(bundle: Path, **environment: str) -> tuple[int, str]:
    """Verify a bundle with the program of the first one here, and without any package."""
    home = bundle.parent / "auditor"
    if not home.exists():
        home.mkdir()
        (home / "verify.py").write_bytes(read(bundle)["verify.py"])
    command = [sys.executable, "-I", "-S", "verify.py", str(bundle)]
    done = ran(command, home, environment)
    assert not done.stderr
    return done.returncode, done.stdout


def record_of(files: Files) -> str:
    return next(name for name in files if name.endswith("/record.json"))


@pytest.fixture
async def bundle(rig: Rig, tmp_path: Path, signed: str) -> Bundle:
    """Export a closed task whose child task has looked."""
    del signed
    runner = await serve_nested(rig, look)
    rig.model.add(call("helper", {"input": "look"}), call("look", {"where": "x"}), "seen", "done")
    task = await finish_a_task(runner)
    await until_status(runner, f"{task.task_id}~0.1.0.0", "finished")
    bundle = await write_bundle(runner.reader, [task.task_id], tmp_path / "bundle.zip")
    assert bundle.tasks == {task.task_id: [], f"{task.task_id}~0.1.0.0": []}
    return bundle


@pytest.fixture(params=[""])
def signed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Let workers and exporters sign with a key, if there is one."""
    if request.param:
        monkeypatch.setenv("HOLDFAST_SIGNING_KEY", request.param)
    return str(request.param)


async def test_a_bundle_has_child_tasks_and_archived_parts_and_python_alone_verifies_it(
    rig: Rig, bundle: Bundle, tmp_path: Path
) -> None:
    assert bundle.file.stat().st_mode & 0o777 == 0o600
    code, said = verified(bundle.file)
    assert code == 0, said
    assert said.count("is the one that Temporal had sealed, says the manifest.") == 2
    assert f"digest of the manifest: {bundle.digest}" in said
    with pytest.raises(InvalidArgumentError, match="is a file"):
        await write_bundle(rig.runner().reader, [*bundle.tasks], bundle.file)
    with pytest.raises(TaskNotFoundError):
        await write_bundle(rig.runner().reader, ["none"], tmp_path / "none.zip")
    assert [each.name for each in tmp_path.glob("none*")] == []

    runner, task = await long_task(rig)
    rolled = await write_bundle(runner.reader, [task.task_id], tmp_path / "rolled.zip")
    code, said = verified(rolled.file)
    assert code == 0, said
    assert "was open: its ledger goes on." in said
    entries = len(await runner.reader.entries(task.task_id))
    assert f"The {entries} entries of task {task.task_id} give its digest." in said


async def test_a_task_is_open_until_its_run_has_the_seal_of_its_end(rig: Rig) -> None:
    """A child sends signals between its end and the end of its run."""
    runner = await serve_nested(rig, look)
    for _ in range(5):
        rig.model.add(call("helper", {"input": "q"}), "of the helper", "done")
        task = await finish_a_task(runner)
        is_open = True
        while is_open:
            kept, _ = await evidence(runner.reader, f"{task.task_id}~0.1.0.0")
            assert kept is not None
            is_open = kept.is_open
            assert not (is_open and '"kind": "closed"' in json.dumps(kept.entries))


def changed_event(files: Files) -> None:
    name = next(name for name in files if name.endswith("audit.jsonl"))
    files[name] = files[name].replace(b'"model"', b'"ann"')


def lost_value(files: Files) -> None:
    del files[next(name for name in files if name.startswith("values/"))]


def added_value(files: Files) -> None:
    files["values/aa/" + "a" * 64] = b"{}"


def named_in_manifest(files: Files) -> None:
    """Change a value and let the manifest have its digest."""
    name = next(name for name in files if name.startswith("values/"))
    files[name] += b" "
    in_manifest(files)


def in_manifest(files: Files) -> None:
    manifest = json.loads(files["manifest.json"])
    del files["manifest.json"]
    manifest["files"] = {name: digest(data) for name, data in files.items()}
    files["manifest.json"] = canonical(manifest)


def rewritten(files: Files) -> None:
    """Let an entry say something else, and all digests of the bundle fit."""
    name = record_of(files)
    record: dict[str, Any] = json.loads(files[name])
    old = record["segment"]["sha256"]
    part = json.loads(files.pop(f"values/{old[:2]}/{old}"))
    part["entries"] = json.loads(json.dumps(part["entries"]).replace("done", "not done"))
    data = canonical(part)
    new = digest(data)
    files[f"values/{new[:2]}/{new}"] = data
    record["segment"]["sha256"] = new
    record["ledger"] = [len(part["entries"]), extend_json("", part["entries"])]
    files[name] = canonical(record)
    in_manifest(files)


def resealed(files: Files) -> None:
    """Rewrite it, with the seal that the manifest tells of."""
    rewritten(files)
    manifest = json.loads(files["manifest.json"])
    record = json.loads(files[record_of(files)])
    record.pop("signature", None)
    manifest["tasks"][0]["seal"] = digest(canonical(record))
    files["manifest.json"] = canonical(manifest)


def unsigned(files: Files) -> None:
    """Rewrite it without any signature."""
    resealed(files)
    for name in ("manifest.json", record_of(files)):
        data = json.loads(files[name])
        del data["signature"]
        files[name] = canonical(data)
    in_manifest(files)


def goes_round(files: Files) -> None:
    """Let a part of the ledger come before itself."""
    record = json.loads(files[record_of(files)])
    name = check_bundle.value_name(record["segment"]["sha256"])
    files[name] = canonical({**json.loads(files[name]), "before": record["segment"]})


CHANGES: list[tuple[Callable[[Files], None], str]] = [
    (changed_event, "audit.jsonl was changed"),
    (lost_value, "the bundle lacks values/"),
    (added_value, "the manifest does not name values/"),
    (named_in_manifest, "does not hold the value that it is named by"),
    (rewritten, "its record is not the one that Temporal had sealed"),
    (resealed, "the manifest has no signature of a known key"),
    (unsigned, "the manifest has no signature of a known key"),
    (goes_round, "its ledger has a part before itself"),
]


@pytest.mark.parametrize("signed", ["k"], indirect=True)
async def test_whatever_is_changed_in_a_bundle_is_found(bundle: Bundle, tmp_path: Path) -> None:
    code, said = verified(bundle.file, HOLDFAST_SIGNING_KEY="old,k")
    assert code == 0, said
    assert "The manifest has a valid signature." in said
    assert verified(bundle.file)[0] == 0
    for change, text in CHANGES:
        files = read(bundle.file)
        change(files)
        other = tmp_path / f"{change.__name__}.zip"
        with zipfile.ZipFile(other, "w") as archive:
            for name, data in files.items():
                archive.writestr(name, data)
        code, said = verified(other, HOLDFAST_SIGNING_KEY="k")
        assert code == 1, change.__name__
        assert text in said, (change.__name__, said)
    whole = bytearray(bundle.file.read_bytes())
    whole[200] ^= 1  # inside the first file
    broken = tmp_path / "broken.zip"
    broken.write_bytes(whole)
    code, said = verified(broken, HOLDFAST_SIGNING_KEY="k")
    assert code == 1
    assert "cannot be read: " in said


@pytest.mark.parametrize("most", ["MOST_JSON", all_of("MOST")])
async def test_a_bundle_that_unpacks_to_more_than_is_read_is_refused(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], most: str
) -> None:
    monkeypatch.setattr(check_bundle, most, 1000)
    assert check_bundle.main([str(bundle.file)]) == 2
    assert "bytes, which is more than is read" in capsys.readouterr().err


async def test_a_session_is_exported_with_the_turns_that_it_has_taken_back(
    rig: Rig, tmp_path: Path
) -> None:
    runner = await rig.serving(rig.agent())
    tasks: list[str] = []
    for turn in range(3):
        rig.model.add(f"answer {turn}")
        tasks.append((await finish_a_task(runner, session="talk")).task_id)
        if turn == 1:
            await runner.session("talk").reset()
    await runner.delete_task(tasks[0])

    app = runner.session("talk").id.partition("~")[0]
    held, taken = await _of_session(engine_of(runner), "talk", app)
    assert (held, taken) == (tasks[2:], tasks[:2])
    made = await write_bundle(runner.reader, held, tmp_path / "talk.zip", taken_back=taken)
    assert ({*made.tasks}, {*made.missing}) == ({*tasks[1:]}, {tasks[0]})
    code, said = verified(made.file)
    assert code == 0, said
    assert f"Task {tasks[1]}: its session has taken the turn back." in said
