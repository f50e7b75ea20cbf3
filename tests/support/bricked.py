"""An agent whose workflow tasks never end, for worker processes that should stop all the same."""

import os
import threading
from typing import Never

from holdfast import Agent
from holdfast.serving import worker_host as hosting
from holdfast.serving import worker_process as serve
from holdfast.workflows.agent_task import AgentTask

agent = Agent(name="bricked", model="offline")


def block(_task: AgentTask) -> Never:
    """Never come back."""
    while True:
        threading.Event().wait()


AgentTask._next = block  # type: ignore[method-assign, assignment]  # pyright: ignore[reportPrivateUsage]
hosting.EXTRA_SECONDS = 2.0
os.environ[serve.GRACE_VARIABLE] = "1"
