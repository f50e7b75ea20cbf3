"""What exists when a worker starts is kept out of garbage collection while one runs."""

import gc
from collections.abc import Iterator

import pytest

from holdfast.serving.worker_host import Host, LongLived, Workers


@pytest.fixture(autouse=True)
def _thawed() -> Iterator[None]:
    before = gc.get_freeze_count()
    gc.unfreeze()
    yield
    gc.unfreeze()
    if before:
        gc.freeze()


def test_objects_are_frozen_until_the_last_worker_has_stopped() -> None:
    kept = LongLived()
    kept.begin()
    kept.begin()
    assert gc.get_freeze_count() > 10_000
    kept.end()
    assert gc.get_freeze_count() > 10_000
    kept.end()
    assert gc.get_freeze_count() == 0
    kept.begin()
    assert gc.get_freeze_count() > 10_000


async def test_a_worker_that_starts_freezes_and_its_end_gives_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # That of the process counts workers of other tests, too.
    monkeypatch.setattr("holdfast.serving.worker_host.LONG_LIVED", LongLived())

    async def make(_: Host) -> Workers:
        return Idle()

    host = Host()
    await host.start(make)
    assert gc.get_freeze_count() > 10_000
    await host.close()
    assert gc.get_freeze_count() == 0


class Idle(Workers):
    """Workers that do nothing."""

    def __init__(self) -> None:
        """Start nothing."""

    async def run(self) -> None:
        """End at once."""
