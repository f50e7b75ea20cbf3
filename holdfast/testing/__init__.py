"""Tools for tests of agents: a scripted model, a fake OpenAI API, the conformance suite."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.testing.fake_api.replies import (
    Reply,
    ask_approval,
    call,
    calls,
    cut,
    fail,
    hang,
    hosted,
    malformed,
    paced,
    raw,
    refuse,
    reply,
    slow,
)
from holdfast.testing.fake_api.requests import FakeRequest
from holdfast.testing.scripted import ScriptedModel

if TYPE_CHECKING:
    from holdfast.testing.cases import Case, CaseDiffersError, Replayed, record_run, replay_run
    from holdfast.testing.conformance.suite import AgentWorkerConformance
    from holdfast.testing.evals import EvalResult, Judged, eval_cases
    from holdfast.testing.fake_api.fake_openai import FakeOpenAI

__all__ = [
    "AgentWorkerConformance",
    "Case",
    "CaseDiffersError",
    "EvalResult",
    "FakeOpenAI",
    "FakeRequest",
    "Judged",
    "Replayed",
    "Reply",
    "ScriptedModel",
    "ask_approval",
    "call",
    "calls",
    "cut",
    "eval_cases",
    "fail",
    "hang",
    "hosted",
    "malformed",
    "paced",
    "raw",
    "record_run",
    "refuse",
    "replay_run",
    "reply",
    "slow",
]


def __getattr__(name: str) -> object:
    """Import names that need starlette and uvicorn, or a server, on first use."""
    if name == "FakeOpenAI":
        from holdfast.testing.fake_api.fake_openai import FakeOpenAI

        return FakeOpenAI
    if name == "AgentWorkerConformance":
        from holdfast.testing.conformance.suite import AgentWorkerConformance

        return AgentWorkerConformance
    if name in ("Case", "CaseDiffersError", "Replayed", "record_run", "replay_run"):
        from holdfast.testing import cases

        return getattr(cases, name)
    if name in ("EvalResult", "Judged", "eval_cases"):
        from holdfast.testing import evals

        return getattr(evals, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
