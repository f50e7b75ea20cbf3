"""Queues, the worker processes that poll them, and the open tasks that wait there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from holdfast.values.checks.ids import is_own, serves
from holdfast.values.text.shown import age

TASKS_SHOWN = 5


@dataclass(frozen=True, kw_only=True)
class Worker:
    """A process that polls a queue.

    Attributes:
        identity: Its name at the server: process and host.
        seen: When its newest poll began, seconds since the epoch.
        since: When it was started; 0 when the server does not know.
        version: Version of its build; empty when the server does not know.
        host: Its host; empty when the server does not know.
        pid: Id of its process there.
        busy: Activities that it runs now.
        slots: Activities that it runs at once, at most; 0 when the server does not know.
    """

    identity: str
    seen: float = 0.0
    since: float = 0.0
    version: str = ""
    host: str = ""
    pid: str = ""
    busy: int = 0
    slots: int = 0

    @property
    def process(self) -> str:
        """The process, in words: workers of several queues may be one."""
        return f"{self.host}, process {self.pid}" if self.host else self.identity


@dataclass(frozen=True, kw_only=True)
class Queue:
    """A task queue.

    Attributes:
        name: Its name.
        serves: What its workers serve, in words.
        workers: Who polls it.
        open_tasks: Number of open tasks.
        tasks: Ids of some of them.
        agents: The agents of its tasks: of the open ones, and of the newest of all.
    """

    name: str
    serves: str
    workers: tuple[Worker, ...] = ()
    open_tasks: int = 0
    tasks: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()

    @property
    def is_unserved(self) -> bool:
        """Whether open tasks wait and no worker process polls the queue."""
        return self.open_tasks > 0 and not self.workers

    @property
    def words(self) -> str:
        """Its state in words."""
        if self.is_unserved:
            return "no worker process: its tasks wait, nothing is lost"
        return "served" if self.workers else "no worker process, no open task"


@dataclass(frozen=True, kw_only=True)
class ServedAgent:
    """An agent, and who serves it.

    Attributes:
        name: Its name.
        queue: The task queue of its tasks.
        workers: The worker processes that poll the queue.
        is_served: Whether there is one.
    """

    name: str
    queue: str
    workers: tuple[Worker, ...] = ()
    is_served: bool = False


@dataclass(frozen=True, kw_only=True)
class Process:
    """A worker process, with all queues that it polls.

    Attributes:
        name: Host and process id, or its name at the server.
        workers: What it is for each of its queues, in the order of these.
        queues: Its queues.
    """

    name: str
    workers: tuple[Worker, ...]
    queues: tuple[Queue, ...]

    @property
    def agents(self) -> str:
        """The agents of the tasks of its queues."""
        return ", ".join(sorted({name for queue in self.queues for name in queue.agents}))

    @property
    def slots(self) -> str:
        """How much it does, of what it can do at once; empty when the server does not know."""
        slots = sum(each.slots for each in self.workers)
        busy = sum(each.busy for each in self.workers)
        return f"{busy:,} of {slots:,} activities" if slots else ""


def processes_of(queues: Iterable[Queue]) -> list[Process]:
    """List the worker processes of queues, by name."""
    found: dict[str, list[tuple[Worker, Queue]]] = {}
    for queue in queues:
        for worker in queue.workers:
            found.setdefault(worker.process, []).append((worker, queue))
    return [
        Process(name=name, workers=tuple(w for w, _ in each), queues=tuple(q for _, q in each))
        for name, each in sorted(found.items())
    ]


def agents_of(queues: Iterable[Queue]) -> list[ServedAgent]:
    """List the agents of queues, by name."""
    found = [
        ServedAgent(
            name=name, queue=queue.name, workers=queue.workers, is_served=bool(queue.workers)
        )
        for queue in queues
        for name in queue.agents
    ]
    return sorted(found, key=lambda agent: (agent.name, agent.queue))


def queues_of(
    tasks: Mapping[str, Sequence[str]],
    pollers: Mapping[str, Iterable[Worker]],
    agents: Mapping[str, Iterable[str]],
) -> list[Queue]:
    """List the queues; queues that need a worker process come first.

    Args:
        tasks: Queue to the ids of its open tasks.
        pollers: Queue to the worker processes that poll it.
        agents: Queue to the agents of its tasks.
    """
    found = [
        Queue(
            name=name,
            serves=serves(name),
            workers=tuple(sorted(pollers.get(name, ()), key=lambda each: each.identity)),
            open_tasks=len(tasks.get(name, ())),
            tasks=tuple(tasks.get(name, ()))[:TASKS_SHOWN],
            agents=tuple(sorted({*agents.get(name, ())} - {""})),
        )
        for name in {**tasks, **pollers}
        if name in tasks or name in agents or is_own(name)  # not a governor's, or of other programs
    ]
    return sorted(found, key=lambda queue: (not queue.is_unserved, queue.name))


def seen(worker: Worker, *, now: float) -> str:
    """Return when a worker process polled last, in words."""
    return f"{age(now - worker.seen)} ago" if worker.seen else "not known"
