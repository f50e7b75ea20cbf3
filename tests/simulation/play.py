"""Plays a schedule: plain data that says what people and machines do to a task.

A choice is a tuple. `who` is a task: 0 is the one that the schedule begins with, 1 its first child
task, and so on; "session" is the session, "paid" the mailbox of events of that name.

| choice | what happens |
| --- | --- |
| ("go", i, ...) | for each i, the i-th of the moves that are possible is made |
| ("settle",) | moves are made, oldest first, until nothing is left but long timers |
| ("wait", seconds) | time goes on |
| ("run", who, id, {...}) | the update `run`, with the fields of a RunRequest |
| ("finalize", who, id), ("undo", who, id, {...}) | likewise |
| ("say", who, verb, {...}) | a command; its approval is a number, or "open" for the first that is |
| ("say", "token", verb, {...}) | with the "newest" or "oldest" token, to the task of the token |
| ("raw", who, signal, [text, ...]) | a signal with these data, as they are |
| ("cancel", who), ("terminate", who) | by Temporal's own tools |
| ("evict", who) | a fresh instance replays the history, and goes on |
| ("lose", who) | the next workflow task is thrown away before it is recorded |
| ("throw", who, k) | its next workflow task raises an error of the process at its k-th call |
| ("fate", activity, fate) | what happens to the next activity of that type, see `FATES` |
| ("release",) | what a fate holds back goes on |
| ("trouble", who, what) | what goes wrong next in the model, a tool, or "undo <tool>" |
| ("deploy", [tool, ...]) | another worker process serves the agents, without these tools |
| ("home",) | somebody patient brings the task to its end; it must get there |
"""

import json
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Self

from temporalio.api.common.v1 import Payload, SearchAttributes
from temporalio.converter import encode_search_attributes

from holdfast.engine.search_attributes import AGENT_TASK
from holdfast.reading.visibility import attributes, memo
from holdfast.task.data.commands import RunRequest
from holdfast.task.data.head import SessionRef, TaskHead
from holdfast.task.data.state import SessionState, TaskInput
from holdfast.task.data.undo import UndoRequest
from holdfast.task.mailbox import mailbox_id
from holdfast.values.settings import Budget
from tests.simulation.cast import World, agents_of
from tests.simulation.clock import EPOCH, Clock, StuckError, virtual_time
from tests.simulation.invariants import Invariants
from tests.simulation.run import CONVERTER, Counts, Run, ViolationError
from tests.simulation.server import Server
from tests.simulation.table import Table
from tests.simulation.worker import SimWorker, memory_archive
from tests.support.there import there

FATES = {
    "held": "it is not begun before a release",
    "late": "it is done, and its result does not arrive before a release",
    "long": "a call runs for long, and ends after a release, in a later run of its task as well",
    "twice": "its result is delivered twice",
    "lost": "it is done, and its worker is lost with the result",
    "dead": "its worker is lost before it is done",
    "stalled": "its worker counts as lost, and does it after all",
    "fails": "it fails, and may be tried again",
    "breaks": "it fails for good",
}
TASK = "t"
SESSION = "~session~s"
NAMED = {"session": SESSION, "paid": mailbox_id("hf-sim", "paid")}
QUERIES = (("task",), ("completed_steps",), ("upcoming_steps",), ("approval_values",), ("effects",))
FAR = 60.0
"""Seconds of a timer that `settle` does not wait for."""

PATIENCE = 25
"""Rounds in which a task must come to its end."""

Choice = tuple[Any, ...]


@dataclass
class Schedule:
    """What is done to a task.

    Attributes:
        plan: The plan of its model, see `cast`.
        choices: What happens, in order.
        agent: The agent: "boss", "clerk", or "crowd".
        real: Whether Holdfast's own functions answer all activities.
        options: Further fields of the task's input: roll_events, automatic, finalize, budget;
            `session` is one, too.
    """

    plan: list[Any]
    choices: list[Choice]
    agent: str = "boss"
    real: bool = False
    options: dict[str, Any] = field(default_factory=dict[str, Any])

    def __str__(self) -> str:
        choices = "".join(f"        {choice!r},\n" for choice in self.choices)
        lines = [f"    plan={self.plan!r},", f"    choices=[\n{choices}    ],"]
        if self.agent != "boss":
            lines.append(f"    agent={self.agent!r},")
        if self.real:
            lines.append("    real=True,")
        if self.options:
            lines.append(f"    options={self.options!r},")
        return "Schedule(\n" + "\n".join(lines) + "\n)"


