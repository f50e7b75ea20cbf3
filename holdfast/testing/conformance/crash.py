"""Conformance: workers that are killed, and steps that are run again."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

from holdfast.testing.conformance.asserts import (
    bodies,
    check,
    check_same,
    first_time,
    hold_while,
    shown,
    until,
)
from holdfast.testing.conformance.lab import Lab
from holdfast.testing.conformance.process import noted
from holdfast.testing.conformance.runs import Surface, claim
from holdfast.testing.fake_api.replies import fail
from holdfast.values.steps import Task, TaskStep, TaskStepOutput
from holdfast.workers.context.context import StepContext

AGAIN_SECONDS = 0.01
MOST_KILLS = 4
REPEATED = (
    "A step that was run again asked its model something else. run_step must not use clock, chance,"
    " ids of its own, the order of a set, or state that it keeps on self."
)


class CrashChecks(Surface):
    """Checks that a lost worker loses nothing."""

    @claim("model")
    async def test_step_run_again_repeats_its_requests(self) -> None:
        """A step run again after a failed call, by a new worker object, repeats its requests."""
        wanted = await self.reference()
        worker = self.make_worker()

        async def anew(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
            return await self.make_worker().run_step(step, ctx)

        object.__setattr__(worker, "run_step", anew)
        async with self.lab(worker=worker) as lab:
            failed = Counter[str]()
            is_new = first_time(failed, most=wanted.requests)
            lab.api.when(is_new, fail(500, retry_after=AGAIN_SECONDS))
            task = await self.begin(lab)
            output = await lab.runner.run_task(task)
            check_repeated(lab, failed, wanted.requests)
            await self.check_ended(lab, task, output)

    @claim("steps")
    async def test_worker_killed_between_steps(self) -> None:
        """A worker process killed after the first step is followed by another with no loss."""
        async with self.lab(serve=False) as lab:
            process = await lab.serve_apart()
            task = await self.begin(lab)
            await lab.runner.run_step(task)
            await lab.kill(process)
            await lab.serve()
            output = await lab.runner.run_task(task)
            await self._check_unharmed(lab, task, output)
            check_same(lab.api.left, 0, "The script has replies that were not used.")

    @claim("model")
    async def test_worker_killed_while_the_model_answers(self) -> None:
        """A worker process killed in a model call: that call alone is made again, and unchanged."""
        count = min((await self.reference()).requests, MOST_KILLS)
        kills = [self._kill_in_request(number) for number in range(1, count + 1)]
        for trouble in await asyncio.gather(*kills, return_exceptions=True):
            if trouble is not None:
                raise trouble

    @claim("tools")
    async def test_worker_killed_while_a_tool_runs(self) -> None:
        """A worker process killed in a tool call: that call is not run again unasked."""
        async with self.lab(serve=False) as lab:
            process = await lab.serve_apart()
            task = await self.begin(lab)
            lab.book.hold()
            async with self._running(lab, task):
                await until(async_condition(lambda: bool(lab.book.texts("begun"))))
                await lab.until_still(task)
                await lab.kill(process)
                lab.book.let_go()
                await lab.serve()

            async def respond(approval: Any) -> None:
                check_same(approval.kind, "unknown", "The task asks about something else.")
                text = json.loads(approval.arguments)["text"]
                lab.book.write("noted", text)  # as if the call had got that far
                await lab.runner.respond(approval, "suite", noted(text))

            output, _ = await self.decide(lab, task, respond)
            await self._check_unharmed(lab, task, output)

    async def _kill_in_request(self, number: int) -> None:
        """Kill the worker process while the model holds the request of this number."""
        async with self.lab(serve=False) as lab:
            process = await lab.serve_apart()
            let_go = hold_while(lab.api, lambda request: request.number >= number)
            task = await self.begin(lab)
            async with self._running(lab, task) as running:
                await until(async_condition(lambda: lab.api.held > 0 or running.done()))
                await lab.until_still(task)
                await lab.kill(process)
                lost = bodies(lab.api)[number - 1 :]  # all of them are held
                let_go()
                await lab.serve()
                output = await running
            check_repeated(lab, Counter(lost), (await self.reference()).requests, number)
            await self._check_unharmed(lab, task, output)

    @contextlib.asynccontextmanager
    async def _running(self, lab: Lab, task: Task) -> AsyncGenerator[asyncio.Task[TaskStepOutput]]:
        """Run a task to its end or to an approval, during the block."""
        running = asyncio.create_task(lab.runner.run_task(task))
        try:
            yield running
            await running
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def _check_unharmed(self, lab: Lab, task: Task, output: TaskStepOutput) -> None:
        """Check the answer, and that no call of the tool was begun twice."""
        await self.check_ended(lab, task, output)
        again = Counter(lab.book.texts("begun")) - Counter((await self.reference()).kept)
        check(not again, f"Calls of the tool were begun again: {shown(again)}")


def async_condition(condition: Callable[[], bool]) -> Callable[[], Awaitable[bool]]:
    """Make an async condition of a plain one."""

    async def holds() -> bool:
        return condition()

    return holds


def check_repeated(lab: Lab, lost: Counter[str], requests: int, killed: int = 0) -> None:
    """Check that each lost request was made once more, word for word, and nothing else.

    A worker may send the same request several times in a task: they are counted.

    Args:
        lab: The check's app.
        lost: The requests whose answers were lost, and how often.
        requests: How many there are when none is lost.
        killed: Number of the request in which the worker was killed, if it was.
    """
    found = Counter(bodies(lab.api))
    missing = lost - (found - lost)
    check(
        not missing,
        f"{REPEATED}\n  lost, and not asked again: {shown(missing)}\n  asked: {shown(found)}",
    )
    when = f"Killed in model call {killed}" if killed else "With failed model calls"
    check_same(
        found.total(), requests + lost.total(), f"{when}, the number of model calls is wrong."
    )
