"""Count the files and functions that the commonest ways through the code enter.

    python -m benchmarks.entered [--list]

Client, worker process and workflow run in this process. Each way is gone once before it counts, so
that imports and what is made once are left out. Then it is gone `GOES` times, and a function counts
that each of them enters: what a timer or another thread does meanwhile is left out. Comprehensions
count as functions, as they are in Python 3.11.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import threading
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType

import holdfast
from holdfast import Agent, AgentRunner, Effect, Message, Runner, ToolCall, Usage, tool
from holdfast.models import ModelAnswer, ModelRequest
from holdfast.models.base import Delta, Tell

GOES = 3
SETTLED_SECONDS = 0.5
"""Until what a request has begun behind its answer is over; the counts are of the next one."""

CHANCE = {
    # A client tells the task that it has the answer, after it has returned it.
    "Caller._acknowledge",
    "Caller.given.<locals>.send",
    "AgentTask.signal",
    "RunRequests.acknowledge",
    "LedgerState.branch_of",
    "Updates._give",
    # Whether workers are up is asked again after some seconds.
    "Presence.expect",
    "Presence.is_served",
    "TaskQueries.describe",
    # A step may be over before it is asked for again.
    "Agenda.failed",
    "_has_recent",
    "has_workers",
    "pollers_of",
    # A thread is made when the others are busy.
    "DaemonThreads._serve",
    "DaemonThreads._start",
    # A stream sees a step that is open, or finds it completed.
    "Watch.changed",
    "_Calls.open_batch",
    "_opened",
    "asking",
    # A folder of the archive is made for the first digits of a digest.
    "make_directory",
}
"""Functions that a way enters or not, by chance; they never count."""

ROOT = Path(holdfast.__file__).resolve().parents[1]
OURS = tuple(f"{ROOT / name}/" for name in ("holdfast", "workflows", "activities"))

Functions = frozenset[tuple[str, str, int]]
"""Functions, each as its file, its qualified name and its first line."""


class Profile:
    """Collects the functions of ours that are entered, in all threads."""

    def __init__(self) -> None:
        """Begin to watch; nothing is collected yet."""
        self._codes: set[CodeType] = set()
        threading.setprofile(self._see)
        sys.setprofile(self._see)

    def start(self) -> None:
        """Forget what was collected."""
        self._codes = set()

    def functions(self) -> Functions:
        """Return the functions that were entered since the start."""
        return frozenset(
            (_path(code), code.co_qualname, code.co_firstlineno)
            for code in self._codes.copy()
            if code.co_filename.startswith(OURS) and _owner(code) not in CHANCE
        )

    def _see(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            self._codes.add(frame.f_code)


def _path(code: CodeType) -> str:
    return str(Path(code.co_filename).resolve().relative_to(ROOT))


def _owner(code: CodeType) -> str:
    """Return the name of a function, and for a comprehension that of the function around it."""
    return code.co_qualname.split(".<locals>.<")[0]


class Payer:
    """A model that answers at once; asked to pay, it calls the tool `pay` first."""

    name = "payer"

    async def respond(self, request: ModelRequest) -> ModelAnswer:
        """Answer."""
        usage = Usage(requests=1, input_tokens=1, output_tokens=1)
        is_paid = any(message.role == "tool" for message in request.messages)
        if request.messages[-1].text == "pay" and not is_paid:
            call = ToolCall(id="call", name="pay", arguments='{"amount": 1}')
            return ModelAnswer(message=Message(role="assistant", calls=(call,)), usage=usage)
        return ModelAnswer(message=Message(role="assistant", content="done"), usage=usage)

    async def stream(self, request: ModelRequest, tell: Tell) -> ModelAnswer:
        """Answer, in one piece."""
        tell(Delta(kind="text", text="done"))
        return await self.respond(request)


def refund(effect: Effect) -> None:
    """Take a payment back."""
    del effect


@tool(needs_approval=True, undo=refund)
def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


async def gone(runner: AgentRunner, agent: Agent, profile: Profile) -> dict[str, Functions]:
    """Go each of the ways once, and return what was entered."""
    found: dict[str, Functions] = {}
    plain = await runner.create_task("hello")
    await _settled(profile)
    await runner.run_step(plain)
    found["step"] = profile.functions()
    paying = await runner.create_task("pay")
    await _settled(profile)
    await runner.run_step(paying)
    [asked] = await runner.pending_approvals(paying)
    await runner.approve(asked, by="reviewer")
    await runner.run_step(paying)
    found["approved call"] = profile.functions()
    await _settled(profile)
    await runner.undo_step(paying, by="reviewer")
    found["undo"] = profile.functions()
    await _settled(profile)
    await Runner.run(agent, "hello", runner=runner)
    found["Runner.run"] = profile.functions()
    await _settled(profile)
    async for _ in Runner.run_streamed(agent, "hello", runner=runner).stream_events():
        pass
    found["Runner.run_streamed"] = profile.functions()
    return found


async def _settled(profile: Profile) -> None:
    await asyncio.sleep(SETTLED_SECONDS)
    profile.start()


async def entered() -> dict[str, Counter[str]]:
    """Return how many functions of each file each of the ways enters."""
    profile = Profile()
    agent = Agent(name="payer", instructions="Pay.", model=Payer(), tools=[pay])
    async with AgentRunner.local(agent, data_dir=None) as runner:
        await gone(runner, agent, profile)
        goes = [await gone(runner, agent, profile) for _ in range(GOES)]
    found: dict[str, Counter[str]] = {}
    for way, functions in goes[0].items():
        always = functions.intersection(*(each[way] for each in goes[1:]))
        found[way] = Counter(path for path, _, _ in always)
    return found


def main(*, lists: bool) -> None:
    """Print the counts.

    Args:
        lists: Whether to print the files, too.
    """
    for way, files in asyncio.run(entered()).items():
        print(f"{way}: {len(files)} files, {files.total()} functions")
        for path in sorted(files) if lists else ():
            print(f"    {files[path]:3d} {path}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="print the files, too")
    main(lists=parser.parse_args().list)
