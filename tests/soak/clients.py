"""The program of a client process: people and programs who use tasks at random, all verbs."""

import asyncio
import os
import random
import time
import traceback
import uuid
from collections.abc import Awaitable, Callable

from holdfast import AgentRunner, Task
from holdfast.errors import HoldfastError
from holdfast.task.data.calls import Approval
from holdfast.values.runs.status import TaskStatus
from holdfast.values.steps import ListedTask
from tests.crash.programs import Job, log_to, make_runner, note
from tests.soak.agents import draw_input
from tests.soak.world import World

MOST_OPEN = 8
PATIENCE_SECONDS = 30.0
HEARTBEAT_SECONDS = 4.0
SESSION_SECONDS = 60.0
"""How long new tasks get the same session, which must not grow without end."""
OPEN: tuple[TaskStatus, ...] = ("running", "waiting", "needs_attention", "paused", "answered")

Verb = Callable[["Person"], Awaitable[str]]


class Person:
    """One client process.

    Attributes:
        name: Who it says it is when it decides.
        runner: Its handle.
        chance: Its chance, seeded.
    """

    def __init__(self, job: Job, runner: AgentRunner) -> None:
        """Use this handle."""
        self.job = job
        self.runner = runner
        self.name = f"client-{os.getpid()}"
        self.chance = random.Random(job.input)
        self.world = World(job.home)
        self._own = uuid.uuid4().hex[:10]  # a process may have the number of one that has ended
        self._made = 0

    async def act(self) -> None:
        """Use one verb on one task, and note what came of it.

        What is not our error, nor a sign that the server is away, is noted as a violation.
        """
        [verb] = self.chance.choices(list(VERBS), weights=list(VERBS.values()))
        facts = {"verb": verb.__name__, "by": self.name}
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                note(self.job.home, "did", **facts, what=await verb(self))
        except TimeoutError:
            note(self.job.home, "gave_up", **facts)
        except HoldfastError as error:
            note(self.job.home, "refused", **facts, error=type(error).__name__, text=str(error))
        except Exception:  # noqa: BLE001  noted, and counted as a violation at the end
            note(self.job.home, "violation", **facts, text=traceback.format_exc())

    async def open_tasks(self) -> list[ListedTask]:
        """List tasks that are not closed and that no other task started."""
        tasks = [task for status in OPEN for task in await self.runner.list_tasks(status)]
        return [task for task in tasks if not task.parent]

    async def any_open(self) -> ListedTask:
        """Draw an open task; make one when there is none."""
        tasks = await self.open_tasks()
        return self.chance.choice(tasks) if tasks else await self.begin()

    async def begin(self) -> Task:
        """Create a task; the id is noted before it exists, so that none can get lost unseen."""
        self._made += 1
        name = f"t{self._own}x{self._made}"
        recent = f"s{time.monotonic() // SESSION_SECONDS:.0f}"
        session = self.chance.choice([None, recent])
        text = draw_input(self.chance, self.job.app, name)
        note(self.job.home, "intends", task=name, input=text, session=session or "")
        made = await self.runner.create_task(text, task_id=name, session=session)
        note(self.job.home, "created", task=name)
        return made


async def create(person: Person) -> str:
    """Create a task, unless enough are open."""
    if len(await person.open_tasks()) >= MOST_OPEN:
        return "enough"
    return (await person.begin()).task_id


async def run_step(person: Person) -> str:
    """Run a step."""
    task = await person.any_open()
    return (await person.runner.run_step(task)).status


async def run_task(person: Person) -> str:
    """Run a task to its answer or its next question, and finalize it when it is answered."""
    task = await person.any_open()
    output = await person.runner.run_task(task)
    if output.status == "done" and person.chance.random() < 0.7:
        await person.runner.finalize_response(task)
    return output.status


async def feedback(person: Person) -> str:
    """Say something."""
    task = await person.any_open()
    return (await person.runner.give_feedback(task, "Be quick.", by=person.name)).status


async def pause_and_resume(person: Person) -> str:
    """Hold a task for a moment; when the client dies in between, another one resumes it."""
    task = await person.any_open()
    await person.runner.pause(task, by=person.name)
    return (await person.runner.resume(task, by=person.name)).status


async def undo(person: Person) -> str:
    """Undo a step."""
    task = await person.any_open()
    residue = person.chance.choice(["refuse", "keep"])
    receipt = await person.runner.undo_step(
        task, "keep" if residue == "keep" else "refuse", by=person.name, reason="chance"
    )
    return receipt.status


