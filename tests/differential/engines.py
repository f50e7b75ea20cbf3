"""The two libraries, with a fake model that both ask."""

import inspect
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Any

import agents
import pytest

from holdfast import RunConfig as HoldfastRunConfig
from holdfast import Runner as HoldfastRunner
from holdfast.agents_sdk import function_tool
from holdfast.testing import FakeOpenAI
from tests.differential.lib import MODEL, Lib
from tests.differential.observed import Event, observe_request, with_call_ids
from tests.differential.script import Script
from tests.support.rig import Engine, Rig


class AgentsSdk(Lib):
    """The OpenAI Agents SDK."""

    modules = (
        "agents",
        "agents.tool_context",
        "agents.extensions.handoff_filters",
        "agents.run_config",
        "agents.model_settings",
    )

    async def _run(
        self, agent: Any, given: Any, events: list[Event], options: dict[str, Any]
    ) -> Any:
        if self.is_streamed:
            return await self.follow(agents.Runner.run_streamed(agent, given, **options), events)
        return await agents.Runner.run(agent, given, **options)

    def session(self, name: str) -> Any:
        return agents.SQLiteSession(name)

    def chat_model(self) -> Any:
        return agents.OpenAIProvider(use_responses=False).get_model(MODEL)


class Holdfast(Lib):
    """Holdfast, on a worker of its own."""

    modules = (
        "holdfast.agents_sdk",
        "holdfast.agents.guardrails",
        "holdfast.agents.handoffs.handoff",
        "holdfast.agents.handoffs.filters",
        "holdfast.agents.hooks",
        "holdfast.values.runs.run_context",
        "holdfast.workers.function_calling",
        "holdfast.agents.tools.guardrails",
        "holdfast.agents.run_config",
        "holdfast.agents.runs.results",
        "holdfast.client.runner.runner",
        "holdfast.agents.runs.model_input",
        "holdfast.agents.runs.teams",
        "holdfast.errors",
    )

    def __init__(self, rig: Rig, *, is_streamed: bool) -> None:
        super().__init__(is_streamed=is_streamed)
        self.rig = rig
        self._served: Any = None

    def RunConfig(self, **options: Any) -> Any:  # noqa: N802  the name of both
        """Make settings that end a run as the Agents SDK does."""
        options.setdefault("max_output_attempts", None)
        options.setdefault("tool_not_found_behavior", "raise_error")
        return HoldfastRunConfig(**options)

    def function_tool(self, function: Any, **options: Any) -> Any:
        """Make a tool with the names of Holdfast's options, strict as the Agents SDK's are."""
        if "timeout" in options:  # a call of any other tool that is cut off is unknown here
            options |= {"timeout_seconds": options.pop("timeout"), "idempotent": True}
        given: dict[str, Any] = {"strict": True, **options}
        return function_tool(function, **given)

    async def _run(
        self, agent: Any, given: Any, events: list[Event], options: dict[str, Any]
    ) -> Any:
        if self._served is not agent:
            await self.rig.serve(agent)
            self._served = agent
        given_options: dict[str, Any] = {"runner": self.rig.runner(agent.name), **options}
        if not hasattr(given, "get_interruptions"):  # a state goes on as its run began
            given_options.setdefault("run_config", self.RunConfig())
        if self.is_streamed:
            started: Any = getattr(HoldfastRunner, "run_streamed")(agent, given, **given_options)  # noqa: B009
            result = await started if inspect.isawaitable(started) else started
            return await self.follow(result, events)
        return await HoldfastRunner.run(agent, given, **given_options)

    def session(self, name: str) -> Any:
        return f"{self.rig.app}-{name}"

    def chat_model(self) -> Any:
        return f"chat:{MODEL}"


@asynccontextmanager
async def fake_model() -> AsyncGenerator[FakeOpenAI]:
    """Serve a fake model, and let both libraries find it."""
    async with FakeOpenAI(strict=False) as fake, fake.client() as client:
        agents.set_default_openai_client(client, use_for_tracing=False)
        agents.set_tracing_disabled(disabled=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("OPENAI_BASE_URL", fake.base_url)
            patch.setenv("OPENAI_API_KEY", "sk-of-the-tests-1")
            yield fake


async def observe_sdk(script: Script, fake: FakeOpenAI, *, is_streamed: bool) -> dict[str, Any]:
    """Run a script with the Agents SDK."""
    return await _observe(script, fake, AgentsSdk(is_streamed=is_streamed))


async def observe_holdfast(
    script: Script, fake: FakeOpenAI, engine: Engine, *, is_streamed: bool
) -> dict[str, Any]:
    """Run a script with Holdfast."""
    rig = Rig(engine)
    try:
        return await _observe(script, fake, Holdfast(rig, is_streamed=is_streamed))
    finally:
        await rig.stop()


async def _observe(script: Script, fake: FakeOpenAI, lib: Lib) -> dict[str, Any]:
    fake.reset()
    fake.add(*script.replies)
    raised = ""
    try:
        await script.play(lib)
    except Exception as error:  # noqa: BLE001  what is raised is what is compared
        raised = type(error).__name__
        shown = str(error)
    else:
        shown = ""
    observed = {
        "raised": raised,
        "calls": [observe_request(request) for request in fake.requests],
        "runs": [asdict(run) for run in lib.runs],
        "notes": lib.noted(),
        "left": fake.left,
    }
    return {**with_call_ids(observed), "text": shown, "problems": fake.problems}
