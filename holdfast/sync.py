"""The step API without `await`: blocking twins of AgentRunner and Session.

from holdfast.sync import AgentRunner

with AgentRunner.local(agent) as runner:
    response = runner.chat("Find me a hotel")

In a notebook a runner needs no `with` block: the first call starts its embedded engine, and the end
of the process stops it.
"""

from holdfast.client.blocking import AgentRunner, Session
from holdfast.reading.streams.progress_view import Progress

__all__ = ["AgentRunner", "Progress", "Session"]
