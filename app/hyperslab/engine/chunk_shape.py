"""Chunk shapes of new arrays: TensorStore's bisection by number of elements, zarr-python's guess by bytes, and
TensorStore's ``chunk_layout`` with hard and soft constraints on shape and order."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, cycle
from typing import Any, Final, TypeVar

import numpy as np

from hyperslab.engine.dtypes import DataType
from hyperslab.engine.metadata import MAX_SIZE, Order, integral
from hyperslab.errors import shown

DEFAULT_ELEMENTS: Final = 1 << 20
"""Default number of elements of a chunk, for any item size."""


def choose_chunks(
    shape: Sequence[int],
    *,
    chunk_shape: Sequence[int] = (),
    aspect_ratio: Sequence[float] = (),
    elements: int | None = None,
    inner: int = 1,
) -> tuple[int, ...]:
    """The chunk shape that TensorStore's zarr driver would choose.

    ``chunk_shape`` is a size for each axis, 0 for free or -1 for the whole axis; ``aspect_ratio`` the proportion of
    each free axis, 0 for 1; by default all are free and 1. ``elements`` is the target, exceeded only by fixed sizes;
    each item counts as ``inner`` elements. Empty axes get chunk size 1.
    """
    target = min(DEFAULT_ELEMENTS if elements is None else elements, MAX_SIZE)
    pairs = zip(chunk_shape or [0] * len(shape), shape, strict=True)
    sizes = [max(1, extent) if size == -1 else size for size, extent in pairs]
    ratios = [ratio or 1.0 for ratio in (aspect_ratio or [1.0] * len(shape))]
    free = [axis for axis, size in enumerate(sizes) if not size]
    if free:
        caps = [float(min(max(target, 1), max(1, shape[axis]))) for axis in free]
        fixed = math.prod(size for size in sizes if size) * inner
        grown = _grow([float(ratios[axis]) for axis in free], caps, fixed, target)
        for axis, size in zip(free, grown, strict=True):
            sizes[axis] = size
    return tuple(sizes)


def guess_chunks(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """The chunk shape that zarr-python guesses.

    The target doubles with each tenfold size of the array: 256 KiB for 1 MiB, 512 KiB for 10 MiB.
    """
    chunks = [max(1, size) for size in shape]
    nbytes = math.prod(chunks) * itemsize
    low, high = 128 << 10, 64 << 20
    target = min(max((256 << 10) * 2 ** math.log10(nbytes / (1 << 20)), low), high)
    for axis in cycle(range(len(chunks))):
        nbytes = math.prod(chunks) * itemsize
        if nbytes == itemsize or (nbytes < high and (nbytes < target or abs(nbytes - target) / target < 0.5)):
            break
        chunks[axis] = -(-chunks[axis] // 2)
    return tuple(chunks)


def _grow(ratios: list[float], caps: list[float], fixed: int, target: int) -> list[int]:
    """Sizes of the free axes: a common factor times their ratios, as large as the target allows.

    The result depends on the steps of the search, so they are TensorStore's: geometric bisection of the factor until
    the bounds are within a factor of 4, then arithmetic.
    """
    step = 0.5 * min(1.0 / ratio for ratio in ratios)
    low, high = step, 2.0 * max(cap / ratio for cap, ratio in zip(caps, ratios, strict=True))
    while low + step < high:
        middle = math.sqrt(low * high) if high > 4 * low else low + (high - low) / 2
        if middle in (low, high):  # adjacent doubles
            break
        total = fixed * math.prod(_sizes(middle, ratios, caps))
        if total >= target:
            high = middle
        if total <= target:
            low = middle
    reached = fixed * math.prod(_sizes(high, ratios, caps)) == target
    return _sizes(high if reached else low, ratios, caps)


def _sizes(factor: float, ratios: list[float], caps: list[float]) -> list[int]:
    return [max(1, int(min(ratio * factor, cap))) for ratio, cap in zip(ratios, caps, strict=True)]


# --- requests ------------------------------------------------------------------------------------------------------

T = TypeVar("T", int, float)
R = TypeVar("R")

_USAGES: Final = ("chunk", "read_chunk", "write_chunk")
"""Members with constraints; of several soft ones the first counts, as in TensorStore."""
_SOFT: Final = "_soft_constraint"
_CHUNK_MEMBERS = frozenset(name + soft for name in ("shape", "aspect_ratio", "elements") for soft in ("", _SOFT))


@dataclass(frozen=True, slots=True)
class ChunkLayout:
    """Merged constraints of a layout; see `choose_chunks`. ``order`` is None if unconstrained."""

    chunk_shape: tuple[int, ...] = ()
    aspect_ratio: tuple[float, ...] = ()
    elements: int | None = None
    order: Order | None = None


def inner_shapes(dtype: DataType) -> list[tuple[int, ...]]:
    """Shapes of the axes within an item, by which TensorStore extends those of the array: of the item as a whole, and
    of each field; bytes are an axis of their own."""

    def inner(base: np.dtype[Any], shape: tuple[int, ...]) -> tuple[int, ...]:
        return (*shape, base.itemsize) if base.kind == "S" or base.type is np.void else shape

    fields = [inner(field.numpy, field.shape) for field in dtype.fields]
    return list(dict.fromkeys(fields if len(fields) == 1 else [inner(dtype.numpy, ()), *fields]))


def _without_inner(layout: Mapping[str, Any], rank: int, inner: tuple[int, ...]) -> Mapping[str, Any] | None:
    """A layout of the array's axes alone, from one that has those within an item too; None if it is none."""
    outer: dict[str, Any] = {}
    for name, value in layout.items():
        if name == "rank":
            outer[name] = rank if value == rank + len(inner) else value
        elif isinstance(value, Mapping):
            part = _without_inner(value, rank, inner)
            if part is None:
                return None
            outer[name] = part
        elif not isinstance(value, list):
            outer[name] = value
        elif len(value) != rank + len(inner):
            return None
        else:
            rest, outer[name] = value[rank:], value[:rank]
            if name == "inner_order" and rest != [*range(rank, len(value))]:
                raise ValueError(f"inner_order: the axes {rest} lie within an item, and are the innermost")
            if name == "shape" and any(n not in (None, 0, -1, size) for n, size in zip(rest, inner, strict=True)):
                return None
            if name == "grid_origin" and any(start not in (0, None) for start in rest):
                return None
            if name == "inner_order" + _SOFT and sorted(map(str, outer[name])) != sorted(map(str, range(rank))):
                del outer[name]
    return outer


