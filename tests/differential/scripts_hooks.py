"""Hooks, and history that the provider keeps."""

from typing import Any

from holdfast.testing import call, calls, reply
from tests.differential.lib import Lib
from tests.differential.script import Group, answer, called, said

HOOKS = Group("hooks")
SERVER_HISTORY = Group("server_history")


def run_hooks(lib: Lib) -> Any:
    """Make hooks of a run that write down what they are told."""

    class Told(lib.RunHooks):  # type: ignore[name-defined,misc]  # either library's
        async def on_agent_start(self, context: Any, agent: Any) -> None:
            lib.note("agent_start", agent.name, context.turn_input)

        async def on_agent_end(self, context: Any, agent: Any, output: Any) -> None:
            lib.note("agent_end", agent.name, output, context.usage.requests)

        async def on_llm_start(self, context: Any, agent: Any, prompt: Any, items: Any) -> None:
            lib.note("llm_start", agent.name, prompt, len(items))

        async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
            lib.note("llm_end", agent.name, len(response.output), context.usage.requests)

        async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
            lib.note("tool_start", agent.name, tool.name)

        async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
            lib.note("tool_end", agent.name, tool.name, result)

        async def on_handoff(self, context: Any, from_agent: Any, to_agent: Any) -> None:
            lib.note("handoff", from_agent.name, to_agent.name)

    return Told()


def agent_hooks(lib: Lib, of: str = "first") -> Any:
    """Make hooks of an agent of this name that write down what they are told."""

    class Told(lib.AgentHooks):  # type: ignore[name-defined,misc]  # as above
        async def on_start(self, context: Any, agent: Any) -> None:
            lib.note("start", agent.name, context.turn_input)

        async def on_end(self, context: Any, agent: Any, output: Any) -> None:
            lib.note("end", agent.name, output)

        async def on_llm_start(self, context: Any, agent: Any, prompt: Any, items: Any) -> None:
            lib.note("llm_start", agent.name, prompt, len(items), context.context)

        async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
            lib.note("llm_end", agent.name, len(response.output))

        async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
            lib.note("tool_start", agent.name, tool.name, context.tool_name)

        async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
            lib.note("tool_end", agent.name, tool.name, result)

        async def on_handoff(self, context: Any, agent: Any, source: Any) -> None:
            lib.note("told", of, "handoff", agent.name, source.name)

    return Told()


def quiet(lib: Lib, **options: Any) -> Any:
    """Make a tool that writes nothing down: Holdfast tells a run's hooks from what is recorded.

    So a call may have begun when its start is told; among themselves, hooks are told in order.
    """
    return lib.tool(is_noted=False, **options)


@HOOKS.script(call("look"), call("transfer_to_second"), reply("done"))
async def a_run_with_a_tool_and_a_handoff(lib: Lib) -> Any:
    agent = lib.agent(tools=[quiet(lib)], handoffs=[lib.agent("second")])
    return await lib.run(agent, "q", hooks=run_hooks(lib))


@HOOKS.script(call("look"), reply("done"))
async def an_agent_with_a_tool(lib: Lib) -> Any:
    agent = lib.agent(instructions="Be.", tools=[lib.tool()], hooks=agent_hooks(lib))
    return await lib.run(agent, "q", context={"user": "ann"})


@HOOKS.script(reply("done"))
async def an_agent_whose_model_sees_something_else(lib: Lib) -> Any:
    class Told(lib.AgentHooks):  # type: ignore[name-defined,misc]  # as above
        async def on_llm_start(self, context: Any, agent: Any, prompt: Any, items: Any) -> None:
            lib.note("llm_start", prompt, [item["content"] for item in items])

    def other(data: Any) -> Any:
        item = {"role": "user", "content": "other"}
        return lib.ModelInputData(input=[item], instructions="Be other.")

    config = lib.RunConfig(call_model_input_filter=other)
    return await lib.run(lib.agent(instructions="Be.", hooks=Told()), "q", run_config=config)


@HOOKS.script(call("transfer_to_second"), reply("done"))
async def two_agents(lib: Lib) -> Any:
    second = lib.agent("second", hooks=agent_hooks(lib, "second"))
    return await lib.run(lib.agent(handoffs=[second], hooks=agent_hooks(lib)), "q")


@HOOKS.script(call("look"), raises="MaxTurnsExceeded")
async def a_run_with_too_many_turns(lib: Lib) -> Any:
    return await lib.run(lib.agent(tools=[quiet(lib)]), "q", max_turns=1, hooks=run_hooks(lib))


@HOOKS.script(call("pay"), reply("done"))
async def a_run_with_an_approval(lib: Lib) -> Any:
    agent = lib.agent(tools=[quiet(lib, name="pay", needs_approval=True)])
    result = await lib.run(agent, "q", hooks=run_hooks(lib))
    state = result.to_state()
    state.approve(result.interruptions[0])
    lib.note("approved")
    return await lib.run(agent, state, hooks=run_hooks(lib))


# History that the provider keeps


@SERVER_HISTORY.script(
    answer(called("look", "{}", "call_a"), said("wait")), answer(said("done"), tokens=2)
)
async def only_what_is_new_is_sent(lib: Lib) -> Any:
    agent = lib.agent(tools=[lib.tool()])
    return await lib.run(agent, "q", previous_response_id="resp_0")


@SERVER_HISTORY.script(calls([("look", {"where": "a"}), ("look", {"where": "b"})]), reply("done"))
async def a_conversation_of_the_provider(lib: Lib) -> Any:
    agent = lib.agent(tools=[lib.tool()])
    return await lib.run(agent, "q", conversation_id="conv_1")
