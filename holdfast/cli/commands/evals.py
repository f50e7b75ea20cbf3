"""`eval`: a folder of recorded cases, run with the agent's model and judged by user's functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, cast

from holdfast.cli import output
from holdfast.cli.connection import importing, load_agents
from holdfast.cli.exits import ExitCode
from holdfast.cli.options import Common
from holdfast.errors import InvalidArgumentError
from holdfast.serving.worker_process import load
from holdfast.values.messages import Usage
from holdfast.values.text.shown import did_you_mean, shortened, shown

if TYPE_CHECKING:
    from holdfast.testing.cases import Case
    from holdfast.testing.evals import Judge, Judged


async def eval_command(
    common: Common,
    folder: Path,
    target: str,
    judges: str,
    *,
    runs: Sequence[str] | None,
    least: float,
    max_turns: int,
) -> ExitCode:
    """Run and judge each case of a folder; the exit code is 1 when one does not pass.

    Raises:
        InvalidArgumentError: There are no cases or judges, or the agent of a case is missing.
    """
    from holdfast.testing.evals import eval_cases

    cases = _cases(folder)
    agents = {each.name: each for each in load_agents(target).served}
    if missing := cases.keys() - agents.keys():
        name = min(missing)
        what = f"{target} has no agent {name!r}, of which {min(cases[name])!r} is a case."
        raise InvalidArgumentError(what + did_you_mean(name, agents))
    of = _judges(judges)
    found: list[Judged] = []
    for name, each in cases.items():
        found += await eval_cases(
            each, agent=agents[name], judges=of, runs=runs or (), least=least, max_turns=max_turns
        )
    _print(common, sorted(found, key=lambda each: each.name), cases)
    return ExitCode.OK if all(each.passed for each in found) else ExitCode.FAILED


def _cases(folder: Path) -> Mapping[str, Mapping[str, Case]]:
    """Read the cases of a folder: of each agent, by their names.

    Raises:
        InvalidArgumentError: There are none, or one cannot be read.
    """
    from holdfast.testing.cases import Case

    files = sorted(folder.glob("*.json"))
    if not files:
        what = "has no cases" if folder.is_dir() else "is no folder"
        msg = f"{shown(str(folder))} {what}."
        remedy = f"Make a case: holdfast record TASK > {folder}/case.json"
        raise InvalidArgumentError(msg, remedy=remedy)
    found: dict[str, dict[str, Case]] = {}
    for file in files:
        case = Case.load(file)
        found.setdefault(case.agents[0].agent, {})[file.stem] = case
    return found


def _judges(target: str) -> list[Judge]:
    """Import judges.

    Raises:
        InvalidArgumentError: There are none.
    """
    found = importing(partial(load, target, "Judges"), target)
    is_list = isinstance(found, list | tuple)
    judges = [*cast("Sequence[Any]", found)] if is_list else [cast("Any", found)]
    if not judges or not all(map(callable, judges)):
        msg = f"{target!r} is {shown(found)}; it must be a function or a list of functions."
        remedy = "A judge is a function: def judge(case, result) -> bool"
        raise InvalidArgumentError(msg, remedy=remedy)
    return judges


def _print(
    common: Common, found: Sequence[Judged], cases: Mapping[str, Mapping[str, Case]]
) -> None:
    before = {name: case.usage for of in cases.values() for name, case in of.items()}
    names = [*dict.fromkeys(name for each in found for name in each.scores)]
    if common.json:
        for each in found:
            facts = {"case": each.name, "passed": each.passed, "scores": dict(each.scores)}
            usage = {"usage": each.result.usage.wire(), "before": before[each.name].wire()}
            output.emit({**facts, "output": each.result.output, "error": each.error, **usage})
        return
    lines = [
        [
            each.name,
            "passed" if each.passed else "failed",
            *(_score(each.scores.get(name)) for name in names),
            *_costs(each.result.usage, before[each.name]),
            shortened(each.error),
        ]
        for each in found
    ]
    passed = sum(each.passed for each in found)
    means = [fmean(each.scores.get(name, 0) for each in found) for name in names]
    total = (sum(each, Usage()) for each in ([of.result.usage for of in found], before.values()))
    lines.append(["all", f"{passed} of {len(found)}", *map(_score, means), *_costs(*total), ""])
    output.rows(["case", "result", *names, "turns", "cost", "before", "why"], lines)


def _score(score: float | None) -> str:
    return "-" if score is None else f"{score:.2f}"


def _costs(now: Usage, before: Usage) -> list[str]:
    return [str(now.requests), now.cost_shown, before.cost_shown]
