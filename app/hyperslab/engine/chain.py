"""The codec chain: what lies between two codecs, and one codec as a pair of functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Buffer: TypeAlias = bytes | bytearray | memoryview
Encoded: TypeAlias = Buffer | NDArray[Any]

UNSIZED_LIMIT: Final = 256 << 20
"""Bytes that may lie between an object codec and a compressor, as nothing says how many there should be."""
BYTE: Final[np.dtype[Any]] = np.dtype(np.uint8)


@dataclass(frozen=True, slots=True)
class Stage:
    """The data between two codecs: ``nbytes`` of items of ``dtype``; at most that many if it is not ``exact``.

    ``shape`` and ``order``: of the chunk, as long as the items are those of the chunk; else None, and items are flat.
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
        """After a filter that takes items of ``before`` and gives as many of ``after``."""
        fits = self.nbytes % before.itemsize == 0
        return Stage(self.nbytes // before.itemsize * after.itemsize, self.exact and fits, after)

    def raw(self, nbytes: int, *, exact: bool) -> Stage:
        """After a codec that gives bytes."""
        return Stage(nbytes, exact and self.exact, BYTE)

    def compressed(self) -> Stage:
        """After a compressor: about as many bytes at the worst."""
        return self.raw(2 * self.nbytes + (64 << 10), exact=False)


class Inflates(ValueError):
    """A codec, ``index`` in the order of encoding, makes more of a chunk than it can need."""

    def __init__(self, index: int, nbytes: int, limit: int) -> None:
        super().__init__(f"makes {nbytes} bytes of a chunk, the limit is {limit}")
        self.index = index


Decode: TypeAlias = Callable[[Buffer, NDArray[Any] | None], Any]
"""Takes encoded bytes and a destination (uint8, exactly as long as the decoded data) or None; returns the destination,
filled, or something else that holds the items."""
Encode: TypeAlias = Callable[[NDArray[Any]], Encoded]
"""Takes a flat array of the dtype of the stage before; in stored order, or in the chunk's shape: `Link.shaped`."""


@dataclass(frozen=True, slots=True)
class Link:
    """A codec in its place. ``decoded``, ``encoded``: the stages before and behind it, seen from the writer.

    ``into``: ``decode`` writes straight into the destination. ``shaped``: if it is the first of the chain, its
    ``encode`` wants the chunk in its shape. ``lossless``: what it encodes, it gives back bit for bit; False also if
    nobody knows. ``unsized``: nothing says how large the encoded bytes may be.
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
    """The memory of an array (in the order in which it lies) or buffer as uint8, without a copy."""
    if isinstance(data, np.ndarray):
        if data.dtype.hasobject:
            raise ValueError("there are objects where bytes were expected")
        return data.reshape(-1, order="A").view(BYTE)
    return np.frombuffer(data, BYTE)


def reason_of(error: Exception) -> str:
    """What a codec's exception says, short and in one line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 300 else text[:297] + "..."
