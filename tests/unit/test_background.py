"""Work next to a task's main loop: the first error that nothing takes is kept."""

import asyncio

import pytest

from holdfast.workflows.activity_calls import Background


class FalsyError(Exception):
    """An error that counts as false."""

    def __bool__(self) -> bool:
        """Return False."""
        return False


async def test_an_error_that_counts_as_false_is_kept_though_other_work_ends_well() -> None:
    background = Background()

    async def fails() -> None:
        raise FalsyError

    async def ends() -> None:
        return

    await asyncio.wait([background.begin(fails())])
    await asyncio.wait([background.begin(ends())])
    with pytest.raises(RuntimeError, match="workflow code failed"):
        background.check()
