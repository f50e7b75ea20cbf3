"""`keys`: the master keys, and which of them the archive still needs."""

from __future__ import annotations

import asyncio
import base64
import os
from collections import Counter

from holdfast.archive import Archive, Keys
from holdfast.archive.bytestore import KEYS_VARIABLE
from holdfast.archive.encryption.keys import new_key
from holdfast.archive.encryption.store import EncryptedStore
from holdfast.cli import output
from holdfast.cli.exits import ExitCode
from holdfast.cli.options import Common, check_data
from holdfast.errors import InvalidArgumentError
from holdfast.serving.worker_process import default_archive


async def keys_new_command(name: str, *, as_json: bool) -> ExitCode:
    """Print a new master key, as a line of a file of keys.

    Raises:
        InvalidArgumentError: The name cannot be used.
    """
    key = new_key()
    Keys({name: key})  # refuses a name that cannot be used
    text = base64.b64encode(key).decode()
    return output.told({"name": name, "key": text}, f"{name} {text}", as_json=as_json)


async def keys_list_command(common: Common) -> ExitCode:
    """List master keys, and how many data keys of the archive each encrypts.

    Raises:
        InvalidArgumentError: No keys are named.
        ArchiveError: The archive cannot be read.
    """
    keys, store = _opened(common)
    counted = Counter(await asyncio.to_thread(lambda: [*store.data_keys.masters()]))
    missing = sorted({*counted} - {*keys.names})
    for name in (*keys.names, *missing):
        count, is_first, is_here = counted[name], name == keys.first, name in keys.names
        if common.json:
            facts = {"name": name, "data_keys": count, "encrypts": is_first, "here": is_here}
            output.emit(facts)
            continue
        use = "encrypts what is new" if is_first else "still needed" if count else "may go"
        output.answer(f"{name}  {count} data keys  {use if is_here else 'IS NOT HERE'}")
    return ExitCode.ENGINE if missing else ExitCode.OK


async def keys_rotate_command(common: Common, *, plain: bool) -> ExitCode:
    """Encrypt all data keys by the first master key; with `plain`, also files of before.

    Raises:
        InvalidArgumentError: No keys are named.
        ArchiveError: A master key is not here, or the archive cannot be written.
    """
    keys, store = _opened(common)
    files = await asyncio.to_thread(lambda: [*store.encrypt_plain()] if plain else [])
    changed = await asyncio.to_thread(lambda: [*store.data_keys.rotate(is_all=plain)])
    if common.json:
        facts = {"data_keys": len(changed), "rotated": sum(changed)}
        output.emit(facts | ({"files": len(files), "encrypted": sum(files)} if plain else {}))
        return ExitCode.OK
    output.say(f"{sum(changed)} of {len(changed)} data keys changed: {keys.first!r} encrypts all.")
    output.say("`holdfast keys list` says which of the other master keys may go.")
    if plain:
        output.say(f"{sum(files)} of {len(files)} files were in plain text and are encrypted now.")
    return ExitCode.OK


def _opened(common: Common) -> tuple[Keys, EncryptedStore]:
    """Return the keys of this process and the archive that they encrypt; no server is asked."""
    if not os.environ.get(KEYS_VARIABLE):
        raise InvalidArgumentError(
            f"{KEYS_VARIABLE} names no keys. `holdfast keys new k1 > keys.txt` makes the first one;"
            f" then set {KEYS_VARIABLE}=keys.txt in every process, and look after the file."
        )
    keys, directory = Keys.given(None), common.embedded
    if directory is not None:
        check_data(directory)
    place = common.archive or default_archive() if directory is None else directory / "archive"
    store = Archive(place, keys=keys).encrypted
    if store is None:
        raise RuntimeError  # unreachable: it was given keys
    store.data_keys.lost()
    return keys, store
