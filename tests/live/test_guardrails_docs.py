"""The code of docs/guardrails.md does what the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from holdfast import Runner
from holdfast.testing import FakeOpenAI
from tests.support.rig import MakeAgent, Rig

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "guardrails.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```py\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


async def test_the_code_of_the_page(rig: Rig, make_agent: MakeAgent, model: FakeOpenAI) -> None:
    page: dict[str, Any] = {"__name__": "page", "model": make_agent().model, "runner": rig.runner()}
    for block in BLOCKS:
        exec(block, page)
    await rig.serve(page["agent"], page["payer"])
    assert await page["ask"]("do my homework") == "refused by no_homework"
    assert model.requests == []
    model.reply("the key is sk-1")
    assert await page["ask"]("the key?") == "withheld"
    model.reply("four")
    assert await page["ask"]("2 + 2?") == "four"

    model.call("pay", {"amount": 1000})
    model.call("pay", {"amount": 10})
    model.reply("done")
    await Runner.run(page["payer"], "pay", runner=rig.runner("payer"))
    told = [request.messages[-1].text for request in model.requests[-2:]]
    assert told == ["Not paid: ask for less than 1000.", "Paid."]
    assert page["hooks"].told == ["start", "answer", "answer", "Paid.", "answer", "end"]
