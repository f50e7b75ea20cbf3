"""What the desk's pages show of a task: timeline, effects, branches, comparison, rows, queues."""

import inspect
from dataclasses import replace
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.client.agent_runner.runner import AgentRunner
from holdfast.desk.pages.task.verbs import Asked as AskedFor
from holdfast.desk.pages.task.verbs import Verbs
from holdfast.desk.views.axis import Bar, axis_of
from holdfast.desk.views.cards import Card, Context, card_of, differences, fields_of, parsed
from holdfast.desk.views.charts import Asked, charts_of, period_of
from holdfast.desk.views.comparison import compare, prompt_of, prompts_differ
from holdfast.desk.views.markdown import rendered
from holdfast.desk.views.tasks import TaskFilter, row_of
from holdfast.desk.views.timeline import Timeline, effects_of, timeline_of
from holdfast.desk.views.words import spent
from holdfast.desk.views.workers import Worker, agents_of, processes_of, queues_of
from holdfast.errors import InvalidArgumentError
from holdfast.models.base import ModelAnswer, ToolSpec
from holdfast.reading.inbox import InboxFilter, choices
from holdfast.task.data.calls import Approval, Called, Decided, Outcome, Vote, call_digest
from holdfast.task.data.head import AgentSnapshot, ToolPolicy
from holdfast.task.data.records import (
    Entry,
    EventRecord,
    JournalEntry,
    LeftStep,
    OpenState,
    OpenStep,
    StepRecord,
)
from holdfast.task.happenings import Noted, happenings
from holdfast.task.ledger.recording import SAID_IN_ADDS
from holdfast.task.people.choices import choices_of
from holdfast.task.people.decisions import Person
from holdfast.task.shown import noted_line, path_of
from holdfast.task.step_body import StepBody
from holdfast.values.messages import Message, ToolCall, Usage, assistant, user
from holdfast.values.steps import Task, TaskStep

PAY = ToolCall(id="c1", name="pay", arguments='{"euros": 9}')
MAIL = ToolCall(id="c2", name="mail", arguments="{}")
PAID = Outcome(content="paid", ended=14.0, took=2.0, effect="irreversible", attempts=1)
MAILED = Outcome(content="sent", ended=15.0, took=2.5, effect="reversible", attempts=2)


def tool(call_id: str, text: str) -> Message:
    return Message(role="tool", call_id=call_id, content=text)


def step(n: int = 1, **changes: Any) -> Entry:
    answer = ModelAnswer(message=SAID_IN_ADDS, at=12.0, took=1.5, model="gpt")
    fields: dict[str, Any] = {
        "n": n,
        "step": TaskStep(step_id=f"s{n}", input="q"),
        "adds": (
            user("q"),
            assistant("I pay.", calls=(PAY, MAIL)),
            tool("c1", "paid"),
            tool("c2", "sent"),
        ),
        "calls": (PAY, MAIL),
        "outcomes": (PAID, MAILED),
        "journal": (JournalEntry(request="r", answer=answer, attempts=2),),
        "usage": Usage(requests=1, input_tokens=10, output_tokens=5),
        "started": 10.0,
        "ended": 16.0,
    }
    return Entry(step=StepRecord(**{**fields, **changes}))


def event(kind: str, /, at: float = 20.0, by: str = "", text: str = "", **body: Any) -> Entry:
    return Entry(event=EventRecord(kind=kind, at=at, by=by, text=text, body=body))


def running(**changes: Any) -> OpenState:
    fields: dict[str, Any] = {
        "open": OpenStep(step=TaskStep(step_id="s2")),
        "n": 2,
        "started": 30.0,
        "calls": (PAY,),
        "called": {0: Called(at=31.0, effect="irreversible")},
    }
    return OpenState(**{**fields, **changes})


def timeline(*entries: Entry, opens: tuple[OpenState, ...] = (), now: float = 40.0) -> Timeline:
    return timeline_of(list(happenings(entries, opens)), now=now)


