"""Ids and names: which ones may be given, and how those of different kinds are kept apart.

A task's id is its workflow id, and so is a session's; a call of an agent as a tool makes an id of
its own for the task that it is. The character `~` stands in none that is given and in all that are
made, so that ids of different kinds never meet. All lengths hold everywhere: Temporal takes 1,000
bytes, its PostgreSQL store 255 characters.
"""

from __future__ import annotations

import hashlib
import unicodedata
from typing import cast

from holdfast.errors import InvalidArgumentError, NoWorkerError
from holdfast.values.text.shown import shown

MADE = "~"
"""Stands in ids that are made of others, and in none that is given."""

DEFAULT_APP = "default"
"""The app of those who name none. Each agent in it has a queue of its own."""

LONGEST_NAME = 200
"""Characters of a task's id, of an agent's name, and of who acts."""

LONGEST_APP = 60
LONGEST_SESSION = 160
LONGEST_ID = 240
LONGEST_KNOWN = 1000
"""Bytes of an id that Temporal takes, whoever has made it."""

ARCHIVE_WORKFLOW = f"holdfast{MADE}archive"
_SESSION = f"{MADE}session{MADE}"
_UNSEEN = {"Cc", "Cs", "Zl", "Zp"}
"""Control characters, lone surrogates, and what ends a line or a paragraph."""


def check_name(what: str, given: object, longest: int = LONGEST_NAME) -> str:
    """Return a name that can be stored, shown and looked for.

    Args:
        what: The argument, as an error names it.
        given: The name.
        longest: Most characters.

    Raises:
        InvalidArgumentError: It is no text, says nothing, is too long, or has characters that
            cannot be seen.
    """
    if not isinstance(given, str):
        msg = f"{what} must be a text; it was {shown(given)} ({type(given).__name__})."
        raise InvalidArgumentError(msg)
    if not given.strip():
        msg = f"{what} must say something; it was {shown(given)}."
        raise InvalidArgumentError(msg)
    if len(given) > longest:
        size = len(given)
        msg = f"{what} may have at most {longest} characters; this has {size}: {shown(given)}"
        raise InvalidArgumentError(msg)
    odd = next((each for each in given if unicodedata.category(each) in _UNSEEN), None)
    if odd is not None:
        msg = (
            f"{what} may not have control characters or lone surrogates; {shown(given)} has"
            f" {odd!r}."
        )
        raise InvalidArgumentError(msg)
    return given


def check_by(given: object) -> str:
    """Return the name of who acts, or an empty text.

    Raises:
        InvalidArgumentError: As for `check_name`.
    """
    return "" if isinstance(given, str) and not given else check_name("by", given)


def check_new_id(given: object) -> str:
    """Return an id that a new task may have.

    Raises:
        InvalidArgumentError: As for `check_name`, or it could be the id of something else.
    """
    return _without_made("task_id", check_name("task_id", given))


def check_app(given: object) -> str:
    """Return the name of an app.

    Raises:
        InvalidArgumentError: As for `check_name`, or it has the character that is ours.
    """
    return _without_made("app", check_name("app", given, LONGEST_APP))


def check_known_id(given: object, what: str = "The id of a task") -> str:
    """Return an id that a task may have, also one that is nested or was started by other means.

    Raises:
        InvalidArgumentError: No task can have it: it is no text, too long, or a session's.
    """
    if isinstance(given, str) and given and is_session(given):
        msg = f"{shown(given)} is the id of a session, not of a task: use runner.session(name)."
        raise InvalidArgumentError(msg)
    return check_name(what, given, LONGEST_KNOWN)


def _without_made(what: str, given: str) -> str:
    if MADE in given:
        msg = (
            f"{what} may not have the character {MADE!r}, which stands in the ids of sessions and"
            f" nested tasks only; it was {shown(given)}."
        )
        raise InvalidArgumentError(msg)
    return given


# ---- what is made


def queue_of(app: str, agent: str = "") -> str:
    """Return the task queue of an app, or of an agent in the default app.

    Workers of a named app serve the same agents. The default app is that of programs which know
    nothing of each other: a queue for each agent has each take only what it can do. The queue of
    the default app itself is that of its sessions.
    """
    return f"hf:{agent}" if agent and app == DEFAULT_APP else f"hf.{app}"


def app_of(queue: str) -> str:
    """Return the app that a queue is of."""
    return queue.removeprefix("hf.") if queue.startswith("hf.") else DEFAULT_APP


def is_own(queue: str) -> bool:
    """Whether a queue is one that Holdfast names, and not one of a team's own workers."""
    return queue.startswith(("hf.", "hf:"))


def serves(queue: str) -> str:
    """Say in words what a worker of a queue serves."""
    if queue.startswith("hf:"):
        return f"agent {queue[3:]!r} (queue {queue!r})"
    return f"app {app_of(queue)!r} (queue {queue!r})" if is_own(queue) else f"queue {queue!r}"


def app_option(queue: str) -> str:
    """Return what names the app of a queue on a command line; nothing for the default app."""
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
        InvalidArgumentError: The name cannot be that of a session.
    """
    return f"{app}{_SESSION}{check_name('The name of a session', name, LONGEST_SESSION)}"


def is_session(workflow_id: str) -> bool:
    """Whether an id is a session's: a nested task's goes on otherwise after the first `~`."""
    return workflow_id[workflow_id.find(MADE) :].startswith(_SESSION)


def is_nested(task_id: str) -> bool:
    """Whether a task is a call of an agent as a tool."""
    return MADE in task_id and not is_session(task_id)


def nested_id(task_id: str, place: tuple[int, ...]) -> str:
    """Return the id of the task that a call is.

    However deep calls are nested, it is short: a long id ends in its own digest, and begins with
    the id of the outermost task all the same.

    Args:
        task_id: The calling task.
        place: Where in it the call is.
    """
    name = f"{task_id}{MADE}{'.'.join(map(str, place))}"
    if len(name) <= LONGEST_ID:
        return name
    first = task_id.partition(MADE)[0][:LONGEST_NAME]
    sha256 = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{first}{MADE}{sha256[:32]}"


def approval_parts(approval_id: object) -> tuple[str, str]:
    """Return the task's id and the approval's.

    Raises:
        InvalidArgumentError: No approval has such an id.
    """
    wanted = check_name("The id of an approval", approval_id, LONGEST_KNOWN + 20)
    task_id, _, serial = wanted.rpartition(":")
    if not task_id or not (serial.isascii() and serial.isdigit()):
        msg = f"An approval's id is <task id>:<number>; this is {shown(cast('object', wanted))}."
        raise InvalidArgumentError(msg)
    return check_known_id(task_id), wanted
