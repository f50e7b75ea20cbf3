"""The claims that every AgentWorker must keep, as a pytest class that its author inherits."""

from __future__ import annotations

from typing import Any

from holdfast.testing.conformance.history import CrashChecks, HistoryChecks, SteeringChecks
from holdfast.testing.conformance.runs import RunningChecks

REASONS = {
    "model": "uses_model is False",
    "tools": "uses_tools is False",
    "steps": "steps is 1",
    "memory": "remembers is False",
}


class AgentWorkerConformance(RunningChecks, HistoryChecks, SteeringChecks, CrashChecks):
    """Checks an AgentWorker against everything that Holdfast promises of one.

    An author writes, at the top level of a test module::

        class TestMyWorker(AgentWorkerConformance):
            def make_worker(self) -> AgentWorker:
                return MyWorker()

            def script(self, api: FakeOpenAI, input: str) -> None:
                api.call("note", {"text": input})
                api.reply(f"done: {input}")

    Each check is one test. The agent has one tool, `note(text)`, which answers `noted: <text>`. The
    engine is a Temporal server in memory, shared by all classes; the model is a fake of OpenAI's
    API. Needs the extras `local` and `testing`, and no plug-in of pytest.

    The script of one task must be the same each time. Replies are given in order; those of steps
    that run side by side name their request with `match=`. What the worker does must come to the
    same outputs each time, so that a disturbed run can be compared with an undisturbed one.

    A check that does not apply to the worker, by what the attributes declare, is not made: pytest
    does not collect it, and `not_checked` says why.

    Attributes:
        uses_model: Whether the worker calls the model.
        uses_tools: Whether the script makes it call `note`.
        steps: Fewest steps of a task.
        remembers: Whether the model of a later task in a session is shown the earlier turns.
        commits: Roles of the messages that a task leaves in its session, such as
            ("user", "assistant"); None for whatever finalize_task returns.
        seconds: Time limit of one check.
        not_checked: Name to reason, for the checks that are not made.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Leave out the checks that do not apply."""
        super().__init_subclass__(**kwargs)
        has = {
            "model": cls.uses_model,
            "tools": cls.uses_tools,
            "steps": cls.steps > 1,
            "memory": cls.remembers,
        }
        left_out: dict[str, str] = {}
        for name in checks():
            own = getattr(AgentWorkerConformance, name)
            missing = [REASONS[need] for need in own.needs if not has[need]]
            if missing:
                left_out[name] = ", ".join(missing)
                setattr(cls, name, None)
            elif name not in cls.__dict__ and getattr(cls, name) is None:
                setattr(cls, name, own)  # a class between left it out
        cls.not_checked = left_out


def checks() -> list[str]:
    """Name all checks, in alphabetical order."""
    return [name for name in dir(AgentWorkerConformance) if name.startswith("test_")]


__all__ = ["AgentWorkerConformance", "checks"]
