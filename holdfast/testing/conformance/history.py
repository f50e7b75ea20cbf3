"""Conformance: undo, rewind, fork, and tasks that continue as new."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncGenerator
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.testing.conformance.asserts import (
    bodies,
    check,
    check_same,
    first_time,
    hold_each_once,
    hold_while,
    shown,
    until,
)
from holdfast.testing.conformance.lab import FEW_EVENTS, Lab, Seen
from holdfast.testing.conformance.process import noted
from holdfast.testing.conformance.runs import Surface, check_no_dangling_calls, claim, output_texts
from holdfast.testing.fake_api.replies import fail, hang, reply
from holdfast.values.settings import Budget
from holdfast.values.steps import Task, TaskStep, TaskStepOutput
from holdfast.workers.context.context import StepContext
from holdfast.workers.context.journal import LAST_CALL


class HistoryChecks(Surface):
    """Checks of going back, and of histories that grow long."""

    @claim()
    async def test_undone_step_runs_again(self) -> None:
        """Each step undone leaves queue, states, transcript and notes as before it, and reruns."""
        async with self.lab() as lab:
            task = await self.begin(lab)
            for _ in (await self.reference()).story.outputs:
                before, place = await lab.seen(task), lab.api.place()
                first = await lab.runner.run_step(task)
                await lab.runner.undo_step(task, by="suite")
                check_restored(await lab.seen(task), before, "undo of a step")
                lab.api.go_to(place)
                output = await lab.runner.run_step(task)
                check_same(output.output, first.output, "Run again, the step gives another output.")
            await self.check_ended(lab, task, await lab.runner.get_task_output(task))

    @claim("steps")
    async def test_rewind_to_the_first_step(self) -> None:
        """A task rewound to its first step is as it was then, and comes to the same answer."""
        async with self.lab() as lab:
            story = await lab.run_story(await self.begin(lab))
            await lab.runner.rewind(story.task, to=story.outputs[0], by="suite")
            check_restored(await lab.seen(story.task), story.before[1], "rewind")
            lab.api.go_to(story.places[1])
            await self.check_ended(lab, story.task, await lab.runner.run_task(story.task))

    @claim()
    async def test_fork_at_each_step(self) -> None:
        """A fork at any step comes to the same answer, and the original stays as it is."""
        wanted = await self.reference()
        async with self.lab() as lab:
            story = await lab.run_story(await self.begin(lab))
            original = await lab.runner.ledger(story.task)
            for k, at in enumerate(story.outputs, 1):
                lab.api.go_to(story.places[k])
                fork = await lab.runner.fork(story.task, at=at, by="suite")
                lab.tasks.append(fork.task_id)
                if not at.is_last:
                    await lab.runner.run_task(fork)
                response = await lab.runner.finalize_response(fork)
                what = f"Forked at step {k}, the task goes otherwise."
                check_same(response.output, wanted.story.answer, what)
                outputs = await lab.runner.get_completed_steps(fork)
                check_same(sorted(output_texts(outputs)), sorted(output_texts(story.outputs)), what)
            ledger = await lab.runner.ledger(story.task)
            check_same(ledger, original, "A fork changed the original's ledger.")

    @claim()
    async def test_task_continues_as_new_between_steps(self) -> None:
        """A task whose history is cut before each step has the same steps and the same answer."""
        async with self.lab(roll_events=FEW_EVENTS) as lab:
            task = await self.begin(lab)
            for _ in (await self.reference()).story.outputs:
                await lab.roll(task)
                await lab.runner.run_step(task)
            await self.check_ended(lab, task, await lab.runner.get_task_output(task))

    @claim("model")
    async def test_task_continues_as_new_in_mid_step(self) -> None:
        """A task whose history is cut after each model answer comes to the same answer."""
        async with self.lab(roll_events=FEW_EVENTS) as lab:
            hold_each_once(lab.api)
            task = await self.begin(lab)
            running = asyncio.create_task(lab.runner.run_task(task))
            while not running.done():
                await until(lambda: lab.api.held or running.done())
                if not running.done():
                    await lab.grow(task)
                    lab.api.release()
                    await asyncio.to_thread(lab.api.wait_held, 0)
            await self.check_ended(lab, task, await running)
            check(await lab.runs(task) > 1, "The task did not continue as new; tell the authors.")

    @claim()
    async def test_history_replays(self) -> None:
        """Every history that the worker makes is replayed by the present code."""
        async with self.lab() as lab:
            story = await lab.run_story(await self.begin(lab, session="memory"))
            await lab.runner.finalize_response(story.task)
            check(await lab.replay() >= 1, "There was no history.")


def check_restored(found: Seen, wanted: Seen, after: str) -> None:
    """Check that a task is as it was."""
    for part in ("queue", "extra_state", "transcript", "kept"):
        what = f"After the {after}, {part} is not what it was before."
        check_same(getattr(found, part), getattr(wanted, part), what)


# Conformance: approvals, budgets, feedback.

BY = "suite"
ENDED = "The budget ended this work."
FEEDBACK = "Mind the heron."
MOST_TURNS = 4


class SteeringChecks(Surface):
    """Checks of approvals, budgets and feedback."""

    @claim("tools")
    async def test_approved_call_goes_on(self) -> None:
        """A call that needs approval waits without having run, and goes on once approved."""
        async with self.lab(asks=True) as lab:
            task = await self.begin(lab)
            output = await lab.runner.run_task(task)
            check_same(output.status, "waiting", "The task did not wait for approval.")
            check_same(lab.book.texts("begun"), [], "The tool ran before it was approved.")
            output, _ = await self.decide(lab, task, lab.approve)
            await self.check_ended(lab, task, output)

    @claim("tools")
    async def test_rejected_call_does_not_run(self) -> None:
        """A rejected call never runs; the task answers, or stops with an error that says why."""
        async with self.lab(asks=True) as lab:
            task = await self.begin(lab)

            asked: list[str] = []

            async def reject(approval: Any) -> None:
                asked.append(approval.kind)
                await lab.runner.reject(approval, BY, "not now")

            error = ""
            try:
                await self.decide(lab, task, reject)
            except HoldfastError as stopped:
                error = str(stopped)
            check("tool" in asked, f"The task did not wait for approval. {error}")
            found = await lab.runner.get_task(task)
            check(
                found.status == "answered" or (error and found.error),
                f"After a rejection the task is {found.status!r}, with no error that says why.",
            )
            check_same(lab.book.texts("begun"), [], "The rejected tool ran.")

    @claim("model")
    async def test_budget_ends_with_an_answer(self) -> None:
        """A task that must finish at any turn has an answer, and commits no call without result."""
        for turns in range(min((await self.reference()).requests, MOST_TURNS)):
            async with self.lab() as lab:
                lab.api.when(lambda request: request.holds(LAST_CALL.text), reply(ENDED))
                budget = Budget(max_turns=turns, on_exceeded="finish")
                task = await self.begin(lab, session="memory", budget=budget)
                output = await lab.runner.run_task(task)
                what = f"With max_turns={turns}:"
                check(output.is_last and str(output).strip(), f"{what} no answer, but {output!r}")
                asked = len(lab.api.requests)
                most = turns + lab.agent.made_worker.max_parallel
                check(asked <= most, f"{what} {asked} model calls were made.")
                await lab.runner.finalize_response(task)
                check_no_dangling_calls(await lab.runner.session("memory").chat_history())

    @claim("model")
    async def test_budget_asks_and_goes_on(self) -> None:
        """A task whose budget is used up waits for a person, and goes on once approved."""
        wanted = await self.reference()
        async with self.lab() as lab:
            budget = Budget(max_turns=wanted.requests - 1, on_exceeded="ask")
            task = await self.begin(lab, budget=budget)
            output, kinds = await self.decide(lab, task, lab.approve)
            check_same(set(kinds), {"limit"}, "The task did not ask about its budget alone.")
            await self.check_ended(lab, task, output)

    @claim("model")
    async def test_feedback_reaches_the_model(self) -> None:
        """Feedback given before the last step that asks the model is in a request made after it."""
        story = (await self.reference()).story
        asking = [k for k in range(len(story.outputs)) if story.asked[k + 1] > story.asked[k]]
        async with self.lab() as lab:
            task = await self.begin(lab)
            for _ in range(asking[-1]):
                await lab.runner.run_step(task)
            await lab.runner.give_feedback(task, FEEDBACK, by=BY)
            # Held there: the script has no reply to a request with feedback.
            lab.api.when(lambda request: request.holds(FEEDBACK), hang())
            running = asyncio.create_task(lab.runner.run_task(task))
            await until(lambda: lab.api.held or running.done())
            is_held = lab.api.held > 0
            await lab.runner.abandon(task, "seen enough", by=BY)
            await asyncio.gather(running, return_exceptions=True)
            check(
                is_held,
                "Feedback was given, and no later model request holds it. It is in"
                " ctx.messages: put it into the messages that the worker gives to call_model.",
            )


# Conformance: workers that are killed, and steps that are run again.

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
            await self._check_unharmed(lab, task, await lab.runner.run_task(task))
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
                await until(lambda: lab.book.texts("begun"))
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
                await until(lambda: lab.api.held or running.done())
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
