"""Compressors of byte streams, decoded with a limit: data that claim or make more than expected are stopped early.

Each ``decode_*`` takes the encoded bytes, the destination (uint8, of exactly ``limit`` bytes) or None, and ``limit``.
It returns the destination or new bytes, whose size the caller checks. Errors are those of the libraries, or
`ValueError`.
"""

from __future__ import annotations

import binascii
import bz2
import lzma
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeAlias

import cramjam
import numpy as np
from isal import isal_zlib
from numcodecs import lz4, zstd
from numpy.typing import NDArray

from hyperslab.engine.chain import Buffer
from hyperslab.engine.codec_config import LZ4_MOST_BYTES, LZMA_MEMORY, CodecConfig

Out = NDArray[Any] | None
Start: TypeAlias = Callable[[Buffer, NDArray[Any]], bool]
"""Decodes the beginning of a stream, as much as fills the destination; False where that has to be left to the whole."""

_GZIP_WINDOW: Final = 31
_FULL: Final = "failed to write whole buffer"
"""What the library says when the destination is full and the stream goes on."""


class Stream(Protocol):
    """Decoder of one stream of zlib, bz2 or lzma."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: Any, max_length: int, /) -> bytes: ...


# --- zlib, gzip, bz2, lzma ---------------------------------------------------------------------------------------


def decode_zlib(data: Buffer, _out: Out, limit: int) -> bytes:
    """One stream with nothing behind it. [RFC 1950]"""
    return _decode_streams(isal_zlib.decompressobj, data, limit, single=True)


def decode_gzip(data: Buffer, _out: Out, limit: int) -> bytes:
    """Any number of members, zero padding between and behind them. [RFC 1952]"""
    return _decode_streams(lambda: isal_zlib.decompressobj(_GZIP_WINDOW), data, limit)


def decode_bz2(data: Buffer, _out: Out, limit: int) -> bytes:
    """Any number of streams."""
    return _decode_streams(bz2.BZ2Decompressor, data, limit)


def lzma_decoder(config: CodecConfig) -> Callable[[Buffer, Out, int], bytes]:
    """The decoder for a ``lzma`` configuration: xz, lzma-alone, or raw with the filters that it names."""
    format_, filters = config.get("format", lzma.FORMAT_XZ), config.get("filters")

    def make() -> Stream:
        if format_ == lzma.FORMAT_RAW:
            return lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=filters)
        return lzma.LZMADecompressor(format_, memlimit=LZMA_MEMORY + (1 << 20))  # besides its dictionary

    return lambda data, _out, limit: _decode_streams(make, data, limit)


def _decode_streams(make: Callable[[], Stream], data: Buffer, limit: int, *, single: bool = False) -> bytes:
    """Decode concatenated streams. The first is given all input at once; nearly always it is the only one."""
    view, made, at, piece = memoryview(data), [], 0, len(data)
    while at < len(view) or not at:
        stream = make()
        while not stream.eof:
            part = view[at : at + piece]
            if not part:
                raise ValueError("the stream ends before its end")
            made.append(stream.decompress(part, limit + 1))
            limit -= len(made[-1])
            if limit < 0:
                raise ValueError("the stream makes more bytes than expected")
            at += len(part) - len(stream.unused_data)
        if single and at < len(view):
            raise ValueError(f"{len(view) - at} bytes follow the end of the stream")
        piece = 16 << 10  # each stream returns what it did not use, as a copy
        while at < len(view) and not view[at]:
            at += 1
    return made[0] if len(made) == 1 else b"".join(made)


def encode_zlib(data: memoryview, config: CodecConfig) -> bytes:
    return zlib.compress(data, _within(config.get("level", 1), -1, 9))


def encode_gzip(data: memoryview, config: CodecConfig) -> bytes:
    """The header's time is zero, so that equal chunks have equal bytes."""
    stream = zlib.compressobj(_within(config.get("level", 1), -1, 9), zlib.DEFLATED, _GZIP_WINDOW)
    return stream.compress(data) + stream.flush()


def encode_bz2(data: memoryview, config: CodecConfig) -> bytes:
    return bz2.compress(data, _within(config.get("level", 1), 1, 9))


def encode_lzma(data: memoryview, config: CodecConfig) -> bytes:
    format_, options = config.get("format", lzma.FORMAT_XZ), {n: config.get(n) for n in ("preset", "filters")}
    return lzma.compress(data, format_, check=config.get("check", -1), **options)


def _start_of(make: Callable[[], Stream]) -> Start:
    def start(data: Buffer, out: NDArray[Any]) -> bool:
        found = make().decompress(data, out.nbytes)
        if is_whole := len(found) == out.nbytes:
            out[:] = np.frombuffer(found, np.uint8)
        return is_whole

    return start


