"""What a request says of a new array: its members one by one, and the shape of its chunks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import numpy as np

from hyperslab.engine.chunk_shape import (
    DEFAULT_ELEMENTS,
    ChunkLayout,
    choose_chunks,
    guess_chunks,
    parse_aspect_ratio,
    parse_chunk_layout,
    parse_chunk_shape,
    parse_elements,
)
from hyperslab.engine.dtypes import DataType
from hyperslab.engine.metadata import integral, parse_order
from hyperslab.errors import BadDefinition, shown

T = TypeVar("T")

NULL_MEANS_NONE: Final = frozenset({"compressor", "filters", "fill_value"})
"""The members of which null is a value; in a request it leaves every other one open."""


class Request:
    """The members of a request, read one by one so that each error names its member; those ``known`` are allowed."""

    def __init__(self, members: Mapping[str, Any], known: Sequence[str]) -> None:
        for name in members:
            if name not in known:
                raise BadDefinition(name, f"is no member of an array; known are {', '.join(known)}")
        self.members = members

    def leaves_open(self, name: str) -> bool:
        """Whether the request leaves this member open."""
        return name not in self.members or (self.members[name] is None and name not in NULL_MEANS_NONE)

    def __call__(self, name: str, parse: Callable[[Any], T], *default: Any) -> T:
        """The parsed member, or the parsed default; without a default the member is required."""
        if name not in self.members and not default:
            raise BadDefinition(name, "is missing")
        value = default[0] if default and self.leaves_open(name) else self.members[name]
        try:
            return parse(value)
        except ValueError as error:
            raise BadDefinition(name, str(error)) from None


def read_layout(read: Request, shape: tuple[int, ...], dtype: DataType) -> ChunkLayout:
    """What the request says of chunks and their order."""
    rank = len(shape)
    hard = ChunkLayout(
        # a whole axis is a number here: -1 in a ``chunk_layout`` would yield to the numbers of others
        chunk_shape=read("chunks", lambda value: requested_chunks(value, shape, dtype.itemsize), None),
        aspect_ratio=read("chunk_aspect_ratio", lambda value: parse_aspect_ratio(value, rank), None),
        elements=read("chunk_elements", parse_elements, None),
        order=read("order", lambda value: None if value is None else parse_order(value), None),
    )
    return read("chunk_layout", lambda value: parse_chunk_layout(value, rank, hard), {})


def chosen_chunks(
    shape: tuple[int, ...], dtype: DataType, layout: ChunkLayout, most: int = DEFAULT_ELEMENTS
) -> tuple[int, ...]:
    """The shape of chunks; of what the request leaves open, ``most`` elements. Those of large items have fewer."""
    inner = _elements_of_item(dtype)
    largest = (16 << 20) * inner // dtype.itemsize
    default = 1 << 16 if dtype.is_object else min(most, largest)
    return choose_chunks(
        shape,
        chunk_shape=layout.chunk_shape,
        aspect_ratio=layout.aspect_ratio,
        elements=default if layout.elements is None else layout.elements,
        inner=(inner,),
    )


def _elements_of_item(dtype: DataType) -> int:
    """How many elements TensorStore sees in one item: the subarray of a field, and each byte of bytes.

    It is told which field it opens; no field is named here, so the one that counts is the one with the most.
    """

    def elements(base: np.dtype[Any]) -> int:
        return base.itemsize if base.kind == "S" or (base.type is np.void and base.names is None) else 1

    fields = [(field.numpy, math.prod(field.shape)) for field in dtype.fields] or [(dtype.numpy, 1)]
    return max(count * elements(base) for base, count in fields)


def requested_chunks(value: Any, shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Sizes by axis, 0 for free and the extent for a whole one, from the forms that zarr-python takes; empty if
    nothing is requested."""
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