def parse_chunk_layout(value: Any, rank: int, hard: ChunkLayout, inner: Sequence[tuple[int, ...]] = ()) -> ChunkLayout:
    """The constraints of a ``chunk_layout`` for an array of ``rank`` axes, which may be followed by those ``inner`` to
    an item, in one of several shapes. An entry that is null is not constrained.

    ``hard`` are constraints of other members. Raises `ValueError` if malformed, for conflicting hard constraints, and
    for constraints that Zarr v2 does not support: a codec chunk, a grid origin, an order other than C and F.
    """
    orders = [name + soft for name in ("inner_order", "grid_origin") for soft in ("", _SOFT)]
    layout = _object(value, [*_USAGES, "codec_chunk", "rank", *orders])
    for lengths in (lengths for lengths in inner if lengths):
        layout = _without_inner(layout, rank, lengths) or layout
    if layout.get("rank", rank) != rank:
        raise ValueError(f"rank: the array has {rank} axes, not {shown(layout['rank'])}")
    origin = layout.get("grid_origin")
    zeros = isinstance(origin, list) and len(origin) == rank and all(start in (0, None) for start in origin)
    if origin is not None and not zeros:
        raise ValueError(f"grid_origin: expected {rank} zeros, found {shown(origin)}")
    codec_chunk = _object(layout.get("codec_chunk", {}), _CHUNK_MEMBERS)
    if any(size > 0 for size in parse_chunk_shape(codec_chunk.get("shape"), rank, null=0)):  # other members are soft
        raise ValueError("codec_chunk: Zarr v2 encodes whole chunks")
    chunks = [_object(layout.get(usage, {}), _CHUNK_MEMBERS) for usage in _USAGES]

    def stated(name: str, parse: Callable[[Any], R]) -> tuple[list[R], list[R]]:
        """Hard and soft constraints."""
        hard, soft = ([parse(chunk.get(name + suffix)) for chunk in chunks] for suffix in ("", _SOFT))
        return hard, soft

    shapes, soft_shapes = stated("shape", lambda value: parse_chunk_shape(value, rank, null=0))
    ratios, soft_ratios = stated("aspect_ratio", lambda value: parse_aspect_ratio(value, rank))
    counts, soft_counts = stated("elements", parse_elements)
    choices = sorted({count for count in (hard.elements, *counts) if count is not None})
    if len(choices) > 1:
        raise ValueError(f"a chunk cannot have both {choices[0]} and {choices[1]} elements")
    return ChunkLayout(
        chunk_shape=_merge([hard.chunk_shape, *shapes], [(), *soft_shapes], rank, "chunk shape"),
        aspect_ratio=_merge([hard.aspect_ratio, *ratios], [(), *soft_ratios], rank, "aspect ratio"),
        elements=next((count for count in (*choices, *soft_counts) if count is not None), None),
        order=_merge_order(layout, rank, hard.order),
    )


