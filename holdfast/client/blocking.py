"""The step API without `await`: one-line twins of the async methods, on the process's shared loop.

from holdfast.sync import AgentRunner

with AgentRunner.local(agent) as runner:
    response = runner.chat("Find me a hotel")
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, cast

from temporalio.client import Client

from holdfast.agents.agent import Agent
from holdfast.client.agent_runner import runner as _async
from holdfast.client.agent_runner import sessions as _sessions
from holdfast.client.streamed import Streamed
from holdfast.engine.loop import close_at_exit, keep_at_exit, shared_loop
from holdfast.errors import InvalidArgumentError
from holdfast.task.data.calls import Approval
from holdfast.values.text.shown import shown

__all__ = ["AgentRunner", "Session"]

P = ParamSpec("P")
R = TypeVar("R")
A = TypeVar("A")


class _Twin:
    """Holds the async object that does the work."""

    def __init__(self, twin: Any) -> None:
        self._twin = twin

    async def _ready(self) -> Any:
        """Return the async object, ready to be used. Runs on the shared loop."""
        return self._twin


def _sync(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Any, P], R]:
    """Make the blocking twin of an async method; signature and docstring are the same.

    Raises:
        RuntimeError: It is called on the shared loop itself.
    """

    @functools.wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        async def calling() -> R:
            return await method(await self._ready(), *args, **kwargs)

        return shared_loop().run(calling())

    return cast("Callable[Concatenate[Any, P], R]", call)


def _sync_iterator(
    method: Callable[Concatenate[A, P], AsyncIterator[R]],
) -> Callable[Concatenate[Any, P], Iterator[R]]:
    """Make the blocking twin of an async iterator."""

    @functools.wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[R]:
        ready = shared_loop().run(self._ready())
        yield from shared_loop().iterate(method(ready, *args, **kwargs))

    return cast("Callable[Concatenate[Any, P], Iterator[R]]", call)


class Session(_Twin):
    """The twin of `holdfast.Session`."""

    chat_history = _sync(_sessions.Session.chat_history)
    usage = _sync(_sessions.Session.usage)
    verify = _sync(_sessions.Session.verify)
    append = _sync(_sessions.Session.append)
    replace = _sync(_sessions.Session.replace)
    reset = _sync(_sessions.Session.reset)
    get_items = _sync(_sessions.Session.get_items)
    add_items = _sync(_sessions.Session.add_items)
    pop_item = _sync(_sessions.Session.pop_item)
    standing_rules = _sync(_sessions.Session.standing_rules)
    revoke_rule = _sync(_sessions.Session.revoke_rule)
    clear_session = _sync(_sessions.Session.clear_session)

    @property
    def twin(self) -> _sessions.Session:
        """The async session behind this one; use it on the shared loop only."""
        twin: _sessions.Session = self._twin
        return twin

    @property
    def name(self) -> str:
        """The name that people use."""
        return str(self._twin.name)

    @property
    def session_id(self) -> str:
        """The same name, as sessions of the Agents SDK have it."""
        return self.name


class Stream:
    """The blocking twin of a stream of `stream_step` or `stream_chat`."""

    def __init__(self, twin: Streamed[Any]) -> None:
        """Wrap the async stream."""
        self._twin = twin

    def __iter__(self) -> Iterator[Any]:
        """Read all events."""
        return shared_loop().iterate(aiter(self._twin))

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return self._twin._repr_html_()  # pyright: ignore[reportPrivateUsage]

    def result(self) -> Any:
        """Wait for the step or chat and return its result."""
        return shared_loop().run(self._twin.result())


def _sync_stream(method: Callable[..., Any]) -> Any:
    """Make the blocking twin of a method that starts work on the shared loop."""

    @functools.wraps(method)
    def call(self: Any, *args: Any, **options: Any) -> Stream:
        async def start() -> Streamed[Any]:
            found: Streamed[Any] = method(await self._ready(), *args, **options)
            return found

        return Stream(shared_loop().run(start()))

    return call


class AgentRunner(_Twin):
    """The twin of `holdfast.AgentRunner`: made by `local` or `connect`.

    The embedded engine of `local` starts with the first call, if `start` was not called before.
    `close` stops it; the end of the process does so as well.
    """

    def __init__(self, twin: _async.AgentRunner) -> None:
        """Wrap the async runner.

        Raises:
            InvalidArgumentError: It is not an async AgentRunner.
        """
        if not isinstance(cast("object", twin), _async.AgentRunner):
            raise InvalidArgumentError(
                f"AgentRunner was given {shown(twin)}. Make one with AgentRunner.local(agent), or"
                " with AgentRunner.connect(agent='name') for a cluster. An AgentWorker is given to"
                " its agent: AgentRunner.local(Agent(name='name', worker=worker))."
            )
        super().__init__(twin)
        self._lock = asyncio.Lock()
        self._is_closed = False

    async def _ready(self) -> _async.AgentRunner:
        """Return the async runner; the first of several threads starts its engine."""
        async with self._lock:
            if not self._twin.is_started and not self._is_closed:
                await self._twin.start()
                close_at_exit(self._twin.close)
        found: _async.AgentRunner = self._twin
        return found

    @classmethod
    def local(
        cls, *agents: Agent, data_dir: str | Path | None = ".holdfast", **options: Any
    ) -> AgentRunner:
        """Run everything on this machine; see `holdfast.AgentRunner.local`."""
        return cls(_async.AgentRunner.local(*agents, data_dir=data_dir, **options))

    @classmethod
    def connect(cls, address: str | None = None, *, agent: str, **options: Any) -> AgentRunner:
        """Use a cluster; see `holdfast.AgentRunner.connect`."""
        return cls(shared_loop().run(_async.AgentRunner.connect(address, agent=agent, **options)))

    def start(self) -> Self:
        """Start the embedded engine, if there is one, also after `close`."""

        async def starting() -> None:
            self._is_closed = False
            await self._ready()
            close_at_exit(self._twin.close)

        shared_loop().run(starting())
        return self

    def __enter__(self) -> Self:
        """Start."""
        return self.start()

    def close(self) -> None:
        """Stop the embedded engine; tasks stay and go on when it is started again."""

        async def closing() -> None:
            async with self._lock:
                self._is_closed = True
                await self._twin.close()
                keep_at_exit(self._twin.close)

        shared_loop().run(closing())

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    @property
    def twin(self) -> _async.AgentRunner:
        """The async handle behind this one; use it on the shared loop only."""
        if shared_loop().is_inside:
            twin: _async.AgentRunner = self._twin
            return twin
        return shared_loop().run(self._ready())

    @property
    def client(self) -> Client:
        """The Temporal client; use it on the shared loop only."""
        return self.twin.client

    def session(self, name: str) -> Session:
        """Name a session of this app."""
        return Session(self.twin.session(name))

    def roles_of(self, person: str) -> list[str]:
        """List the roles of a person by the map that this handle was given, sorted."""
        return self.twin.roles_of(person)

    def people_asked(self, approval: Approval) -> list[str]:
        """See `AgentRunner.people_asked`."""
        return self.twin.people_asked(approval)

    create_task = _sync(_async.AgentRunner.create_task)
    get_task = _sync(_async.AgentRunner.get_task)
    list_tasks = _sync(_async.AgentRunner.list_tasks)
    get_upcoming_steps = _sync(_async.AgentRunner.get_upcoming_steps)
    get_completed_steps = _sync(_async.AgentRunner.get_completed_steps)
    get_completed_step = _sync(_async.AgentRunner.get_completed_step)
    get_task_output = _sync(_async.AgentRunner.get_task_output)
    get_completed_tasks = _sync(_async.AgentRunner.get_completed_tasks)
    delete_task = _sync(_async.AgentRunner.delete_task)
    erase = _sync(_async.AgentRunner.erase)
    erase_again = _sync(_async.AgentRunner.erase_again)
    plan_erasure = _sync(_async.AgentRunner.plan_erasure)
    hold = _sync(_async.AgentRunner.hold)
    end_hold = _sync(_async.AgentRunner.end_hold)
    list_holds = _sync(_async.AgentRunner.list_holds)
    set_retention = _sync(_async.AgentRunner.set_retention)
    list_retentions = _sync(_async.AgentRunner.list_retentions)
    end_retention = _sync(_async.AgentRunner.end_retention)
    run_step = _sync(_async.AgentRunner.run_step)
    run_steps_in_queue = _sync(_async.AgentRunner.run_steps_in_queue)
    run_task = _sync(_async.AgentRunner.run_task)
    run_to_end = _sync(_async.AgentRunner.run_to_end)
    run_on = _sync(_async.AgentRunner.run_on)
    finalize_response = _sync(_async.AgentRunner.finalize_response)
    step_events = _sync_iterator(_async.AgentRunner.step_events)
    step_request = _sync(_async.AgentRunner.step_request)
    run_request = _sync(_async.AgentRunner.run_request)
    stream_events = _sync_iterator(_async.AgentRunner.stream_events)
    stream_step = _sync_stream(_async.AgentRunner.stream_step)
    stream_chat = _sync_stream(_async.AgentRunner.stream_chat)
    response = _sync(_async.AgentRunner.response)
    transcript = _sync(_async.AgentRunner.transcript)
    all_messages = _sync(_async.AgentRunner.all_messages)
    image = _sync(_async.AgentRunner.image)
    chat = _sync(_async.AgentRunner.chat)
    pause = _sync(_async.AgentRunner.pause)
    resume = _sync(_async.AgentRunner.resume)
    abandon = _sync(_async.AgentRunner.abandon)
    give_feedback = _sync(_async.AgentRunner.give_feedback)
    edit_step = _sync(_async.AgentRunner.edit_step)
    drop_step = _sync(_async.AgentRunner.drop_step)
    change_run = _sync(_async.AgentRunner.change_run)
    pending_approvals = _sync(_async.AgentRunner.pending_approvals)
    approve = _sync(_async.AgentRunner.approve)
    reject = _sync(_async.AgentRunner.reject)
    respond = _sync(_async.AgentRunner.respond)
    snooze = _sync(_async.AgentRunner.snooze)
    uncover = _sync(_async.AgentRunner.uncover)
    standing_rules = _sync(_async.AgentRunner.standing_rules)
    revoke_rule = _sync(_async.AgentRunner.revoke_rule)
    undo_step = _sync(_async.AgentRunner.undo_step)
    rewind = _sync(_async.AgentRunner.rewind)
    fork = _sync(_async.AgentRunner.fork)
    ledger = _sync(_async.AgentRunner.ledger)
    audit = _sync(_async.AgentRunner.audit)
    verify = _sync(_async.AgentRunner.verify)
    artifacts = _sync(_async.AgentRunner.artifacts)
    read_artifact = _sync(_async.AgentRunner.read_artifact)
    wake = _sync(_async.AgentRunner.wake)
    complete = _sync(_async.AgentRunner.complete)
    send_event = _sync(_async.AgentRunner.send_event)
    add_schedule = _sync(_async.AgentRunner.add_schedule)
    list_schedules = _sync(_async.AgentRunner.list_schedules)
    pause_schedule = _sync(_async.AgentRunner.pause_schedule)
    resume_schedule = _sync(_async.AgentRunner.resume_schedule)
    backfill_schedule = _sync(_async.AgentRunner.backfill_schedule)
    delete_schedule = _sync(_async.AgentRunner.delete_schedule)
    ensure_agent = _sync(_async.AgentRunner.ensure_agent)
