"""Shapes, chunks and numpy keys of all kinds, what a selection's text means to numpy, and what equals its values."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from hyperslab import wire

Shape = tuple[int, ...]

shapes: SearchStrategy[Shape] = st.lists(st.integers(0, 5), max_size=4).map(tuple)
full_shapes: SearchStrategy[Shape] = st.lists(st.integers(1, 7), max_size=4).map(tuple)


@st.composite
def chunk_shapes(draw: DrawFn, shape: Shape) -> Shape:
    return tuple(draw(st.integers(1, max(1, length + 1))) for length in shape)


def bounds(length: int) -> SearchStrategy[int | None]:
    return st.none() | st.integers(-length - 2, length + 2)


def slices(length: int) -> SearchStrategy[slice]:
    steps = st.none() | st.sampled_from([1, 2, 3, -1, -2, 5])
    return st.builds(slice, bounds(length), bounds(length), steps)


@st.composite
def index_arrays(draw: DrawFn, length: int, shape: Shape) -> Any:
    """An array, or nested lists, of indices for an axis; its shape broadcasts with ``shape``."""
    kept = [n if draw(st.booleans()) else 1 for n in shape][draw(st.integers(0, len(shape))) :]
    count = prod(kept) if length else 0
    flat = draw(st.lists(st.integers(-length, length - 1) if length else st.nothing(), min_size=count, max_size=count))
    array = np.array(flat, draw(st.sampled_from(["i8", "i1"]))).reshape(kept if length else 0)
    return array.tolist() if array.ndim and draw(st.booleans()) else array


@st.composite
def masks(draw: DrawFn, shape: Shape) -> Any:
    size = prod(shape)
    return np.array(draw(st.lists(st.booleans(), min_size=size, max_size=size)), bool).reshape(shape)


@st.composite
def keys(draw: DrawFn, shape: Shape) -> Any:
    """Anything that numpy takes in brackets for an array of this shape."""
    together = draw(st.sampled_from([(), (1,), (2,), (3,), (2, 3), (0,)]))
    parts: list[Any] = []
    axis = 0
    while axis < len(shape) and draw(st.integers(0, 7)):
        length = shape[axis]
        kinds = ["slice", "array", "mask", "new", "bool"] + ["integer"] * 2 * bool(length)
        match draw(st.sampled_from(kinds)):
            case "integer":
                kinds_of_integer: list[Callable[[int], Any]] = [int, np.int32, np.array]
                parts.append(draw(st.sampled_from(kinds_of_integer))(draw(st.integers(-length, length - 1))))
            case "slice":
                parts.append(draw(slices(length)))
            case "array":
                parts.append(draw(index_arrays(length, together)))
            case "mask":
                covered = shape[axis : axis + draw(st.integers(1, 2))]
                parts.append(draw(masks(covered)))
                axis += len(covered) - 1
            case "new":
                parts.append(None)
                axis -= 1
            case "bool":
                parts.append(draw(st.booleans()))
                axis -= 1
        axis += 1
        if len(parts) > 8:
            break
    if draw(st.integers(0, 3)) == 0:
        parts.insert(draw(st.integers(0, len(parts))), ...)
    return parts[0] if len(parts) == 1 and draw(st.booleans()) else tuple(parts)


@st.composite
def orthogonal_keys(draw: DrawFn, shape: Shape) -> tuple[Any, ...]:
    """One integer, slice, 1-d array of indices or mask for each of some axes."""
    parts: list[Any] = []
    for length in shape[: draw(st.integers(0, len(shape)))]:
        lists = st.lists(st.integers(-length, length - 1), max_size=5) if length else st.just([])
        options: list[SearchStrategy[Any]] = [slices(length), lists, masks((length,))]
        if length:
            options.append(st.integers(-length, length - 1))
        parts.append(draw(st.one_of(options)))
    return tuple(parts)


def mesh(select: str, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """The numpy index of an orthogonal selection."""
    items: list[wire.SelectionItem] = list(wire.parse_selection(select))
    if Ellipsis not in items:
        items.append(Ellipsis)
    at = items.index(Ellipsis)
    items[at : at + 1] = [slice(None)] * (len(shape) - len(items) + 1)
    kept = [axis for axis, item in enumerate(items) if not isinstance(item, int)]
    columns: list[Any] = []
    for axis, (item, length) in enumerate(zip(items, shape, strict=True)):
        taken = np.arange(length)[item]
        columns.append(taken.reshape([-1 if axis == k else 1 for k in kept]) if axis in kept else int(taken))
    return tuple(columns)


def assert_same(found: Any, expected: Any) -> None:
    """Equal in type, shape, dtype and values."""
    assert type(found) is type(expected)
    assert np.shape(found) == np.shape(expected)
    assert found.dtype == expected.dtype
    assert np.array_equal(found, expected)