def test_a_call_that_was_a_task_of_its_own_names_it() -> None:
    [lane] = timeline(step(outcomes=(PAID.model_copy(update={"child": "t~0.1.0.0"}), MAILED))).lanes
    told = [bar.detail.endswith("as task t~0.1.0.0") for bar in lane.bars if bar.kind == "tool"]
    assert told == [True, False]


def test_a_model_call_names_the_models_that_could_not_answer_before() -> None:
    answer = ModelAnswer(message=SAID_IN_ADDS, model="b", tried=("a: is down",))
    [lane] = timeline(step(journal=(JournalEntry(request="r", answer=answer),))).lanes
    assert lane.bars[0].detail.endswith(" (after a: is down)")


def test_calls_that_ran_side_by_side_overlap_on_the_timeline() -> None:
    [lane] = timeline(step()).lanes
    model, *tools = lane.bars
    assert (model.kind, model.start, model.end, model.attempts) == ("model", 10.5, 12.0, 2)
    assert sorted((b.label, b.start, b.end) for b in tools) == [
        ("mail", 12.5, 15.0),
        ("pay", 12.0, 14.0),
    ]
    assert tools[0].start < tools[1].end
    assert tools[1].start < tools[0].end
    assert tools[1].words == "mail: done, 2.5 s, started 2 times"


def test_what_waits_for_a_person_is_a_bar_until_it_is_decided() -> None:
    asked = event("asked", at=20.0, id="t:1", kind="tool", tool="pay")
    approved = event("command", at=25.0, by="ann", verb="approve", arguments={"approval": "t:1"})
    [lane] = timeline(step(ended=30.0), asked, approved).lanes
    assert [(bar.kind, bar.start) for bar in lane.bars][-1] == ("wait", 20.0)
    [wait] = timeline(asked, approved).waits
    assert (wait.start, wait.end) == (20.0, 25.0)
    assert (wait.state, wait.detail) == ("done", "approved by ann")
    [still] = timeline(asked, now=90.0).waits
    assert (still.end, still.state) == (90.0, "running")


def test_a_wait_ends_with_the_decision_that_counts() -> None:
    def approve(at: float, by: str, kind: str = "command", **more: Any) -> Entry:
        return event(kind, at=at, by=by, verb="approve", arguments={"approval": "t:1", **more})

    asked = event("asked", at=20.0, id="t:1", kind="tool", tool="pay")
    unfit = (approve(22.0, "ann", arguments={"who": 1}), event("refused", at=23.0, id="t:1"))
    snoozed = event("command", at=22.0, verb="snooze", arguments={"approval": "t:1"})
    of_two = event("asked", at=20.0, id="t:1", kind="tool", tool="pay", quorum=2)
    for found, detail, end in (
        ((asked, *unfit), "", 90.0),
        ((asked, *unfit, approve(25.0, "bob")), "approved by bob", 25.0),
        ((of_two, approve(22.0, "ann", "vote")), "", 90.0),
        ((of_two, approve(22.0, "ann", "vote"), approve(25.0, "bob")), "approved by bob", 25.0),
        ((asked, snoozed), "", 90.0),
    ):
        [wait] = timeline(*found, now=90.0).waits
        assert (wait.detail, wait.end) == (detail, end)


def test_a_call_that_was_not_run_is_a_moment_of_its_step() -> None:
    rejected = Decided(approval="t:1", status="rejected", by="ann", at=13.0)
    refused = Outcome(content="no", is_error=True, status="failed", attempts=0, decided=(rejected,))
    [lane] = timeline(step(outcomes=(refused, MAILED))).lanes
    [pay] = [bar for bar in lane.bars if bar.label == "pay"]
    assert (pay.start, pay.end, pay.state, pay.result) == (13.0, 13.0, "not run", "no")


