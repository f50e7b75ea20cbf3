"""Histories of tasks as each version of the workflow code has written them.

`HOLDFAST_RECORD=1 pytest tests/live -n 0`, then `python -m tests.replay.recorded`, takes those of
this version. They are never changed once a version is released: tasks of it are still open.
"""

import gzip
import hashlib
import itertools
import os
import re
from importlib import metadata
from pathlib import Path

from temporalio.client import WorkflowHistory

HISTORIES = Path(__file__).with_name("histories")
CHECKOUT = str(Path(__file__).parents[2])
FOUND = Path(CHECKOUT, ".build", "histories")
DIGESTS = HISTORIES / "SHA256SUMS"
"""Digest of each history, as `sha256sum --check` reads them."""
MOST = 60
_OWN = re.compile(r'("(?:identity|stackTrace)": )"(?:\\.|[^"\\])*"')
"""What a history says of the machine that wrote it."""

Kind = tuple[object, ...]


def kinds(history: WorkflowHistory) -> list[Kind]:
    """Return what each event is of: its type, and its activity, signal or update."""
    return [
        (
            event.event_type,
            event.activity_task_scheduled_event_attributes.activity_type.name,
            event.workflow_execution_signaled_event_attributes.signal_name,
            event.workflow_execution_update_accepted_event_attributes.accepted_request.input.name,
        )
        for event in history.events
    ]


def record(history: WorkflowHistory) -> None:
    """Keep a history that a test has brought about, named after the test."""
    if "HOLDFAST_RECORD" in os.environ:
        FOUND.mkdir(parents=True, exist_ok=True)
        test = os.environ["PYTEST_CURRENT_TEST"].rpartition("::test_")[2].partition(" ")[0]
        name = re.sub(r"\W+", "_", test)[:70].strip("_")
        text = _OWN.sub(r'\1"worker"', history.to_json()).replace(CHECKOUT, ".")
        (FOUND / f"{name}.{len(history.events)}.json").write_text(text, "utf-8")


def read(file: Path) -> WorkflowHistory:
    """Read a history."""
    text = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    found = WorkflowHistory.from_json("", text.decode())
    started = found.events[0].workflow_execution_started_event_attributes
    return WorkflowHistory(started.workflow_id, found.events)


def digests() -> dict[str, str]:
    """Return the digest of each history, by its path."""
    return {
        file.relative_to(HISTORIES).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(HISTORIES.glob("*/*"))
    }


def main() -> None:
    """Choose, of the histories that were found, those that show most with the fewest bytes."""
    into = HISTORIES / metadata.version("holdfast-agents")
    into.mkdir(parents=True, exist_ok=True)
    left = {file: {*itertools.pairwise(kinds(read(file)))} for file in sorted(FOUND.glob("*.json"))}
    for _ in range(min(MOST, len(left))):
        best = max(left, key=lambda file: len(left[file]) / file.stat().st_size ** 0.5)
        shown = left.pop(best)
        left = {file: pairs - shown for file, pairs in left.items()}
        (into / f"{best.name}.gz").write_bytes(gzip.compress(best.read_bytes(), mtime=0))
    DIGESTS.write_text(
        "".join(f"{digest}  {name}\n" for name, digest in digests().items()), "utf-8"
    )


if __name__ == "__main__":
    main()
