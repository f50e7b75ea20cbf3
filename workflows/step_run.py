"""An activity that runs steps, as far as the task knows it."""

from __future__ import annotations

from holdfast.task.data.wire import StepsDone


class StepRun:
    """An activity that runs a step, and those that follow as long as they are fast.

    Attributes:
        first: Number of the step with which it began.
        at: Number of the step that it has got to.
        recorded: How many of its steps the task has recorded.
        said: What it has reported before its end.
    """

    def __init__(self, branch: int, first: int) -> None:
        """Begin with this step of a branch of the task."""
        self._branch = branch
        self.first = self.at = first
        self.recorded = 0
        self.said: StepsDone | None = None

    def take(self, said: StepsDone) -> None:
        """Take a report, once; one of another activity is dropped."""
        if (said.branch, said.n) == (self._branch, self.first) and self.said is None:
            self.said = said
