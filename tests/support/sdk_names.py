"""Lists of names in docs/from_agents_sdk.md: `python -m tests.support.sdk_names` writes them."""

from pathlib import Path

import agents

from holdfast import agents_sdk
from holdfast.agents_sdk.absent_names import ABSENT, LENT

PAGE = Path(__file__).parents[2] / "docs" / "from_agents_sdk.md"
BEGINS, ENDS = "<!-- names: generated -->\n", "<!-- /names -->\n"


def _by_name(name: str) -> tuple[str, str]:
    return name.lower(), name


def _some(names: list[str]) -> str:
    return ", ".join(names if len(names) < 5 else [*names[:3], f"{len(names) - 3} more like these"])


def tables() -> str:
    """Write the lists: what to use in place of names that are not here, and those lent."""
    here = set(agents.__all__) & set(agents_sdk.__all__)
    count = f"{len(here)} of the {len(agents.__all__)} names"
    lines = [f"{count} of `agents` are names of `holdfast.agents_sdk`. The others:", ""]
    reasons: dict[str, list[str]] = {}
    for name in sorted(set(agents.__all__) - here, key=_by_name):
        reasons.setdefault(ABSENT[name], []).append(f"`{name}`")
    lines += [f"* {_some(names)}: {reason}" for reason, names in reasons.items()]
    lines += ["", "Lent by the SDK, after `pip install` of the packages:", ""]
    lent: dict[str, list[str]] = {}
    for name in sorted(LENT, key=_by_name):
        lent.setdefault(LENT[name][1], []).append(f"`{name}`")
    lines += [f"* {', '.join(names)}: `{packages}`" for packages, names in lent.items()]
    return "\n".join(lines) + "\n"


def written(page: str) -> str:
    """Return a page with the lists as they are now."""
    before, _, rest = page.partition(BEGINS)
    after = rest.partition(ENDS)[2]
    return f"{before}{BEGINS}{tables()}{ENDS}{after}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text("utf-8")), "utf-8")