async def rewind(person: Person) -> str:
    """Undo all steps after one."""
    task = await person.any_open()
    steps = await person.runner.get_completed_steps(task)
    if len(steps) < 2:
        return "too short"
    to = person.chance.choice(steps[:-1])
    return (await person.runner.rewind(task, to, "keep", by=person.name)).status


async def fork(person: Person) -> str:
    """Depart from a completed step."""
    task = await person.any_open()
    steps = await person.runner.get_completed_steps(task)
    if not steps or len(await person.open_tasks()) >= MOST_OPEN:
        return "nothing to fork"
    made = await person.runner.fork(task, person.chance.choice(steps), by=person.name)
    note(person.job.home, "created", task=made.task_id)
    return made.task_id


async def abandon(person: Person) -> str:
    """Give a task up."""
    task = await person.any_open()
    return (await person.runner.abandon(task, "chance", by=person.name)).status


async def erase(person: Person) -> str:
    """Erase a task: a closed one as a rule, or a session with all of its tasks."""
    closed = [task for task in await person.runner.list_tasks("finished") if not task.parent]
    task = person.chance.choice(closed) if closed else await person.any_open()
    session = (await person.runner.get_task(task)).session
    whole = session if session and person.chance.random() < 0.2 else None
    erased = await person.runner.erase(
        None if whole else task,
        session=whole,
        by=person.name,
        reason="chance",
        forks="erase",
        open_tasks="abandon",
    )
    note(person.job.home, "erased", tasks=erased["tasks"])
    return str(erased["kind"])


async def read(person: Person) -> str:
    """Read what an auditor reads; what was recorded is intact at any moment."""
    task = await person.any_open()
    found = await person.runner.verify(task)
    if found:
        note(person.job.home, "violation", text=f"verify {task.task_id}: {found}")
    return str(len(await person.runner.audit(task)))


async def decide(person: Person) -> str:
    """Decide something that waits."""
    waiting = await person.runner.pending_approvals()
    if not waiting:
        return "nothing waits"
    return await settle(person, person.chance.choice(waiting))


async def settle(person: Person, asked: Approval) -> str:
    """Decide one approval: of an unknown effect by looking at the world, of a call by chance.

    What is decided is noted before it is sent: a client may be killed after that.
    """
    verb, arguments = choose(person, asked)
    if not verb:
        return "too early"
    facts = {"approval": asked.id, "task": asked.id.rpartition(":")[0], "call": asked.call_id}
    note(person.job.home, "decides", **facts, kind=asked.kind, verb=verb, cents=arguments)
    runner, by = person.runner, person.name
    if verb == "approve":
        edited = None if not arguments else {"thing": "edited", "cents": arguments}
        return (await runner.approve(asked, by=by, arguments=edited)).status
    if verb == "respond":
        return (await runner.respond(asked, by=by, result="it is known")).status
    return (await runner.reject(asked, by=by, reason="chance")).status


def choose(person: Person, asked: Approval) -> tuple[str, int]:
    """Choose a verb (empty: it is too early to tell), and the cents of an edit (0: none).

    A call that may have happened is run again only when the world has not seen its effect, and no
    process is left that could still cause it; an undo, when the world has not seen it.
    """
    place = (asked.id.rpartition(":")[0], asked.call_id)
    if asked.kind == "undo":
        undone = person.world.is_taken_back(place)
        return {True: "respond", False: "approve", None: ""}[undone], 0
    if asked.kind == "unknown":
        if person.world.may_happen(place):
            return person.chance.choice(["respond", "reject"]), 0
        return person.chance.choice(["approve", "reject"]), 0
    if asked.kind == "tool":
        verb = person.chance.choices(["approve", "edit", "reject", "respond"], [5, 2, 1, 1])[0]
        return ("approve", person.chance.randint(2, 99)) if verb == "edit" else (verb, 0)
    return "approve", 0


VERBS: dict[Verb, float] = {
    create: 4,
    run_step: 4,
    run_task: 5,
    decide: 8,
    feedback: 2,
    pause_and_resume: 1,
    undo: 2,
    rewind: 1,
    fork: 0.5,
    abandon: 0.5,
    erase: 0.5,
    read: 2,
}


def use(job: Job) -> None:
    """Use tasks at random until the end of this process."""
    log_to(job.home)
    asyncio.run(_use(job))


async def _use(job: Job) -> None:
    person = Person(job, await make_runner(job, heartbeat=HEARTBEAT_SECONDS))
    note(job.home, "using")
    while True:
        await person.act()
