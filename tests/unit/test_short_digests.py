"""Digests that are cut short: each has a reason why a collision does no harm."""

import re

from tests.support.pages import ROOT

CUT = re.compile(r"(?:digest|sha256|extend)\b.*?\[:\s*(?!1\])(\w+)\]")

MAC = "128 bits of a MAC: nobody without the key finds another text for it"
OWN = "who could find a collision gets an answer to a request of their own in the place of another"
NAME = "a name for people; nothing is decided by it"
SECOND = "64 bits compared with one's own data: it takes a second preimage, not a pair"

PLACE = "compared with the record at the same place of a step: it tells that code has changed"

REASONS = {
    ("activities/tools/lookup.py", "32"): "128 bits: a pair takes 2**64 tries, within one task",
    ("holdfast/agents/tools/foreign/servers.py", "8"): "two tools of one name are refused",
    ("holdfast/archive/archive.py", "_MAC_DIGITS"): MAC,
    ("holdfast/archive/contents.py", "8"): NAME,
    ("holdfast/archive/encryption/keys.py", "32"): MAC,
    (
        "holdfast/archive/bytestore.py",
        "KEY_ID_BYTES",
    ): "two scopes of one id have one key, which works",
    ("holdfast/archive/bytestore.py", "2"): "a folder; the whole digest follows",
    ("holdfast/client/caller_sessions/store.py", "16"): OWN,
    ("holdfast/contrib/a2a.py", "8"): "agents of one app, whose author names them",
    ("holdfast/contrib/a2a_tool.py", "8"): "questions of one call; who asks both confuses itself",
    ("holdfast/contrib/threads.py", "24"): OWN,
    ("holdfast/desk/api/writes.py", "KEY_DIGITS"): OWN,
    ("holdfast/llama_index/planner.py", "32"): "128 bits: a pair takes 2**64 tries",
    ("holdfast/llama_index/program.py", "16"): "the file of a program; its user names it",
    ("holdfast/llama_index/program.py", "32"): "128 bits: a pair takes 2**64 tries",
    ("holdfast/models/offline.py", "12"): "a model for trials, without secrets and effects",
    ("holdfast/models/prices.py", "8"): NAME,
    ("holdfast/reading/audit/check_bundle.py", "2"): "a folder; the whole digest follows",
    ("holdfast/reading/audit/check_bundle.py", "32"): "128 bits, as values/base.py writes them",
    ("holdfast/task/data/children.py", "32"): MAC,
    ("holdfast/task/waits.py", "32"): MAC,
    ("holdfast/task/data/state.py", "HEAD_DIGITS"): SECOND,
    ("holdfast/task/ledger/recording.py", "DIGEST_BYTES"): OWN,
    ("holdfast/task/ledger/ledger.py", "AT_DIGITS"): SECOND,
    (
        "holdfast/tracing/spans.py",
        "count",
    ): "as long as OpenTelemetry says; a trace decides nothing",
    ("holdfast/values/base.py", "DIGEST_LENGTH"): "128 bits: to change a record takes 2**128 tries",
    ("holdfast/values/checks/ids.py", "32"): "128 bits, within one outermost task",
    ("holdfast/values/messages.py", "12"): "a file of a task, among those of near tasks",
    ("holdfast/values/messages.py", "8"): NAME,
    ("holdfast/values/parts/sources.py", "ID_DIGITS"): NAME,
    ("holdfast/values/text/decided.py", "16"): "of a secret; the decision has the whole call's",
    ("holdfast/workers/context/context.py", "16"): PLACE,
    ("holdfast/workers/context/journal.py", "16"): PLACE,
}


def test_every_digest_that_is_cut_short_has_a_reason() -> None:
    found: set[tuple[str, str]] = set()
    for top in ("holdfast", "workflows", "activities"):
        for path in (ROOT / top).rglob("*.py"):
            name = path.relative_to(ROOT).as_posix()
            if not name.startswith(("holdfast/workflows/", "holdfast/activities/")):
                found |= {(name, cut) for cut in CUT.findall(path.read_text("utf-8"))}
    assert found == set(REASONS)