def test_lost_workers_and_undos_are_marked() -> None:
    marks = timeline(event("lost", tool="pay"), event("undone", by="ann", n=1, steps=["s1"])).marks
    assert [(mark.text, mark.is_bad) for mark in marks] == [
        ("worker lost in pay; the call is made again", True),
        ("undone by ann steps s1", False),
    ]


def test_a_long_gap_is_compressed_and_said() -> None:
    bars = [
        Bar(kind="tool", label="a", start=0.0, end=10.0),
        Bar(kind="tool", label="b", start=10_000.0, end=10_010.0),
    ]
    axis = axis_of(bars, bars)
    [gap] = axis.gaps
    assert (gap.words, axis.place(0.0)) == ("nothing ran for 2 h 46 min", 0.0)
    assert axis.place(10.0) == pytest.approx(44.0)
    assert axis.place(10_000.0) == pytest.approx(56.0)
    assert axis.place(10_010.0) == pytest.approx(100.0)
    ticks = [(round(place), words) for place, words in axis.ticks]
    assert ticks == [(0, "0"), (22, "5.0 s"), (44, "10 s"), (78, "2 h 46 min")]
    over = Bar(kind="wait", label="w", start=9.0, end=10_001.0)
    assert [axis.breaks(bar) for bar in (*bars, over)] == [(), (), (gap,)]


AGENT = AgentSnapshot(
    name="a", policies={"pay": ToolPolicy(), "mail": ToolPolicy(effect="reversible", has_undo=True)}
)


def states(*entries: Entry, opens: tuple[OpenState, ...] = ()) -> list[tuple[str, str]]:
    found = effects_of(list(happenings(entries, opens)), AGENT)
    return [(each.tool, each.words) for each in found]


def test_effects_say_what_is_done_what_has_no_undo_and_what_was_undone() -> None:
    assert states(step()) == [("pay", "done, no undo"), ("mail", "done")]
    undone = event("effect_undone", by="ann", key="0.1.0.1")
    left = event("undone", by="ann", n=1, steps=["s1"])
    for events, other in (([undone], "done, no undo"), ([undone, left], "remains")):
        found = effects_of(list(happenings([step(), *events])), AGENT)
        assert [(e.words, e.undone_by) for e in found] == [(other, ""), ("undone", "ann")]


def test_a_call_without_an_outcome_runs_or_is_unknown() -> None:
    assert states(opens=(running(),)) == [("pay", "running")]
    assert states(event("closed", status="abandoned"), opens=(running(),)) == [("pay", "unknown")]


def test_an_effect_names_who_approved_it_with_which_arguments_and_not_who_gave_it_up() -> None:
    def paid(**changes: Any) -> Any:
        outcomes = (PAID.model_copy(update=changes), MAILED)
        return effects_of(list(happenings([step(outcomes=outcomes)])), AGENT)[0]

    by_ann = Decided(approval="t:1", status="approved", by="ann")
    pay = paid(edited='{"euros": 5}', decided=(by_ann,))
    assert (pay.by, pay.edited, pay.arguments) == ("ann", True, '{"euros": 5}')
    gave_up = by_ann.model_copy(update={"kind": "unknown", "status": "rejected"})
    pay = paid(status="unknown", decided=(gave_up,))
    assert (pay.words, pay.by) == ("unknown", "")


def test_an_undo_concerns_the_calls_of_the_step_as_it_was_run_last() -> None:
    paid = {0: PAID.model_copy(update={"effect": "reversible"})}
    was = running(n=1, open=OpenStep(step=TaskStep(step_id="s1")), called={}, outcomes=paid)
    left = Entry(left=LeftStep(was=was, why="restarted", at=35.0))
    again = step(key=1)
    undone = event("effect_undone", by="ann", key="0.1.0.0")
    found = effects_of(list(happenings([left, again, undone, undo_of(1)])), AGENT)
    assert [(e.tool, e.words) for e in found] == [
        ("pay", "remains"),
        ("pay", "undone"),
        ("mail", "remains"),
    ]


