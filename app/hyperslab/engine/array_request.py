"""What is asked of an array, new or stored: the members of a request, and the forms in which chunks are asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from hyperslab.engine.chunk_layout import parse_chunk_shape
from hyperslab.engine.chunk_shape import guess_chunks
from hyperslab.engine.members import integral
from hyperslab.errors import BadDefinition, shown

T = TypeVar("T")

MEMBERS: Final = (
    "zarr_format",
    "shape",
    "dtype",
    "chunks",
    "chunk_elements",
    "chunk_aspect_ratio",
    "chunk_layout",
    "order",
    "compressor",
    "filters",
    "fill_value",
    "dimension_separator",
)
"""What may be said of a new array; only ``shape`` and ``dtype`` must be."""

NULL_MEANS_NONE: Final = frozenset({"compressor", "filters", "fill_value"})
"""The members of which null is a value; in a request it leaves every other one open."""


class ArrayRequest:
    """The members of a request, read one by one so that each error names its member."""

    def __init__(self, members: Mapping[str, Any]) -> None:
        for name in members:
            if name not in MEMBERS:
                raise BadDefinition(name, f"is no member of an array; known are {', '.join(MEMBERS)}")
        self.members = members

    def leaves_open(self, name: str) -> bool:
        """Whether nothing is asked of this member."""
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


def asked_chunks(value: Any, shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Sizes by axis, 0 for free and the extent for a whole one; none where nothing is asked for."""
    sizes = _sizes(value, shape, itemsize)
    return tuple(max(1, extent) if size == -1 else size for size, extent in zip(sizes, shape, strict=False))


def _sizes(value: Any, shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Sizes by axis, 0 for free and -1 for whole, from the forms that zarr-python takes (CONFORMANCE 234)."""
    if value is None:
        return ()
    if value is True:
        return guess_chunks(shape, itemsize)
    if value is False:
        return (-1,) * len(shape)
    size = integral(value)
    if size is not None and (size > 0 or size == -1):
        return (size,) * len(shape)
    if not isinstance(value, list) or len(value) > len(shape):
        raise ValueError(f"expected a list of up to {len(shape)} sizes, a size, true or false, found {shown(value)}")
    return parse_chunk_shape([*value, *[-1] * (len(shape) - len(value))], len(shape))
