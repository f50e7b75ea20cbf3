"""The settings of docs/recipes/temporal_cloud.md reach the connection."""

from pathlib import Path

import pytest
from temporalio.service import TLSConfig

from holdfast.engine.target import resolve_target
from tests.support.pages import ROOT, blocks

PAGE = ROOT / "docs" / "recipes" / "temporal_cloud.md"


def settings(text: str) -> dict[str, str]:
    """Return the variables that a block of the page exports."""
    exports = [line for line in text.splitlines() if line.startswith("export ")]
    return dict(each.removeprefix("export ").split("=", 1) for each in exports)


def test_what_the_page_exports_is_what_a_client_connects_with(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "client.pem").write_bytes(b"certificate")
    (tmp_path / "client.key").write_bytes(b"key")
    by_key, by_certificate = [
        settings(block.text) for block in blocks(PAGE) if "TEMPORAL_ADDRESS" in block.text
    ]
    for name, value in by_key.items():
        monkeypatch.setenv(name, value)
    found = resolve_target()
    assert (found.address, found.namespace) == (by_key["TEMPORAL_ADDRESS"], "shop.a1b2c")
    assert found.api_key == by_key["TEMPORAL_API_KEY"]
    monkeypatch.delenv("TEMPORAL_API_KEY")
    for name, value in by_certificate.items():
        monkeypatch.setenv(name, value)
    found = resolve_target()
    assert found.address == "shop.a1b2c.tmprl.cloud:7233"
    assert found.api_key is None
    assert isinstance(found.tls, TLSConfig)
    assert (found.tls.client_cert, found.tls.client_private_key) == (b"certificate", b"key")
