"""Updates: requests to run steps, to finalize and to undo, each answered once by its id."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import timedelta
from inspect import Parameter, Signature
from typing import Literal, Protocol

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from holdfast.engine.rests import may_rest
from holdfast.task import refusals, undo
from holdfast.task.data.calls import LONG_CALL, LongCall
from holdfast.task.data.children import (
    REPORTS,
    SAYS,
    ChildReport,
    OutputsGiven,
    ParentSays,
    UndoAnswer,
    is_secret,
    secret_of_child,
)
from holdfast.task.data.commands import (
    LONGEST_REASON,
    Command,
    Receipt,
    Refusal,
    RunReply,
    RunRequest,
    decode,
)
from holdfast.task.data.failures import REMEDY, Failure
from holdfast.task.data.state import PARKED, Claim
from holdfast.task.data.undo import Obstacle, UndoRequest, UndoState
from holdfast.task.people import approvals, decisions
from holdfast.task.requests import phase
from holdfast.task.requests.command_effects import configure, hear, obey
from holdfast.task.requests.delivery import Pending
from holdfast.task.requests.phase import ALLOWED, Update, Word, refused_by
from holdfast.task.tool_calls import add_long
from holdfast.values.base import Json
from holdfast.values.runs.verbs import DECIDED, VERBS, Verb
from holdfast.values.steps import UndoReceipt
from holdfast.workflows.activity_calls import PATIENT, now
from holdfast.workflows.children.reports import undo_for_parent
from holdfast.workflows.core import Core

# Signals: commands of people and programs, reports of child tasks, requests of the parent.
#
# The parent of a task that is a call of an agent as a tool asks of it by signals as well.


class ParentWords:
    """Carries out the requests of the parent task; the task's next report is the answer."""

    def __init__(self, core: Core) -> None:
        """Drive this task."""
        self._core = core
        self._postponed: list[ParentSays] = []

    def take(self, said: ParentSays) -> None:
        """Carry out a request of the parent, as the phase of this task allows."""
        core = self._core
        if core.given.parent is None or not is_secret(said.secret, core.given.secret):
            self.refuse(SAYS, "It did not come from a task that this one works for.")
            return
        core.ledger.s.heard = max(said.number, core.ledger.s.heard)
        word = _word(said)
        if word is None:
            return
        match ALLOWED[core.phase][word]:
            case "later":  # closing answers it by ending the task, unless closing fails
                self._postponed.append(said)
            case "close":
                self._answer_undo(said)
                core.ending.try_again()
            case "take":
                self._carry_out(word, said)
            case _:
                pass

    def take_postponed(self) -> None:
        """Carry out the requests that came while the task was closing, which has failed."""
        postponed, self._postponed = self._postponed, []
        for said in postponed:
            self.take(said)

    def refuse(self, name: str, why: str) -> None:
        """Record a signal that is refused: it claims a sender whose secret it does not have."""
        self._core.ledger.note("refused", now=now(), text=why, body={"verb": name})

    def _answer_undo(self, said: ParentSays) -> None:
        """Answer that an accepted end cannot be undone, if the parent wants an undo."""
        if said.undo and said.undo != "release":
            why = self._core.ending.refusal().message
            answer = UndoAnswer(number=said.number, stands=(Obstacle(text=why),), failure=why)
            self._core.ledger.s.undo_answer = answer

    def _carry_out(self, word: Word, said: ParentSays) -> None:
        core = self._core
        match word:
            case "end":
                self._end(said)
            case "hold":
                was = core.ledger.paused
                core.ledger.s.held = said.paused or ""
                if core.ledger.paused != was:
                    core.hold_children()
                core.after_news()
            case "change":
                self._configure(said)
            case "undo_for":
                core.undone_requests = core.requests.ids
                undo_for_parent(core.ledger, said)
            case "run_for" if core.ledger.failure is not None:
                core.unrollable = False
                core.ledger.s.automatic = True
                core.ledger.s.tries_again = True
            case "run_for":
                pass

    def _configure(self, said: ParentSays) -> None:
        """Give this run the settings that the calling run was given, unless it has its own."""
        ledger, change = self._core.ledger, said.change
        if change is None or not ledger.takes_settings:
            return
        if change.applied(ledger.head) == ledger.head:
            return
        for part in (change, change.without("model", "model_settings")):  # as the step allows
            refused = configure(ledger, part)
            shown = Command(verb="configure", body=part.wire()).shown
            body: dict[str, Json] = {"verb": "configure", "arguments": shown}
            kind = "refused" if refused else "command"
            ledger.note(kind, now=now(), by=said.by, text=refused, body=body)
            if not refused:
                self._core.children.configure(said.by)
                return

    def _end(self, said: ParentSays) -> None:
        """Close as the task is: answered, failed, or neither, as in the middle of an undo."""
        core = self._core
        failure = core.ledger.failure
        rests = said.end == "finish" and core.ledger.s.undo is None
        if rests and core.ledger.s.answered and failure is None:
            core.end("finished")
        elif rests and refusals.is_verdict(failure):
            core.ledger.s.verdict = failure
            core.end("failed")
        else:
            body: dict[str, Json] = {"reason": said.reason}
            core.abandon(Command(id="parent", verb="abandon", by=said.by, body=body))


