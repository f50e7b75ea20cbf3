"""Tasks of one session take turns: schedules of many, with all that may come between.

At any moment at most one task has begun and not ended. Tasks begin in the order in which they got
in line, and nobody waits for one that has ended.
"""

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.converter import PayloadCodec
from temporalio.testing import ActivityEnvironment

from holdfast.archive import session_commits
from holdfast.archive.session_commits import commit_turn, end_of, send_claim
from holdfast.client.agent_runner.task_client.task_client import Caller, TaskClient
from holdfast.client.agent_runner.turns import Turn
from holdfast.engine.search_attributes import AGENT_TASK
from holdfast.errors import SessionBusyError
from holdfast.reading.queries import Presence
from holdfast.reading.reader import Reader
from holdfast.task.data.head import SessionRef
from holdfast.task.data.state import CLAIM, TURN, Claim, CommitRef, SessionState
from holdfast.values.runs.status import OnBusy
from holdfast.workflows import session
from tests.simulation.clock import EPOCH, Clock
from tests.simulation.play import (
    LOOK,
    SESSION,
    SETTLE,
    TASK,
    Schedule,
    Simulation,
    payloads,
    task_input,
)
from tests.simulation.run import Run
from tests.simulation.service import Service, client_of
from tests.support.there import there

PLAN = [[LOOK], "done"]
OPTIONS = {"session": True, "automatic": True, "finalize": True}


class Line(Simulation):
    """Tasks that take turns in one session.

    Attributes:
        came: Tasks in the order in which they got in line.
        began: Tasks in the order in which they began.
    """

    def __init__(self, index_size: int = 500, *, clock: Clock) -> None:
        super().__init__(
            Schedule(plan=["hello"], choices=[], options={"paused": "ann"}), clock=clock
        )
        self.came: list[str] = []
        self.began: list[str] = []
        # It continues as new as often as it can.
        state = SessionState(roll_events=10, index_size=index_size)
        self.server.start("Session", SESSION, payloads(state))
        after = self.server.after

        def look(run: Run) -> None:
            after(run)
            self.look(run)

        self.server.after = look

    def claim(self, claim: Claim) -> None:
        """Send a claim, as a client does."""
        work = send_claim(client_of(self.server), self.archive, SESSION, "hf-sim", claim)
        self.worker._in_a_loop(work)

    def turn(
        self, id: str, session: str, *callers: tuple[str, str], on_busy: OnBusy = "queue"
    ) -> Turn:
        """Return the turn of a task that tools of the callers run."""
        named: Any = SessionRef(id=session, name=session, queue="hf-sim")
        client = client_of(self.server)
        tasks = TaskClient(client, Reader(client, self.archive), Caller())
        made = Turn(tasks, named, id, on_busy)
        made._claim = made._claim.model_copy(update={"callers": callers})
        return made

    def begin(self, id: str, *, claims: bool, **options: Any) -> None:
        """Create a task; its client gets in line for it, or leaves that to the task."""
        given = task_input(Schedule(plan=PLAN, choices=[], options=OPTIONS | options))
        queues = there(given.head.session).model_copy(update={"queues": True})
        head = given.head.model_copy(update={"session": queues})
        if claims:
            self.claim(Claim(task=id))
        self.start(id, given.model_copy(update={"head": head}))

    @property
    def others(self) -> list[str]:
        """The tasks of the session."""
        return [id for id in self.tasks if id != TASK]

    def look(self, run: Run) -> None:
        """Check what must hold after a workflow task."""
        if run.code is not None and run.id == SESSION:
            self.came += [id for id in run.code.s.line if id not in self.came]
        if run.code is None or run.id not in self.others:
            return
        core = run.code.core
        if core.ledger.s.described is not None and run.id not in self.began:
            self.began.append(run.id)
        going = [id for id in self.others if self.has_the_floor(id)]
        assert len(going) <= 1, f"{going} have begun, and none of them has ended"

    def has_the_floor(self, id: str) -> bool:
        """Whether a task has begun, and may do something."""
        run = self.server.newest(id)
        if run is None or not run.is_open or run.code is None:
            return False
        core = run.code.core
        return core.ledger.s.described is not None and core.ending.status is None

    def rest(self) -> None:
        """Let everything happen that does by itself, watches included, until nothing does."""
        self.server.fates.clear()
        for _ in range(12):
            self.choose(("release",), SETTLE)
            self.server.watch()
            self.choose(SETTLE)

    def check_order(self) -> None:
        """Tasks begin in the order in which they got in line."""
        order = [id for id in self.came if id in self.began]
        assert self.began == order, f"they came as {self.came}, and began as {self.began}"

    def commit(self, task: str) -> None:
        """Append a turn to the session."""
        turn = CommitRef(task=task, sha256="0" * 64, count=1)
        self.worker._in_a_loop(
            commit_turn(client_of(self.server), self.archive, SESSION, "q", turn)
        )

    def line(self) -> tuple[str, ...]:
        """Who has the floor, and who waits for it."""
        return self.session().line

    def turns(self) -> list[str]:
        """Whose turns the session has, in order."""
        return [each.task for each in self.session().commits]


