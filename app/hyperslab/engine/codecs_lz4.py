"""The beginning of LZ4 streams. numcodecs holds a decoder that can stop, but offers only the one that does not.

``LZ4_decompress_safe_partial`` reads no byte outside the stream and writes none behind what it is asked for, whatever
the stream says. [lz4.h]
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

import numpy as np
from numcodecs import blosc

_DECODE: Final[Any] = getattr(ctypes.CDLL(blosc.__file__), "LZ4_decompress_safe_partial", None)
CAN_STOP: Final = _DECODE is not None
"""Whether there is such a decoder: numcodecs may have been built so that it keeps it to itself."""

if CAN_STOP:
    _DECODE.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_int]
    _DECODE.restype = ctypes.c_int


def address(memory: memoryview) -> int:
    """Where memory (contiguous, not empty) lies, for as long as somebody holds on to it."""
    if memory.readonly:
        return int(np.frombuffer(memory, np.uint8).ctypes.data)
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))  # 5 times as fast


def decode_beginning(source: int, nbytes: int, target: int, want: int) -> None:
    """Decode the first ``want`` bytes of the stream of ``nbytes`` at the address ``source`` to the address ``target``.

    Other threads may go on meanwhile. Raises `ValueError` for a stream that is broken or ends early.
    """
    if _DECODE(source, target, nbytes, want, want) != want:
        raise ValueError("an LZ4 stream is broken, or ends early")