def _word(said: ParentSays) -> Word | None:
    """Return the verb of a request; of one that has several, the one that is carried out."""
    if said.end:
        return "end"
    if said.paused is not None:
        return "hold"
    if said.undo:
        return "undo_for"
    if said.change is not None:
        return "change"
    return "run_for" if said.run else None


COMMANDS_AT_ONCE = 400
"""Most commands that are obeyed in one workflow task; the others wait for the next.

A workflow task may take two seconds of wall time, and tens of thousands of commands may have come
while no worker process was up. Tasks in flight depend on the number.
"""

TURN_SECONDS = 0.001
"""Length of the timer that ends one workflow task and begins the next."""

CANCELLED = Command(
    id="temporal", verb="abandon", by="temporal", body={"reason": "cancelled through Temporal"}
)
"""What a cancellation through Temporal counts as."""

ORPHANED = Command(
    id="parent",
    verb="abandon",
    by="temporal",
    body={"reason": "the task that it works for has ended"},
)
"""What the end of the parent task counts as."""


class TakesCommands(Protocol):
    """A workflow with commands."""

    commands: Commands


def command_signal(verb: Verb) -> Callable[..., None]:
    """Make the handler of a verb's signal, with the description that Temporal's UI shows.

    It takes any number of bodies. Temporal passes a body undecoded when the handler's signature has
    one parameter for it, and would fail the workflow task, again and again, if it then called a
    handler of one parameter with two.
    """

    def handle(self: TakesCommands, *body: RawValue) -> None:
        # Temporal decodes bodies of another number than the signature's.
        data = [body[0].payload.data] if len(body) == 1 else [b""] * len(body)
        self.commands.take(verb, data)

    parameters = [
        Parameter("self", Parameter.POSITIONAL_OR_KEYWORD),
        Parameter("body", Parameter.POSITIONAL_OR_KEYWORD, annotation=RawValue),
    ]
    vars(handle)["__signature__"] = Signature(parameters)
    return workflow.signal(name=verb, description=VERBS[verb].body)(handle)