def is_called(simulation: Line, id: str) -> bool:
    """Whether a task was told of its turn: else it notices that later."""
    tasks = (task for run in simulation.server.chains[id] for task in run.history)
    jobs = (job for task in tasks for part in task.parts for job in part.jobs)
    return any(job.signal_workflow.signal_name == TURN for job in jobs)


@pytest.mark.parametrize("claims", [True, False])
def test_each_task_waits_for_those_before_it_and_sees_their_turns(claims: bool) -> None:
    ids = ["a", "b", "c", "d"]
    with Line.playing() as simulation:
        for id in ids:
            simulation.begin(id, claims=claims)
        simulation.rest()
        assert simulation.turns() == simulation.began == simulation.came
        assert sorted(simulation.began) == ids
        if claims:
            assert simulation.came == ids
        runs = [there(simulation.server.newest(id)) for id in simulation.began]
        seen = [run.code.core.ledger.s.described.commits.length for run in runs]
        assert seen == [0, 1, 2, 3]
        assert [is_called(simulation, id) for id in simulation.began] == [False, True, True, True]
        assert simulation.line() == ()


def test_tasks_that_would_wait_for_one_another_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tool of each runs a task in the next one's session; that of the last closes the circle."""
    monkeypatch.setattr(Presence, "is_fresh", lambda *_: True)
    with Line.playing() as simulation:

        def claim(id: str, session: str, *callers: tuple[str, str]) -> None:
            simulation.worker._in_a_loop(simulation.turn(id, session, *callers).claim())

        x, y, z = ((f"~session~{id}", id) for id in "xyz")
        for session, id in (x, y, z):
            claim(id, session)
            claim(f"{id}-behind", session)
        with pytest.raises(SessionBusyError, match="Task 'x' of"):
            claim("own", x[0], x)
        with pytest.raises(SessionBusyError, match="Task 'x' of"):
            claim("own", x[0], x, ("~session~of a run in between", "other"))
        claim("x1", y[0], x)
        claim("y1", z[0], y)
        with pytest.raises(SessionBusyError, match="Task 'x' of"):
            claim("z1", x[0], z)
        with pytest.raises(SessionBusyError, match="Task 'y' of"):
            claim("z1", y[0], z)
        simulation.choose(SETTLE)
        assert simulation.session(x[0]).line == ("x", "x-behind")
        assert simulation.session(y[0]).line == ("y", "y-behind", "x1")
        simulation.worker._in_a_loop(simulation.turn("x1", y[0])._send(Claim(gone=("x1",))))
        claim("z1", x[0], z)
        simulation.choose(SETTLE)
        assert simulation.session(x[0]).line == ("x", "x-behind", "z1")


def test_a_tool_begins_tasks_by_a_client_that_cannot_read_the_task_of_the_tool() -> None:
    class OtherKeys(PayloadCodec):
        async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
            return [*payloads]

        async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
            raise ValueError("other keys")

    with Line.playing() as simulation:
        simulation.begin("a", claims=True)
        own = client_of(simulation.server)
        converter = replace(own.data_converter, payload_codec=OtherKeys())
        other = Client(own.service_client, data_converter=converter)
        tasks = TaskClient(other, Reader(other, simulation.archive), Caller())
        tool = ActivityEnvironment(own)
        tool.info = replace(tool.info, workflow_type=AGENT_TASK, workflow_id="a")
        assert simulation.worker._in_a_loop(tool.run(tasks.callers)) == ((SESSION, "a"),)


