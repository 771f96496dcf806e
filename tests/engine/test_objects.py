"""Object arrays: the six codecs that turn objects into bytes, on good and on hostile chunks."""

from __future__ import annotations

import json
import struct
from typing import Any

import msgpack  # type: ignore[import-untyped]
import numcodecs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperslab.engine import object_codecs
from hyperslab.errors import ChunkCorrupt, NotRepresentable
from tests.engine.arrays import Array, Config, array_of

VLEN_UTF8: Config = {"id": "vlen-utf8"}
VLEN_BYTES: Config = {"id": "vlen-bytes"}
VLEN_ARRAY: Config = {"id": "vlen-array", "dtype": "<i4"}
JSON2: Config = {"id": "json2"}
MSGPACK2: Config = {"id": "msgpack2"}
LABELS: Config = {"id": "categorize", "labels": ["a", "bc", "é"], "dtype": "|O"}

SCALARS = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5) | st.floats(allow_nan=False)
VALUES = st.recursive(SCALARS, lambda v: st.lists(v, max_size=3) | st.dictionaries(st.text(max_size=3), v, max_size=3))
ITEMS: dict[str, st.SearchStrategy[Any]] = {
    "vlen-utf8": st.text(max_size=6),
    "vlen-bytes": st.binary(max_size=6),
    "vlen-array": st.lists(st.integers(-(2**31), 2**31 - 1), max_size=4).map(lambda v: np.array(v, "<i4")),
    "json2": VALUES,
    "msgpack2": VALUES,
    "categorize": st.sampled_from(["", "a", "bc", "é"]),
}
COMPRESSORS: list[Config | None] = [None, {"id": "zlib"}, {"id": "zstd"}, {"id": "blosc"}]


def objects(items: list[Any], shape: tuple[int, ...], order: Any = "C") -> Array:
    """An object array; numpy itself would look into items that are lists."""
    chunk = np.fromiter(items, dtype=object, count=len(items)).reshape(shape)
    return np.asarray(chunk, order=order)


def plain(items: Array) -> list[Any]:
    return [item.tolist() if isinstance(item, np.ndarray) else item for item in items.flat]


@pytest.mark.parametrize("config", [VLEN_UTF8, VLEN_BYTES, VLEN_ARRAY, JSON2, MSGPACK2, LABELS], ids=lambda c: c["id"])
@given(data=st.data(), order=st.sampled_from("CF"), compressor=st.sampled_from(COMPRESSORS))
def test_objects_come_back_as_they_were(config: Config, data: st.DataObject, order: str, compressor: Any) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 3), max_size=3)))
    count = int(np.prod(shape))
    items = data.draw(st.lists(ITEMS[config["id"]], min_size=count, max_size=count))
    array = array_of(shape, "|O", compressor, filters=[config], order=order)

    decoded = array.codec.decode(array.codec.encode(objects(items, shape, order)), "0")

    assert decoded.shape == shape
    assert plain(decoded) == plain(objects(items, shape))


@pytest.mark.parametrize("config", [VLEN_UTF8, VLEN_BYTES, JSON2, MSGPACK2, LABELS], ids=lambda c: c["id"])
def test_chunks_in_c_order_are_written_as_numcodecs_writes_them(config: Config) -> None:
    items = [b"a", b"bc", b"", b"a", b"bc", b"a"] if config is VLEN_BYTES else ["a", "bc", "", "a", "bc", "a"]
    chunk = objects(items, (2, 3))

    stored = array_of([2, 3], "|O", filters=[config]).codec.encode(chunk)

    assert stored == bytes(numcodecs.get_codec(dict(config)).encode(chunk))