def task_input(schedule: Schedule) -> TaskInput:
    """Return the input of the task of a schedule."""
    options = dict(schedule.options)
    has_session = options.pop("session", False)
    session = SessionRef(id=SESSION, name="s", queue="hf-sim") if has_session else None
    turns = options.pop("max_turns", None)
    return TaskInput(
        head=TaskHead(agent=schedule.agent, session=session),
        input=json.dumps(schedule.plan),
        secret="of the simulation",
        budget=None if turns is None else Budget(max_turns=turns),
        **options,
    )


class Simulation:
    """One schedule as it is played.

    Attributes:
        server: The server.
        world: The world of the tools.
        trace: What has happened, a line each.
    """

    def __init__(self, schedule: Schedule, *, clock: Clock) -> None:
        self.clock = clock
        self.server = Server(clock)
        self.world = WORLD
        self.world.reset()
        self.table = Table(self.world)
        self.archive = memory_archive()
        self.worker = SimWorker(self.server, self.archive, None if schedule.real else self.table)
        self.server.worker = self.worker
        self.trace: list[str] = []
        self.invariants = Invariants(self)
        self.server.after = self.invariants.after
        self._deploy([])
        self.start(TASK, task_input(schedule))

    @classmethod
    @contextmanager
    def playing(cls, *args: Any, **options: Any) -> Generator[Self]:
        """Give a simulation in virtual time."""
        clock = Clock()
        with virtual_time(clock):
            simulation = cls(*args, clock=clock, **options)
            try:
                yield simulation
            finally:
                simulation.close()

    def start(self, id: str, given: TaskInput) -> None:
        """Begin a task."""
        self.server.start(
            AGENT_TASK,
            id,
            payloads(given),
            memo=_encoded(memo(given.input, now=EPOCH)),
            attributes=_attributes_of(given),
        )

    @property
    def tasks(self) -> list[str]:
        """Ids of the tasks, in the order in which they were begun."""
        chains = self.server.chains.items()
        return [id for id, runs in chains if runs[0].begin.kind == AGENT_TASK]

    def id_of(self, who: int | str) -> str:
        """Return the id of a workflow."""
        tasks = self.tasks
        return NAMED[who] if isinstance(who, str) else tasks[who % len(tasks)]

    def run_of(self, who: int | str) -> Run | None:
        """Return the newest run of a workflow; None when there is none."""
        return self.server.newest(self.id_of(who))

    def close(self) -> None:
        """Take all workflows out of the worker's cache."""
        for runs in self.server.chains.values():
            for run in runs:
                with suppress(Exception):  # one that has failed cannot be left in order
                    run.close()
        self.worker.close()

    def choose(self, *choices: Choice) -> None:
        """Let choices happen, and check after each what may never happen."""
        for choice in choices:
            self.note(f"-- {choice!r}")
            verb, *rest = choice
            getattr(self, f"_{verb}")(*rest)
            self.invariants.look()

    def session(self, id: str = SESSION) -> SessionState:
        """Ask a session what it has."""
        found = there(self.server.newest(id)).query("state")
        return SessionState.model_validate_json(found.data)

    def note(self, line: str) -> None:
        """Add a line to the trace."""
        self.trace.append(f"{self.clock.now - EPOCH:9.3f}  {line}")

    # ---- choices

    def _go(self, *which: int) -> None:
        for i in which:
            label = self.server.go(i)
            if not label and not self._skip(FAR):
                return
            self.note(label)

    def _skip(self, most: float) -> bool:
        """Put the clock forward to what is due next, if that is soon."""
        due = self.server.due
        if due is None or due - self.clock.now > most:
            return False
        self.server.advance(due)
        return True

    def _settle(self) -> None:
        has_looked = False
        for _ in range(2000):
            label = self.server.go()
            if not label and not self._skip(FAR):
                if has_looked or not self.server.watches:
                    return
                self.server.watch()
            is_news = label.startswith("workflow task")
            has_looked = not label or (has_looked and not is_news)
            self.note(label)
        msg = "the task does not come to rest"
        raise ViolationError(msg)

    def _wait(self, seconds: float) -> None:
        self.server.advance(self.clock.now + seconds)

    def _update(self, who: int, id: str, name: str, *args: Any) -> None:
        self.server.update(self.id_of(who), id, name, payloads(*args))

    def _run(self, who: int, id: str, fields: dict[str, Any]) -> None:
        self._update(who, id, "run", RunRequest.model_validate(fields))

    def _finalize(self, who: int, id: str) -> None:
        self._update(who, id, "finalize")

    def _undo(self, who: int, id: str, fields: dict[str, Any]) -> None:
        self._update(who, id, "undo", UndoRequest.model_validate(fields))

    def _say(self, who: int | str, verb: str, body: dict[str, Any]) -> None:
        if who == "token":
            tokens = self.world.tokens or [f"{TASK}:0.1.0.0:guessed"]
            token = tokens[0 if body["token"] == "oldest" else -1]
            self.server.signal(token.partition(":")[0], verb, payloads({**body, "token": token}))
            return
        target = self.id_of(who)
        if body.get("approval") == "open":
            run = self.run_of(0)
            asked = self.invariants.asked(run) if run is not None and run.code is not None else []
            asked.sort(key=lambda each: each.kind != "undo")
            found = asked[0].id if asked else f"{target}:1"
            target, body = found.rpartition(":")[0], {**body, "approval": found}
        for key in ("approval", "rule"):
            if isinstance(body.get(key), int):
                body = {**body, key: f"{target}:{body[key]}"}
        self.server.signal(target, verb, payloads(body))

    def _raw(self, who: int | str, name: str, texts: Sequence[str]) -> None:
        data = [Payload(metadata={"encoding": b"json/plain"}, data=t.encode()) for t in texts]
        self.server.signal(self.id_of(who), name, data)

    def _cancel(self, who: int | str) -> None:
        self.server.cancel(self.id_of(who), "by an operator")

    def _terminate(self, who: int) -> None:
        self.server.terminate(self.id_of(who))

    def _evict(self, who: int | str) -> None:
        run = self.run_of(who)
        if run is not None and run.history:
            run.evict(QUERIES if run.begin.kind == AGENT_TASK else (("state",),))

    def _lose(self, who: int) -> None:
        self.server.losing.add(self.id_of(who))

    def _throw(self, who: int, k: int) -> None:
        self.server.throwing[self.id_of(who)] = k

    def _fate(self, kind: str, fate: str) -> None:
        self.server.fates.append((kind, fate))

    def _release(self) -> None:
        self.server.release()

    def _trouble(self, who: str, what: str) -> None:
        self.world.troubles.setdefault(who, []).append(what)

    def _deploy(self, missing: Sequence[str]) -> None:
        self.table.missing = frozenset(missing)
        self.worker.serve(known_agents(frozenset(missing)))

    def _home(self) -> None:
        """Bring the task to its end, as somebody patient would; everything works again.

        Raises:
            ViolationError: It does not get there.
        """
        self.world.troubles.clear()
        self.server.fates.clear()
        self.server.losing.clear()
        self.server.release()
        if self.table.missing:
            self._deploy([])
        for k in range(PATIENCE):
            self._settle()
            self.invariants.look()
            run = self.server.newest(TASK)
            if run is None or not run.is_open:
                return
            self._step_home(run, k)
        raise ViolationError(
            f"the task cannot be brought to its end: {self.invariants.state_of(TASK)}"
        )

    def _step_home(self, run: Run, k: int) -> None:
        """Do what the present state of the task asks for."""
        core = run.code.core
        for approval in self.invariants.asked(run):
            is_told = approval.kind == "undo" or k % 3 == 2
            verb = "respond" if is_told else ("approve", "reject")[k % 2]
            body = {"approval": approval.id, "by": "eve", **({"result": "done"} if is_told else {})}
            self.server.signal(approval.id.rpartition(":")[0], verb, payloads(body))
        for id in self.tasks:
            each = self.server.newest(id)
            if each is not None and each.is_open and each.code.core.ledger.s.paused:
                self.server.signal(id, "resume", payloads({"by": "eve"}))
        self._settle()
        s = core.ledger.s
        for who, id in enumerate(self.tasks):
            child = self.server.newest(id)
            if who and child is not None and child.is_open:
                self._update(who, f"home{k}", "run", RunRequest(all=True))
        if s.answered:
            self._update(0, f"home{k}", "finalize")
        elif s.queue or s.opens:
            self._update(0, f"home{k}", "run", RunRequest(all=True))
        elif s.steps and k < PATIENCE // 2:  # somebody has dropped the rest
            self._update(0, f"home{k}", "undo", UndoRequest(residue="keep"))
        else:  # also of the rest that comes back with no last step
            self.server.signal(TASK, "abandon", payloads({"by": "eve"}))
        if k > PATIENCE // 2 and self.server.due is not None:
            self.server.advance(self.server.due)