def path(*entries: Entry, branch: int | None = None) -> list[StepBody]:
    return path_of(happenings(entries), branch)


def undo_of(n: int) -> Entry:
    return event("undone", by="ann", n=n, steps=[f"s{n}"])


def undo(at: float = 20.0) -> Entry:
    return event("undone", at=at, by="ann", text="wrong", n=2, steps=["s2"], remains=["pay()"])


def test_a_branch_that_was_left_keeps_its_steps_for_a_comparison() -> None:
    entries = [step(1), step(2), undo(), step(2, branch=1), step(3, branch=1)]
    assert [(b.branch, b.n) for b in path(*entries, branch=0)] == [(0, 1), (0, 2)]
    assert [(b.branch, b.n) for b in path(*entries)] == [(0, 1), (1, 2), (1, 3)]


def test_bars_say_what_model_calls_cost_once_a_price_is_known() -> None:
    paid = Usage(requests=1, paid=Decimal("0.25"), priced=1)
    answer = ModelAnswer(message=SAID_IN_ADDS, at=12.0, took=1.5, usage=paid)
    [known] = timeline(step(usage=paid, journal=(JournalEntry(request="r", answer=answer),))).lanes
    assert [bar.cost for bar in (known.step, *known.bars) if bar.kind != "tool"] == ["$0.25"] * 2
    assert known.step.words.endswith(", $0.25")
    [unknown] = timeline(step()).lanes
    assert not any(bar.cost for bar in (unknown.step, *unknown.bars))


def test_a_comparison_marks_the_first_difference() -> None:
    other = step(2, adds=(user("q"), assistant("No."), tool("c1", "paid"), tool("c2", "sent")))
    found = compare(path(step(1), step(2)), path(step(1), other, step(3)))
    assert [pair.differs for pair in found.pairs][:2] == [(), ("answers",)]
    assert [pair.is_first for pair in found.pairs] == [False, True, False]
    assert found.pairs[2].left is None
    assert (found.first, [each.total_tokens for each in found.usages]) == (1, [30, 45])
    assert compare(path(step()), path(step())).first is None


def test_agents_are_compared_by_what_models_get_of_them() -> None:
    spec = ToolSpec(name="pay", parameters={"type": "object"})
    clerk = AgentSnapshot(name="clerk", model="m", instructions="Be brief.", tools=(spec,))
    other = clerk.model_copy(update={"instructions": "Be kind.", "tools": ()})
    assert prompts_differ(prompt_of(clerk), prompt_of(clerk)) == ()
    assert prompts_differ(prompt_of(clerk), prompt_of(other)) == ("instructions", "tools")
    made = prompt_of(clerk.model_copy(update={"is_dynamic": True}))
    assert made.instructions == "made for each turn by a function"


def test_a_row_says_what_its_task_waits_for() -> None:
    task = Task(task_id="t", input="a\nb", agent="clerk", status="waiting", created=100.0)
    row = row_of(task, [Approval(id="t:1", tool="pay"), Approval(id="t:2")], now=160.0)
    assert (row.waits_for, row.input, row.age) == ("approval of pay and 1 more", "a b", "1 min")
    paused = task.model_copy(update={"status": "paused", "paused": "ann: lunch"})
    assert row_of(paused, now=160.0).waits_for == "resume: paused by ann: lunch"


def test_the_filter_of_tasks_is_its_url() -> None:
    query = {"status": "waiting", "agent": "clerk", "q": "kim", "page": "3"}
    wanted = TaskFilter.read(query)
    assert wanted.query == query
    assert wanted.takes(Task(task_id="t", input="Pay Kim"))
    assert not wanted.takes(Task(task_id="t", input="Pay Bo"))
    assert TaskFilter.read({"status": "<b>", "page": "-2"}).query == {}


