"""The state of one task: a pure machine that the workflow drives and every replay drives again.

It decides nothing by clock or chance and does no I/O: times come in as arguments. Everything it
knows fits into a `Carried`, plus the entries since the last segment that went to the archive.
"""

from __future__ import annotations

from decimal import Decimal

from holdfast.task.data.calls import Called
from holdfast.task.data.commands import RunRequest
from holdfast.task.data.failures import NOT_STARTED, Failure
from holdfast.task.data.records import (
    Entry,
    Mark,
    OpenState,
    OpenStep,
    StepRecord,
    usual_step,
)
from holdfast.task.data.state import AgentRules, Described
from holdfast.task.data.undo import NO_FOLLOWUP, Before
from holdfast.task.data.wire import Advanced, AdvanceInput
from holdfast.task.ledger.queue import found_by, pending, problem, queued_with, taken_from
from holdfast.task.ledger.references import (
    cost_of,
    is_thought,
    joined,
    new_entries,
    newest_answer,
    resolve_calls,
    results_of,
    turns_of,
    usage_of,
    with_entry,
    without_adds,
)
from holdfast.task.ledger.steps import INLINE_BYTES, UpcomingSteps
from holdfast.values import json_patch as merge_patch
from holdfast.values.base import ChainRef, Json, canonical, digest, extend
from holdfast.values.checks.gate import MOST_CALLS
from holdfast.values.messages import Message, user
from holdfast.values.steps import TaskStep

AT_DIGITS = 16
"""Digits of the transcript digest that an activity gets: 64 bits. The ledger keeps all of them."""


