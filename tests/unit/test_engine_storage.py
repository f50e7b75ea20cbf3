import dataclasses
from pathlib import Path

from temporalio.api.common.v1 import Payload
from temporalio.converter import (
    DataConverter,
    StorageDriverRetrieveContext,
    StorageDriverStoreContext,
)

from holdfast.archive.archive import Archive
from holdfast.engine.converter import THRESHOLD_BYTES, ArchiveStorageDriver, archive_storage


async def test_payloads_come_back_in_order_and_equal_ones_are_stored_once(tmp_path: Path) -> None:
    driver = ArchiveStorageDriver(Archive(tmp_path))
    payloads = [Payload(metadata={"b": b"1", "a": b"2"}, data=each) for each in (b"x", b"y", b"x")]
    claims = await driver.store(StorageDriverStoreContext(), payloads)
    assert claims[0] == claims[2]
    assert await driver.retrieve(StorageDriverRetrieveContext(), claims) == payloads
    assert sum(path.is_file() for path in tmp_path.rglob("*")) == 2


async def test_a_converter_stores_only_large_values(tmp_path: Path) -> None:
    converter = dataclasses.replace(
        DataConverter.default, external_storage=archive_storage(Archive(tmp_path))
    )
    small, large = "s", "l" * (THRESHOLD_BYTES + 1)
    encoded = await converter.encode([small, large])
    assert sum(path.is_file() for path in tmp_path.rglob("*")) == 1
    assert sum(each.ByteSize() for each in encoded) < 1000
    assert await converter.decode(encoded) == [small, large]