def chosen_chunks(
    shape: tuple[int, ...], dtype: DataType, layout: ChunkLayout, most: int = DEFAULT_ELEMENTS
) -> tuple[int, ...]:
    """The chunk shape for a layout, by default of ``most`` elements, or of 16 MiB if that is less.

    Elements are TensorStore's: those of a field's subarray, and each byte of bytes; of several fields those of the one
    with the most.
    """

    def elements(base: np.dtype[Any]) -> int:
        return base.itemsize if base.kind == "S" or (base.type is np.void and base.names is None) else 1

    fields = [(field.numpy, math.prod(field.shape)) for field in dtype.fields] or [(dtype.numpy, 1)]
    inner = max(count * elements(base) for base, count in fields)
    default = 1 << 16 if dtype.numpy.hasobject else min(most, (16 << 20) * inner // dtype.itemsize)
    return choose_chunks(
        shape,
        chunk_shape=layout.chunk_shape,
        aspect_ratio=layout.aspect_ratio,
        elements=default if layout.elements is None else layout.elements,
        inner=inner,
    )


def requested_chunks(value: Any, shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Sizes by axis (0 for free) from zarr-python's forms of ``chunks``; empty for None."""
    rank, size = len(shape), integral(value)
    if value is None:
        return ()
    if value is True:
        return guess_chunks(shape, itemsize)
    if value is False or size == -1:
        sizes: tuple[int, ...] = (-1,) * rank
    elif size is not None and size > 0:
        sizes = (size,) * rank
    elif isinstance(value, list) and len(value) <= rank:
        sizes = parse_chunk_shape([*value, *[-1] * (rank - len(value))], rank)
    else:
        raise ValueError(f"expected a list of up to {rank} sizes, a size, true or false, found {shown(value)}")
    return tuple(max(1, extent) if size == -1 else size for size, extent in zip(sizes, shape, strict=True))


def without_soft(layout: Any) -> Any:
    """A ``chunk_layout`` without its soft constraints."""
    if not isinstance(layout, Mapping):
        return layout
    return {name: without_soft(value) for name, value in layout.items() if not name.endswith(_SOFT)}


def parse_elements(value: Any) -> int | None:
    """A number of elements; None for null. Raises `ValueError`."""
    if value is None:
        return None
    number = integral(value)
    if number is not None and 0 <= number < MAX_SIZE:
        return number
    raise ValueError(f"expected a number of elements, found {shown(value)}")


def parse_aspect_ratio(value: Any, rank: int) -> tuple[float, ...]:
    """Proportions of a chunk for each axis; empty for null. Raises `ValueError`."""
    return _vector(value, rank, _ratio)


def parse_chunk_shape(value: Any, rank: int, *, null: int = -1) -> tuple[int, ...]:
    """Sizes for each axis: 0 for free, -1 for the whole axis, null for ``null``; empty for null. Raises
    `ValueError`."""
    return _vector(value, rank, lambda size: null if size is None else _size(size))


def _object(value: Any, members: Iterable[str]) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        for name in value:
            if name not in members:
                raise ValueError(f"unknown member {shown(name)}; known are {', '.join(sorted(members))}")
        return value
    raise ValueError(f"expected an object, found {shown(value)}")


def _vector(value: Any, rank: int, parse: Callable[[Any], T]) -> tuple[T, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) != rank:
        raise ValueError(f"expected a list of {rank} numbers, one for each axis, found {shown(value)}")
    return tuple([parse(item) for item in value])


def _size(value: Any) -> int:
    size = integral(value)
    if size is not None and -1 <= size <= MAX_SIZE:
        return size
    raise ValueError(f"expected sizes, 0 for free or -1 for the whole axis, found {shown(value)}")


def _ratio(value: Any) -> float:
    low, high = 1e-9, 1e9
    if value is None:
        return 0.0
    if type(value) in (int, float) and (value == 0 or low <= value <= high):
        return float(value)
    raise ValueError(f"expected ratios from {low} to {high}, or 0 for 1, found {shown(value)}")


def _merge(hard: Sequence[Sequence[T]], soft: Sequence[Sequence[T]], rank: int, what: str) -> tuple[T, ...]:
    """The value for each axis: the hard one, else the first soft one, else 0. A hard -1 takes precedence over soft
    constraints only."""
    merged: list[T] = [0] * rank
    for values in hard:
        for axis, value in enumerate(values):
            if value > 0 and merged[axis] not in (0, value):
                raise ValueError(f"{what} of axis {axis} cannot be both {merged[axis]} and {value}")
            merged[axis] = max(merged[axis], value, 0)
    for values in chain.from_iterable(zip(hard, soft, strict=True)):
        merged = [value or default for value, default in zip(merged, values or merged, strict=True)]
    return tuple(merged)


def _merge_order(layout: Mapping[str, Any], rank: int, requested: Order | None) -> Order | None:
    """The order; for fewer than two axes C and F are the same, and soft constraints are ignored."""
    orders: dict[tuple[int, ...], Order] = {tuple(reversed(range(rank))): "F", tuple(range(rank)): "C"}
    hard = _permutation(layout.get("inner_order"), rank)
    soft = _permutation(layout.get("inner_order" + _SOFT), rank)
    if hard is None:
        return requested or (orders.get(soft) if soft is not None and rank > 1 else None)
    if hard not in orders:
        raise ValueError(f"inner_order: Zarr v2 has C and F order, not {list(hard)}")
    if requested is not None and rank > 1 and requested != orders[hard]:
        raise ValueError(f"inner_order: {list(hard)} is {orders[hard]} order, and order is {requested}")
    return requested or orders[hard]


def _permutation(value: Any, rank: int) -> tuple[int, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(type(axis) is int for axis in value) or sorted(value) != [*range(rank)]:
        raise ValueError(f"inner_order: expected a permutation of 0 to {rank - 1}, found {shown(value)}")
    return tuple(value)
