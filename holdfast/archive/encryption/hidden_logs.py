"""Logs without texts: with keys, what a task says stays out of the logs as well."""

from __future__ import annotations

import hashlib
import logging
import re
import secrets
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from holdfast.errors import behind

_CONVERSION = re.compile(r"%[-#0 +]*\d*(?:\.\d+)?([a-z])")
_TEXT = re.compile(r"(?<!'): | \{")
_ID = re.compile(r"[\w.:/@+~-]{1,200}")
_KEY = secrets.token_bytes(16)
_SDK = "temporalio"
_LEVELS = (bool, int, float, type(None))


class HidesTexts:
    """Makes records with class and digest in place of errors and texts; ids and numbers stay.

    An id is what a message quotes (`%r`) and has no blank: a text may be one word.

    The digest has a random key of this process: equal texts of a process have equal digests, but
    guesses cannot be tested.

    A filter would hold for its own logger alone: some loggers are made when they first log.
    """

    def __init__(self, make: Callable[..., logging.LogRecord]) -> None:
        """Change what this makes."""
        self._make = make

    def __call__(self, *given: Any, **options: Any) -> logging.LogRecord:
        """Make a record."""
        record = self._make(*given, **options)
        package = str(record.name).partition(".")[0]
        if package in {"holdfast", _SDK}:
            _hide(record, is_ours=package != _SDK)
        return record


def hide_texts() -> None:
    """Hide texts in the logs of Holdfast and of Temporal's SDK, in this process, for good."""
    make = logging.getLogRecordFactory()
    if not isinstance(make, HidesTexts):
        logging.setLogRecordFactory(HidesTexts(make))
        logging.getLogger(f"{_SDK}.core").addFilter(_without_fields)


def _hide(record: logging.LogRecord, *, is_ours: bool) -> None:
    text = str(record.msg)
    if isinstance(record.args, Mapping):
        record.args = {key: _shown(value) for key, value in record.args.items()}
    elif record.args:
        quotes = _CONVERSION.findall(text.replace("%%", ""))
        record.args = tuple(
            _shown(each, is_quoted=place < len(quotes) and quotes[place] == "r")
            for place, each in enumerate(record.args)
        )
    elif not is_ours and (rest := _TEXT.search(text)):  # the SDK writes what has happened first
        record.msg = f"{text[: rest.start()]} ({_digest(text[rest.start() :])})"
    if record.exc_info and record.exc_info[1] is not None:
        record.exc_text = _traceback(record.exc_info[1])
        record.exc_info = None


def _without_fields(record: logging.LogRecord) -> bool:
    """Take from a record what its text was made of: for handlers that write all that it has."""
    vars(record).pop("temporal_log", None)
    return True


def _shown(value: object, *, is_quoted: bool = False) -> object:
    if isinstance(value, _LEVELS):
        return value
    if isinstance(value, BaseException):
        return f"{type(value).__name__} ({_digest(str(value))})"
    if isinstance(value, Path):
        return str(value)
    if is_quoted and isinstance(value, str) and _ID.fullmatch(value):
        return value
    kind = "" if isinstance(value, str) else f"{type(value).__name__}, "
    return f"({kind}{_digest(str(value))})"


def _digest(text: str) -> str:
    data = text.encode("utf-8", "surrogatepass")
    found = hashlib.blake2b(data, key=_KEY, digest_size=4).hexdigest()
    return f"text of {len(text)} characters, digest {found}"


def _traceback(error: BaseException) -> str:
    """Return the frames of an error and of those behind it, the first one first."""
    lines: list[str] = []
    seen: set[int] = set()
    now: BaseException | None = error
    while now is not None and id(now) not in seen:
        seen.add(id(now))
        lines[:0] = [*_frames(now.__traceback__), f"{_shown(now)}"]
        now = None if now.__suppress_context__ and now.__cause__ is None else behind(now)
    return "\n".join(lines)


def _frames(found: TracebackType | None) -> list[str]:
    return [
        f'  File "{each.filename}", line {each.lineno}, in {each.name}'
        for each in traceback.extract_tb(found)
    ]
