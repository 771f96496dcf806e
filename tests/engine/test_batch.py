"""Chunks decoded together are what each of them is alone."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hyperslab.engine import batch as batch_module
from hyperslab.engine.batch import BatchDecoder
from hyperslab.engine.codecs_blosc import decompress, join_frames
from hyperslab.engine.metadata import ArrayMetadata
from hyperslab.engine.runs import Run
from hyperslab.errors import ChunkCorrupt
from tests.engine.arrays import Array, array_of, values_of

CNAMES = ("blosclz", "lz4", "lz4hc", "zlib", "zstd")


def batch_of(array: ArrayMetadata) -> BatchDecoder:
    assert array.batch is not None
    return array.batch


def decode(array: ArrayMetadata, stored: Sequence[bytes | None]) -> Array:
    """As a reader does it: stored chunks one behind the other, and then the chunks."""
    decoder = batch_of(array)
    stack = np.zeros((len(stored), decoder.nbytes), np.uint8)
    memory = stack.reshape(-1) if decoder.in_place else np.full(decoder.room_for(len(stored)), 0xAA, np.uint8)
    at, extents = decoder.head_room(len(stored)), []
    for data in stored:
        extents.append(_put(memory, at, data))
        at += decoder.room if data is None or decoder.in_place else len(data)
    decoder.decode(decoder.join(memory, extents), stack, [f"k{i}" for i in range(len(stored))])
    return decoder.clean(decoder.shaped(stack))


def _put(memory: Array, at: int, data: bytes | None) -> Run | None:
    if data is None:
        return None
    memory[at : at + len(data)] = np.frombuffer(data, np.uint8)
    return at, at + len(data)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_frames_of_all_kinds_are_decoded_together(data: st.DataObject) -> None:
    config = {
        "id": "blosc",
        "cname": data.draw(st.sampled_from(CNAMES)),
        "shuffle": data.draw(st.sampled_from((0, 1, 2))),
        "clevel": data.draw(st.integers(0, 9)),
        "blocksize": data.draw(st.sampled_from((0, 256, 1000, 4096, 1 << 14))),
    }
    order = data.draw(st.sampled_from("CF"))
    dtype = data.draw(st.sampled_from(("|u1", "<u2", ">f4", "<c16", [["a", "<i4"], ["b", "<f8", [2]]])))
    array = array_of((data.draw(st.integers(1, 64)), data.draw(st.integers(1, 80))), dtype, config, order=order)
    values = values_of((*array.chunks, 6), array.dtype.numpy)
    chunks = [values[..., i] for i in range(data.draw(st.integers(1, 6)))]
    stored = [None if data.draw(st.integers(0, 9)) == 0 else array.codec.encode(chunk) for chunk in chunks]

    found = decode(array, stored)

    for chunk, there, part in zip(chunks, stored, found, strict=True):
        assert there is None or part.tobytes() == chunk.tobytes(), config


def test_frames_that_are_alike_take_one_call_of_the_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    array = array_of((64, 64), "<u2", {"id": "blosc", "blocksize": 2048})
    stored = [array.codec.encode(np.arange(4096, dtype="<u2").reshape(64, 64) * k) for k in range(5)]
    calls: list[int] = []

    def counted(data: Any, out: Any, limit: int) -> Any:
        calls.append(limit)
        return decompress(data, out, limit)

    monkeypatch.setattr(batch_module, "decompress", counted)

    found = decode(array, stored)

    assert calls == [5 * array.chunk_nbytes]
    assert all((found[k] == np.arange(4096, dtype="<u2").reshape(64, 64) * k).all() for k in range(5))


def test_what_is_in_front_of_a_gap_is_not_overwritten() -> None:
    """The table of the frames behind a chunk that is not there needs more room than that chunk leaves."""
    array = array_of((512,), "<u2", {"id": "blosc", "blocksize": 128})
    chunks = [np.full(512, k, "<u2") for k in range(64)]
    stored = [None if k == 20 else array.codec.encode(chunk) for k, chunk in enumerate(chunks)]

    found = decode(array, stored)

    assert all((found[k] == chunk).all() for k, chunk in enumerate(chunks) if k != 20)


def test_a_frame_that_was_not_compressed_is_decoded_beside_others() -> None:
    array = array_of((64, 64), "|u1", {"id": "blosc"})
    noise = np.random.default_rng(1).integers(0, 256, (64, 64)).astype("|u1")
    chunks = [np.zeros_like(noise), noise, np.ones_like(noise)]

    found = decode(array, [array.codec.encode(chunk) for chunk in chunks])

    assert all((found[i] == chunk).all() for i, chunk in enumerate(chunks))


def test_booleans_are_cleaned() -> None:
    array = array_of((4,), "|b1")

    assert decode(array, [bytes([0, 1, 2, 255]), bytes(4)]).tolist() == [[False, True, True, True], [False] * 4]


@pytest.mark.parametrize("compressor", [None, {"id": "blosc"}])
def test_the_broken_chunk_is_named(compressor: Any) -> None:
    array = array_of((32, 32), "<u2", compressor)
    stored = [array.codec.encode(np.full((32, 32), k, "<u2")) for k in range(3)]

    with pytest.raises(ChunkCorrupt) as caught:
        decode(array, [stored[0], stored[1][:-3], stored[2]])

    assert caught.value.key == "k1"


def test_a_block_outside_its_own_frame_is_refused() -> None:
    array = array_of((64, 64), "<u2", {"id": "blosc"})
    stored = [array.codec.encode(np.arange(4096, dtype="<u2").reshape(64, 64)) for _ in range(2)]
    liar = bytearray(stored[0])
    struct.pack_into("<i", liar, 16, len(liar) + 40)  # into the next one
    memory = bytearray(64) + liar + stored[1]

    with pytest.raises(ValueError, match="outside its frame"):
        join_frames(memoryview(memory), [(64, 64 + len(liar)), (64 + len(liar), len(memory))], array.chunk_nbytes)
    with pytest.raises(ChunkCorrupt) as caught:
        decode(array, [bytes(liar), stored[1]])
    assert caught.value.key == "k0"


def test_without_room_for_a_table_frames_are_decoded_one_by_one() -> None:
    array = array_of((64, 64), "<u2", {"id": "blosc", "blocksize": 128})
    chunks = [np.arange(4096, dtype="<u2").reshape(64, 64) + k for k in range(3)]

    found = decode(array, [array.codec.encode(chunk) for chunk in chunks])

    assert all((found[k] == chunk).all() for k, chunk in enumerate(chunks))


@pytest.mark.parametrize(
    ("dtype", "compressor", "filters"),
    [("<u2", {"id": "zlib"}, None), ("<u2", {"id": "blosc"}, [{"id": "delta", "dtype": "<u2"}])],
)
def test_other_codecs_have_none(dtype: str, compressor: Any, filters: Any) -> None:
    assert array_of((4, 4), dtype, compressor, filters=filters).batch is None
