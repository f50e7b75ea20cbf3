"""Conformance: undo, rewind, fork, and tasks that continue as new."""

from __future__ import annotations

import asyncio

from holdfast.testing.conformance.asserts import check, check_same, hold_each_once, until
from holdfast.testing.conformance.lab import FEW_EVENTS, Seen
from holdfast.testing.conformance.runs import Surface, claim, output_texts


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
            output = await lab.runner.run_task(story.task)
            await self.check_ended(lab, story.task, output)

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

            async def held_or_over() -> bool:
                return bool(lab.api.held) or running.done()

            while not running.done():
                await until(held_or_over)
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