def test_a_task_that_would_be_refused_gets_the_floor_or_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who has the floor leaves it between two looks."""
    monkeypatch.setattr(Presence, "is_fresh", lambda *_: True)
    send = Turn._send

    async def sent(turn: Turn, claim: Claim) -> None:
        await send(turn, claim)
        await send(turn, Claim(gone=("x",)))

    monkeypatch.setattr(Turn, "_send", sent)
    with Line.playing() as simulation:
        simulation.choose(("fate", "step", "held"))
        simulation.begin("x", claims=True)
        simulation.choose(SETTLE)
        simulation.worker._in_a_loop(simulation.turn("a", SESSION, on_busy="refuse").claim())
        simulation.choose(SETTLE)
        assert simulation.line() == ("a",)
        simulation.begin("a", claims=False)
        with pytest.raises(SessionBusyError, match="'a'"):
            simulation.worker._in_a_loop(simulation.turn("b", SESSION, on_busy="refuse").claim())


@pytest.mark.parametrize("lives", [True, False])
def test_a_place_is_kept_for_a_task_that_is_not_there_as_long_as_its_client_lives(
    lives: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0

    async def look(client: Any, task: str) -> str:
        nonlocal looks
        looks += task == "slow"
        if lives and task == "slow" and looks % 5 == 0:
            claim = Claim(task="slow", beat=looks)
            await send_claim(client, simulation.archive, SESSION, "hf-sim", claim)
        return await end_of(client, task)

    monkeypatch.setattr(session_commits, "end_of", look)
    with Line.playing() as simulation:
        simulation.claim(Claim(task="slow"))
        simulation.begin("b", claims=True)
        simulation.choose(("go", *[0] * 60))
        assert simulation.line() == (("slow", "b") if lives else ())
        simulation.begin("slow", claims=False)
        simulation.rest()
        assert simulation.turns() == (["slow", "b"] if lives else ["b", "slow"])


def test_a_task_that_starts_later_takes_its_turn_then() -> None:
    with Line.playing() as simulation:
        late = {"start_at": EPOCH + 5000, "paused": "starts later"}
        simulation.begin("late", claims=False, **late)
        simulation.choose(SETTLE)
        assert simulation.line() == ()
        simulation.begin("now", claims=True)
        simulation.rest()
        assert simulation.turns() == ["now"]
        simulation.choose(("wait", 5000))
        simulation.rest()
        assert simulation.turns() == ["now", "late"]


def test_what_a_line_costs_grows_with_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, call = [0], Service._rpc_call

    async def counted(*given: Any, **options: Any) -> Any:
        asked[0] += 1
        return await call(*given, **options)

    monkeypatch.setattr(Service, "_rpc_call", counted)

    def cost(length: int) -> int:
        with Line.playing() as simulation:
            simulation.choose(("fate", "step", "held"))
            for k in range(length):
                simulation.begin(f"x{k}", claims=True)
            asked[0] = 0
            simulation.choose(SETTLE)
            simulation.server.watch()
            simulation.rest()
            assert len(simulation.turns()) == length
            return asked[0]

    short, middle, long = (cost(length) for length in (4, 8, 12))
    assert long - middle <= middle - short


@pytest.mark.parametrize("end", [("terminate",), ("cancel",), ("say", "abandon", {"by": "ann"})])
@pytest.mark.parametrize("which", [0, 1])
def test_nobody_waits_for_a_task_that_has_ended(end: tuple[Any, ...], which: int) -> None:
    with Line.playing() as simulation:
        simulation.choose(("fate", "step", "held"))
        for id in ("a", "b", "c"):
            simulation.begin(id, claims=True)
            simulation.choose(SETTLE)
        assert simulation.line() == ("a", "b", "c")
        verb, *rest = end
        simulation.choose((verb, which + 1, *rest))
        simulation.rest()
        assert simulation.turns() == [id for id in "abc" if id != "abc"[which]]
        assert is_called(simulation, "b") == (which == 0)
        assert is_called(simulation, "c")
        assert simulation.line() == ()


def test_a_claim_that_an_older_worker_has_dropped_counts_once_a_newer_one_is_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Line.playing() as simulation:
        with monkeypatch.context() as older:
            older.setattr(session, "read_claim", lambda name, payloads: None)
            simulation.claim(Claim(task="gone"))
            simulation.begin("a", claims=True)
            simulation.choose(("go", *[0] * 9))
            simulation.commit("gone")
            simulation.choose(("go", *[0] * 3))
            assert simulation.line() == ()
        run = there(simulation.run_of("session"))
        run.go_on_with(run.replayed())  # it does not tell "a": the older worker did not
        assert simulation.line() == ("a",)
        simulation.begin("b", claims=True)
        simulation.rest()
        assert simulation.turns() == ["gone", "a", "b"]


@pytest.mark.filterwarnings("error::temporalio.workflow.UnfinishedSignalHandlersWarning")
def test_a_session_that_stores_old_turns_does_not_forget_whom_it_is_telling() -> None:
    with Line.playing(index_size=3) as simulation:
        simulation.choose(("fate", "index", "held"), ("fate", "step", "held"))
        for id in ("a", "b"):
            simulation.begin(id, claims=True)
        simulation.choose(SETTLE)
        for k in range(6):  # until it rolls
            simulation.commit(f"x{k}")
            simulation.choose(SETTLE)
        assert any(each.kind == "index" for each in simulation.server.activities)
        simulation.claim(Claim(gone=("a",)))
        simulation.choose(("go", 0), ("release",), ("go", *[1] * 8))  # its word to b is on its way
        simulation.rest()
        assert is_called(simulation, "b")


KINDS = ("describe", "step", "close", "close_here", "ended", "rest")
FATES = ("held", "late", "twice", "lost", "dead", "stalled", "fails")


def disturb(simulation: Line, chance: random.Random) -> None:
    """Let something happen to a task or to the session."""
    who = chance.randrange(len(simulation.tasks))
    id = simulation.id_of(who)
    first = who == 0  # it is of no session, and only there since a simulation has one
    claim = Claim(task=chance.choice(simulation.others or ["gone"]))
    choices: list[Any] = [
        lambda: simulation.choose(("evict", chance.choice((who, "session")))),
        lambda: simulation.choose(("lose", chance.choice((who, "session")))),
        lambda: simulation.choose(("fate", chance.choice(KINDS), chance.choice(FATES))),
        lambda: simulation.choose(("release",)),
        lambda: simulation.choose(("wait", chance.choice((1, 30, 5000)))),
        lambda: simulation.claim(claim),  # late, or twice
        lambda: simulation.server.signal(SESSION, CLAIM, payloads("nonsense")),
        lambda: simulation.server.signal(id, TURN, payloads(Claim(task=id))),
        lambda: simulation.server.signal(id, TURN, payloads("nonsense")),
        lambda: simulation.choose(SETTLE),
    ]
    if not first:
        ends = [("terminate", who), ("say", who, "abandon", {"by": "ann"}), ("cancel", who)]
        choices.append(lambda: simulation.choose(chance.choice(ends)))
        for verb in ("pause", "resume"):
            said = ("say", who, verb, {"by": "ann"})
            choices.append(partial(simulation.choose, said))
    chance.choice(choices)()


@pytest.mark.parametrize("seed", range(30))
def test_one_at_a_time_whatever_happens(seed: int) -> None:
    chance = random.Random(seed)
    with Line.playing() as simulation:
        for k in range(6):
            simulation.begin(f"x{k}", claims=chance.random() < 0.7)
            for _ in range(chance.randrange(4)):
                simulation.choose(("go", *(chance.choice((0, 0, 1, 2)) for _ in range(4))))
                disturb(simulation, chance)
        simulation.rest()
        others = range(1, len(simulation.tasks))
        simulation.choose(*(("say", who, "resume", {"by": "ann"}) for who in others))
        simulation.rest()
        stuck = []
        for id in simulation.others:
            run = simulation.server.newest(id)
            if run is not None and run.is_open:
                stuck.append((id, run.code.core.ledger.status, run.code.core.ledger.s.ahead))
        assert [each for each in stuck if each[1] == "running"] == []
        assert not set(simulation.line()) & set(simulation.turns())
        simulation.check_order()
