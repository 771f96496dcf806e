"""The headers of our own, and those that several routes send alike."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from hyperslab.api.options import ApiOptions
from hyperslab.api.response import Headers
from hyperslab.arrays.cost import ReadCost
from hyperslab.arrays.nodes import MountedStore
from hyperslab.wire import ARRAY_CHUNKS, ARRAY_DTYPE, ARRAY_SHAPE, LONGEST_DTYPE, SERVER_TIMING, format_dtype

_REVALIDATE: Headers = ((b"cache-control", b"no-cache"),)
_VARY: Headers = ((b"vary", b"Accept"),)

_SHAPE, _DTYPE = ARRAY_SHAPE.lower().encode(), ARRAY_DTYPE.lower().encode()
_CHUNKS, _TIMING = ARRAY_CHUNKS.lower().encode(), SERVER_TIMING.lower().encode()


def caching(mount: MountedStore | None, options: ApiOptions, *, negotiated: bool = False) -> Headers:
    """``Cache-Control`` for what lies in a store: immutable if it never changes, else revalidated each time."""
    policy = _REVALIDATE
    if mount is not None and mount.recheck == "never" and not mount.writable:
        policy = immutable_for(options.immutable_seconds, options)
    return (*policy, *_VARY) if negotiated else policy


def immutable_for(seconds: int, options: ApiOptions) -> Headers:
    """``Cache-Control`` without revalidation; private if a token is needed to read: no shared cache may store it."""
    whose = "private" if options.read_tokens else "public"
    return ((b"cache-control", f"{whose}, max-age={seconds}, immutable".encode()),)


@lru_cache(4096)
def array_headers(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Headers:
    """What the bytes of a body mean; not the dtype where its text is larger than clients let a header be."""
    text = format_dtype(dtype).encode("ascii", "backslashreplace")
    said = ((_DTYPE, text),) if len(text) <= LONGEST_DTYPE else ()
    return ((_SHAPE, json.dumps(shape, separators=(",", ":")).encode()), *said)


def cost_headers(touched: int, cached: int, cost: ReadCost | None, timings: Mapping[str, float]) -> Headers:
    """``Array-Chunks`` and ``Server-Timing`` (milliseconds), as far as is known when the status line is sent."""
    nbytes = cost.bytes_read if cost is not None else 0
    spent = timings if cost is None else {**timings, **cost.timings}
    timing = ", ".join([f"{phase};dur={seconds * 1000:.3f}" for phase, seconds in spent.items()])
    return (_chunks_header(touched, cached, nbytes), (_TIMING, timing.encode()))


@lru_cache(4096)
def _chunks_header(touched: int, cached: int, nbytes: int) -> tuple[bytes, bytes]:
    return _CHUNKS, f"touched={touched}, cached={cached}, bytes={nbytes}".encode()
