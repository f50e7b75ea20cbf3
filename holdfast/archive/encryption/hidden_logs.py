"""Logs without texts: with keys, what a task says stays out of the logs as well."""

from __future__ import annotations

import hashlib
import logging
import re
import secrets
import traceback
from pathlib import Path
from types import TracebackType

from holdfast.errors import behind

_CONVERSION = re.compile(r"%[-#0 +]*\d*(?:\.\d+)?([a-z])")
_ID = re.compile(r"[\w.:/@+~-]{1,200}")
_KEY = secrets.token_bytes(16)
_SDK = "temporalio"
_LEVELS = (bool, int, float, type(None))


class HidesTexts(logging.Filter):
    """Puts class and digest in place of errors and texts, and leaves ids and numbers.

    An id is what a message quotes (`%r`) and has no blank: a text may be one word.

    The digest has a random key of this process: equal texts of a process have equal digests, but
    guesses cannot be tested.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Change a record before any handler has it."""
        if isinstance(record.args, tuple):
            quotes = _CONVERSION.findall(str(record.msg).replace("%%", ""))
            record.args = tuple(
                _shown(each, is_quoted=place < len(quotes) and quotes[place] == "r")
                for place, each in enumerate(record.args)
            )
        if record.exc_info and record.exc_info[1] is not None:
            record.exc_text = _traceback(record.exc_info[1])
            record.exc_info = None
        return True


_filter = HidesTexts()


def hide_texts() -> None:
    """Hide texts in the logs of Holdfast and of Temporal's SDK, in this process, for good."""
    for name in ("holdfast", *logging.root.manager.loggerDict):
        if name == "holdfast" or name.partition(".")[0] == _SDK:
            logger = logging.getLogger(name)
            if _filter not in logger.filters:
                logger.filters.insert(0, _filter)  # before the one that makes the text of a record


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
