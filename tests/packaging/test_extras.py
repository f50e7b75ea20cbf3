"""Each extra gives what it promises, and what lacks one says which and how to install it."""

import json
import subprocess
from collections.abc import AsyncGenerator, Callable, Generator
from pathlib import Path

import pytest

from holdfast.engine.dev_server.command import DATABASE
from tests.packaging.environments import Environment, build, made_once, make_environment
from tests.support.lent import ephemeral_server
from tests.support.programs import printed_by

AGENTS = """
from holdfast import Agent, tool
from holdfast.values.messages import ToolCall
from holdfast.testing import ScriptedModel

@tool(effect="irreversible", needs_approval=True)
def pay(amount: int) -> str:
    '''Pay.'''
    return f"paid {amount}"

def answer(request):
    if any(message.role == "tool" for message in request.messages):
        return "paid"
    if "Pay" in str(request.messages[-1]):
        return ToolCall(id="", name="pay", arguments='{"amount": 5}')
    return "hello"

bare = Agent(name="bare", model=ScriptedModel(answer), tools=[pay])
"""

Make = Callable[[str], Environment]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel, once for all test processes."""
    (found,) = made_once(tmp_path_factory, "dist", build).glob("*.whl")
    return found


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Make the environment without extras, once, with a module of agents in a directory apart."""

    def make(directory: Path) -> None:
        made = make_environment(directory, str(wheel))
        made.python("from holdfast import *; import openai")  # compiles what all tests import

    shared = made_once(tmp_path_factory, "bare", make)
    made = Environment(shared / "env", tmp_path_factory.mktemp("bare"))
    (made.work / "my_agents.py").write_text(AGENTS, encoding="utf-8")
    return made


@pytest.fixture
def make(wheel: Path, bare: Environment, tmp_path: Path) -> Make:
    """Make the environment of one extra."""

    def environment(extra: str) -> Environment:
        wanted = f"holdfast-agents[{extra}] @ {wheel.as_uri()}"
        made = make_environment(tmp_path, wanted, base=bare)
        (made.work / "my_agents.py").write_text(AGENTS, encoding="utf-8")
        return made

    return environment


@pytest.fixture(scope="module")
async def cluster(bare: Environment) -> AsyncGenerator[dict[str, str]]:
    """Return the variables that name a cluster, which no test of another archive shares."""
    async with await ephemeral_server() as running:
        address = running.info.address
        yield {"TEMPORAL_ADDRESS": address, "HOLDFAST_ARCHIVE": str(bare.work / "archive")}