def test_a_queue_with_open_tasks_and_no_worker_comes_first() -> None:
    found = queues_of(
        {"hf:lost": ["t1"], "hf:calc": ["t2"]},
        {name: [Worker(identity="1@host")] for name in ("hf:calc", "hf-governor-1", "reports")},
        {"hf:calc": {"calc"}, "hf:lost": {"lost", ""}},
    )
    assert [(queue.serves, queue.is_unserved) for queue in found] == [
        ("agent 'lost' (queue 'hf:lost')", True),
        ("agent 'calc' (queue 'hf:calc')", False),
    ]
    assert [(agent.name, agent.is_served) for agent in agents_of(found)] == [
        ("calc", True),
        ("lost", False),
    ]


@pytest.mark.parametrize(
    ("source", "html"),
    [
        ("**a** `b`", "<p><strong>a</strong> <code>b</code></p>"),
        ("one\ntwo", "<p>one<br />\ntwo</p>"),
        ("# Title", "<h3>Title</h3>"),
        ("<img src=x onerror=a()>", "<p>&lt;img src=x onerror=a()&gt;</p>"),
        ("<script>\na()\n</script>", "<p>&lt;script&gt;<br />\na()<br />\n&lt;/script&gt;</p>"),
        ("![a](https://h/b.png)", '<p>!<a href="https://h/b.png">a</a></p>'),
        ("[a](javascript:b)", "<p>[a](javascript:b)</p>"),
        ("[a](JAVA&#115;cript:b)", "<p>[a](JAVA&amp;#115;cript:b)</p>"),
        ("<javascript:b>", "<p>&lt;javascript:b&gt;</p>"),
        ("[a]\n\n[a]: data:text/html,b", "<p>[a]</p>\n<p>[a]: data:text/html,b</p>"),
        ("[a](/logout) [b](//h/c)", "<p>[a](/logout) [b](//h/c)</p>"),
        ('[a](https://h "<b>\u202e")', r'<p><a href="https://h" title="&lt;b&gt;\u202e">a</a></p>'),
        ("a &#x202e; \u202e \u200b", r"<p>a &amp;#x202e; \u202e \u200b</p>"),
        ('```a" onclick="b\nc\n```', '<pre><code class="language-a&quot;">c\n</code></pre>'),
        ("|a|\n|-|\n|<b>|", "<td>&lt;b&gt;</td>"),
    ],
)
def test_markdown_is_rendered_without_anything_that_a_browser_obeys(source: str, html: str) -> None:
    assert html in rendered(source)


def test_a_process_is_one_card_with_all_of_its_queues() -> None:
    facts: Any = {"host": "h", "pid": "7", "slots": 100}
    one, two = Worker(identity="a", busy=2, **facts), Worker(identity="b", **facts)
    pollers = {"hf.app": [one], "hf:calc": [two, Worker(identity="1@old")]}
    [old, first] = processes_of(queues_of({}, pollers, {"hf.app": {"x"}, "hf:calc": {"calc"}}))
    assert (old.name, old.agents, old.slots) == ("1@old", "calc", "")
    assert (first.name, first.agents) == ("h, process 7", "calc, x")
    assert first.slots == "2 of 200 activities"


def test_charts_put_what_happened_into_the_hours_of_a_day() -> None:
    now = 100 * 3600.0 - 1  # parts end at whole hours
    begun = {0.5: "waiting", 0.7: "finished", 23.5: "finished", 24.5: "failed"}
    facts: list[dict[str, Any]] = [
        {"status": s, "created": now - h * 3600} for h, s in begun.items()
    ]
    tasks = [Task(task_id="t", **each) for each in facts]
    one = Asked(at=now - 60, model="m", took=2.0, tokens=10, dollars=0.0)
    asked = [one, replace(one, took=4.0), replace(one, took=9.0), replace(one, at=1.0)]
    states, tokens, latency = charts_of(period_of("day", now), tasks, [], asked)
    assert (states.top, len(states.columns)) == (2, 24)
    assert [*states.columns[0].values] == [("finished", 1)]
    assert states.words == "Tasks begun, by state · waiting: 1 · finished: 2"
    assert (tokens.words, latency.words) == ("Tokens · m: 30", "Latency of m, median · m: 4.0 s")


