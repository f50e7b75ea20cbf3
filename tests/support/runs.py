"""Runs of agents on the test's own worker, for tests of Runner."""

from typing import Any

from holdfast import Agent, AgentRunner, Runner, tool
from holdfast.testing import FakeOpenAI
from tests.support.rig import Rig


@tool(effect="read")
def look(where: str = "here") -> str:
    """Look somewhere."""
    return f"seen {where}"


@tool(needs_approval=True)
def pay() -> str:
    """Pay somebody, once a person has approved it."""
    return "paid"


def tools() -> tuple[list[str], Any]:
    """Make a tool that needs approval, beside the list of what it has paid."""
    ran: list[str] = []

    @tool(needs_approval=True)
    def pay(to: str) -> str:
        """Pay somebody."""
        ran.append(to)
        return f"paid {to}"

    return ran, pay


def outputs(result: Any) -> list[str]:
    """List the outputs of tools that a run has."""
    return [item.output for item in result.new_items if item.type == "tool_call_output_item"]


def sent_items(model: FakeOpenAI, n: int = -1) -> list[dict[str, Any]]:
    """Return the items of a request without the messages of users."""
    items: list[dict[str, Any]] = model.requests[n].body["input"]
    return [item for item in items if "role" not in item]


async def serve_nested(rig: Rig, *tools: Any, **options: Any) -> AgentRunner:
    """Serve an agent whose one tool is an agent with these tools, and return its runner."""
    helper = rig.agent(*tools, name="helper")
    await rig.serve(rig.agent(helper.as_tool(), name="agent"))
    return rig.runner(**options)


class Served:
    """An agent on the test's own worker.

    Attributes:
        runner: Handle of the engine.
        agent: The agent that is served.
        model: The fake API.
    """

    def __init__(self, rig: Rig) -> None:
        """Serve nothing yet."""
        self.rig = rig
        self.model = rig.model
        self.runner: AgentRunner = rig.runner()
        self.agent: Agent | None = None

    async def serve(self, *tools: Any, **options: Any) -> Agent:
        """Serve an agent of these tools."""
        self.agent = self.rig.agent(*tools, **options)
        await self.rig.serve(self.agent)
        return self.agent


class Runs(Served):
    """Runs an agent, which is served anew whenever it is another one."""

    async def __call__(
        self, given: Any, *tools: Any, of: dict[str, Any] | None = None, **options: Any
    ) -> Any:
        """Run the agent that is served, or one of these tools and options."""
        agent = self.agent
        if agent is None or tools or of:
            agent = await self.serve(*tools, **(of or {}))
        return await Runner.run(agent, given, runner=self.runner, **options)
