"""Count the files and functions that the three commonest ways through the code enter.

    python -m benchmarks.entered [--list]

Client, worker process and workflow run in this process. Each way is gone once before it is counted,
so that imports and what is made once are left out.
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
from holdfast import Agent, AgentRunner, Effect, Message, ToolCall, Usage, tool
from holdfast.models import ModelAnswer, ModelRequest

SETTLED_SECONDS = 0.5
"""Until what a request has begun behind its answer is over; the counts are of the next one."""

ROOT = Path(holdfast.__file__).resolve().parents[1]
OURS = tuple(f"{ROOT / name}/" for name in ("holdfast", "workflows", "activities"))


class Profile:
    """Collects the functions of ours that are entered, in all threads."""

    def __init__(self) -> None:
        """Begin to watch; nothing is collected yet."""
        self._is_on = False
        self._codes: set[CodeType] = set()
        threading.setprofile(self._see)
        sys.setprofile(self._see)

    def start(self, *, counts: bool) -> None:
        """Forget what was collected.

        Args:
            counts: Whether to collect from now on.
        """
        self._codes, self._is_on = set(), counts

    def functions(self) -> Counter[str]:
        """Return how many functions of each file were entered; collect no more."""
        self._is_on = False
        paths = (code.co_filename for code in self._codes)
        return Counter(
            str(Path(path).resolve().relative_to(ROOT)) for path in paths if path.startswith(OURS)
        )

    def _see(self, frame: FrameType, event: str, _: object) -> None:
        if self._is_on and event == "call":
            self._codes.add(frame.f_code)


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


def refund(effect: Effect) -> None:
    """Take a payment back."""
    print(f"refunded: {effect.arguments}", file=sys.stderr)


@tool(needs_approval=True, undo=refund)
def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


async def gone(runner: AgentRunner, profile: Profile, *, counts: bool) -> dict[str, Counter[str]]:
    """Go each of the ways once, and return what was entered."""
    found: dict[str, Counter[str]] = {}
    plain = await runner.create_task("hello")
    await asyncio.sleep(SETTLED_SECONDS)
    profile.start(counts=counts)
    await runner.run_step(plain)
    found["run_step"] = profile.functions()
    paying = await runner.create_task("pay")
    await asyncio.sleep(SETTLED_SECONDS)
    profile.start(counts=counts)
    await runner.run_step(paying)
    [asked] = await runner.pending_approvals(paying)
    await runner.approve(asked, by="reviewer")
    await runner.run_step(paying)
    found["approved call"] = profile.functions()
    await asyncio.sleep(SETTLED_SECONDS)
    profile.start(counts=counts)
    await runner.undo_step(paying, by="reviewer")
    found["undo"] = profile.functions()
    return found


async def main(*, lists: bool) -> None:
    """Print the counts.

    Args:
        lists: Whether to print the files, too.
    """
    profile = Profile()
    agent = Agent(name="payer", instructions="Pay.", model=Payer(), tools=[pay])
    async with AgentRunner.local(agent, data_dir=None) as runner:
        await gone(runner, profile, counts=False)
        found = await gone(runner, profile, counts=True)
    for way, files in found.items():
        print(f"{way}: {len(files)} files, {files.total()} functions")
        for path in sorted(files) if lists else ():
            print(f"    {files[path]:3d} {path}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="print the files, too")
    asyncio.run(main(lists=parser.parse_args().list))
