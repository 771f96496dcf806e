"""Writes store exactly what was asked, once, and nothing where they are refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given

from hyperslab.arrays.nodes import MountedStore
from hyperslab.arrays.service import Service, build
from hyperslab.errors import BadDefinition, ChunkCorrupt, PartlyWritten, TooLarge
from hyperslab.storage import StoreConfig, open_store
from hyperslab.storage.base import Absent
from hyperslab.wire import SelectionItem
from tests.arrays.counting import CountingStore
from tests.arrays.support import open_array, plan_items, read_all, service_on, snapshot
from tests.arrays.test_read import cases, numpy_orthogonal

A = "data/a"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with service_on(tmp_path) as running:
        yield running


def make(service: Service, shape: tuple[int, ...], chunks: tuple[int, ...], **members: Any) -> None:
    definition = {"shape": list(shape), "chunks": list(chunks), "dtype": "<i4", "fill_value": 0, **members}
    service.creator.create_array(A, definition, mode="replace")


def distinct(items: tuple[SelectionItem, ...], shape: tuple[int, ...]) -> tuple[SelectionItem, ...]:
    """The selection without repeated indices, whose order of writing numpy does not promise."""
    if Ellipsis in items:
        return (Ellipsis,)
    pairs = zip(items, shape, strict=False)
    return tuple(
        list(dict.fromkeys(i % size for i in item)) if isinstance(item, list) else item for item, size in pairs
    )


@given(case=cases())
def test_writing_a_selection_equals_numpy_and_zarr_python_reads_it(tmp_path: Path, case: Any) -> None:
    """Any selection that can be read can be written; all cells it does not name keep their values."""
    shape, chunks, order, items = case
    items = distinct(items, shape)
    expected = np.arange(int(np.prod(shape)), dtype="<i4").reshape(shape)
    positions = numpy_orthogonal(np.arange(expected.size).reshape(shape), items)
    values = -1 - np.arange(positions.size, dtype="<i4").reshape(positions.shape)
    with service_on(tmp_path) as service:
        make(service, shape, chunks, order=order)
        service.writer.write(A, (), expected)

        service.writer.write(A, items, values)

        expected.reshape(-1)[positions.reshape(-1)] = values.reshape(-1)
        np.testing.assert_array_equal(read_all(service), expected)
        np.testing.assert_array_equal(zarr.open_array(str(tmp_path / "a"), mode="r", zarr_format=2)[...], expected)


@pytest.mark.parametrize(
    ("dtype", "fill_value", "mount", "stays"),
    [
        ("<i4", 0, {}, False),
        ("<i4", 5, {}, False),
        ("<f4", 0.0, {}, False),
        ("<i4", None, {}, True),
        ("<i4", 0, {"store_data_equal_to_fill_value": True}, True),
    ],
)
def test_chunks_of_nothing_but_fill_are_not_stored_and_are_removed(
    tmp_path: Path, dtype: str, fill_value: float | None, mount: dict[str, Any], stays: bool
) -> None:
    """Bit for bit: negative zero is another value."""
    fill, other = np.array(fill_value or 0, dtype), np.array(-0.0 if dtype == "<f4" else 9, dtype)
    with service_on(tmp_path, mount=mount) as service:
        make(service, (4,), (2,), dtype=dtype, fill_value=fill_value)
        for items, value, there in ((slice(0, 2), fill, stays), (0, other, True), (0, fill, stays)):
            service.writer.write(A, (items,), value)
            assert (tmp_path / "a" / "0").exists() == there


def test_chunks_that_are_too_large_to_read_are_not_written_either(tmp_path: Path) -> None:
    """Nor cut through, and nothing is announced or published before that is known (CONFORMANCE 280)."""
    with service_on(tmp_path) as service:
        make(service, (6, 4), (4, 4))
        service.writer.write(A, (), np.arange(24, dtype="<i4").reshape(6, 4))
    before = snapshot(tmp_path)
    stored = before["a/0.0"]
    with service_on(tmp_path, max_chunk_bytes=63) as service:
        smaller = before["a/.zarray"].replace(b"6", b"5", 1)
        for attempt in (
            lambda: service.writer.write(A, (0, 0), np.array(1, "<i4")),
            lambda: service.writer.write(A, (slice(0, 4),), np.zeros((4, 4), "<i4")),
            lambda: service.writer.write_points(A, [np.array([0]), np.array([0])], np.array([1], "<i4")),
            lambda: service.writer.write_stored(A, (0, 0), stored),
            lambda: service.key_writer.put("data/a/0.0", stored),
            lambda: service.key_writer.put("data/a/.zarray", smaller),
            lambda: service.appender.append(A, np.zeros((4, 4), "<i4")),
            lambda: service.resizer.resize(A, [5, 4]),
            lambda: service.resizer.resize(A, [8, 3]),
        ):
            with pytest.raises(TooLarge) as caught:
                attempt()
            assert (caught.value.requested, caught.value.limit) == (64, 63)
            assert snapshot(tmp_path) == before

        service.resizer.resize(A, [9, 4])
        service.resizer.resize(A, [4, 4])
        service.writer.delete_stored(A, (0, 0))
        service.resizer.resize(A, [0, 4])
    assert set(snapshot(tmp_path)) == set(before) - {"a/0.0", "a/1.0"}


def test_a_shrink_that_was_killed_is_finished_before_the_array_grows(tmp_path: Path, service: Service) -> None:
    """The shape is published, with the extent of what it cut off, but nothing was cleared yet. Nor does show what an
    append that failed has written. An edge chunk that does not decode stands in nobody's way."""
    make(service, (10,), (4,))
    service.writer.write(A, (), np.arange(1, 11, dtype="<i4"))
    document = json.loads((tmp_path / "a" / ".zarray").read_text())
    killed = {**document, "shape": [5], "hyperslab": {"extent": [10]}}
    (tmp_path / "a" / ".zarray").write_text(json.dumps(killed))

    service.resizer.resize(A, [10])

    assert read_all(service).tolist() == [1, 2, 3, 4, 5, 0, 0, 0, 0, 0]
    assert json.loads((tmp_path / "a" / ".zarray").read_text()) == document
    service.appender.append(A, np.array([6], "<i4"))
    encode = open_array(service).metadata.codec.encode
    for key in "23":
        (tmp_path / "a" / key).write_bytes(encode(np.array([9, 9, 6, 7], "<i4")))
    service.resizer.resize(A, [16])
    assert read_all(service).tolist() == [1, 2, 3, 4, 5, 0, 0, 0, 9, 9, 6, 0, 0, 0, 0, 0]
    service.resizer.resize(A, [11])
    (tmp_path / "a" / "2").write_bytes(b"no chunk")
    service.resizer.resize(A, [12])
    assert (tmp_path / "a" / "2").read_bytes() == b"no chunk"
    with pytest.raises(ChunkCorrupt):
        read_all(service)


