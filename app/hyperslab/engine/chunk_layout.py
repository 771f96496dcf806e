"""The ``chunk_layout`` of a new array as TensorStore spells it: hard and soft constraints on chunk shape and order."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from hyperslab.engine.jsontext import shown
from hyperslab.engine.members import MAX_SIZE, Order

T = TypeVar("T", int, float)

_USAGES: Final = ("chunk", "read_chunk", "write_chunk")
"""Where constraints come from; of two soft ones the first counts, as in TensorStore."""
_SOFT: Final = "_soft_constraint"
_CHUNK_MEMBERS = frozenset(name + soft for name in ("shape", "aspect_ratio", "elements") for soft in ("", _SOFT))
_RATIO_LIMITS = (1e-9, 1e9)


@dataclass(frozen=True, slots=True)
class ChunkLayout:
    """What a layout asks for, hard over soft: see `chunk_shape.choose_chunks`. ``order`` is None where it is open."""

    chunk_shape: tuple[int, ...]
    aspect_ratio: tuple[float, ...]
    elements: int | None
    order: Order | None


def parse_chunk_layout(value: Any, rank: int, *, hard_shape: Sequence[int] = ()) -> ChunkLayout:
    """The constraints of a ``chunk_layout`` object on an array of ``rank`` axes (CONFORMANCE 222, 223, 231).

    ``hard_shape`` is one more constraint, from the member ``chunks``. Raises `ValueError` for what is malformed, for hard
    constraints that contradict each other, and for what Zarr v2 cannot do: a codec chunk, another grid origin, an order
    that is neither C nor F.
    """
    layout = _object(value, {*_USAGES, "codec_chunk", "rank", *_with_soft("inner_order"), *_with_soft("grid_origin")})
    if layout.get("rank", rank) != rank:
        raise ValueError(f"rank: the array has {rank} axes, not {shown(layout['rank'])}")
    _check_origin(layout.get("grid_origin"), rank)
    chunks = [_object(layout.get(usage, {}), _CHUNK_MEMBERS) for usage in _USAGES]
    codec_chunk = _object(layout.get("codec_chunk", {}), _CHUNK_MEMBERS)
    if any(size > 0 for size in _vector(codec_chunk.get("shape"), rank, _size)):
        raise ValueError("codec_chunk: Zarr v2 encodes whole chunks")
    shapes = [hard_shape, *_vectors(chunks, "shape", rank, _size)]
    ratios = _vectors(chunks, "aspect_ratio", rank, _ratio)
    return ChunkLayout(
        chunk_shape=_merge(shapes, _vectors(chunks, "shape" + _SOFT, rank, _size), rank, "chunk shape"),
        aspect_ratio=_merge(ratios, _vectors(chunks, "aspect_ratio" + _SOFT, rank, _ratio), rank, "aspect ratio"),
        elements=_merge_elements(chunks),
        order=_order(layout, rank),
    )


def _with_soft(name: str) -> tuple[str, str]:
    return name, name + _SOFT


def _object(value: Any, members: Iterable[str]) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        for name in value:
            if name not in members:
                raise ValueError(f"unknown member {shown(name)}; known are {sorted(members)}")
        return value
    raise ValueError(f"expected an object, found {shown(value)}")


def _vectors(chunks: Sequence[Mapping[str, Any]], name: str, rank: int, parse: Callable[[Any], T]) -> list[list[T]]:
    return [_vector(chunk.get(name), rank, parse) for chunk in chunks]


def _vector(value: Any, rank: int, parse: Callable[[Any], T]) -> list[T]:
    if value is None:
        return []
    if not isinstance(value, list) or len(value) != rank:
        raise ValueError(f"expected a list of {rank} numbers, one for each axis, found {shown(value)}")
    return [parse(item) for item in value]


def _size(value: Any) -> int:
    if value is None:
        return -1
    if type(value) in (int, float) and value == int(value) and -1 <= value <= MAX_SIZE:
        return int(value)
    raise ValueError(f"expected sizes, 0 for free or -1 for the whole axis, found {shown(value)}")


def _ratio(value: Any) -> float:
    low, high = _RATIO_LIMITS
    if type(value) in (int, float) and (value == 0 or low <= value <= high):
        return float(value)
    raise ValueError(f"expected ratios from {low} to {high}, or 0 for 1, found {shown(value)}")


def _elements(value: Any) -> int | None:
    if value is None:
        return None
    if type(value) in (int, float) and value == math.floor(value) and 0 <= value < MAX_SIZE:
        return int(value)
    raise ValueError(f"expected a number of elements, found {shown(value)}")


def _merge(hard: Sequence[Sequence[T]], soft: Sequence[Sequence[T]], rank: int, what: str) -> tuple[T, ...]:
    """The value for each axis: the hard one, else the first soft one, else 0."""
    merged: list[T] = [0] * rank
    for values in hard:
        for axis, value in enumerate(values):
            if value and merged[axis] and value != merged[axis]:
                raise ValueError(f"{what} of axis {axis} cannot be both {merged[axis]} and {value}")
            merged[axis] = merged[axis] or value
    for values in soft:
        merged = [value or softly for value, softly in zip(merged, values or merged, strict=True)]
    return tuple(merged)


def _merge_elements(chunks: Sequence[Mapping[str, Any]]) -> int | None:
    hard = {number for chunk in chunks if (number := _elements(chunk.get("elements"))) is not None}
    if len(hard) > 1:
        raise ValueError(f"a chunk cannot have both {' and '.join(str(number) for number in sorted(hard))} elements")
    soft = [_elements(chunk.get("elements" + _SOFT)) for chunk in chunks]
    return next(iter(hard), next((number for number in soft if number is not None), None))


def _order(layout: Mapping[str, Any], rank: int) -> Order | None:
    """C and F are the same for fewer than two axes, and nothing is asked then."""
    hard = _permutation(layout.get("inner_order"), rank)
    soft = _permutation(layout.get("inner_order" + _SOFT), rank)
    orders: dict[tuple[int, ...], Order] = {tuple(range(rank)): "C", tuple(reversed(range(rank))): "F"}
    if hard is not None and hard not in orders:
        raise ValueError(f"inner_order: Zarr v2 has C and F order, not {list(hard)}")
    wanted = soft if hard is None else hard
    return None if wanted is None or rank < 2 else orders.get(wanted)


def _permutation(value: Any, rank: int) -> tuple[int, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(type(axis) is int for axis in value) or sorted(value) != [*range(rank)]:
        raise ValueError(f"inner_order: expected a permutation of 0 to {rank - 1}, found {shown(value)}")
    return tuple(value)


def _check_origin(value: Any, rank: int) -> None:
    if value is None:
        return
    if not isinstance(value, list) or len(value) != rank or any(origin not in (0, None) for origin in value):
        raise ValueError(f"grid_origin: expected {rank} zeros, found {shown(value)}")
