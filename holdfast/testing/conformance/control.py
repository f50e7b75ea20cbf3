"""Conformance: approvals, budgets, feedback."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.testing.conformance.asserts import check, check_same, until
from holdfast.testing.conformance.runs import Surface, check_no_dangling_calls, claim
from holdfast.testing.fake_api.replies import hang, reply
from holdfast.values.settings import Budget
from holdfast.workers.context.journal import LAST_CALL

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

            async def approve(approval: Any) -> None:
                await lab.runner.approve(approval, BY)

            output, _ = await self.decide(lab, task, approve)
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

            async def approve(approval: Any) -> None:
                await lab.runner.approve(approval, BY)

            output, kinds = await self.decide(lab, task, approve)
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

            async def told_or_over() -> bool:
                return lab.api.held > 0 or running.done()

            await until(told_or_over)
            is_held = lab.api.held > 0
            await lab.runner.abandon(task, "seen enough", by=BY)
            await asyncio.gather(running, return_exceptions=True)
            check(
                is_held,
                "Feedback was given, and no later model request holds it. It is in"
                " ctx.messages: put it into the messages that the worker gives to call_model.",
            )
