"""The statuses of a task."""

from __future__ import annotations

from typing import Literal

TaskStatus = Literal[
    "running", "waiting", "paused", "needs_attention", "answered", "finished", "failed", "abandoned"
]
"""Life of a task.

`running`: a step is in progress or queued. `waiting`: for a person's decision. `paused`: by a
person. `needs_attention`: a step failed and can be run again. `answered`: the last step is done,
finalize is to come. `finished`, `failed`, `abandoned`: closed.
"""

OnBusy = Literal["queue", "refuse", "interrupt", "merge"]
"""What a task of a session does while another one has the floor: waits for its turn; is refused;
abandons that one; or is not created, and its input is feedback to that one."""

CLOSED: frozenset[str] = frozenset({"finished", "failed", "abandoned"})
"""Of a task that no request changes any more."""
