"""Pages of the reference that are made from the code: verbs, routes, metrics, names, variables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from fastapi import FastAPI

from holdfast.agents_sdk.absent_names import ABSENT, LENT
from holdfast.desk.api.events import events
from holdfast.desk.api.reads import reads
from holdfast.desk.api.writes import writes
from holdfast.serving.observed.metrics import METRICS
from holdfast.values.runs.verbs import VERBS
from website.errors import SiteError
from website.prose import code
from website.stage import DOCS

VARIABLE = re.compile(r"\bHOLDFAST_[A-Z_]*[A-Z]\b")
JSON = re.compile(r"\{(?:[^{}]|\{[^{}]*\})*\}")


def pages() -> dict[str, str]:
    """Return the pages, by the names of their files.

    Raises:
        SiteError: The code reads a variable of the environment that no page names.
    """
    return {
        "signals": _signals(),
        "http_api": _http_api(),
        "metrics": _metrics(),
        "absent_names": _absent_names(),
        "variables": _variables(),
    }


def _signals() -> str:
    about = (
        "Each verb is a signal of the workflow `AgentTask`. Its body is one JSON object, and `by`"
        " says who sends it. [Without Holdfast](../without_holdfast.md) has examples."
    )
    shown = {verb: JSON.sub(r"`\g<0>`", each.body) for verb, each in VERBS.items()}
    lines = [f"* `{verb}`: {body}" for verb, body in shown.items()]
    return "\n".join(["# Signals\n", f"{about}\n", *lines, ""])


def _http_api() -> str:
    about = (
        "All routes are below `/api/v1`. `/api/v1/openapi.json` has their types. [The desk's"
        " HTTP API](../desk_api.md) says how to use them."
    )
    app = FastAPI()
    for router in (reads, events, writes):
        app.include_router(router)
    return "\n".join(["# HTTP API\n", f"{about}\n", *_routes(app.openapi()), ""])


def _routes(described: dict[str, Any]) -> Iterator[str]:
    for path, methods in sorted(described["paths"].items()):
        for method, facts in methods.items():
            says = " ".join(facts["description"].partition("\n\nRaises:")[0].split())
            body = ", ".join(f"`{name}`" for name in _fields(facts, described["components"]))
            yield f"* `{method.upper()} {path}`: {says}{body and f' Body: {body}.'}"


def _fields(facts: dict[str, Any], components: dict[str, Any]) -> list[str]:
    found = re.findall(r"#/components/schemas/(\w+)", str(facts.get("requestBody", "")))
    return [name for each in found for name in components["schemas"][each]["properties"]]


def _metrics() -> str:
    about = (
        "Metrics of Holdfast, in addition to those of Temporal's SDK."
        " [Monitoring](../monitoring.md) says how to get them."
    )
    rows = [
        f"| `{name}` | {each.kind} | {', '.join(f'`{label}`' for label in each.labels)} |"
        f" {each.text} |"
        for name, each in METRICS.items()
    ]
    head = ["| metric | kind | labels | what it is |", "| --- | --- | --- | --- |"]
    return "\n".join(["# Metrics\n", f"{about}\n", *head, *rows, ""])


def _absent_names() -> str:
    about = (
        "Names of `agents` that `holdfast.agents_sdk` does not have, and what to use. The import of"
        " such a name says the same."
    )
    lent = _grouped({name: f"`{packages}`" for name, (_, packages) in LENT.items()})
    return "\n".join(
        [
            "# Absent names\n",
            f"{about}\n",
            *_grouped(ABSENT),
            "\nThe SDK lends these, after `pip install` of the packages:\n",
            *lent,
            "",
        ]
    )


def _variables() -> str:
    about = "Variables of the environment that Holdfast reads, each with the pages that name it."
    paths = sorted(DOCS.rglob("*.md"))
    told = {path.relative_to(DOCS).as_posix(): path.read_text("utf-8") for path in paths}
    lines: list[str] = []
    for name in sorted({name for path in code() for name in VARIABLE.findall(path.read_text())}):
        found = {page: text for page, text in told.items() if re.search(rf"\b{name}\b", text)}
        if not found:
            msg = f"{name} is on no page: name it where its readers look"
            raise SiteError(msg)
        links = (f"[{text.partition(chr(10))[0][2:]}](../{page})" for page, text in found.items())
        lines.append(f"* `{name}`: {', '.join(links)}")
    return "\n".join(["# Environment variables\n", f"{about}\n", *lines, ""])


def _grouped(said: Mapping[str, str]) -> list[str]:
    names: dict[str, list[str]] = {}
    for name, text in said.items():
        names.setdefault(text, []).append(f"`{name}`")
    return [f"* {', '.join(each)}: {text}" for text, each in names.items()]
