# The public names, and their modules: `__init__.py` loads each at its first use.

from holdfast.testing.cases import (
    Case as Case,
    CaseDiffersError as CaseDiffersError,
    Replayed as Replayed,
    record_run as record_run,
    replay_run as replay_run,
)
from holdfast.testing.conformance.suite import AgentWorkerConformance as AgentWorkerConformance
from holdfast.testing.evals import (
    EvalResult as EvalResult,
    Judged as Judged,
    eval_cases as eval_cases,
)
from holdfast.testing.fake_api.fake_openai import FakeOpenAI as FakeOpenAI
from holdfast.testing.fake_api.replies import (
    Reply as Reply,
    ask_approval as ask_approval,
    call as call,
    calls as calls,
    cut as cut,
    fail as fail,
    hang as hang,
    hosted as hosted,
    malformed as malformed,
    paced as paced,
    raw as raw,
    refuse as refuse,
    reply as reply,
    slow as slow,
)
from holdfast.testing.fake_api.requests import FakeRequest as FakeRequest
from holdfast.testing.scripted import ScriptedModel as ScriptedModel
