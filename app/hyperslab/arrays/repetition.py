"""Telling an append that is sent again from another one that has borrowed its key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Protocol

import numpy as np

from hyperslab.arrays.chunks import NDArray
from hyperslab.errors import BadParameter
from hyperslab.wire import IDEMPOTENCY_KEY, pack_objects

_PIECE = 1 << 20
"""Bytes that are made contiguous at a time."""


@dataclass(frozen=True, slots=True)
class Keyed:
    """What a request with an idempotency key asks for. ``digest`` is that of its values, None where there is none."""

    key: str
    at: int | None
    digest: str | None

    def check_repeats(self, done: Mapping[str, Any], axis: int, length: int | None) -> None:
        """Raise `BadParameter`, which says what differs, unless ``done`` (see `extent.remembered`) is the same request.

        An append that was remembered without a digest is told by the number of its values alone.
        """
        other = [
            name
            for name, sent, known in (
                ("axis", axis, done["axis"]),
                ("length", length, done["length"]),
                ("at", self.at, None if self.at is None else done["offset"]),
                ("values", self.digest, done.get("digest") or self.digest),
            )
            if sent != known
        ]
        if other:
            had = f"the append of {done['length']} at {done['offset']} along axis {done['axis']} had this one"
            raise BadParameter(IDEMPOTENCY_KEY, self.key, f"another key: {had}, with other {' and '.join(other)}")

    def note(self, axis: int, offset: int, length: int) -> dict[str, Any]:
        """What is remembered of it once it is done."""
        noted = {"key": self.key, "axis": axis, "offset": offset, "length": length}
        return noted if self.digest is None else {**noted, "digest": self.digest}


def digest_of(values: NDArray) -> str | None:
    """A digest of values and their shape, however they lie in memory; None for objects that have no form of bytes."""
    digest = blake2b(str(values.shape).encode(), digest_size=16)
    try:
        _feed(digest, values)
    except (TypeError, ValueError):
        return None
    return digest.hexdigest()


class _Digest(Protocol):
    def update(self, data: Any, /) -> None: ...


def _feed(digest: _Digest, values: NDArray) -> None:
    """Records go field by field: the padding between the fields may hold anything."""
    for name in values.dtype.names or ():
        _feed(digest, values[name])
    if values.dtype.names is not None:
        return
    size = max(1, _PIECE // values.itemsize)
    pieces = np.nditer(
        values, flags=("buffered", "external_loop", "refs_ok", "zerosize_ok"), order="C", buffersize=size
    )
    for piece in pieces:
        if values.dtype.hasobject:
            digest.update(pack_objects(piece))
        else:
            digest.update(np.ascontiguousarray(piece).view(np.uint8))