def test_money_is_shown_where_a_price_is_known() -> None:
    used = Usage(requests=2, input_tokens=1_000, output_tokens=5)
    assert spent(used) == "1,005 tokens"
    assert (spent(Usage(requests=3)), Usage(requests=3).in_words) == ("", "3 model calls")
    assert spent(used + Usage(paid=Decimal("0.012"), priced=2)) == "1,005 tokens · $0.012"
    partly = used + Usage(paid=Decimal("0.012"), priced=1)
    assert spent(partly) == "1,005 tokens · at least $0.012, 1 of unknown cost"


def test_the_line_of_an_undo_has_room_for_its_reason_and_that_of_a_refusal_says_it_once() -> None:
    many = event("undone", by="ann", text="wrong month", n=1, steps=[f"s{n}" for n in range(1, 31)])
    refused = event("refused", text="It does not fit", verb="approve")
    lines = [noted_line(each) for each in happenings([many, refused]) if isinstance(each, Noted)]
    assert lines[0] == "undone by ann steps s1 to s30, 30 of them: wrong month"
    assert lines[1].count("It does not fit") == 1


def test_the_client_takes_what_the_dialog_of_each_verb_gives() -> None:
    heard: set[str] = set()

    class Heard(Verbs):
        def _ask(self, verb: str, *given: Any, **_: Any) -> None:
            asks = {each.argument: "x" for each in given if isinstance(each, AskedFor)}
            inspect.signature(given[2]).bind(by="ann", **asks)
            heard.add(verb)

    frame: Any = SimpleNamespace(desk=SimpleNamespace(runner=AgentRunner(agent="clerk")))
    verbs, queued = Heard(frame, "t1", lambda: None), TaskStep(task_id="t1", step_id="s1")
    rule: Any = SimpleNamespace(tool="pay")
    of_task = (verbs.resume, verbs.wake, verbs.restart, verbs.pause, verbs.abandon, verbs.undo)
    for ask in (*of_task, verbs.feedback):
        ask()
    verbs.edit_step(queued)
    verbs.drop_step(queued)
    verbs.revoke(rule)
    verbs.rewind(path(step())[0])
    known = {"resume", "wake", "run", "pause", "abandon", "undo", "feedback"}
    assert heard == known | {"edit_step", "drop_step", "revoke", "rewind"}


# ---- cards of the desk's inbox: what a person sees before a decision, and what each button says

ANN = Person("ann", ["finance"])
PAY_KIM = ToolCall(id="c1", name="pay", arguments='{"to": "Kim", "euros": 930}')
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "to": {"type": "string", "description": "Who gets it."},
        "euros": {"type": "integer"},
        "mode": {"$ref": "#/$defs/Mode"},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
    },
    "required": ["to", "euros"],
    "$defs": {"Mode": {"enum": ["wire", "card"], "type": "string"}},
}


def approval(**changes: Any) -> Approval:
    fields: dict[str, Any] = {
        "id": "t1:4",
        "agent": "clerk",
        "tool": "pay",
        "effect": "irreversible",
        "call_id": "c1",
        "arguments": PAY_KIM.arguments,
        "digest": call_digest(PAY_KIM),
        "n": 2,
        "asked": 100.0,
    }
    return Approval(**{**fields, **changes})


def snapshot(**policy: Any) -> AgentSnapshot:
    return AgentSnapshot(
        name="clerk",
        tools=(ToolSpec(name="pay", parameters=SCHEMA),),
        policies={"pay": ToolPolicy(**policy)},
    )


