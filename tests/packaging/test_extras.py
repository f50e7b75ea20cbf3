"""Each extra gives what it promises, and what lacks one says which and how to install it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncGenerator, Callable, Generator
from pathlib import Path

import pytest

from holdfast.engine.dev_server.command import DATABASE
from holdfast.engine.dev_server.ephemeral import ephemeral_server
from tests.packaging.environments import (
    Environment,
    build_wheel,
    made_once,
    make_environment,
)

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
    (found,) = made_once(tmp_path_factory, "wheel", build_wheel).glob("*.whl")
    return found


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Make the environment without extras, once, with a module of agents in a directory apart."""

    def make(directory: Path) -> None:
        made = make_environment(directory, wheel)
        made.python("from holdfast import *; import openai")  # compiles what all tests import

    shared = made_once(tmp_path_factory, "bare", make)
    made = Environment(shared / "env", tmp_path_factory.mktemp("bare"))
    (made.work / "my_agents.py").write_text(AGENTS, encoding="utf-8")
    return made


@pytest.fixture
def make(wheel: Path, bare: Environment, tmp_path: Path) -> Make:
    """Make the environment of one extra."""

    def environment(extra: str) -> Environment:
        made = make_environment(tmp_path, wheel, extra=extra, base=bare)
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
@pytest.mark.parametrize(
    "code",
    [
        pytest.param(
            "import asyncio; from holdfast import AgentRunner\n"
            "async def main():\n"
            "    runner = await AgentRunner.connect(agent='bare')\n"
            "    print((await runner.chat('hi')).response)\n"
            "asyncio.run(main())",
            id="AgentRunner",
        ),
        pytest.param(
            "from holdfast import Runner; from my_agents import bare\n"
            "print(Runner.run_sync(bare, 'hi').final_output)",
            id="Runner",
        ),
        pytest.param(
            "from holdfast.sync import AgentRunner\n"
            "print(AgentRunner.connect(agent='bare').chat('hi').response)",
            id="sync",
        ),
    ],
)
def test_client_without_extras_runs_tasks_on_a_cluster(
    bare: Environment, cluster: dict[str, str], code: str
) -> None:
    done = bare.python(code, **cluster)
    assert done.stdout == "hello\n", done.stderr


@pytest.mark.usefixtures("worker")
def test_commands_without_extras_work_on_a_cluster(
    bare: Environment, cluster: dict[str, str]
) -> None:
    asked = bare.holdfast("run", "bare", "Pay", "--task-id", "bare-1", **cluster)
    assert asked.returncode == 3, asked.stderr
    listed = bare.holdfast("tasks", "--json", **cluster)
    assert "bare-1" in [json.loads(line)["task_id"] for line in listed.stdout.splitlines()]
    nothing_typed = bare.holdfast("inbox", **cluster)
    assert "bare-1:1" in nothing_typed.stderr
    approved = bare.holdfast("approve", "bare-1", "--wait", **cluster)
    assert approved.returncode == 0, approved.stderr
    assert "paid 5" in approved.stderr


LOCAL = "pip install 'holdfast[local]'"
TESTING = "pip install 'holdfast[testing]'"
OTEL = "pip install 'holdfast[otel]'"
S3 = "pip install 'holdfast[s3]'"


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        ("from holdfast.sync import AgentRunner; AgentRunner.local(bare).start()", LOCAL),
        (
            "from holdfast.sync import AgentRunner; AgentRunner.local(bare, data_dir=None).start()",
            LOCAL,
        ),
        (
            "from holdfast import sync; sync.AgentRunner.connect(agent='bare', data_dir='here')",
            LOCAL,
        ),
        ("from holdfast import Runner; Runner.run_sync(bare, 'hi')", LOCAL),
        ("from holdfast.testing import FakeOpenAI", TESTING),
        ("import holdfast.testing.fake_api.fake_openai", TESTING),
        ("from holdfast.tracing import ChosenIds", OTEL),
        ("from holdfast.archive.archive import Archive; Archive('s3://bucket/path')", S3),
    ],
)
def test_what_lacks_an_extra_says_which(bare: Environment, code: str, advice: str) -> None:
    done = bare.python(f"from my_agents import bare\n{code}")
    assert done.returncode == 1
    assert advice in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("command", ["tasks", "inbox", "stop", "ui", "demo"])
def test_command_that_lacks_an_extra_says_which(bare: Environment, command: str) -> None:
    data_dir = bare.work / ".holdfast"  # else the commands that read say that there is nothing
    data_dir.mkdir(exist_ok=True)
    (data_dir / DATABASE).touch()
    done = bare.holdfast(command)
    assert done.returncode == 5, done.stderr
    assert LOCAL in done.stderr
    assert "Traceback" not in done.stderr


def test_local_is_enough_for_tasks_on_this_machine(make: Make) -> None:
    done = make("local").python(
        "from holdfast.sync import AgentRunner; from my_agents import bare\n"
        "with AgentRunner.local(bare) as runner: print(runner.chat('hi').response)"
    )
    assert done.stdout == "hello\n", done.stderr


def test_a_new_project_passes_its_test_in_an_environment_of_its_own(make: Make) -> None:
    made = make("local,testing")
    assert made.holdfast("init", "rooms").returncode == 0
    where = str(Path(pytest.__file__).parents[1])  # pytest is what the project wants besides
    run = f"import sys; sys.path.append({where!r}); import pytest; sys.exit(pytest.main(['-q']))"
    command = [str(made.root / "bin" / "python"), "-P", "-c", run]
    done = subprocess.run(
        command,
        cwd=made.work / "rooms",
        env=made.variables(PYTEST_DISABLE_PLUGIN_AUTOLOAD="1"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_testing_is_enough_for_the_fake_api(make: Make) -> None:
    done = make("testing").python(
        "import openai; from holdfast.testing import FakeOpenAI\n"
        "with FakeOpenAI() as api:\n"
        "    api.reply('hello')\n"
        "    client = openai.OpenAI(base_url=api.base_url, api_key='sk-1')\n"
        "    print(client.responses.create(model='gpt-5', input='hi').output_text)"
    )
    assert done.stdout == "hello\n", done.stderr


def test_otel_is_enough_for_spans(make: Make) -> None:
    done = make("otel").python(
        "from opentelemetry.sdk.trace import RandomIdGenerator, TracerProvider\n"
        "from holdfast.tracing import ChosenIds, instrument, switch\n"
        "instrument(TracerProvider(id_generator=ChosenIds(RandomIdGenerator())))\n"
        "print(switch.spans() is not None)"
    )
    assert done.stdout == "True\n", done.stderr


def test_s3_is_enough_for_an_archive_in_a_bucket(make: Make) -> None:
    done = make("s3").python(
        "from holdfast.archive.archive import Archive; print(Archive('s3://bucket/path').url)",
        AWS_ACCESS_KEY_ID="none",
        AWS_SECRET_ACCESS_KEY="none",
        AWS_DEFAULT_REGION="us-east-1",
    )
    assert done.stdout == "s3://bucket/path\n", done.stderr