@pytest.fixture(scope="module")
def worker(bare: Environment, cluster: dict[str, str]) -> Generator[None]:
    """Run a worker process in the environment without extras."""
    command = bare.command("worker", "my_agents:bare", "--json")
    env = bare.variables(**cluster)
    with subprocess.Popen(
        command, cwd=bare.work, env=env, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline(), "the worker ended before it served"
        yield
        process.terminate()
        assert process.wait(60) == 0


@pytest.mark.usefixtures("worker")
def test_clients_without_extras_run_tasks_on_a_cluster(
    bare: Environment, cluster: dict[str, str]
) -> None:
    done = bare.python(
        "import asyncio, holdfast, holdfast.sync; from my_agents import bare\n"
        "async def main():\n"
        "    runner = await holdfast.AgentRunner.connect(agent='bare')\n"
        "    print('AgentRunner', (await runner.chat('hi')).response)\n"
        "asyncio.run(main())\n"
        "print('Runner', holdfast.Runner.run_sync(bare, 'hi').final_output)\n"
        "print('sync', holdfast.sync.AgentRunner.connect(agent='bare').chat('hi').response)\n",
        **cluster,
    )
    assert done.stdout == "AgentRunner hello\nRunner hello\nsync hello\n", done.stderr


@pytest.mark.usefixtures("worker")
def test_commands_without_extras_work_on_a_cluster(
    bare: Environment, cluster: dict[str, str]
) -> None:
    asked, listed, nothing_typed, approved = bare.holdfast(
        "run bare Pay --task-id bare-1", "tasks --json", "inbox", "approve bare-1 --wait", **cluster
    )
    assert asked.code == 3, asked.err
    assert "bare-1" in [line["task_id"] for line in listed.lines]
    assert "bare-1:1" in nothing_typed.err
    assert approved.code == 0, approved.err
    assert "paid 5" in approved.err


LACKING = {
    "from holdfast.sync import AgentRunner; AgentRunner.local(bare).start()": "local",
    "from holdfast.sync import AgentRunner; AgentRunner.local(bare, data_dir=None).start()": (
        "local"
    ),
    "from holdfast import sync; sync.AgentRunner.connect(agent='bare', data_dir='here')": "local",
    "from holdfast import Runner; Runner.run_sync(bare, 'hi')": "local",
    "from holdfast.testing import FakeOpenAI": "testing",
    "import holdfast.testing.fake_api.fake_openai": "testing",
    "from holdfast.tracing import ChosenIds": "otel",
    "import holdfast.contrib.fastapi": "fastapi",
    "import holdfast.serving.batches.anthropic": "any-llm",
    "import holdfast.contrib.ai_sdk": "fastapi",
    "import holdfast.contrib.ag_ui": "ag-ui",
    "import holdfast.contrib.a2a": "a2a",
    "import holdfast.contrib.a2a_tool": "a2a",
    "from holdfast.archive.archive import Archive; Archive('s3://bucket/path')": "s3",
}


def test_what_lacks_an_extra_says_which(bare: Environment) -> None:
    done = bare.python(
        "import json; from my_agents import bare\n"
        f"for code in {[*LACKING]!r}:\n"
        "    try: exec(code)\n"
        "    except Exception as error: print(json.dumps([code, str(error)]))"
    )
    said = dict(map(json.loads, done.stdout.splitlines()))
    assert [*said] == [*LACKING], done.stderr
    for code, extra in LACKING.items():
        assert f"pip install 'holdfast-agents[{extra}]'" in said[code]


def test_command_that_lacks_an_extra_says_which(bare: Environment) -> None:
    data_dir = bare.work / ".holdfast"  # else the commands that read say that there is nothing
    data_dir.mkdir(exist_ok=True)
    (data_dir / DATABASE).touch()
    for done in bare.holdfast("tasks", "inbox", "stop", "demo"):
        assert done.code == 5, done.err
        assert "pip install 'holdfast-agents[local]'" in done.err
        assert "Traceback" not in done.err


def test_local_is_enough_for_tasks_on_this_machine(make: Make) -> None:
    done = make("local").python(
        "from holdfast.sync import AgentRunner; from my_agents import bare\n"
        "with AgentRunner.local(bare) as runner: print(runner.chat('hi').response)"
    )
    assert done.stdout == "hello\n", done.stderr


@pytest.mark.exhaustive
def test_a_new_project_is_installed_by_what_it_says_and_passes_its_test(
    bare: Environment, tmp_path: Path
) -> None:
    [done] = bare.holdfast("init rooms")
    assert done.code == 0, done.err
    rooms = bare.work / "rooms"
    made = make_environment(tmp_path, "--editable", f"{rooms}[dev]")
    tested = printed_by([str(made.root / "bin" / "pytest"), "-q"], rooms, made.variables())
    assert "1 passed" in tested


EXTRAS = {
    "fastapi": "from holdfast.contrib.fastapi import Identity, tasks_router",
    "testing": """
import openai; from holdfast.testing import FakeOpenAI
with FakeOpenAI() as api:
    api.reply("hello")
    client = openai.OpenAI(base_url=api.base_url, api_key="sk-1")
    assert client.responses.create(model="gpt-5", input="hi").output_text == "hello"
""",
    "otel": """
from opentelemetry.sdk.trace import RandomIdGenerator, TracerProvider
from holdfast.tracing import ChosenIds, instrument, switch
instrument(TracerProvider(id_generator=ChosenIds(RandomIdGenerator())))
assert switch.spans() is not None
""",
    "keys": """
from holdfast.archive import Archive, Keys
archive = Archive("archive", keys=Keys({"k1": b"1" * 32}))
assert archive.get(archive.put(b"words")) == b"words"
""",
    "s3": """
from holdfast.archive.archive import Archive
assert Archive("s3://bucket/path").url == "s3://bucket/path"
""",
}
"""For each extra a program that it is enough for."""


@pytest.mark.exhaustive
@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_alone_is_enough_for_what_it_promises(make: Make, extra: str) -> None:
    keys = {"AWS_ACCESS_KEY_ID": "none", "AWS_SECRET_ACCESS_KEY": "none"}
    done = make(extra).python(EXTRAS[extra], AWS_DEFAULT_REGION="us-east-1", **keys)
    assert done.returncode == 0, done.stderr


OLD_LLM = """
from llama_index.core import __version__
from llama_index.core.base.llms.types import ChatMessage, ChatResponse, LLMMetadata
from llama_index.core.llms import CustomLLM
from holdfast.llama_index import ReActAgent

class Parrot(CustomLLM):
    @property
    def metadata(self):
        return LLMMetadata(model_name="parrot", is_chat_model=True)
    def complete(self, prompt, formatted=False, **options):
        raise NotImplementedError
    stream_complete = complete
    def chat(self, messages, **options):
        said = "Thought: done.\\nAnswer: " + messages[-1].content.upper()
        return ChatResponse(message=ChatMessage(role="assistant", content=said))

print(__version__, ReActAgent.from_tools([], llm=Parrot()).chat("What is it?"))
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize("version", ["0.10.68", "0.11.23", "0.12.52"])
def test_a_llama_index_llm_of_the_agent_apis_time_is_shown_the_conversation(
    wheel: Path, tmp_path: Path, version: str
) -> None:
    ours = f"holdfast-agents[local] @ {wheel.as_uri()}"
    made = make_environment(tmp_path, ours, f"llama-index-core=={version}", locked=False)
    done = made.python(OLD_LLM)
    assert f"{version} WHAT IS IT?" in done.stdout, done.stderr


STRANDS = """
import asyncio
from strands import Agent
from strands.models import Model
from holdfast import ToolContext
from holdfast.contrib.frameworks import strands_tool

class Parrot(Model):
    def update_config(self, **_): ...
    def get_config(self): return {}
    async def structured_output(self, *_, **__): yield {}
    async def stream(self, messages, *_, **__):
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockStart": {"start": {}}}
        text = " / ".join(each["content"][0]["text"] for each in messages)
        yield {"contentBlockDelta": {"delta": {"text": text.upper()}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn"}}

parrot = strands_tool(lambda: Agent(model=Parrot(), callback_handler=None), name="parrot")
for said in ("What is it?", "And this?"):
    print(asyncio.run(parrot.run(ToolContext(), '{"request": "%s"}' % said)))
"""


@pytest.mark.exhaustive
def test_an_agent_of_strands_is_a_tool(wheel: Path, tmp_path: Path) -> None:
    ours = f"holdfast-agents @ {wheel.as_uri()}"
    made = make_environment(tmp_path, ours, "strands-agents>=1.62", locked=False)
    done = made.python(STRANDS)
    assert done.stdout.split("\n")[:2] == ["WHAT IS IT?", "AND THIS?"], done.stderr