def card(asked: Approval | None = None, **policy: Any) -> Card:
    messages = (user("pay it"), assistant("The receipt is there.", calls=(PAY_KIM,)))
    task = Task(task_id="t1", input="Pay Kim.", agent="clerk")
    context = Context(task=task, snapshot=snapshot(**policy), messages=messages)
    return card_of(asked or approval(), context, now=160.0)


def test_a_card_has_the_call_as_its_schema_says_and_why_the_agent_makes_it() -> None:
    shown = card()
    assert [(f.name, f.kind, f.text, f.is_required) for f in shown.fields] == [
        ("to", "text", "Kim", True),
        ("euros", "integer", "930", True),
        ("mode", "choice", "", False),
        ("note", "text", "", False),
    ]
    assert shown.fields[0].description == "Who gets it."
    assert shown.fields[2].choices == ("wire", "card")
    assert shown.fields[3].is_nullable
    assert (shown.why, shown.goal) == ("The receipt is there.", "Pay Kim.")
    assert shown.asker == ("agent clerk", "step 2")
    assert shown.is_whole


def test_an_argument_that_does_not_fit_its_schema_is_shown_as_data() -> None:
    [to, *_] = fields_of('{"to": {"name": "Kim"}, "more": [1]}', SCHEMA)
    assert (to.kind, to.value) == ("json", {"name": "Kim"})
    *_, more = fields_of('{"more": [1]}', SCHEMA)
    assert (more.name, more.kind, more.text) == ("more", "json", "[\n  1\n]")


def test_a_card_says_how_the_call_would_be_undone() -> None:
    assert card().undo == "The tool declares no undo: what it does stays."
    reversible = approval(effect="reversible")
    assert "calls the tool's own undo." in card(reversible, has_undo=True).undo
    assert "after a person approves it" in (
        card(reversible, has_undo=True, undo_needs_approval=True).undo
    )


def test_a_deadline_says_what_happens_then() -> None:
    shown = card(approval(expires=400.0))
    assert shown.deadline == "in 4 min"
    assert "rejected" in shown.after
    assert card().deadline == card().after == ""


def test_buttons_say_what_they_do_in_the_case() -> None:
    labels = {
        kind: [(b.key, b.verb, b.label) for b in choices_of(approval(kind=kind)) if b.key != "z"]
        for kind in ("tool", "unknown", "limit", "undo")
    }
    assert labels["unknown"] == [
        ("a", "approve", "It did not happen: pay now"),
        ("v", "respond", "It happened: enter the result"),
        ("r", "reject", "Give it up"),
    ]
    assert labels["tool"][0] == ("a", "approve", "Run pay")
    assert [verb for _, verb, _ in labels["tool"]] == [
        "approve",
        "edit",
        "always",
        "reject",
        "respond",
    ]
    assert [label for *_, label in labels["limit"]] == ["Allow one more model call", "Finish now"]
    money = approval(kind="limit", arguments='{"max_dollars": "0.40"}')
    assert [(b.verb, b.label) for b in choices_of(money)] == [
        ("approve", "Raise the budget to $0.40"),
        ("edit", "Raise it to another amount"),
        ("reject", "Finish now"),
        ("snooze", "Snooze"),
    ]
    assert labels["undo"][0] == ("a", "approve", "Undo pay")


def test_secrets_are_not_on_a_card() -> None:
    key = "sk-proj-abcdefgh12345678"
    shown = card(approval(arguments=f'{{"to": "{key}"}}', text=f"with {key}"))
    assert key not in f"{shown.fields[0].text} {shown.raw} {shown.known}"


def test_typed_values_are_read_by_their_kind() -> None:
    to, euros, *_ = fields_of(PAY_KIM.arguments, SCHEMA)
    assert (parsed("93", to), parsed("93", euros)) == ("93", 93)
    with pytest.raises(InvalidArgumentError, match="euros must be a whole number"):
        parsed("many", euros)


