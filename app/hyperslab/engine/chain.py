"""Links of a codec chain, and the data between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Buffer: TypeAlias = bytes | bytearray | memoryview
Encoded: TypeAlias = Buffer | NDArray[Any]

UNSIZED_LIMIT: Final = 256 << 20
"""Maximum bytes between an object codec and a compressor, where the size is not known in advance."""
BYTE: Final[np.dtype[Any]] = np.dtype(np.uint8)


@dataclass(frozen=True, slots=True)
class Stage:
    """Description of the data between two codecs: ``nbytes`` (at most, unless ``exact``) of items of ``dtype``.

    ``shape`` and ``order`` are those of the chunk; ``shape`` is None after the first codec, where items are flat.
    """

    nbytes: int
    exact: bool
    dtype: np.dtype[Any]
    shape: tuple[int, ...] | None = None
    order: Literal["C", "F"] = "C"

    @property
    def items(self) -> int:
        return self.nbytes // self.dtype.itemsize

    def typed(self, before: np.dtype[Any], after: np.dtype[Any]) -> Stage:
        """The stage after a filter that maps items of ``before`` to as many of ``after``."""
        fits = self.nbytes % before.itemsize == 0
        return Stage(self.nbytes // before.itemsize * after.itemsize, self.exact and fits, after)

    def raw(self, nbytes: int, *, exact: bool) -> Stage:
        """The stage after a codec that returns bytes."""
        return Stage(nbytes, exact and self.exact, BYTE)

    def compressed(self) -> Stage:
        """The stage after a compressor, bounded for incompressible data: bzip2, which grows most, adds 1%."""
        return self.raw(self.nbytes + self.nbytes // 8 + (64 << 10), exact=False)


class Inflates(ValueError):
    """The encoded size at a codec (``index`` in the chain) exceeds the limit."""

    def __init__(self, index: int, nbytes: int, limit: int) -> None:
        super().__init__(f"makes {nbytes} bytes of a chunk, the limit is {limit}")
        self.index = index


Decode: TypeAlias = Callable[[Buffer, NDArray[Any] | None], Any]
"""Takes encoded bytes and an optional destination (uint8, of the decoded size); returns the filled destination, or
another buffer or array with the items."""
Encode: TypeAlias = Callable[[NDArray[Any]], Encoded]
"""Takes a flat array of the previous stage's dtype in stored order, or if `Link.shaped`, of the chunk's shape."""


@dataclass(frozen=True, slots=True)
class Link:
    """Codec in a chain, between the stages ``decoded`` and ``encoded``.

    ``into``: ``decode`` uses the destination. ``shaped``: as the first link, ``encode`` takes the chunk in its shape.
    ``lossless``: decoding restores all bits; False if unknown. ``unsized``: the encoded size has no known bound.
    """

    id: str
    decode: Decode
    encode: Encode
    decoded: Stage
    encoded: Stage
    into: bool = False
    shaped: bool = False
    lossless: bool = False
    unsized: bool = False


def flat_bytes(data: Any) -> NDArray[Any]:
    """The memory of an array or buffer as uint8, without a copy; raises `ValueError` for objects."""
    if isinstance(data, np.ndarray):
        if data.dtype.hasobject:
            raise ValueError("there are objects where bytes were expected")
        return data.reshape(-1, order="A").view(BYTE)
    return np.frombuffer(data, BYTE)


def reason_of(error: Exception) -> str:
    """The message of a codec's exception, in one line of at most 300 characters."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 300 else text[:297] + "..."
