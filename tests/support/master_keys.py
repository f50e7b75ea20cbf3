"""Master keys for tests, and logs that have texts again afterwards."""

import base64
import logging
from collections.abc import Generator

import pytest

from holdfast.archive.encryption.keys import Keys

K1, K2 = b"1" * 32, b"2" * 32
LINE = f"k1 {base64.b64encode(K1).decode()}"


def keys(**named: bytes) -> Keys:
    return Keys(named or {"k1": K1})


@pytest.fixture(name="logs_told")
def logs_are_told_again() -> Generator[None]:
    yield
    logging.setLogRecordFactory(logging.LogRecord)
