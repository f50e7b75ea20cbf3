"""Ids and names: checks of given ones, and construction of derived ones.

The id of a task is its workflow id, and so is that of a session; the id of a child task is derived
from its call. The character `~` is in all derived ids and in no given one, so that ids of different
kinds never collide. All lengths fit every store: Temporal takes 1,000 bytes, its PostgreSQL store
255 characters.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import unicodedata
import uuid
from typing import cast

from holdfast.errors import InvalidArgumentError, NoWorkerError
from holdfast.values.text.shown import shown
from holdfast.values.text.terminal import INVISIBLE

MADE = "~"
"""Character in every derived id, and in no given one."""

DEFAULT_APP = "default"
"""The app when none is given. Each agent in it has a queue of its own."""

LONGEST_NAME = 200
"""Most characters of a task's id, of an agent's name, and of the name of a person who acts."""

LONGEST_APP = 60
LONGEST_SESSION = 160
LONGEST_TENANT = 64
LONGEST_ID = 240
LONGEST_KNOWN = 1000
"""Most bytes of an id in Temporal, whatever made it."""

ARCHIVE_WORKFLOW = f"holdfast{MADE}archive"
_SESSION = f"{MADE}session{MADE}"
_UNSEEN = {"Cc", "Cs", "Zl", "Zp", "Zs"}
"""Unicode categories: control characters, lone surrogates, separators of lines, and blanks."""


TIMED = 7
"""Version of the UUIDs that begin with the time."""


def timed_id(now: float) -> str:
    """Make up an id that says when it was made: a UUID of version 7, as hex digits.

    Args:
        now: Time, seconds since the epoch.
    """
    parts = (int(now * 1000) << 80, TIMED << 76, secrets.randbits(12) << 64, 2 << 62)
    return f"{sum(parts) + secrets.randbits(62):032x}"


def time_in(made: str) -> float:
    """Return when an id was made, seconds since the epoch; 0 for one that does not say it."""
    try:
        known = uuid.UUID(hex=made)
    except ValueError:
        return 0.0
    return (known.int >> 80) / 1000 if known.version == TIMED else 0.0


def check_name(what: str, given: object, longest: int = LONGEST_NAME) -> str:
    """Return a name, checked: it can be stored, shown and searched for.

    Args:
        what: Name of the argument, for the error.
        given: The name.
        longest: Most characters.

    Raises:
        InvalidArgumentError: It is not a string, is blank or over-long, or has invisible
            characters.
    """
    if not isinstance(given, str):
        msg = f"{what} must be a text; it was {shown(given)} ({type(given).__name__})."
        raise InvalidArgumentError(msg)
    if not given.strip():
        raise InvalidArgumentError(f"{what} must say something; it was {shown(given)}.")
    if len(given) > longest:
        size = len(given)
        msg = f"{what} may have at most {longest} characters; this has {size}: {shown(given)}"
        raise InvalidArgumentError(msg)
    is_plain = given.isascii() and given.isprintable()
    odd = None if is_plain else next(filter(_is_unseen, given), None)
    if odd is not None:
        raise InvalidArgumentError(
            f"{what} may not have control characters, lone surrogates, blanks but the usual one or"
            f" characters that nothing shows; {shown(given)} has {odd!a}. Leave it out."
        )
    return given


def _is_unseen(one: str) -> bool:
    return one != " " and bool(unicodedata.category(one) in _UNSEEN or INVISIBLE.match(one))


def check_by(given: object) -> str:
    """Return the name of the person or program that acts, checked; it may be empty.

    Raises:
        InvalidArgumentError: As for `check_name`, or a word of it has letters of several alphabets.
    """
    name = "" if isinstance(given, str) and not given else check_name("by", given)
    for word in () if name.isascii() else re.findall(r"[^\W\d_]+", name):
        of = {unicodedata.name(each, "").partition(" ")[0] for each in word} & _ALIKE
        if len(of) > 1:
            mixed = " and ".join(sorted(each.capitalize() for each in of))
            msg = f"by may not mix alphabets in a word, whose letters look alike; {shown(name)} has"
            raise InvalidArgumentError(f"{msg} {mixed} letters in {word!a}. Use one of them.")
    return name


_ALIKE = {"LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "COPTIC", "CHEROKEE", "LISU", "FULLWIDTH"}
"""Alphabets with letters that look like letters of another one."""


def check_new_id(given: object) -> str:
    """Return the id for a new task, checked.

    Raises:
        InvalidArgumentError: As for `check_name`, or it has the character of derived ids, or no
            address can name it, or it reads as the selector of another thing.
    """
    if given in (".", ".."):
        raise InvalidArgumentError(
            f"task_id may not be {given!r}: browsers and HTTP clients take it out of an address, so"
            " that the desk could not show the task. Add a letter or a digit."
        )
    name = check_name("task_id", given)
    if kind := re.match("(task|session|person):", name):
        msg = f"task_id may not begin with {kind[0]!r}, which says what to erase or to hold."
        raise InvalidArgumentError(msg)
    return _without_made("task_id", name)


def check_app(given: object) -> str:
    """Return the name of an app, checked.

    Raises:
        InvalidArgumentError: As for `check_name`, or it has the character of derived ids.
    """
    return _without_made("app", check_name("app", given, LONGEST_APP))


def check_known_id(given: object, what: str = "The id of a task") -> str:
    """Return the id of an existing task, checked; it may be a child task's, or made elsewhere.

    Raises:
        InvalidArgumentError: No task can have it: it is not a string, is over-long, or a session's.
    """
    if isinstance(given, str) and given and is_session(given):
        msg = f"{shown(given)} is the id of a session, not of a task: use runner.session(name)."
        raise InvalidArgumentError(msg)
    return check_name(what, given, LONGEST_KNOWN)


def check_tenant(given: object) -> str:
    """Return the name of a tenant, checked.

    Raises:
        InvalidArgumentError: As for `check_name`, or it has a character that ids of sessions or
            Temporal's queries are made with.
    """
    name = check_name("tenant", given, LONGEST_TENANT)
    if odd := re.search(r"[~*\"'`\\]", name):
        raise InvalidArgumentError(
            f"tenant may not have the character {odd[0]!r}, which is for ids of sessions and for"
            f" Temporal's queries; it was {shown(name)}. Leave it out."
        )
    return name


def owned(tenant: str, session: str) -> str:
    """Return the name of a tenant's session, among those of its app.

    Args:
        tenant: The tenant; empty for none.
        session: The name that the tenant uses, or this one already.
    """
    begins = f"{tenant}{MADE}" if tenant else ""
    return session if session.startswith(begins) else f"{begins}{session}"


def _without_made(what: str, given: str) -> str:
    if MADE in given:
        raise InvalidArgumentError(
            f"{what} may not have the character {MADE!r}, which is for the ids of sessions and"
            f" nested tasks only; it was {shown(given)}."
        )
    return given


# ---- derived names and ids


def queue_of(app: str, agent: str = "") -> str:
    """Return the task queue of an app, or of an agent in the default app.

    All workers of a named app serve the same agents, from one queue. Unrelated programs share the
    default app, so each of its agents has a queue of its own, and a worker gets only tasks that it
    can run. The default app's own queue is for its sessions.
    """
    return f"hf:{agent}" if agent and app == DEFAULT_APP else f"hf.{app}"


def app_of(queue: str) -> str:
    """Return the app of a queue."""
    return queue.removeprefix("hf.") if queue.startswith("hf.") else DEFAULT_APP


def is_of_agent(queue: str) -> bool:
    """Whether a queue is that of an agent in the default app."""
    return queue.startswith("hf:")


def is_own(queue: str) -> bool:
    """Whether a queue has a name made by Holdfast, not one chosen by the user."""
    return queue.startswith(("hf.", "hf:"))


def queue_in(app: str, own: str) -> str:
    """Return a queue of the app that a record has; where that says too little, one's own queue.

    A queue with a name chosen by the user is recorded as the default app.
    """
    return queue_of(app) if app and (app != DEFAULT_APP or is_own(own)) else own


def serves(queue: str) -> str:
    """Describe what a worker of a queue serves, for messages."""
    if queue.startswith("hf:"):
        return f"agent {queue[3:]!r} (queue {queue!r})"
    return f"app {app_of(queue)!r} (queue {queue!r})" if is_own(queue) else f"queue {queue!r}"


def app_option(queue: str) -> str:
    """Return the `--app` option for the app of a queue; empty for the default app."""
    return "" if app_of(queue) == DEFAULT_APP else f" --app {app_of(queue)}"


def no_worker(
    queue: str, *, task_id: str = "", request_id: str = "", is_sent: bool = False
) -> NoWorkerError:
    """Make the error that says which worker process a queue waits for.

    Args:
        queue: The Temporal task queue.
        task_id: The task, when it is known.
        request_id: Id of the request, when one was made.
        is_sent: Whether the request reached the server.
    """
    own = f"holdfast worker my_module:agents{app_option(queue)}"
    command = own if is_own(queue) else ""
    return NoWorkerError(
        queue,
        serves=serves(queue),
        command=command,
        task_id=task_id,
        request_id=request_id,
        is_sent=is_sent,
    )


def session_id(app: str, name: str) -> str:
    """Return the workflow id of a session.

    Raises:
        InvalidArgumentError: The name cannot be used for a session.
    """
    return f"{app}{_SESSION}{check_name('The name of a session', name, LONGEST_SESSION)}"


def is_session(workflow_id: str) -> bool:
    """Whether an id is a session's; that of a child task has other text after the first `~`."""
    return workflow_id[workflow_id.find(MADE) :].startswith(_SESSION)


