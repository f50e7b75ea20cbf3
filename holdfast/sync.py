"""The step API without `await`: blocking twins of AgentRunner and Session.

from holdfast.sync import AgentRunner

with AgentRunner.local(agent) as runner:
    response = runner.chat("Find me a hotel")
"""

from holdfast.client.blocking import AgentRunner, Session

__all__ = ["AgentRunner", "Session"]