class Commands:
    """Handles signals in the order in which they came; never raises, whatever was sent."""

    def __init__(self, core: Core, parent: ParentWords) -> None:
        """Drive this task."""
        self._core = core
        self._parent = parent
        self._inbox: deque[tuple[str, list[bytes]]] = deque()
        self._has_news = False
        self._obeyed = (0, 0)

    @property
    def are_waiting(self) -> bool:
        """Whether commands wait to be read."""
        return bool(self._inbox)

    def hear(self, name: str, data: list[bytes]) -> None:
        """Handle a signal of another task or of an activity; refuse any other in its turn."""
        match hear(name, data):
            case ChildReport() as report:
                self._report(report)
            case ParentSays() as said:
                self._parent.take(said)
            case LongCall() as call:
                self._long_call(call)
            case OutputsGiven(caller=caller):
                self._core.requests.acknowledge(caller)
            case Claim():
                self._core.turn_comes()
            case _:
                self.take(name, data)

    async def read(self) -> None:
        """Obey the commands that wait, batch after batch; then answer requests that can be."""
        while True:
            await workflow.wait_condition(lambda: self._has_news or self.are_waiting)
            self._has_news = False
            self._core.after_news()
            if self._inbox:
                await workflow.sleep(TURN_SECONDS, summary=f"{len(self._inbox)} commands")
                for _ in range(min(COMMANDS_AT_ONCE, len(self._inbox))):
                    # It stays in the inbox meanwhile: the task must not end or roll without it.
                    at = await self._decided_at(*self._inbox[0])
                    command = self._inbox.popleft()
                    self._question()
                    self._read_one(*command, at=at)
                self._has_news = True
            self._core.agenda.holds_back = self.are_waiting

    def take(self, name: str, data: list[bytes]) -> None:
        """Obey a command, now or in its turn."""
        # Order is kept: once one waits, all that follow wait behind it.
        is_due = 0 < self._core.due <= now()
        if self._inbox or not self._has_time() or (is_due and self._late(name, data)):
            self._inbox.append((name, data))
            self._question()
        else:
            self._read_one(name, data)
        # While commands wait, no step begins: one of them may be a pause or an abandon.
        self._core.agenda.holds_back = self.are_waiting
        self._has_news = True

    def _late(self, name: str, data: list[bytes]) -> Command | None:
        """Return a decision if the deadline of its approval has passed, and may not have before."""
        ledger = self._core.ledger
        due = approvals.overdue(ledger, now=now()) if name in DECIDED else ()
        got = decode(name, data) if due else None
        if not isinstance(got, Command) or got.body.get("approval") not in {a.id for a in due}:
            return None
        return got if workflow.patched("decided-in-time") else None

    def _question(self) -> None:
        """Keep from expiring what a decision in the inbox may be in time for."""
        late = filter(None, (self._late(*each) for each in self._inbox))
        found = frozenset(str(each.body["approval"]) for each in late)
        if found != self._core.ledger.questioned:
            self._core.ledger.questioned = found

    async def _decided_at(self, name: str, data: list[bytes]) -> float:
        """Return when a late decision came to the server, if that was before the deadline; else 0.

        After a time without a worker, the decision and the timer of the deadline come in one
        activation, the decision first, whichever was first. The history has the time of both.
        """
        command = self._late(name, data)
        if command is None:
            return 0.0
        # At this await the task may be paused, undone or abandoned. The command is obeyed after it
        # by the rules of that moment: only its time is known here.
        try:
            sent = await workflow.execute_activity(
                "sent_at",
                command,
                result_type=float,
                start_to_close_timeout=timedelta(seconds=30),
                schedule_to_close_timeout=timedelta(minutes=1),
                retry_policy=PATIENT,
                summary=f"{name} {command.body['approval']}",
            )
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            workflow.logger.warning("Nobody has said when a decision came: %s", error.cause)
            return 0.0
        asked = self._core.ledger.asked.find(str(command.body["approval"]))
        return sent if asked is not None and sent < asked.expires else 0.0

    def _has_time(self) -> bool:
        """Whether another command may be obeyed in this workflow task."""
        at, count = self._obeyed
        length = workflow.info().get_current_history_length()
        count = count + 1 if at == length else 1
        self._obeyed = (length, count)
        return count <= COMMANDS_AT_ONCE

    def _read_one(self, name: str, data: list[bytes], *, at: float = 0) -> None:
        """Obey or refuse a command, and record which; a repeated id is dropped.

        Args:
            name: Name of the signal.
            data: Its arguments.
            at: When it came, if that is not now.
        """
        ledger = self._core.ledger
        unheard = None if name in VERBS else hear(name, data)
        got = unheard if isinstance(unheard, Refusal) else decode(name, data)
        # A client sends a command again when it has no receipt. It is obeyed once.
        if got.id and got.id in ledger.log.commands:
            return
        is_decided, asked = False, ""
        body: dict[str, Json] = {"id": got.id, "verb": got.verb}
        if isinstance(got, Command):
            asked = got.digest if got.id else ""
            wanted = str(got.body.get("approval", ""))
            found = ledger.asked.find(wanted) if wanted else None
            # What the phase refuses names no decision: only `obey` looks at the approval.
            answer = ALLOWED[self._core.phase][got.verb]
            takes = answer == "take" or refused_by(answer, self._core.ending) is None
            # Asked before `obey` decides it: the receipt says whether somebody else was first.
            is_open = not wanted or (found is not None and found.status == "open")
            is_decided = takes and not is_open and approvals.is_decided(ledger, wanted)
            body |= {"arguments": got.shown}
            if found is not None:
                body |= {"tool": found.tool, **decisions.step_of(ledger, found)}
            reason = self._obey(got, at or now(), asks=bool(found and found.asks))[:LONGEST_REASON]
            is_vote = found is not None and found.quorum > 1 and not reason
            is_vote = is_vote and got.verb in DECIDED and approvals.is_vote(ledger, wanted)
            body |= {"votes": approvals.progress(ledger, wanted)} if is_vote else {}
            kind, by, text = "vote" if is_vote else "command", got.by, got.reason
        else:
            reason, kind, by, text = got.reason, "refused", "", got.reason
        if reason:
            kind, text = "refused", reason
        ledger.note(kind, now=now(), by=by, text=text, body=body)
        if not got.id:  # nobody can ask for its receipt
            return
        status: Literal["applied", "refused"] = "refused" if reason else "applied"
        receipt = Receipt(id=got.id, verb=got.verb, status=status, reason=reason, asked=asked)
        ledger.log.receipt(receipt.model_copy(update={"is_decided": is_decided}))
        ledger.log.commands.add(got.id)

    def _obey(self, command: Command, at: float, *, asks: bool) -> str:
        """Carry out a command that came at a time; return why not, or empty.

        Args:
            command: The command.
            at: The time.
            asks: Whether it is about a question: an empty text may be the answer.
        """
        if wrong := command.misspelt:
            return wrong
        core = self._core
        answer = ALLOWED[core.phase][command.verb]
        if answer == "close":
            core.ending.try_again()
            return ""
        refused = None if answer == "take" else refused_by(answer, core.ending)
        if refused is not None:
            is_due = core.phase != "stuck" and core.ending.status is not None
            return f"The task is {core.ending.status} already." if is_due else refused.message
        if command.verb == "abandon":
            core.abandon(command)
            return ""
        if command.body.get("arguments") == "" and not asks and workflow.patched("empty-edit"):
            return "Edited arguments are a JSON object; these were empty. Leave them out."
        was = core.ledger.paused
        reason = obey(core.ledger, command, now=at)
        if core.ledger.paused != was:
            core.hold_children()
        if command.verb == "configure" and not reason:
            core.children.configure(command.by)
        if core.ledger.s.answered and core.ledger.s.followups and workflow.patched("after-drop"):
            core.ledger.queue.follow_up()
        return reason

    def _report(self, report: ChildReport) -> None:
        """Take a child task's report of its status."""
        refused = self._core.children.heard(report)
        if refused:
            self._parent.refuse(REPORTS, refused)
        else:
            self._core.after_news()

    def _long_call(self, call: LongCall) -> None:
        """Record a long call, unless it has just ended: the task may continue as new meanwhile."""
        core = self._core
        here = call.branch == core.ledger.s.branch and (call.n, call.i) in core.running
        if not is_secret(call.secret, secret_of_child(core.given.secret, LONG_CALL)):
            self._parent.refuse(LONG_CALL, "It did not come from an activity of this task.")
        elif core.phase == "open" and here:
            add_long(core.ledger, call)