def test_an_edit_is_shown_as_its_differences() -> None:
    old, new = {"to": "Kim", "euros": 930, "x": 1}, {"to": "Kim", "euros": 93, "y": True}
    assert [(d.name, d.old, d.new) for d in differences(old, new)] == [
        ("euros", "930", "93"),
        ("x", "1", ""),
        ("y", "", "true"),
    ]


def test_the_filter_of_the_inbox_is_its_url() -> None:
    query = {"agent": "clerk", "tool": "pay", "kind": "tool", "older": "60", "q": "kim"}
    wanted = InboxFilter.read(query)
    assert wanted.query == query
    assert wanted.takes(approval(), ANN, now=160.0)
    assert not wanted.takes(approval(), ANN, now=159.0)
    assert not wanted.takes(approval(agent="other"), ANN, now=160.0)
    assert InboxFilter.read({"kind": "<script>", "older": "-1"}).query == {}
    assert choices([approval(), approval(tool="", agent="b")], "tool") == ["pay"]


@pytest.mark.parametrize(
    ("fields", "is_mine"),
    [
        ({}, True),
        ({"who": ("ann",)}, True),
        ({"who": ("role:finance",)}, True),
        ({"who": ("ben", "role:board")}, False),
        ({"who": ("ben",), "escalate_to": ("Ann",)}, False),
        ({"who": ("ben",), "escalate_to": ("Ann",), "escalated": 150.0}, True),
        ({"not_asker": True, "asker": "Ann"}, False),
        ({"quorum": 2, "votes": (Vote(by="ANN", at=1.0),)}, False),
        ({"quorum": 2, "votes": (Vote(by="ben", at=1.0),)}, True),
    ],
)
def test_mine_is_what_a_person_can_decide(fields: dict[str, Any], is_mine: bool) -> None:
    wanted = InboxFilter.read({"mine": "1"})
    assert wanted.query == {"mine": "1"}
    assert wanted.takes(approval(**fields), ANN, now=160.0) is is_mine
    assert InboxFilter.read({"mine": "perhaps"}).takes(approval(**fields), ANN, now=160.0)


def test_later_calls_are_approved_where_one_person_decides_alone() -> None:
    [later] = [each for each in choices_of(approval()) if each.verb == "always"]
    assert (later.key, later.label, later.asks) == ("w", "Run pay, and later calls", "later")
    assert later.warning == "pay cannot be undone."
    for other in (approval(quorum=2), approval(kind="unknown"), approval(kind="limit")):
        assert "always" not in [each.verb for each in choices_of(other)]


def test_three_decisions_are_shown_at_once_and_those_that_are_barred_have_no_key() -> None:
    shown = card()
    assert [each.verb for each in shown.first_buttons] == ["approve", "edit", "reject"]
    unknown = card(approval(kind="unknown")).first_buttons
    assert [each.verb for each in unknown] == ["approve", "respond", "reject"]
    off = tuple(replace(each, barred=f"not {each.verb[:2]}") for each in shown.buttons[:2])
    barred = replace(shown, buttons=(*off, *shown.buttons[2:]))
    assert barred.barred == ("not ap", "not ed")
    assert (barred.button("a"), barred.button("r")) == (None, shown.buttons[3])


def test_a_call_that_the_provider_runs_is_approved_as_it_stands_or_rejected() -> None:
    hosted = approval(tool="crm.pay", server="crm")
    assert [each.verb for each in choices_of(hosted)] == ["approve", "always", "reject", "snooze"]
    shown = card(hosted)
    assert (shown.button("e"), shown.button("v")) == (None, None)
    same_name = card(approval(server="crm"), has_undo=True)  # of a namespace that is called so
    assert (same_name.fields[0].description, same_name.undo) == ("", "")
    assert {each.verb for each in choices_of(approval())} > {"edit", "respond"}
