"""Processes that are forked while an engine runs: gunicorn --preload, Celery, multiprocessing."""

from pathlib import Path

from tests.support.forked import command
from tests.support.programs import ran

PROGRAM = """
import asyncio, os, sys, warnings

import holdfast
from holdfast import Agent, AgentRunner, Runner
from holdfast.engine.connect import connect_client
from holdfast.errors import ConnectError
from holdfast.sync import AgentRunner as SyncRunner
from holdfast.testing import ScriptedModel
from temporalio.runtime import Runtime

warnings.simplefilter("ignore", DeprecationWarning)
agent = Agent(name="a", model=ScriptedModel(lambda _: "done"))


def in_child(name, do, wanted="refused"):
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        try:
            said = str(do())
        except ConnectError as error:
            said = "refused" if "Make the AgentRunner in each process" in str(error) else error
        if said != wanted:
            print(name, said, flush=True)
        sys.exit(0)  # frees what the child has of its parent
    _, status = os.waitpid(child, 0)
    if status:
        print(name, "ended with", status)


def new(data_dir):
    with SyncRunner.local(agent, data_dir=data_dir) as runner:
        return runner.chat("q")


async def connected():
    return await (await AgentRunner.connect(agent="a", data_dir=sys.argv[2])).chat("q")


def of_temporal():
    Runtime.default()  # as Temporal's own client does
    Runtime.__init__ = None  # from now on none is made
    in_child("a child's new runner", lambda: new(sys.argv[1]))
    in_child("its connection", lambda: asyncio.run(connect_client("localhost:1")))


in_child("before the parent", lambda: new(sys.argv[1]), "done")
in_child("Temporal's client", of_temporal, "None")
holdfast.configure(data_dir=sys.argv[1])
assert Runner.run_sync(agent, "q").final_output == "done"
in_child("Runner", lambda: Runner.run_sync(agent, "q").final_output)
unused = SyncRunner.local(agent, data_dir=sys.argv[2])
with SyncRunner.local(agent, data_dir=sys.argv[2]) as runner:
    session = runner.session("s")
    in_child("a started runner", lambda: runner.chat("q"))
    in_child("its session", session.chat_history)
    in_child("its end", runner.close, "None")
    in_child("an unused runner", lambda: unused.chat("q"))
    in_child("a new runner", lambda: new(sys.argv[2]))
    in_child("a new connection", lambda: asyncio.run(connected()))
    handle = SyncRunner.connect(agent="a", data_dir=sys.argv[2])
    in_child("an older connection", handle.list_tasks)
    assert str(runner.chat("q")) == str(handle.chat("q")) == "done"
assert Runner.run_sync(agent, "q").final_output == "done"
print("the parent is done")
"""


def test_a_forked_process_has_an_engine_of_its_own_unless_its_parent_ran(tmp_path: Path) -> None:
    directories = [str(tmp_path / name) for name in ("one", "two")]
    ended = ran(command("-c", PROGRAM, *directories))
    assert ended.stdout == "the parent is done\n", ended.stderr
