"""Verify a bundle that `holdfast export` has written. Needs Python 3.9 and nothing else.

    python verify.py BUNDLE.zip

It checks that the bundle has exactly the files of its manifest, unchanged; that each value has the
digest it is named by; that the ledger of each task, with its archived parts, gives the digest that
its record tells; and that the record of each closed task is the one that Temporal had sealed when
the bundle was made. With the key in HOLDFAST_SIGNING_KEY the manifest must have a valid signature.
Without a key, compare the digest of the manifest with the one that was printed when the bundle was
made: else the manifest could be a forged one.

Use a copy of this program that you trust. Who forges a bundle can forge the copy in it as well.

The exit code is 0 when nothing is wrong, 1 when something is, 2 when there is no bundle.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import sys
import zipfile
from collections.abc import Iterator
from typing import Any

MANIFEST = "manifest.json"
KEY_VARIABLE = "HOLDFAST_SIGNING_KEY"
MOST_JSON = 1 << 28
"""Bytes of a file that is read whole. A few bytes of a bundle can unpack to many."""
MOST = 1 << 36
"""Bytes that are unpacked in all."""
PIECE = 1 << 20


def canonical(data: Any) -> bytes:
    """Encode JSON data in its one canonical form: sorted keys, no white space, UTF-8."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8", "surrogatepass")


