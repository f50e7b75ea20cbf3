"""A short campaign: twenty faults, all verbs, and nothing lost, doubled or untold."""

import os
import random
from pathlib import Path

import pytest

from tests.soak.campaign import campaign

FAULTS = 20
SEED = int(os.environ.get("HOLDFAST_SOAK_SEED", "0")) or random.SystemRandom().randrange(10**6)


@pytest.mark.exhaustive
@pytest.mark.usefixtures("logs_told")
@pytest.mark.timeout(600)
async def test_a_short_campaign_violates_nothing(tmp_path: Path) -> None:
    report = await campaign(tmp_path, faults=FAULTS, seed=SEED)
    assert not report.violations, (SEED, report.wire())
    assert sum(report.faults.values()) == FAULTS
    assert report.counts["tasks"], report.wire()
    assert report.counts["effects"], report.wire()
