"""Plays the model of the tutorial for readers who have neither a key nor a model of their own.

    python examples/tutorial/model.py

Serves OpenAI's API on a port of this machine until you press Ctrl-C, and prints the variables that
lead programs to it. It knows the tutorial's questions, and no others.
"""

from __future__ import annotations

import re
import threading

from holdfast.testing import FakeOpenAI, FakeRequest, Reply, call, reply


def answer(request: FakeRequest) -> Reply:
    """Answer as a good model would: by the agent's tools, and then by what they gave."""
    tools = {tool.name for tool in request.tools}
    asked, given = request.last_user, list(request.results.values())
    if "translate" in tools and not given:
        is_german = "Guten Tag" in asked
        return call("translate", {"input": asked}) if is_german else call("transfer_to_shop")
    if not tools:
        return reply(asked.replace("Guten Tag", "Good day"))
    order = int(re.findall(r"\d+", f"{asked} 0")[0])
    if "find_order" in tools and not given:
        return call("find_order", {"order": order})
    wants_money = "refund" in tools and "refund" in asked.lower()
    if wants_money and len(given) < len(tools & {"find_order", "refund"}):
        euros = re.findall(r"(\d+) euros", " ".join([asked, *given]))
        return call("refund", {"order": order, "euros": int(euros[-1])})
    return reply(given[-1])


if __name__ == "__main__":
    with FakeOpenAI(answer) as api:
        print(f"export OPENAI_BASE_URL={api.base_url} OPENAI_API_KEY=any", flush=True)
        threading.Event().wait()
