"""A deterministic simulator of the workflow code: the real `AgentTask` and `Session`, no server.

Temporal's own workflow instance is fed with activations, in virtual time, by a small server in
memory. A schedule is plain data: what people, machines and clocks do to one task. A seed makes a
schedule; a schedule that fails is shrunk and printed as Python that can be pasted.

| module | what it is |
| --- | --- |
| `run` | one run of a workflow: activations, history, replay |
| `server`, `activity` | workflows, activities, timers and signals, as moves that can happen next |
| `service`, `worker`, `table` | how activities are answered, and what they ask the server |
| `cast` | agents whose model follows a plan, and the world of their tools |
| `play` | the choices of a schedule; `invariants` and `effects` look after each workflow task |
| `generate`, `shrink` | random schedules, and short ones of those that fail |

A regression is a schedule in `test_regressions.py`:

    def test_an_undo_during_a_late_result_is_answered() -> None:
        assert_holds(
            Schedule(
                plan=[[["pay", {"amount": 1}]], "done"],  # the model's turns: calls, then an answer
                choices=[
                    ("run", 0, "r1", {"all": True}),  # the update `run` to task 0, with an id
                    ("fate", "tool", "late"),  # what happens to its next activity `tool`
                    ("settle",),  # until nothing can happen by itself
                    ("say", 0, "approve", {"approval": 1, "by": "ann"}),
                    ("settle",),
                    ("undo", 0, "u1", {"residue": "keep"}),
                    ("release",),
                    ("home",),  # the task must come to its end
                ],
            )
        )

`play.py` lists all choices. A failing seed is repeated with `make simulate SEED=123`.
"""