def session_name(workflow_id: str) -> str:
    """Return the name that people use of a session; empty for another workflow."""
    return workflow_id.partition(_SESSION)[2]


def app_of_session(workflow_id: str, queue: str) -> str:
    """Return the app of a session.

    Args:
        workflow_id: Its id.
        queue: Its task queue.
    """
    app = workflow_id.partition(_SESSION)[0]
    return app if session_id(app, session_name(workflow_id)) == workflow_id else app_of(queue)


def is_nested(task_id: str) -> bool:
    """Whether a task is a child task, that is, a call of an agent as a tool."""
    return MADE in task_id and not is_session(task_id)


def outermost(task_id: str) -> str:
    """Return the task that a child task was begun for in the end; of any other task, its own id."""
    return task_id.partition(MADE)[0]


def nested_id(task_id: str, place: tuple[int, ...]) -> str:
    """Return the id of the child task for a call.

    It stays short however deep calls are nested: a long id is replaced by the id of the outermost
    task and a digest.

    Args:
        task_id: The calling task.
        place: Position of the call in it.
    """
    name = f"{task_id}{MADE}{'.'.join(map(str, place))}"
    if len(name) <= LONGEST_ID:
        return name
    first = outermost(task_id)[:LONGEST_NAME]
    return f"{first}{MADE}{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


def task_of(approval_id: str) -> str:
    """Return the id of the task that an approval, or a rule made of one, belongs to."""
    return approval_id.rpartition(":")[0]


def approval_parts(approval_id: object) -> tuple[str, str]:
    """Return the task's id in an approval's id, and the approval's id.

    Raises:
        InvalidArgumentError: It is not an approval's id.
    """
    wanted = check_name("The id of an approval", approval_id, LONGEST_KNOWN + 20)
    task_id, _, serial = wanted.rpartition(":")
    if not task_id or not (serial.isascii() and serial.isdigit()):
        msg = f"An approval's id is <task id>:<number>; this is {shown(cast('object', wanted))}."
        raise InvalidArgumentError(msg)
    return check_known_id(task_id), wanted