def test_an_append_along_another_axis_brings_back_nothing_that_was_cut_off(tmp_path: Path, service: Service) -> None:
    make(service, (12, 4), (4, 4))
    service.writer.write(A, (), np.full((12, 4), 9, "<i4"))
    document = json.loads((tmp_path / "a" / ".zarray").read_text())
    killed = {**document, "shape": [3, 4], "hyperslab": {"extent": [12, 4]}}
    (tmp_path / "a" / ".zarray").write_text(json.dumps(killed))

    service.appender.append(A, np.full((3, 2), 5, "<i4"), axis=1)
    service.resizer.resize(A, [12, 6])

    expected = np.zeros((12, 6), "<i4")
    expected[:3] = [9, 9, 9, 9, 5, 5]
    np.testing.assert_array_equal(read_all(service), expected)


@pytest.fixture(params=["folder", "bucket"])
def counted(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[CountingStore, Service]]:
    config = StoreConfig(name="data", url=str(tmp_path), writable=True, durability="rename")
    if request.param == "bucket":
        config = request.getfixturevalue("s3_bucket").config(name="data", writable=True)
    store = CountingStore(open_store(config))
    service = build([MountedStore("data", store, writable=True)])
    yield store, service
    service.close()


def test_values_that_were_stored_beyond_the_shape_do_not_show_when_it_grows(
    counted: tuple[CountingStore, Service],
) -> None:
    """Whole chunks are stored as they came, whatever they hold there; others keep their bytes."""
    store, service = counted
    make(service, (6, 5), (4, 4), fill_value=-1, compressor=None)
    chunks = np.arange(64, dtype="<i4").reshape(2, 2, 4, 4)
    chunks[1, 0, 2:] = -1
    for i, j in np.ndindex(2, 2):
        service.key_writer.put(f"{A}/{i}.{j}", chunks[i, j].tobytes())
    kept = chunks.swapaxes(1, 2).reshape(8, 8)[:6, :5]

    def grow(shape: tuple[int, int]) -> list[str]:
        """Check the values, and return the chunks that were stored."""
        before = len(store.puts)
        service.resizer.resize(A, shape)
        expected = np.full(shape, -1, "<i4")
        expected[:6, :5] = kept
        np.testing.assert_array_equal(read_all(service), expected)
        return sorted(key for key in store.puts[before:] if key.startswith("a/") and key != "a/.zarray")

    assert grow((7, 5)) == ["a/1.1"]
    assert grow((7, 9)) == ["a/0.1"]
    assert grow((8, 12)) == []
    assert (stored := store.get("a/1.0")) is not None
    assert stored.data == chunks[1, 0].tobytes()
    read = len(store.gets)
    service.resizer.resize(A, (20, 12))
    assert not [key for key in store.gets[read:] if key.startswith("a/") and key[2] not in ".z"], "no chunk is cut"


