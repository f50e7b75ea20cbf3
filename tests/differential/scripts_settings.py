"""Model settings: what the request holds, by either API, and what of the answer is kept."""

from typing import Any

from holdfast.testing import call, reply
from tests.differential.lib import Lib
from tests.differential.script import Group, answer, called, hosted, said, thought
from tests.differential.scripts_outputs import WARM, Weather

HOSTED = Group("hosted_tools")
RESPONSES = Group("model_settings")
CHAT = Group("chat_settings")

LOGPROBS = "message.output_text.logprobs"
SEARCH = {
    "type": "web_search_call",
    "id": "ws_a",
    "status": "completed",
    "action": {"type": "search", "query": "q", "queries": ["q"]},
}
SECRET_THOUGHT = {**thought("hm"), "encrypted_content": "a secret"}


def likely(text: str) -> dict[str, Any]:
    """Make a message with the log probability of its text."""
    message = said(text)
    token: dict[str, Any] = {"token": text, "logprob": -0.5, "bytes": [1], "top_logprobs": []}
    message["content"][0]["logprobs"] = [token]
    return message


async def run(lib: Lib, **settings: Any) -> Any:
    """Run an agent of a tool with settings of its own."""
    made = lib.ModelSettings(**settings)
    return await lib.run(lib.agent(tools=[lib.tool()], model_settings=made), "q")


async def chat(lib: Lib, **settings: Any) -> Any:
    """Ask for one text by Chat Completions, with settings of the agent's own."""
    made = lib.ModelSettings(**settings)
    return await lib.run(lib.agent(model=lib.chat_model(), model_settings=made), "q")


@RESPONSES.script(WARM)
async def an_extra_verbosity_beside_an_output_type(lib: Lib) -> Any:
    settings = lib.ModelSettings(extra_body={"text": {"verbosity": "low"}})
    return await lib.run(lib.agent(output_type=Weather, model_settings=settings), "q")


@RESPONSES.script(reply("done"))
async def numbers_and_flags(lib: Lib) -> Any:
    return await run(
        lib,
        temperature=0.5,
        top_p=0.9,
        max_tokens=100,
        frequency_penalty=0.1,
        presence_penalty=0.1,
        parallel_tool_calls=True,
        truncation="auto",
        store=False,
        metadata={"k": "v"},
        include_usage=True,
        timeout=30,
    )


@RESPONSES.script(reply("done"))
async def extras(lib: Lib) -> Any:
    return await run(
        lib,
        extra_body={"safety_identifier": "s"},
        extra_query={"version": "5"},
        extra_headers={"x-test-team": "blue"},
        extra_args={"service_tier": "flex", "user": "u"},
    )


@RESPONSES.script(reply("done"))
async def none_for_a_model_of_the_gpt_5_family(lib: Lib) -> Any:
    return await lib.run(lib.agent(model="gpt-5"), "q")


@RESPONSES.script(reply("done"), reply("done"))
async def none_for_a_model_of_the_run(lib: Lib) -> Any:
    config = lib.RunConfig(model="gpt-5.6", model_settings=lib.ModelSettings(top_p=0.5))
    await lib.run(lib.agent(model="gpt-5"), "q", run_config=config)
    return await lib.run(lib.agent(), "q", run_config=config)


@RESPONSES.script(
    answer(called("ask", '{"input": "what?"}', "call_a")), reply("that"), reply("done")
)
async def none_for_an_agent_as_a_tool(lib: Lib) -> Any:
    low = lib.agent("low", model="gpt-5.2-pro")
    tool = low.as_tool(tool_name="ask", tool_description="Asks.")
    return await lib.run(lib.agent(model="gpt-5.5-pro", tools=[tool]), "q")


@RESPONSES.script(
    answer(SECRET_THOUGHT, called("look", "{}", "call_a")), answer(SECRET_THOUGHT, said("done"))
)
async def encrypted_thoughts(lib: Lib) -> Any:
    return await run(lib, response_include=["reasoning.encrypted_content"], store=False)


@RESPONSES.script(
    answer(likely("let me see"), called("look", "{}", "call_a")), answer(likely("done"))
)
async def log_probabilities(lib: Lib) -> Any:
    return await run(lib, top_logprobs=2, response_include=[LOGPROBS])


@RESPONSES.script(answer(SEARCH, called("look", "{}", "call_a")), reply("done"))
async def a_hosted_tool_that_is_not_stored(lib: Lib) -> Any:
    return await run(lib, store=False)


@RESPONSES.script(answer(thought("hm"), called("look", "{}", "call_a")), reply("done"))
async def ids_of_thoughts_are_omitted(lib: Lib) -> Any:
    config = lib.RunConfig(reasoning_item_id_policy="omit")
    return await lib.run(lib.agent(tools=[lib.tool()]), "q", run_config=config)


@CHAT.script(reply("done"))
async def a_text(lib: Lib) -> Any:
    return await chat(lib)


@CHAT.script(reply("done"), streams=False)
async def numbers_and_flags_of_chat(lib: Lib) -> Any:
    return await chat(
        lib,
        temperature=0.5,
        top_p=0.9,
        max_tokens=100,
        frequency_penalty=0.1,
        presence_penalty=0.2,
        store=True,
        metadata={"k": "v"},
        include_usage=True,
        truncation="auto",
        response_include=[LOGPROBS],
    )


