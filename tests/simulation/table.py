"""Activities by a table: the plain cases of the most frequent ones, five times as fast.

A table that does not know a case leaves it to Holdfast's own function.
"""

import json
from typing import Any

from temporalio.exceptions import ApplicationError

from holdfast.activities.tools.lookup import idempotency_key
from holdfast.errors import OutcomeUnknownError
from holdfast.task.data.calls import Outcome
from holdfast.task.data.failures import INTERRUPTED
from holdfast.task.data.head import TaskHead
from holdfast.task.data.records import StepResult
from holdfast.task.data.state import Described
from holdfast.task.data.wire import Advanced, AdvanceInput, ToolInput
from holdfast.values import json_patch as merge_patch
from tests.simulation.activity import Activity
from tests.simulation.cast import ACTS, World, act, turn_of

TOOK = 0.001


class Table:
    """Answers activities of agents that follow the plan of their task.

    Attributes:
        missing: Names of the tools that the worker process lacks.
    """

    def __init__(self, world: World) -> None:
        self.missing: frozenset[str] = frozenset()
        self._world = world
        self._described: dict[str, Described] = {}

    def answer(self, activity: Activity, given: list[Any], now: float) -> Any:
        """Return the result of an activity; None where Holdfast's own function is to be asked.

        Raises:
            ApplicationError: The tool cannot say whether it took effect.
        """
        match given:
            case [AdvanceInput() as step] if activity.attempt == 1:
                return self._step(activity, step, now)
            case [ToolInput() as call] if activity.kind == "tool" and activity.attempt == 1:
                return self._tool(activity, call, now)
            case [TaskHead(session=None) as head] if activity.kind == "describe":
                return None if self.missing else self._described.get(head.agent)
            case _:
                return None

    def learn(self, activity: Activity, given: list[Any], found: Any) -> None:
        """Remember what one of Holdfast's functions has given."""
        if activity.kind == "describe" and not self.missing:
            self._described[given[0].agent] = found

    def _step(self, activity: Activity, given: AdvanceInput, now: float) -> Advanced | None:
        """Take the next turn of a plan; reads are done at once."""
        core = activity.run.code.core
        opened = core.ledger.find(given.n)
        is_plain = not (given.limit or given.journal.length or given.dollars or given.apart)
        if (
            not is_plain
            or opened is None
            or self._world.troubles
            or core.given.head.agent == "crowd"
        ):
            return None
        open_step = opened.open
        answer = turn_of(json.loads(core.given.input), given.n - 1)
        answer = answer.model_copy(update={"at": round(now, 3)})
        calls = answer.message.calls
        if any(call.name in self.missing for call in calls):
            return None
        notes = tuple(f"n{i}" for i in range(len(open_step.notes)))
        told = ("input",) if open_step.step.message() is not None else ()
        adds = (*notes, *told, "j0")
        last: dict[str, Any] = {} if calls else {"calls": (), "next": (), "last": True}
        reads = {i: call for i, call in enumerate(calls) if call.name == "look"}
        seen = {
            i: Outcome(content=f"saw {json.loads(call.arguments)['what']}", took=TOOK)
            for i, call in reads.items()
        }
        return Advanced(
            answer=answer,
            result=StepResult(adds=adds, **last),
            told=seen,
            attempts=given.tried + 1,
            worker="sim",
        )

    def _tool(self, activity: Activity, given: ToolInput, now: float) -> Outcome | None:
        """Have a tool take effect."""
        opened = activity.run.code.core.ledger.find(given.n)
        if opened is None or given.i >= len(opened.calls) or given.child or given.big:
            return None
        call = given.call or opened.calls[given.i]
        if call.name not in ACTS or call.name in self.missing:
            return None
        key = idempotency_key(activity.run.id, given, call)
        state = dict(given.state)
        try:
            arguments = json.loads(call.arguments)
            text = act(self._world, call.name, key, arguments, state)
        except ValueError:
            return Outcome(
                content=f"Error: {call.name} is out of order", is_error=True, status="failed"
            )
        except OutcomeUnknownError as error:
            raise ApplicationError(str(error), type=INTERRUPTED) from None
        return Outcome(
            content=text,
            patch=merge_patch.change(given.state, state),
            worker="sim",
            ended=round(now, 3),
            took=TOOK,
        )
