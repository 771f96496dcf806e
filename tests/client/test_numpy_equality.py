"""Any key, on any array, reads and writes what numpy would of the real server."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hyperslab import RemoteArray
from tests.client.conftest import Host
from tests.client.strategies import assert_same, chunk_shapes, full_shapes, keys, orthogonal_keys, shapes

Array = np.ndarray[Any, np.dtype[Any]]

DTYPES = ["<u2", ">f8", "|i1", "<c8", "|b1", "<M8[s]"]


@st.composite
def arrays(draw: st.DrawFn, host: Host) -> tuple[RemoteArray, Array]:
    """An array behind the host, and its values."""
    shape = draw(shapes | full_shapes)
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    values = (np.arange(int(np.prod(shape))).reshape(shape) % 120).astype(dtype)
    return host.add(values, draw(chunk_shapes(shape))), values


@given(st.data())
def test_reads_equal_numpys(host: Host, data: st.DataObject) -> None:
    array, values = data.draw(arrays(host))
    with array:
        for _ in range(10):
            key = data.draw(keys(values.shape))
            try:
                expected = values[key]
            except IndexError:
                with pytest.raises(IndexError):
                    array[key]
                continue
            try:
                found = array[key]
            except IndexError:  # numpy does not look at all indices where there is nothing to take
                assert np.size(expected) == 0
            else:
                assert_same(found, expected)


def test_axes_of_index_arrays_come_first_unless_the_arrays_are_side_by_side(host: Host) -> None:
    values = np.arange(3 * 4 * 5 * 6, dtype="<i4").reshape(3, 4, 5, 6)
    mask = np.arange(30).reshape(5, 6) % 7 == 1
    keys: list[Any] = [
        *(np.s_[:, [0, 1], :, [1, 0]], np.s_[:, 1, :, [1, 2]], np.s_[:, [0, 1], :, 1], np.s_[:, True, :, [0, 2]]),
        *(np.s_[:, [[0], [1]], None, [0, 1]], np.s_[:, None, [0, 1], :, 1], np.s_[:, [0, 1], ..., [[1], [2]]]),
        *(
            np.s_[:, [0, 1], [1, 0]],
            np.s_[:, 1, [1, 2]],
            np.s_[..., [0, 1], 1, :],
            np.s_[:, 1, mask],
            np.s_[1, :, mask],
        ),
    ]
    with host.add(values, (2, 2, 2, 2)) as array:
        for key in keys:
            assert_same(array[key], values[key])


@settings(max_examples=25)
@given(st.data())
def test_orthogonal_reads_equal_an_open_mesh(host: Host, data: st.DataObject) -> None:
    array, values = data.draw(arrays(host))
    key = data.draw(orthogonal_keys(values.shape))
    filled = [*key, *[slice(None)] * (values.ndim - len(key))]
    columns = [np.atleast_1d(np.arange(n)[part]) for n, part in zip(values.shape, filled, strict=True)]
    kept = [len(c) for c, part in zip(columns, filled, strict=True) if not isinstance(part, int)]
    expected = values[np.ix_(*columns)].reshape(kept) if columns else values

    with array:
        found = array.oindex[key]

    assert_same(found, expected if kept else expected[()])


@settings(max_examples=25)
@given(st.data())
def test_blocks_are_chunks(host: Host, data: st.DataObject) -> None:
    shape = data.draw(full_shapes)
    values = np.arange(int(np.prod(shape)), dtype="<i4").reshape(shape)
    with host.add(values, data.draw(chunk_shapes(shape))) as array:
        counts = [-(-length // chunk) for length, chunk in zip(shape, array.chunks, strict=True)]
        block = [data.draw(st.integers(0, count - 1)) for count in counts]
        starts = [i * chunk for i, chunk in zip(block, array.chunks, strict=True)]
        expected = values[tuple(slice(start, start + chunk) for start, chunk in zip(starts, array.chunks, strict=True))]

        assert_same(array.blocks[tuple(i - count for i, count in zip(block, counts, strict=True))], expected)
        assert_same(array.blocks[(..., *(slice(i, i + 1) for i in block))], expected)


@settings(max_examples=25)
@given(st.data())
def test_writes_equal_numpy(host: Host, data: st.DataObject) -> None:
    shape = data.draw(full_shapes)
    expected = np.zeros(shape, "<i4")
    with host.add(expected, data.draw(chunk_shapes(shape))) as array:
        for value in range(1, 5):
            key = data.draw(keys(shape))
            try:
                taken = np.asarray(expected[key])
            except IndexError:
                continue
            if not taken.size:
                continue
            whole = np.arange(taken.size, dtype="<i4").reshape(taken.shape) + 100 * value
            row = whole[:1] if whole.ndim and len(whole) else whole
            surplus = whole[None] if whole.ndim else whole
            written = data.draw(st.sampled_from([value, whole, row, np.int16(value), surplus]))
            try:
                expected[key] = written
            except TypeError:  # for masks, numpy does not take surplus axes of length 1
                continue
            array[key] = written

    assert_same(host.stored(array), expected)


def test_big_selections_are_cut_and_put_together(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("reading", "writing"):
        monkeypatch.setattr(f"hyperslab.client.{module}.SMALLEST_BOX", 10_000)
        monkeypatch.setattr(f"hyperslab.client.{module}.LARGEST_BOX", 20_000)
    values = np.random.default_rng(0).integers(0, 60_000, (40, 50, 60)).astype("<u2")
    array = host.add(np.zeros_like(values), (16, 16, 16))

    array[...] = values

    assert_same(host.stored(array), values)
    selections: list[Any] = [..., np.s_[3:, ::-2], np.s_[:, 7], np.s_[..., 5], np.s_[::3, [4, 40, 41], 10:50]]
    for key in selections:
        assert_same(array[key], values[key])
    assert_same(array.vindex[:, [1, 30, 7], [3, 4, 1]], values[:, [1, 30, 7], [3, 4, 1]].T)
    assert_same(array.vindex[1, 2, 3], values[1, 2, 3])