@CHAT.script(reply("done"), streams=False)
async def extras_of_chat(lib: Lib) -> Any:
    return await chat(
        lib,
        prompt_cache_retention="in_memory",
        prompt_cache_options={"mode": "implicit"},
        extra_body={"safety_identifier": "s"},
        extra_query={"version": "5"},
        extra_headers={"x-test-team": "blue"},
        extra_args={"service_tier": "flex"},
    )


@CHAT.script(call("look"), reply("done"), streams=False)
async def a_tool_by_chat(lib: Lib) -> Any:
    settings = lib.ModelSettings(parallel_tool_calls=False, tool_choice="required")
    agent = lib.agent(model=lib.chat_model(), tools=[lib.tool()], model_settings=settings)
    return await lib.run(agent, "q")


# Tools and prompts of the provider

FOUND = hosted("web_search_call", action={"type": "search", "query": "here"})
ASKED = {
    "id": "mcpr_1",
    "type": "mcp_approval_request",
    "server_label": "crm",
    "name": "pay",
    "arguments": "{}",
}
LISTED: dict[str, Any] = {
    "id": "mcpl_1",
    "type": "mcp_list_tools",
    "server_label": "crm",
    "tools": [],
}
PAID = {
    "id": "mcp_1",
    "type": "mcp_call",
    "server_label": "crm",
    "name": "pay",
    "arguments": "{}",
    "output": "paid",
}


def crm(lib: Lib, **options: Any) -> Any:
    """Make the tool of an MCP server that the provider calls."""
    config = {
        "type": "mcp",
        "server_label": "crm",
        "server_url": "https://crm.example/mcp",
        "require_approval": "always",
    }
    return lib.HostedMCPTool(tool_config=config, **options)


@HOSTED.script(answer(FOUND, said("done")))
async def every_tool_of_the_provider(lib: Lib) -> Any:
    tools = [
        lib.WebSearchTool(user_location={"type": "approximate", "city": "Rome"}),
        lib.tool(),
        lib.FileSearchTool(
            vector_store_ids=["vs_1"], max_num_results=2, include_search_results=True
        ),
        lib.CodeInterpreterTool(
            tool_config={"type": "code_interpreter", "container": {"type": "auto"}}
        ),
        lib.ImageGenerationTool(tool_config={"type": "image_generation", "quality": "low"}),
        crm(lib),
    ]
    settings = lib.ModelSettings(response_include=["web_search_call.action.sources"])
    return await lib.run(lib.agent(tools=tools, model_settings=settings), "q")


@HOSTED.script(answer(LISTED, PAID), reply("done"))
async def a_tool_of_a_server_that_is_chosen(lib: Lib) -> Any:
    settings = lib.ModelSettings(tool_choice=lib.MCPToolChoice("crm", "pay"))
    return await lib.run(lib.agent(tools=[crm(lib)], model_settings=settings), "q")


async def decide(lib: Lib, **options: Any) -> Any:
    """Decide on the one request of a server, and go on."""
    agent = lib.agent(tools=[crm(lib), lib.tool()])
    result = await lib.run(agent, "q")
    state = result.to_state()
    if options.pop("approve"):
        state.approve(result.interruptions[0], **options)
    else:
        state.reject(result.interruptions[0], **options)
    return await lib.run(agent, state)


@HOSTED.script(answer(LISTED, ASKED), answer(PAID, said("done")))
async def a_request_that_is_approved(lib: Lib) -> Any:
    return await decide(lib, approve=True)


@HOSTED.script(answer(ASKED), reply("done"))
async def a_request_that_is_rejected_with_a_message(lib: Lib) -> Any:
    return await decide(lib, approve=False, rejection_message="too dear")


@HOSTED.script(answer(ASKED, called("look", "{}", "call_a")), reply("done"))
async def a_request_beside_a_call(lib: Lib) -> Any:
    return await decide(lib, approve=True)


@HOSTED.script(answer(ASKED), answer({**ASKED, "id": "mcpr_2"}), reply("done"))
async def requests_that_are_always_approved(lib: Lib) -> Any:
    return await decide(lib, approve=True, always_approve=True)


@HOSTED.script(answer(ASKED), reply("done"))
async def a_request_that_a_function_approves(lib: Lib) -> Any:
    def approve(request: Any) -> Any:
        lib.note(request.data.name, request.data.arguments)
        return {"approve": True}

    return await lib.run(lib.agent(tools=[crm(lib, on_approval_request=approve)]), "q")


@HOSTED.script(answer({**ASKED, "server_label": "shop"}), raises="ModelBehaviorError")
async def a_request_of_another_server(lib: Lib) -> Any:
    return await lib.run(lib.agent(tools=[crm(lib)]), "q")


@HOSTED.script(reply("done"))
async def a_prompt_that_a_function_chooses(lib: Lib) -> Any:
    def choose(data: Any) -> Any:
        return {"id": f"pmpt_{data.agent.name}", "version": "1", "variables": {"a": "b"}}

    agent = lib.agent(prompt=choose, model_settings=lib.ModelSettings(tool_choice="look"))
    return await lib.run(agent, "q")


@HOSTED.script(reply("done"))
async def a_prompt_without_a_model(lib: Lib) -> Any:
    prompt = {"id": "pmpt_1", "version": "2", "variables": {"city": "Rome"}}
    agent = lib.agent(model=None, prompt=prompt, model_settings=lib.ModelSettings())
    return await lib.run(agent, "q")
