"""How long running calls may take after SIGTERM, and the names that Temporal's controller gives."""

from datetime import timedelta

import pytest

from holdfast.errors import InvalidArgumentError
from holdfast.serving.deployments import deployment_config
from holdfast.serving.worker_process import GRACE_VARIABLE, grace_given
from tests.support.there import there


def test_the_environment_says_how_long_running_calls_may_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(GRACE_VARIABLE, raising=False)
    assert grace_given() == timedelta(seconds=30)
    for said, seconds in (("600", 600.0), ("0", 0.0), ("2.5", 2.5)):
        monkeypatch.setenv(GRACE_VARIABLE, said)
        assert grace_given() == timedelta(seconds=seconds)


@pytest.mark.parametrize("said", ["ten", "-1", "nan", "1e99"])
def test_another_text_is_refused(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(GRACE_VARIABLE, said)
    with pytest.raises(InvalidArgumentError, match=r"HOLDFAST_GRACE is .* a number of seconds"):
        grace_given()


def test_a_deployment_of_temporals_controller_is_taken_from_its_variables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TEMPORAL_DEPLOYMENT_NAME", "prod/shop")
    monkeypatch.setenv("TEMPORAL_WORKER_BUILD_ID", "2.1-4f2a")
    version = there(deployment_config()).version
    assert (version.deployment_name, version.build_id) == ("prod/shop", "2.1-4f2a")
    monkeypatch.setenv("HOLDFAST_BUILD", "2.2")
    assert there(deployment_config()).version.build_id == "2.2"