def payloads(*values: Any) -> list[Payload]:
    """Encode values."""
    return CONVERTER.payload_converter.to_payloads(values)


def _encoded(values: Any) -> dict[str, Payload]:
    return {name: payloads(value)[0] for name, value in values.items()}


def _attributes_of(given: TaskInput) -> Any:
    made = SearchAttributes()
    encode_search_attributes(attributes(given), made)
    return made


WORLD = World()
_AGENTS: dict[frozenset[str], list[Any]] = {}


def known_agents(missing: frozenset[str]) -> list[Any]:
    """Return the agents of a deploy, made once: the schema of a tool takes its time."""
    if missing not in _AGENTS:
        _AGENTS[missing] = agents_of(WORLD, missing)
    return _AGENTS[missing]


@dataclass
class Played:
    """How a schedule went.

    Attributes:
        trace: What has happened, a line each.
        counts: Activations.
        violation: What may never happen, and has; empty for nothing.
        ledger: What the ledger of the task says at last.
    """

    trace: list[str]
    counts: Counts
    violation: str = ""
    ledger: list[str] = field(default_factory=list[str])

    @property
    def steps(self) -> list[str]:
        """The completed steps in the ledger."""
        return [entry for entry in self.ledger if entry.startswith('{"step"')]


def play(schedule: Schedule, of: str = TASK) -> Played:
    """Play a schedule to its end, or to the first violation; tell the ledger of this task."""
    with Simulation.playing(schedule) as simulation:
        found = Played(simulation.trace, simulation.server.counts)
        try:
            simulation.choose(*schedule.choices)
            simulation.invariants.check_chains()
            found.ledger = simulation.invariants.ledger_of(of)
        except (Exception, StuckError) as error:  # noqa: BLE001  each is a find
            found.violation = f"{type(error).__name__}: {error}"
    return found