# --- zstd --------------------------------------------------------------------------------------------------------


def decode_zstd(data: Buffer, out: Out, limit: int) -> Any:
    """Any number of frames, with or without their content size. [RFC 8878]

    The library fills no more than the destination, but does not tell if it fills less: so a destination is only given
    if the sizes in the frames, or the library's own check, say that it will be full.
    """
    total, exact = _zstd_content(data, limit)
    if exact and total > limit:
        raise ValueError(f"the frames say {total} bytes decoded, expected {limit}")
    if total < limit:
        return zstd.decompress(data)
    return zstd.decompress(data, np.empty(limit, np.uint8) if out is None else out)


def _start_zstd(data: Buffer, out: NDArray[Any]) -> bool:
    try:
        cramjam.zstd.decompress_into(data, out.data)
    except cramjam.DecompressionError as error:
        return _FULL in str(error)  # else decoding the whole says what is wrong
    return False


def encode_zstd(data: memoryview, config: CodecConfig) -> bytes:
    frame: bytes = zstd.compress(data, _within(config.get("level", 0), -131072, 22), config.get("checksum", False))
    return frame


def _zstd_content(data: Buffer, limit: int) -> tuple[int, bool]:
    """Bytes that all frames make, and whether that is exact or only a bound.

    If the first frame names ``limit`` itself the others are not looked at: any that makes something does not fit.
    """
    total, exact, at = 0, True, 0
    while at < len(data):
        magic = _little(data, at, 4)
        if magic & ~0xF == 0x184D2A50:  # skippable
            at += 8 + _little(data, at + 4, 4)
            continue
        if magic != 0xFD2FB528:
            raise ValueError("this is not a zstd frame")
        flags = _little(data, at + 4, 1)
        single = bool(flags & 0x20)
        start = at + 5 + (not single) + (0, 1, 2, 4)[flags & 3]
        width = (1 if single else 0, 2, 4, 8)[flags >> 6]
        content = _little(data, start, width) + (256 if width == 2 else 0) if width else None
        if content == limit and not at:
            return limit, True
        at, bound = _zstd_blocks(data, start + width)
        at += 4 * bool(flags & 0x04)  # the checksum
        total += bound if content is None else content
        exact = exact and content is not None
    return total, exact


def _zstd_blocks(data: Buffer, at: int) -> tuple[int, int]:
    """Where the blocks that begin at ``at`` end, and the most that they can make."""
    bound, last = 0, False
    while not last:
        header = _little(data, at, 3)
        last, kind, size = bool(header & 1), header >> 1 & 3, header >> 3
        bound += 128 << 10 if kind == 2 else size  # a compressed block makes 128 KiB at the most
        at += 3 + (1 if kind == 1 else size)
    return at, bound


def _little(data: Buffer, at: int, width: int) -> int:
    if at + width > len(data):
        raise ValueError("the frame ends before its end")
    return int.from_bytes(data[at : at + width], "little")


# --- lz4, base64 -------------------------------------------------------------------------------------------------


def decode_lz4(data: Buffer, out: Out, limit: int) -> Any:
    """The decoded size as a uint32, then one LZ4 block."""
    size = _little(data, 0, 4)
    if size > limit or (out is not None and size != limit) or len(data) > LZ4_MOST_BYTES:
        raise ValueError(f"the header says {size} bytes decoded, expected {limit}")
    return lz4.decompress(data, out)


def encode_lz4(data: memoryview, config: CodecConfig) -> bytes:
    if data.nbytes > LZ4_MOST_BYTES:
        raise ValueError(f"lz4 takes at most {LZ4_MOST_BYTES} bytes, the chunk has {data.nbytes}")
    block: bytes = lz4.compress(data, _within(config.get("acceleration", 1), 1, 65537))
    return block


def decode_base64(data: Buffer, _out: Out, _limit: int) -> bytes:
    """The standard alphabet with padding, and nothing else between. [RFC 4648 §4]"""
    return binascii.a2b_base64(data, strict_mode=True)


def encode_base64(data: memoryview, _config: CodecConfig) -> bytes:
    return binascii.b2a_base64(data, newline=False)


STARTS: Final[Mapping[str, Start]] = {
    "zlib": _start_of(isal_zlib.decompressobj),
    "gzip": _start_of(lambda: isal_zlib.decompressobj(_GZIP_WINDOW)),
    "zstd": _start_zstd,
}


def _within(value: int, low: int, high: int) -> int:
    """A level that the library has: arrays may name one that it has not, and are written all the same."""
    return min(max(value, low), high)
