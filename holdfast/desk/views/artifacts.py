"""Artifacts in the desk. A tool has made them, perhaps of what a stranger said: no script runs."""

from __future__ import annotations

from urllib.parse import quote, urlencode

from holdfast.desk.views.words import dotted
from holdfast.reading.artifacts import KeptArtifact
from holdfast.values.text.shown import counted

PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""Types that a page shows as pictures; an SVG may have scripts."""

HARMLESS = PICTURES | {"text/plain", "text/csv", "application/json"}
"""Types that a download may have; everything else is sent as bytes of unknown type."""

LARGEST_PICTURE = 5_000_000


def download_url(task_id: str, artifact: KeptArtifact) -> str:
    """Return the address of an artifact."""
    query = urlencode({"name": artifact.reference})
    return f"/api/v1/tasks/{quote(task_id, safe='')}/artifact?{query}"


def preview_url(task_id: str, artifact: KeptArtifact) -> str | None:
    """Return the address of an artifact's picture, or None if it is not shown as a picture."""
    if artifact.media_type not in PICTURES or artifact.size > LARGEST_PICTURE:
        return None
    return download_url(task_id, artifact)


def about(artifact: KeptArtifact) -> str:
    """Say in one line what an artifact is, and where it comes from."""
    return dotted(
        f"step {artifact.n}" + (f", branch {artifact.branch}" if artifact.branch else ""),
        f"version {artifact.version}" if artifact.version > 1 else "",
        artifact.tool,
        artifact.media_type,
        counted(artifact.size, "byte"),
    )
