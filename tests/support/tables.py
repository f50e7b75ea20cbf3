"""Tables of what is read, and what it means: files of JSON with one row a line."""

import json
from pathlib import Path
from typing import Any

TABLES = Path(__file__).parent.parent / "unit" / "tables"


def table(name: str) -> list[Any]:
    """Read the rows of a table."""
    rows: list[Any] = json.loads((TABLES / f"{name}.json").read_text(encoding="utf-8"))
    return rows