@pytest.mark.parametrize("config", [VLEN_UTF8, JSON2, MSGPACK2], ids=lambda c: c["id"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_other_readers_find_the_items_in_stored_order(config: Config, order: Any) -> None:
    """zarr-python flattens what the codec gives, and shapes it in the array's order."""
    chunk = objects(["a", "b", "c", "d", "e", "f"], (2, 3), order)

    stored = array_of([2, 3], "|O", filters=[config], order=order).codec.encode(chunk)

    theirs = numcodecs.get_codec(dict(config)).decode(stored).reshape(-1, order="A").reshape((2, 3), order=order)
    np.testing.assert_array_equal(theirs, chunk)


@pytest.mark.parametrize("config", [JSON2, MSGPACK2], ids=lambda c: c["id"])
@pytest.mark.parametrize("packed", [[[1, 2, 3], [4, 5, 6], "|O", [2, 3]], [1, 2, 3, 4, 5, 6, "|O", [6]]], ids=str)
def test_items_are_taken_as_they_stand_however_they_are_nested(config: Config, packed: list[Any]) -> None:
    """The shape in the data is ignored (CONFORMANCE 138), as in zarr-python 2: see the test above."""
    data = json.dumps(packed).encode() if config is JSON2 else msgpack.packb(packed)
    theirs = numcodecs.get_codec(dict(config)).decode(data).reshape(-1, order="A")

    for order, values in (("C", [[1, 2, 3], [4, 5, 6]]), ("F", [[1, 3, 5], [2, 4, 6]])):
        found = array_of([2, 3], "|O", filters=[config], order=order).codec.decode(data, "0")

        assert found.tolist() == theirs.reshape((2, 3), order=order).tolist() == values


def _vlen(count: int, *items: bytes) -> bytes:
    return struct.pack("<I", count) + b"".join(struct.pack("<I", len(item)) + item for item in items)


@pytest.mark.parametrize(("config", "data"), [
    (VLEN_UTF8, b""),
    (VLEN_UTF8, b"\2\0"),
    (VLEN_UTF8, _vlen(2**32 - 1)),
    (VLEN_UTF8, _vlen(2)),
    (VLEN_UTF8, _vlen(1, b"a")),
    (VLEN_UTF8, _vlen(3, b"a", b"b", b"c")),
    (VLEN_UTF8, _vlen(2, b"a", b"\xff\xfe")),
    (VLEN_UTF8, _vlen(2, b"a") + struct.pack("<I", 2**32 - 1) + b"x"),
    (VLEN_BYTES, _vlen(2, b"a") + struct.pack("<I", 2)),
    (VLEN_ARRAY, _vlen(2, b"1234", b"123")),
    (JSON2, b""),
    (JSON2, b"[]"),
    (JSON2, b"{}"),
    (JSON2, b'["a","b","|O",[3]]'),
    (JSON2, b'["a","b","c","|O",[3]]'),
    (JSON2, b'["a","b","|O",[1000000000000]]'),
    (JSON2, b'["a","b","|O",[1,2]]'),
    (JSON2, b'["a","b","|O",[-1,-2]]'),
    (JSON2, b'["a","b","|O","2"]'),
    (JSON2, b'["a","b","|O",[2.0]]'),
    (JSON2, b"[" * 100_000),
    (JSON2, b"[" + b"9" * 1_000_000 + b', 1, "|O", [2]]'),
    (JSON2, b'[1, "|O", [9999999999999, 999999999999]]'),
    (JSON2, b"\xff\xfe"),
    (MSGPACK2, b""),
    (MSGPACK2, b"\xc1"),
    (MSGPACK2, b"\xdd\xff\xff\xff\xff"),
    (MSGPACK2, b"\x91" * 100_000),
    (MSGPACK2, msgpack.packb(["a", msgpack.ExtType(5, b"x"), "|O", [2]])),
    (MSGPACK2, msgpack.packb(["a", "b", "|O", [3]])),
    (LABELS, b"\1"),
    (LABELS, b"\1\1\1"),
], ids=repr)  # fmt: skip
def test_hostile_objects_are_refused(config: Config, data: bytes) -> None:
    codec = array_of([2], "|O", filters=[config]).codec

    with pytest.raises(ChunkCorrupt):
        codec.decode(data, "0")


@pytest.mark.parametrize(
    ("config", "item", "read"),
    [
        (VLEN_UTF8, None, ""),
        (VLEN_BYTES, None, b""),
        (VLEN_ARRAY, None, []),
        (JSON2, {1: 2}, {"1": 2}),
        (JSON2, (1, 2), [1, 2]),
        (MSGPACK2, (1, 2), [1, 2]),
    ],
    ids=str,
)
def test_what_is_written_is_told_as_it_will_be_read(config: Config, item: Any, read: Any) -> None:
    array = array_of((1,), "|O", None, filters=[config])

    _, readable = array.codec.encode_readably(objects([item], (1,)), "0")

    assert plain(readable) == [read]


@pytest.mark.parametrize("item", [{1: 2}, {None: 2}, [{"a": {2.5: 1}}]], ids=str)
def test_what_could_not_be_read_back_is_refused(item: Any) -> None:
    array = array_of((1,), "|O", None, filters=[MSGPACK2])

    with pytest.raises(NotRepresentable, match="msgpack2"):
        array.codec.encode_readably(objects([item], (1,)), "0")


PACKED: list[tuple[Config, bytes]] = [
    (JSON2, b'[[%s0,1],"|O",[1]]' % (b"[ ],{ },2," * 10)),
    (JSON2, b'[[%s"],\\"["],"|O",[1]]' % (b'{"a":2},' * 10)),
    (MSGPACK2, msgpack.packb([[[], {}, "a" * 40, b"b", 0, -1, 300, -70_000, 2**40, 1.5] * 4, "|O", [1]])),
    (MSGPACK2, msgpack.packb([[{"k": "s" * 70_000}, {"k" * 300: None}, msgpack.Timestamp(2**40, 5)] * 5, "|O", [1]])),
]


@pytest.mark.parametrize(("config", "data"), PACKED, ids=str)
def test_a_chunk_of_very_many_values_is_refused_before_they_are_made(
    config: Config, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = array_of((1,), "|O", None, filters=[config])
    values = values_in(array.codec.decode(data, "0").tolist())

    monkeypatch.setattr(object_codecs, "MAX_VALUES", 2 * values)
    array.codec.decode(data, "0")
    monkeypatch.setattr(object_codecs, "MAX_VALUES", values // 2)

    with pytest.raises(ChunkCorrupt, match=f"more than {values // 2} values"):
        array.codec.decode(data, "0")


def values_in(value: Any) -> int:
    inside = [*value.keys(), *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else []
    return 1 + sum(map(values_in, inside))