def refusal(failure: Failure, *, parked: bool = False) -> ApplicationError:
    """Make the error with which an update is refused or fails.

    Args:
        failure: Why.
        parked: Whether the task waits with this failure, rather than that the request was wrong.
    """
    data = {**failure.data, REMEDY: failure.remedy} if failure.remedy else failure.data
    facts = (data,) if data else ()
    details = (PARKED, failure.step, *facts) if parked else facts
    return ApplicationError(failure.message, *details, type=failure.type, non_retryable=True)


def result_of(pending: Pending) -> RunReply:
    """Return the answer to a request.

    Raises:
        ApplicationError: The request failed; its type names the error class.
    """
    if isinstance(pending.reply, Failure):
        raise refusal(pending.reply, parked=pending.parked)
    return pending.reply


DONE = UndoReceipt()

MOST_WAITING = 6
"""Most requests to run that wait at the same time; others ask again every two seconds.

The server holds ten updates of a workflow: the others are for those who undo and finalize.
"""

MOST_UPDATES = 1900
"""Most updates that one run of a task accepts; the next run accepts more.

The server accepts 2,000, and lets the others wait without an answer.
"""


class Updates:
    """Serves the updates of a task: a check that changes nothing, then the work and its answer."""

    def __init__(self, core: Core, commands: Commands) -> None:
        """Drive this task."""
        self._core = core
        self._commands = commands
        self._waiting = 0
        self._begun_with: dict[str, Pending] = {}
        if core.given.run_request:
            own = Pending(core.given.run_request, RunRequest(all=True), self._tell_of_rest)
            self._begun_with[own.id] = own
            if core.ledger.s.automatic:
                core.requests.add(own)
            elif core.ledger.failure is not None:
                # It failed so in the run before. Who asks for the reply wants nothing tried again.
                own.answer(core.ledger.failure, parked=True)
            else:
                self._begun_with.clear()

    def _tell_of_rest(self) -> None:
        """Tell a client in this process that the request which came with the start has a reply.

        Of the end of the task it learns from the server.
        """
        if not self._core.closed:
            may_rest(workflow.info().workflow_id)

    def check_run(self, asked: RunRequest) -> None:
        """Refuse a request to run that cannot be served.

        Raises:
            ApplicationError: It cannot be served; its type names the error class.
        """
        core, request = self._core, _request_id()
        if asked.unknown:
            raise refusal(phase.unknown_fields("run", asked))
        if request in self._begun_with or self._is_known("run", request):
            return
        if ALLOWED[core.phase]["run"] == "close":
            return
        if self._waiting >= MOST_WAITING:
            raise refusal(refusals.CROWDED)
        refused = phase.refuse_run(core.ledger, core.agenda, asked, request)
        if refused is not None:
            raise refusal(refused)

    def check_finalize(self) -> None:
        """Refuse to finalize a task that has no answer yet.

        Raises:
            ApplicationError: It cannot be done; its type names the error class.
        """
        is_known = self._is_known("finalize", _request_id())
        if not is_known and ALLOWED[self._core.phase]["finalize"] == "take":
            refused = phase.refuse_finalize(self._core.ledger)
            if refused is not None:
                raise refusal(refused)

    def check_undo(self, asked: UndoRequest) -> None:
        """Refuse an undo of steps that are not there, or not as they were seen.

        Raises:
            ApplicationError: It cannot be done; its type names the error class.
        """
        if asked.unknown:
            raise refusal(phase.unknown_fields("undo", asked))
        undo, request = self._core.ledger.s.undo, _request_id()
        is_same = undo is not None and bool(request) and request == undo.request
        if self._is_known("undo", request, is_same=is_same) or is_same:
            return
        refused = phase.refuse_undo(self._core.ledger, asked)
        if refused is not None:
            raise refusal(refused)

    def _is_known(self, update: Update, request: str, *, is_same: bool = False) -> bool:
        """Whether an update was answered before; else refuse it if the phase does not allow it.

        Args:
            update: The update.
            request: Its id.
            is_same: Whether it is the one in progress, sent again.

        Raises:
            ApplicationError: It cannot be taken in the phase that the task is in.
        """
        core = self._core
        if core.updates >= MOST_UPDATES:
            raise refusal(refusals.CROWDED)
        if update != "finalize" and request in core.ledger.s.delivery.seen:
            return True
        refused = phase.refuse_update(
            update,
            core.phase,
            core.ending,
            moves=core.moving,
            is_reading=self._commands.are_waiting,
        )
        if refused is not None and not (is_same and refused is refusals.UNDO_RUNS):
            raise refusal(refused)
        return False

    async def run(self, asked: RunRequest) -> RunReply:
        """Serve a request to run one step, or all of them.

        Raises:
            ApplicationError: It failed; its type names the error class.
        """
        # The validator has accepted it in this same workflow task; nothing has changed since.
        request = _request_id()
        own = self._begun_with.get(request)
        self._core.updates += 1
        self._waiting += 1
        try:
            if own is None:
                return await self._run(Pending(request, asked))
            if not self._core.goes:
                self._core.requests.settle()
            await workflow.wait_condition(lambda: own.done)
            return result_of(own)
        finally:
            self._waiting -= 1

    async def _run(self, pending: Pending) -> RunReply:
        core, asked = self._core, pending.asked
        known = core.ledger.s.delivery.seen.get(pending.id)
        if known is not None:
            return known
        if core.phase == "stuck":
            return await self._close_for(asked)
        if core.ledger.s.children:
            # Up to ten seconds pass here: after it everything that the validator saw may have
            # changed.
            await core.children.ask()
            # Commands that wait may end the task. They are obeyed first, because an accepted
            # update is answered only once in a run.
            while self._commands.are_waiting:
                await workflow.wait_condition(lambda: not self._commands.are_waiting)
            self._refuse_when_leaving()
        # No await from here to `requests.add`: two requests that came together must not both take
        # the same finished step, or both begin the next one.
        ledger, known = core.ledger, core.requests.known(pending)
        if known is not None:
            return known
        if phase.asks_further(ledger, asked):
            ledger.queue.ask_further(asked)
        if asked.stream:
            ledger.show()
        core.unrollable = False
        # If nothing can be done now, the request is answered at once (waiting, paused, answered).
        core.requests.add(pending)
        if not core.goes:
            core.requests.settle()
        await workflow.wait_condition(lambda: pending.done)
        return result_of(pending)

    def _refuse_when_leaving(self) -> None:
        """Refuse a request if the task has begun to end or to continue as new meanwhile."""
        if self._core.moving:
            raise refusal(refusals.DRAINING)
        if self._core.ending.status is not None:
            raise refusal(self._core.ending.refusal())

    async def finalize(self) -> bool:
        """Commit the task to its session, once, and close it.

        Raises:
            ApplicationError: It could not be closed, or has another end.
        """
        core = self._core
        core.updates += 1
        if core.ending.status is None:
            core.ledger.s.failure = None
        core.end("finished")
        await self._until_closed()
        if core.ending.status != "finished":
            raise refusal(core.ending.failure() or refusals.CLOSED)
        return True

    async def _close_for(self, asked: RunRequest) -> RunReply:
        """Try to close a task whose end was accepted; no step is run."""
        core = self._core
        await self._until_closed()
        failure = core.ending.failure()
        if core.ending.status == "finished" and asked.all:
            return RunReply(n=core.ledger.s.steps, record=core.seal.record)
        raise refusal(failure if failure is not None else refusals.CLOSED)

    async def _until_closed(self) -> None:
        """Wait until the task is closed; fail if the next attempt to close it fails."""
        core = self._core
        # The count is read before the attempt begins: a failure from before is not its answer.
        core.ending.try_again()
        failures = core.ending.failures
        await workflow.wait_condition(lambda: core.closed or core.ending.failures > failures)
        if not core.closed:
            raise refusal(core.ledger.s.failure or refusals.CLOSED, parked=True)

    async def undo(self, asked: UndoRequest) -> UndoReceipt:
        """Move the head back; answers when done, or when a person must decide.

        Raises:
            ApplicationError: It was refused or failed, or the task is ended meanwhile.
        """
        core = self._core
        core.updates += 1
        s, request = core.ledger.s, _request_id()
        if request in s.delivery.seen:
            return self._receipt(request)
        if s.undo is None:  # else this is the request in progress, sent again by its client
            explicit = asked.model_copy(update={"to": phase.last_kept(core.ledger, asked)})
            begun = UndoState(asked=explicit, done=s.undone_effects, request=request)
            core.ledger.s.undo = begun
            # Those that wait now asked for steps that the undo takes out; later ones ask for
            # others.
            core.undone_requests = core.requests.ids
        await workflow.wait_condition(self._undo_rests)
        if core.ledger.s.closing is not None:
            raise refusal(core.ending.refusal())
        if core.ledger.s.undo is not None:
            return UndoReceipt(status="waiting")
        if core.undo_failure is not None:
            raise refusal(core.undo_failure)
        return self._receipt(request)

    def _receipt(self, request: str) -> UndoReceipt:
        """Return what an undo did; of one that is archived already, only that it is done."""
        for entry in reversed(self._core.ledger.log.entries):
            if entry.event is not None and undo.is_of(entry.event, request):
                return undo.receipt_of(entry.event)
        return DONE

    def _undo_rests(self) -> bool:
        """Whether the undo is over, waits for a person, or was cut short by an end of the task."""
        core = self._core
        if core.ledger.s.closing is not None:
            return core.phase in ("closed", "stuck")
        return core.ledger.s.undo is None or approvals.undo_waits(core.ledger)


def _request_id() -> str:
    """Return the id of the update that is being handled."""
    info = workflow.current_update_info()
    return info.id if info is not None else ""