# ---- for tests

RUN: Choice = ("run", 0, "r1", {"all": True})
SETTLE: Choice = ("settle",)
HOME: Choice = ("home",)
LOOK = ["look", {"what": "1"}]
MARKS: list[Any] = [[LOOK, ["mark", {"text": str(k)}]] for k in range(4)]
"""Turns enough for a task that continues as new after 50 events."""


def say(verb: str, **body: Any) -> Choice:
    """Return the choice of a command of ann's."""
    return ("say", 0, verb, {"by": "ann", **body})


def undo(id: str = "u1", **fields: Any) -> Choice:
    """Return the choice of an undo of bob's."""
    return ("undo", 0, id, {"by": "bob", **fields})


def nested(*turns: Any) -> list[Any]:
    """Return a call of a plan that begins a nested task, which has these turns."""
    return ["helper", {"input": json.dumps(turns)}]


def assert_holds(schedule: Schedule, of: str = TASK) -> Played:
    """Play a schedule; what must hold does."""
    played = play(schedule, of)
    assert not played.violation, "\n".join([*played.trace, played.violation])
    return played


def held(
    plan: list[Any], *choices: Choice, of: str = TASK, real: bool = False, **options: Any
) -> Played:
    """Play these choices; what must hold does. The options are those of a schedule."""
    return assert_holds(Schedule(plan, [*choices], real=real, options=options), of)