def sha256(data: bytes) -> str:
    """Return the SHA-256 of data as 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def unsigned(data: dict[str, Any]) -> dict[str, Any]:
    """Return data without its signature."""
    return {name: value for name, value in data.items() if name != "signature"}


def known_keys() -> list[str]:
    """Return the keys that signatures are checked with."""
    return [key.strip() for key in os.environ.get(KEY_VARIABLE, "").split(",") if key.strip()]


def is_signed(what: str, name: str, data: dict[str, Any]) -> bool | None:
    """Say whether data have the signature of a known key; None when that cannot be known."""
    keys = known_keys()
    given = str(data.get("signature") or "")
    if not keys or not given:
        return None
    text = canonical([what, name, sha256(canonical(unsigned(data)))])
    made = (hmac.new(key.encode("utf-8", "surrogateescape"), text, hashlib.sha256) for key in keys)
    return any(hmac.compare_digest(given, each.hexdigest()) for each in made)


def value_name(digest: str) -> str:
    """Return the name of the file that holds the value of a digest."""
    return f"values/{digest[:2]}/{digest}"


class Bundle:
    """A bundle, and what was found in it.

    Attributes:
        wrong: What is wrong, in sentences.
        proved: What was proved, in sentences.
        unproved: What could not be checked, in sentences.
    """

    def __init__(self, archive: zipfile.ZipFile) -> None:
        """Look at the files of a bundle."""
        self.archive = archive
        self.names = archive.namelist()
        self.wrong: list[str] = []
        self.proved: list[str] = []
        self.unproved: list[str] = []
        self.is_signed = False
        self.left = MOST

    def pieces(self, name: str, most: int = MOST) -> Iterator[bytes]:
        """Unpack a file, in pieces."""
        size = self.archive.getinfo(name).file_size  # no more than that is unpacked
        self.left -= size
        if size > most or self.left < 0:
            raise ValueError(f"{name} unpacks to {size} bytes, which is more than is read")
        with self.archive.open(name) as file:
            while piece := file.read(PIECE):
                yield piece

    def json(self, name: str) -> Any:
        """Read a file that holds JSON data."""
        return json.loads(b"".join(self.pieces(name, MOST_JSON)))

    def digest(self, name: str) -> str:
        """Return the SHA-256 of a file."""
        made = hashlib.sha256()
        for piece in self.pieces(name):
            made.update(piece)
        return made.hexdigest()

    def verify(self) -> None:
        """Check everything."""
        manifest = self.json(MANIFEST)
        self.check_files(manifest["files"])
        self.is_signed = bool(is_signed("holdfast export", "", manifest))
        if known_keys() and not self.is_signed:
            self.wrong.append("the manifest has no signature of a known key")
        else:
            self.note("The manifest", manifest, signed=self.is_signed or None)
        for task in manifest["tasks"]:
            try:
                self.check_task(task)
            except Exception as error:  # noqa: BLE001  whatever a forged file causes is a finding
                self.wrong.append(f"task {task['id']}: {type(error).__name__}: {error}")
        for name in manifest.get("taken_back", ()):
            self.unproved.append(f"Task {name}: its session has taken the turn back.")
        for name, why in manifest["missing"].items():
            self.unproved.append(f"Task {name} was called, and is not in the bundle: {why}")

    def check_files(self, files: dict[str, str]) -> None:
        """Compare the files with the ones in the manifest."""
        before = len(self.wrong)
        there = [name for name in self.names if name != MANIFEST]
        if self.names.count(MANIFEST) != 1 or len(set(there)) != len(there):
            self.wrong.append("the bundle has a name twice")
        self.wrong += [f"the manifest does not name {each}" for each in sorted({*there} - {*files})]
        self.wrong += [f"the bundle lacks {each}" for each in sorted({*files} - {*there})]
        for name in sorted({*files} & {*there}):
            try:
                digest = self.digest(name)
            except Exception as error:  # noqa: BLE001  libraries have their own errors
                self.wrong.append(f"{name} cannot be read: {type(error).__name__}: {error}")
                continue
            if digest != files[name]:
                self.wrong.append(f"{name} was changed")
            if name.startswith("values/") and name != value_name(digest):
                self.wrong.append(f"{name} does not hold the value that it is named by")
        if len(self.wrong) == before:
            self.proved.append(f"The bundle has the {len(files)} files of its manifest, unchanged.")

    def note(self, what: str, data: dict[str, Any], *, signed: bool | None) -> None:
        """Note what a signature proves."""
        if signed:
            self.proved.append(f"{what} has a valid signature.")
        elif signed is not None:
            self.wrong.append(f"the signature of {what} is not that of a known key")
        elif data.get("signature"):
            self.unproved.append(f"{what} is signed. Set {KEY_VARIABLE} to check it.")
        else:
            self.unproved.append(f"{what} has no signature.")

    def check_task(self, task: dict[str, Any]) -> None:
        """Compare the ledger of a task with its record, and the record with its seal."""
        name, before = f"task {task['id']}", len(self.wrong)
        self.wrong += [f"{name}: when it was exported, {each}" for each in task["findings"]]
        if not task["folder"]:
            return
        record = self.json(f"{task['folder']}/record.json")
        entries = [*self.archived(record.get("segment")), *record.get("entries", ())]
        length, digest = record.get("ledger") or (0, "")
        actual = ""
        for entry in entries:
            actual = sha256(actual.encode() + canonical(entry))[:32]
        if (len(entries), actual) != (length, digest):
            self.wrong.append(f"{name}: its ledger does not have the digest of its record")
        if len(self.wrong) == before:
            self.proved.append(f"The {len(entries)} entries of {name} give its digest.")
        if task["is_open"]:
            self.unproved.append(f"{name} was open: its ledger goes on.")
            return
        signed = is_signed("holdfast task", task["id"], record)
        self.note(f"The record of {name}", record, signed=signed)
        if task["seal"] is None:
            self.unproved += [f"{name}: {each}" for each in task["unproved"]]
            return
        plain = unsigned(record)
        kept = {name: value for name, value in plain.items() if name != "prepared"}
        if task["seal"] in {sha256(canonical(plain)), sha256(canonical(kept))}:
            says = "" if self.is_signed else ", says the manifest"
            self.proved.append(f"The record of {name} is the one that Temporal had sealed{says}.")
        else:
            self.wrong.append(f"{name}: its record is not the one that Temporal had sealed")

    def archived(self, segment: dict[str, Any] | None) -> list[Any]:
        """Read the archived part of a ledger, oldest first."""
        parts: list[list[Any]] = []
        seen: set[str] = set()
        while segment:
            if segment["sha256"] in seen:
                raise ValueError("its ledger has a part before itself")
            seen.add(segment["sha256"])
            data = self.json(value_name(segment["sha256"]))
            parts.append(data["entries"])
            segment = data["before"]
        return [entry for part in reversed(parts) for entry in part]


def main(given: list[str]) -> int:
    """Verify the bundle that is named."""
    if len(given) != 1:
        sys.stderr.write("usage: python verify.py BUNDLE.zip\n")
        return 2
    try:
        with zipfile.ZipFile(given[0]) as archive:
            bundle = Bundle(archive)
            digest = bundle.digest(MANIFEST)
            bundle.verify()
    except Exception as error:  # noqa: BLE001  a file that is no bundle can be anything
        sys.stderr.write(f"{given[0]} is not a bundle: {type(error).__name__}: {error}\n")
        return 2
    lines = [f"WRONG: {each}" for each in bundle.wrong]
    lines += [f"proved: {each}" for each in bundle.proved]
    lines += [f"not proved: {each}" for each in bundle.unproved]
    lines.append(f"digest of the manifest: {digest}")
    lines.append("The bundle is broken." if bundle.wrong else "The bundle is intact.")
    sys.stdout.write("\n".join(lines) + "\n")
    return 1 if bundle.wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
