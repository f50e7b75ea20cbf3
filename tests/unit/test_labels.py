"""Labels and details for Temporal's UI."""

import pytest

from holdfast.models import ModelAnswer
from holdfast.task.data.commands import RunRequest
from holdfast.task.data.head import TaskHead
from holdfast.task.data.records import StepResult
from holdfast.task.data.state import TaskInput
from holdfast.task.data.wire import Advanced
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.queries.pages import STEPS_SHOWN, call_label, details, details_of, title_of
from holdfast.values.messages import ToolCall, assistant
from holdfast.values.steps import TaskStep


@pytest.mark.parametrize(
    ("arguments", "label"),
    [
        ('{"a": 121, "b": 3}', "multiply {a: 121, b: 3}"),
        ("{}", "multiply"),
        ("", "multiply"),
        ("[1, 2]", "multiply [1, 2]"),
        ("not JSON", "multiply not JSON"),
        ('{"a": {"b": [1]}}', 'multiply {a: {"b":[1]}}'),
        ('{"a": "two\\nlines"}', "multiply {a: two lines}"),
        ('{"a": "' + "x" * 5000, "multiply" + ' {"a": "' + "x" * 43 + "…"),
    ],
)
def test_a_call_is_labelled_with_its_arguments_on_one_short_line(
    arguments: str, label: str
) -> None:
    assert call_label(ToolCall(id="c", name="multiply", arguments=arguments)) == label


def test_secrets_are_in_no_label_and_no_title(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "very-secret-value-123"
    monkeypatch.setenv("MY_SERVICE_TOKEN", secret)
    call = ToolCall(
        id="c", name="log_in", arguments=f'{{"with": "{secret}", "password": "abc12345x"}}'
    )
    assert call_label(call) == "log_in {with: [redacted], password: [redacted]}"
    asked = f"Log in with {secret}, and then look at everything that there is in the account"
    assert secret not in title_of("a", asked) + str(details_of("a", asked))


def test_the_title_and_details_of_a_task_show_its_agent_and_input() -> None:
    assert (title_of("sums", "What is 2 + 2?"), details_of("sums", "What is 2 + 2?")) == (
        "sums: What is 2 + 2?",
        None,
    )
    assert details_of("sums", "What\nis it?") == "**Agent** `sums`\n\n> What\n> is it?"


def test_the_details_of_a_task_show_the_newest_steps_each_with_its_own_output() -> None:
    ledger = Ledger(TaskInput(head=TaskHead(agent="a"), input="q"), task_id="t", now=1.0)
    for n in range(1, STEPS_SHOWN + 3):
        ledger.begin(RunRequest(), now=2.0)
        answer = ModelAnswer(message=assistant(f"answer {n}"))
        result = StepResult(output=f"answer {n}", adds=("j0",), next=(TaskStep(),))
        ledger.advanced(ledger.last_opened, Advanced(answer=answer, result=result))
        ledger.finish(ledger.last_opened, now=3.0)
        shown = [line for line in details(ledger, "running").splitlines() if line.startswith("- ")]
        first = max(1, n - STEPS_SHOWN + 1)
        assert shown == [f"- s{k}: `answer {k}`" for k in range(first, n + 1)]
