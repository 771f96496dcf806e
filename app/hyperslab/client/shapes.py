"""Shapes as people give them."""

from __future__ import annotations

import operator
from typing import Any


def read_lengths(shape: Any) -> list[int | None]:
    """The length of each axis, None where it is to stay; an integer alone stands for one axis.

    Raises `TypeError` for lengths that are no integers: a part of one would be lost.
    """
    try:
        return [operator.index(shape)]
    except TypeError:
        if isinstance(shape, str | bytes) or not hasattr(shape, "__iter__"):
            raise TypeError(f"shape={shape!r}: expected an integer, or one for each axis") from None
    return [None if length is None else operator.index(length) for length in shape]


def read_shape(shape: Any) -> list[int]:
    """As `read_lengths`, of a shape that is to be complete."""
    lengths = read_lengths(shape)
    return [operator.index(length) for length in lengths]  # type: ignore[arg-type]