class Ledger(UpcomingSteps):
    """One task's state. Methods are called in the order in which things happened."""

    def described(self, result: Described) -> None:
        """Record the result of `describe`."""
        self.change(described=result, failure=None)
        if result.step != TaskStep() and self.s.steps == 0 and self.s.queue:
            first = self.s.queue[0]
            custom = result.step.model_copy(
                update={"task_id": "", "step_id": result.step.step_id or first.step_id}
            )
            self.change(queue=(custom, *self.s.queue[1:]))

    def is_guarded(self, current: OpenState) -> bool:
        """Whether guardrails look at a step: its agent's, or those of the run."""
        described = self.s.described
        if described is None:
            return False
        return bool(described.run_guards or described.rules(current.open.step.agent).guards)

    def begin(
        self,
        asked: RunRequest,
        *,
        now: float,
        owner: str = "",
        step_id: str = "",
    ) -> None:
        """Open a queued step, the first that is ready or the one asked for.

        Args:
            asked: The request.
            now: Time, seconds since the epoch.
            owner: Id of the request.
            step_id: Id of the step, for a request that does not name one.
        """
        ready, wanted = self.ready(), step_id or asked.step
        step = ready[0]
        if wanted not in ("", step.step_id):
            step = next((s for s in ready if s.step_id == wanted), step)
        # A follow-up belongs to one step. Another step that is run first leaves it to wait.
        further = self.s.further if self.s.further.step == step.step_id else NO_FOLLOWUP
        place = self.s.queue.index(step)
        queue = (*self.s.queue[:place], *self.s.queue[place + 1 :])
        said: tuple[Message, ...] = ()
        stored = further.stored if step.input is None else None  # else the input was edited
        if step.step_id == "s1" and step.input == "" and self.s.steps == 0:
            stored = self.given.stored  # the task's own input, kept there when it is large
        if asked.images or asked.brings_input:
            step = step.model_copy(update={"images": asked.images_after(step)})
        if asked.input is not None:
            if step.enters and step.input and further is NO_FOLLOWUP:  # what somebody has said
                said = (user(step.input),)
            step = step.model_copy(update={"input": asked.input})
        notes = joined((*self.s.notes[: step.behind], *said, *self.s.notes[step.behind :]))
        if asked.brings_input:
            step = step.model_copy(update={"behind": len(notes)})
        opened = OpenStep(
            step=step,
            state=self.s.extra_state,
            tool_choice=asked.tool_choice,
            stored=asked.stored if asked.brings_input else stored,
            notes=notes,
            inputs={id: self.s.done[id] for id in step.prev_steps if id in self.s.done}
            if step.prev_steps
            else {},
        )
        # With a second step in progress no step can tell by itself what the one before it left: an
        # undo takes all of them together, by what the first one found.
        siblings, lane = self.s.opens, 0
        if siblings:
            shared: dict[str, object] = {"alone": False, "before": Before()}
            siblings = tuple(each.model_copy(update=shared) for each in siblings)
            # The lowest free lane: a lane names the kept answer in the archive, which the next step
            # of the lane replaces, so two open steps must never share one.
            lane = min(set(range(len(siblings) + 1)) - {each.lane for each in siblings})
        current = OpenState(
            open=opened,
            n=self.last_opened + 1,
            at=self.s.transcript,
            alone=not siblings and not self.s.lasts,
            lane=lane,
            started=now,
            owner=owner,
            before=Before() if siblings else self.before(further.step),
            stream=asked.stream,
        )
        self.change(
            queue=queue,
            notes=(),
            undo_notes=(),
            further=NO_FOLLOWUP,
            answered=False,
            failure=None,
            opens=(*siblings, self._marked(current, "start")),
        )

    def retry(self, n: int, asked: RunRequest, *, now: float, owner: str = "") -> None:
        """Try a step that failed again, from its journal or, when asked to, from nothing."""
        current = self.at(n)
        opened = current.open
        images = asked.images_after(opened.step)
        step = opened.step.model_copy(update={"images": images})
        opened = opened.model_copy(update={"step": step})
        if asked.brings_input:
            step = step.model_copy(update={"input": asked.input, "behind": len(opened.notes)})
            opened = opened.model_copy(update={"step": step, "stored": asked.stored})
        if asked.tool_choice:
            opened = opened.model_copy(update={"tool_choice": asked.tool_choice})
        # What was paid for stands in the ledger before it is dropped: costs and audit count it.
        # The journal of an unfit answer would give it once more.
        if asked.restart or current.is_unfit:
            dropped = [f"{current.calls[i].name}: {o.status}" for i, o in current.outcomes.items()]
            body: dict[str, Json] = {"answers": len(current.journal), "calls": dropped}
            self.leave(n, "restarted", now=now)
            self.note("restarted", now=now, body=body)
            # The new calls may get the same places. An undo of theirs must not count as done
            # already.
            mine = f"{self.s.branch}.{n}."
            undone = tuple(k for k in self.s.undone_effects if not k.startswith(mine))
            unclear = {k: v for k, v in self.s.unclear_undos.items() if not k.startswith(mine)}
            # they were of the calls dropped here
            self.change(undone_effects=undone, unclear_undos=unclear)
            self._forget_approvals(n)
            if current.is_unfit:
                answer = newest_answer(current.journal)
                lacking = () if answer is None else answer.message.open_calls or answer.open_calls
                changed = {"told": len(opened.notes), "unanswered": lacking}
                opened = opened.model_copy(update=changed)
            current = OpenState(
                open=opened,
                n=n,
                at=current.at,
                alone=current.alone,
                lane=current.lane,
                started=current.started,
                before=current.before,
                marks=current.marks[:1],
                stream=current.stream,
                tried=current.tried,
                unbegun=True,
            )
        changes: dict[str, object] = {
            "open": opened,
            "failure": None,
            "owner": owner,
            "stream": current.stream or asked.stream,
        }
        self._put(current.model_copy(update=changes))
        self.tried_again(n)
        self.change(failure=None)
        self.try_children_again(n)

    def tried_again(self, n: int, *, lost: str = "") -> None:
        """Count the starts that the newest activity of a step may have had: another one follows.

        Args:
            n: The step.
            lost: That activity, if its workers were lost, as in `KeptAnswer`.
        """
        current, described = self.at(n), self.s.described
        starts = described.rules(current.open.step.agent).starts if described is not None else 0
        tried = current.tried + starts
        self._put(current.model_copy(update={"tried": tried, "lost": lost or current.lost}))

    def advance_input(
        self,
        n: int,
        *,
        now: float,
        apart: bool = False,
        dollars: Decimal | None = None,
        keeps: bool = False,
    ) -> AdvanceInput:
        """Return the input of the next step activity.

        Args:
            n: The step.
            now: Time, seconds since the epoch.
            apart: Whether tools must not run in the activity.
            dollars: Money that is reserved for its model call; None without a budget in money.
            keeps: Whether money for a last answer must be left after the call.
        """
        current = self.at(n).chained()
        current = self._begun_anew(current) if current.unbegun else current
        self._put(current)
        opened = current.open.wire()
        usual = opened == usual_step(current.n)
        data = b"" if usual else canonical(opened)
        small = len(data) <= INLINE_BYTES
        described = self.s.described
        rules = AgentRules() if described is None else described.rules(current.open.step.agent)
        return AdvanceInput(
            n=current.n,
            at=current.at._replace(digest=current.at.digest[:AT_DIGITS]),
            journal=current.chain,
            open=current.open if small and not usual else None,
            digest="" if small else digest(data),
            # The worker refuses to call the model beyond these; the workflow alone decides what
            # then.
            limit=self._limit(current, now=now),
            tokens=self.money.tokens(n),
            apart=apart,
            dollars=dollars,
            keeps=keeps,
            branch=self.s.branch,
            stream=current.stream,
            tried=current.tried if current.stream or self.given.head.run.streams else 0,
            head=self.head_digest if n == 1 and not current.journal else self.changed_head,
            attempts=rules.attempts,
            lane=current.lane,
            lost=current.lost,
            root="" if self.given.parent is None else self.given.parent.first,
        )

    def _begun_anew(self, current: OpenState) -> OpenState:
        """Return a step that is to begin once more, with what was said to the model since."""
        notes = joined((*current.open.notes, *self.s.notes))
        self.change(notes=())
        opened = current.open.model_copy(update={"notes": notes})
        return current.model_copy(update={"open": opened, "unbegun": False})

    def advanced(self, n: int, got: Advanced, *, now: float = 0.0) -> Failure | None:
        """Record the result of a step activity: an answer, the step's result, or calls of tools.

        Args:
            n: The step.
            got: The result.
            now: Time, seconds since the epoch: when calls of `cut` were begun, at the latest.

        Returns:
            Why its calls or next steps cannot be taken; the step then has no result.
        """
        # One activation, no await: the answer, its cost and its calls are recorded together, or a
        # replay would find an answer that nobody has paid for.
        current = self.at(n)
        refused = self._refused(current, got)
        lanes = max(self.s.lanes, current.lane + 1 if got.kept else 0)
        self.money.count_lost(got.lost)
        if lanes != self.s.lanes:
            self.change(lanes=lanes)
        unbegun = got.unbegun or current.unbegun
        current = current.model_copy(update={"unbegun": unbegun, "lost": ""})
        # Counted even if what follows from the answer is refused: it was paid for.
        if got.answer is not None:
            self.money.needs.pop(n, None)
            if current.limit == "allow":
                current = current.model_copy(update={"limit": ""})
            self.money.paid(cost_of(got.answer))
        said = turns_of(current.journal)
        for entry in new_entries(got, last=current.limit == "finish"):
            current = with_entry(current, entry)
        if got.answer is not None and got.answer.message.items:
            current = self._marked_hosted(current, got.answer, said)
        if is_thought(got, is_refused=refused is not None):
            current = self._marked(current, "said", said)
        if refused is None and (got.result is not None or got.calls):
            current = self._with_found(current, got, now=now)
        self._put(current)
        # A call that a lost attempt had begun is noted, so that the audit shows that it ran again.
        if got.attempts > 1:  # else they failed in a way that may pass
            for i in got.cut:
                self.call_lost(n, i, 1, now=now)
        return refused

    def _with_found(self, current: OpenState, got: Advanced, *, now: float) -> OpenState:
        """Add the result or the calls in its middle, and what is known of calls that have run."""
        result = got.result
        found: dict[str, object] = {"calls": got.calls, "asked": got.asked}
        if result is not None:
            found = {"result": result, "calls": resolve_calls(result, current)}
        patch, state = got.patch if result is None else result.patch, current.open.state
        if patch:
            state = merge_patch.apply(state, patch)
        current = current.model_copy(update={**found, "state": state, "outcomes": {}})
        return self._with_told(current, got, now=now) if current.calls else current

    def _with_told(self, current: OpenState, got: Advanced, *, now: float) -> OpenState:
        """Add what an activity knows of the calls that it has run or begun."""
        batch = current.batch
        calls = [Mark(self.log.next_number(), "call", batch, i) for i in range(len(current.calls))]
        done = [Mark(self.log.next_number(), "done", batch, i) for i in sorted(got.told)]
        outcomes = {
            i: each.model_copy(
                update={**self._facts(current, i), "worker": each.worker or got.worker}
            )
            if each.ended
            else each
            for i, each in got.outcomes.items()
        }
        called = {i: Called(at=now, tried=1) for i in got.cut}
        called |= {i: Called(at=now) for i in got.going}
        for i, failure in got.stopped.items():
            if failure.type != NOT_STARTED:
                called[i] = Called(at=now, error=failure.text, ended=now)
        called = {i: each.model_copy(update=self._facts(current, i)) for i, each in called.items()}
        marks = (*current.marks, *calls, *done)
        known = {"outcomes": outcomes, "called": called, "marks": marks, "unruled": got.unruled}
        return current.model_copy(update=known)

    def _refused(self, current: OpenState, got: Advanced) -> Failure | None:
        """Say why the step's calls or its next steps cannot be taken, or return None."""
        if got.result is None:
            return _too_many(len(got.calls))
        if isinstance(got.result.calls, tuple) and len(got.result.calls) > MOST_CALLS:
            return _too_many(len(got.result.calls))
        # Its calls are few enough, and it queues nothing that could have a wrong name.
        if not got.result.next:
            return None
        others = self.others(current.n)
        # Also the ids that these have given to steps which they are about to queue.
        coming = [step.step_id for o in others if o.result is not None for step in o.result.next]
        text = problem(
            got.result.next,
            queue=self.s.queue,
            opened={*coming, *(other.open.step.step_id for other in others)} - {""},
            known={*self.s.done, current.open.step.step_id},
            serial=self.s.serial,
        )
        return Failure(type="InvalidArgumentError", message=text) if text else None

    def finish(self, n: int, *, now: float) -> StepRecord:
        """Close a step: append its record, move the head, queue its next steps."""
        current = self._marked(self.at(n), "end")
        result = current.result
        if result is None:
            msg = "a step is finished only after its result is known"
            raise RuntimeError(msg)
        state, patch, conflicts = self.s.extra_state, dict[str, Json](), list[str]()
        if current.calls or result.patch or not current.alone:  # else it has changed nothing
            state, conflicts = self._merged(current)
            patch = merge_patch.diff(self.s.extra_state, state)
        output, stored, adds, outcomes = results_of(current, result)
        transcript = ChainRef(
            length=self.s.transcript.length + len(adds),
            digest=extend(self.s.transcript.digest, adds),
        )
        before = current.before if current.alone else self.before()
        found = found_by(before.found, self.recorded)
        steps: tuple[TaskStep, ...] = ()
        if result.next:
            following = (step.after(current.open.step) for step in result.next)
            steps = self._number([step.placed(transcript.length) for step in following])
        queue = queued_with(pending(self.others(n), self.s.queue), steps)
        record = StepRecord(
            n=self.s.steps + 1,
            opened=0 if n == self.s.steps + 1 else n,
            step=current.open.step,
            output=output,
            stored=stored,
            last=result.last,
            next=steps,
            adds=adds,
            calls=current.calls,
            outcomes=outcomes,
            journal=without_adds(result, current),
            usage=usage_of(current.journal, outcomes),
            patch=patch,
            inverse=merge_patch.inverse(self.s.extra_state, patch) if patch else {},
            conflicts=tuple(conflicts),
            started=current.started,
            ended=now,
            digest=transcript.digest,
            branch=self.s.branch,
            before=before,
            taken=taken_from(found, queue, current.open.step, len(steps)),
            marks=current.marks,
            alone=current.alone,
            unheard=current.unheard,
        )
        self.messages.extend(adds)
        self.log.append(Entry(step=record))
        self.recorded = queue
        self.found = before.waiting.forward(self.found)
        if self.s.approvals:
            self._forget_approvals(n)
        self._move_head(record, current, state=state, transcript=transcript)
        return record

    def _merged(self, current: OpenState) -> tuple[dict[str, Json], list[str]]:
        """Merge a step's changes of the state with those of its calls and of steps next to it."""
        patches = [current.outcomes[i].patch for i in range(len(current.calls))]
        mine, conflicts = merge_patch.merge(current.state, patches)
        found = current.open.state
        if current.alone or merge_patch.same(found, self.s.extra_state):
            return mine, conflicts
        sides = [merge_patch.diff(found, self.s.extra_state), merge_patch.diff(found, mine)]
        state, more = merge_patch.merge(found, sides)
        return state, [*conflicts, *more]


def _too_many(count: int) -> Failure | None:
    """Say that a step wants too many calls at once, if it does."""
    if count <= MOST_CALLS:
        return None
    text = (
        f"The step asked for {count} tool calls at once; {MOST_CALLS} are the most. None was run."
        " Make them in several batches."
    )
    return Failure(type="InvalidArgumentError", message=text)