def test_values_that_were_stored_beyond_the_shape_do_not_show_when_rows_are_appended(
    counted: tuple[CountingStore, Service],
) -> None:
    _, service = counted
    make(service, (1, 3), (4, 4), compressor=None)
    service.writer.write_stored(A, (0, 0), np.full((4, 4), 7, "<i4").tobytes())

    service.appender.append(A, np.full((1, 3), 8, "<i4"))
    service.appender.append(A, np.full((2, 1), 9, "<i4"), axis=1)
    service.resizer.resize(A, (4, 4))

    assert read_all(service).tolist() == [[7, 7, 7, 9], [8, 8, 8, 9], [0] * 4, [0] * 4]


def test_an_axis_can_be_appended_to_up_to_its_largest_size(service: Service) -> None:
    make(service, (2**62 - 4,), (4,))
    for value, offset in ((1, 2**62 - 4), (2, 2**62 - 2)):
        count = 2 if value == 1 else 1
        assert service.appender.append(A, np.full(count, value, "<i4")).offset == offset

    found = service.reader.read(plan_items(service.reader, open_array(service), (slice(-4, None),)))[0]
    assert found.tolist() == [0, 1, 1, 2]
    with pytest.raises(BadDefinition, match=r"2\*\*62 - 1"):
        service.appender.append(A, np.array([3], "<i4"))


def test_an_append_is_tried_again_when_somebody_writes_to_its_first_chunk(tmp_path: Path) -> None:
    """A writer on another replica comes between the look at the chunk and the put: both keep their cells."""
    with service_on(tmp_path) as plain:
        make(plain, (2,), (4,), compressor=None)

        class Interrupted(CountingStore):
            def put(self, key: str, data: Any, *, if_version: str | Absent | None = None) -> str:
                if key == "a/0" and not self.puts.count(key):
                    super().put(key, np.array([7, 8, 0, 0], "<i4").tobytes())
                return super().put(key, data, if_version=if_version)

        service = build([MountedStore("data", Interrupted(plain.catalog.mounts["data"].store), writable=True)])
        appended = service.appender.append(A, np.array([1, 2, 3], "<i4"))

        assert appended.offset == 2
        assert read_all(service).tolist() == [7, 8, 1, 2, 3]


def test_an_append_that_fails_half_way_says_what_is_written_and_publishes_nothing(
    tmp_path: Path, service: Service
) -> None:
    make(service, (8, 2), (4, 4))
    service.writer.write(A, (), np.arange(16, dtype="<i4").reshape(8, 2))
    (tmp_path / "a" / "1.0").write_bytes(b"broken")

    with pytest.raises(PartlyWritten) as failed:
        service.appender.append(A, np.ones((8, 2), "<i4"), axis=1)

    assert (failed.value.written, failed.value.failed) == (["a/0.0"], ["a/1.0"])
    assert open_array(service).metadata.shape == (8, 2)
