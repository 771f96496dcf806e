"""Compressed streams of bytes, decoded with a limit: what claims or makes more than expected is stopped early.

Each ``decode_*`` takes the encoded bytes, the destination (uint8, of exactly ``limit`` bytes) or None, and ``limit``.
It returns the destination or new bytes, which the caller compares with what it expected. Errors are those of the
libraries, or `ValueError`.
"""

from __future__ import annotations

import binascii
import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import zstandard
from isal import isal_zlib
from numcodecs import lz4, zstd
from numpy.typing import NDArray

from hyperslab.engine.codecs_chain import Buffer, Config
from hyperslab.engine.codecs_config import LZMA_MEMORY

Out = NDArray[Any] | None

_GZIP_WINDOW: Final = 31
_LZMA_STATE: Final = 1 << 20
"""Bytes that an LZMA decoder takes besides its dictionary, at the most."""
_PIECE: Final = 16 << 10
"""Input given at a time to streams after the first: each of them hands back what it did not use, as a copy."""


class Stream(Protocol):
    """One stream of zlib, bz2 or lzma."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: Any, max_length: int, /) -> bytes: ...


# --- zlib, gzip, bz2, lzma --------------------------------------------------------------------------------------


def decode_zlib(data: Buffer, _out: Out, limit: int) -> bytes:
    """One stream with nothing behind it. [RFC 1950]"""
    stream: Stream = isal_zlib.decompressobj()
    result = _decode_one(stream, data, limit)
    if stream.unused_data:
        raise ValueError(f"{len(stream.unused_data)} bytes follow the end of the stream")
    return result


def decode_gzip(data: Buffer, _out: Out, limit: int) -> bytes:
    """Any number of members, zero padding between and behind them. [RFC 1952]"""
    return _decode_all(lambda: isal_zlib.decompressobj(_GZIP_WINDOW), data, limit)


def decode_bz2(data: Buffer, _out: Out, limit: int) -> bytes:
    """Any number of streams."""
    return _decode_all(bz2.BZ2Decompressor, data, limit)


def lzma_decoder(config: Config) -> Callable[[Buffer, Out, int], bytes]:
    """The decoder for a ``lzma`` configuration: xz, lzma-alone, or raw with the filters that it names."""
    format_, filters = config.get("format", lzma.FORMAT_XZ), config.get("filters")

    def make() -> Stream:
        if format_ == lzma.FORMAT_RAW:
            return lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=filters)
        return lzma.LZMADecompressor(format_, memlimit=LZMA_MEMORY + _LZMA_STATE)

    return lambda data, _out, limit: _decode_all(make, data, limit)


def _decode_one(stream: Stream, data: Any, limit: int) -> bytes:
    result = stream.decompress(data, limit + 1)
    if len(result) > limit:
        raise ValueError(f"the stream makes more than {limit} bytes")
    if not stream.eof:
        raise ValueError("the stream ends before its end")
    return result


def _decode_all(make: Callable[[], Stream], data: Buffer, limit: int) -> bytes:
    """The first stream is decoded in one go; nearly always it is the only one."""
    first = make()
    result = _decode_one(first, data, limit)
    rest = first.unused_data.lstrip(b"\0")
    if not rest:
        return result
    return b"".join((result, *_decode_rest(make, rest, limit - len(result))))


def _decode_rest(make: Callable[[], Stream], data: bytes, limit: int) -> Iterator[bytes]:
    position = 0
    while position < len(data):
        if not data[position]:
            position += 1
            continue
        stream = make()
        while not stream.eof:
            piece = data[position : position + _PIECE]
            if not piece:
                raise ValueError("the last stream ends before its end")
            made = stream.decompress(piece, limit + 1)
            limit -= len(made)
            if limit < 0:
                raise ValueError("the streams make more than was expected")
            position += len(piece) - len(stream.unused_data)
            yield made


def fill_zlib(data: Buffer, out: NDArray[Any]) -> bool:
    """Decode the beginning of a stream into ``out`` (uint8); False where the first stream does not fill it."""
    return _fill(isal_zlib.decompressobj(), data, out)


def fill_gzip(data: Buffer, out: NDArray[Any]) -> bool:
    """As `fill_zlib`."""
    return _fill(isal_zlib.decompressobj(_GZIP_WINDOW), data, out)


def _fill(stream: Stream, data: Any, out: NDArray[Any]) -> bool:
    made = stream.decompress(data, len(out))
    if len(made) < len(out):
        return False
    out[:] = np.frombuffer(made, np.uint8)
    return True


def encode_zlib(data: memoryview, config: Config) -> bytes:
    return zlib.compress(data, _level(config, 1, -1, 9))


def encode_gzip(data: memoryview, config: Config) -> bytes:
    """The header's time is zero, so that equal chunks have equal bytes."""
    stream = zlib.compressobj(_level(config, 1, -1, 9), zlib.DEFLATED, _GZIP_WINDOW)
    return stream.compress(data) + stream.flush()


def encode_bz2(data: memoryview, config: Config) -> bytes:
    return bz2.compress(data, _level(config, 1, 1, 9))


def encode_lzma(data: memoryview, config: Config) -> bytes:
    format_ = config.get("format", lzma.FORMAT_XZ)
    return lzma.compress(
        data,
        format_,
        check=config.get("check", -1),
        preset=config.get("preset"),
        filters=config.get("filters"),
    )


# --- zstd --------------------------------------------------------------------------------------------------------

_ZSTD_MAGIC: Final = 0xFD2FB528
_ZSTD_SKIPPABLE: Final = 0x184D2A50
_ZSTD_BLOCK: Final = 128 << 10
"""The most that one block makes."""


def decode_zstd(data: Buffer, out: Out, limit: int) -> Any:
    """Any number of frames, with or without their content size. [RFC 8878]

    The library fills no more than the destination, but does not tell where it fills less: so a destination is only
    given where the sizes in the frames, or the library's own check, say that it will be full.
    """
    total, exact = _zstd_content(data, limit)
    if exact and total > limit:
        raise ValueError(f"the frames say {total} bytes decoded, expected {limit}")
    if total < limit:
        return zstd.decompress(data)
    return zstd.decompress(data, np.empty(limit, np.uint8) if out is None else out)


def fill_zstd(data: Buffer, out: NDArray[Any]) -> bool:
    """As `fill_zlib`, for the first frame."""
    place, filled = out.data, 0
    with zstandard.ZstdDecompressor().stream_reader(data) as reader:
        while filled < len(place):
            made = reader.readinto(place[filled:])
            if not made:
                return False
            filled += made
    return True


def encode_zstd(data: memoryview, config: Config) -> bytes:
    frame: bytes = zstd.compress(data, _level(config, 0, -131072, 22), config.get("checksum", False))
    return frame


def _zstd_content(data: Buffer, limit: int) -> tuple[int, bool]:
    """Bytes that all frames make, and whether that is exact or only a bound.

    Where the first frame names ``limit`` itself the others are not looked at: any that makes something does not fit.
    """
    total, exact, position = 0, True, 0
    while position < len(data):
        frame = _ZstdFrame.parse(data, position)
        if frame.content == limit and not position:
            return limit, True
        end, bound = frame.walk(data)
        total += bound if frame.content is None else frame.content
        exact = exact and frame.content is not None
        position = end
    return total, exact


@dataclass(frozen=True, slots=True)
class _ZstdFrame:
    """``content``: bytes decoded (None: not said); ``start``: of the first block, or the end of a skippable frame."""

    content: int | None
    start: int
    skippable: bool
    checksum: bool

    @classmethod
    def parse(cls, data: Buffer, at: int) -> _ZstdFrame:
        magic, flags = _little(data, at, 4), _little(data, at + 4, 1)
        if magic & ~0xF == _ZSTD_SKIPPABLE:
            return cls(0, at + 8 + _little(data, at + 4, 4), skippable=True, checksum=False)
        if magic != _ZSTD_MAGIC:
            raise ValueError("this is not a zstd frame")
        single = bool(flags & 0x20)
        at += 5 + (not single) + (0, 1, 2, 4)[flags & 3]
        width = (1 if single else 0, 2, 4, 8)[flags >> 6]
        content = _little(data, at, width) + (256 if width == 2 else 0) if width else None
        return cls(content, at + width, skippable=False, checksum=bool(flags & 0x04))

    def walk(self, data: Buffer) -> tuple[int, int]:
        """The end of the frame, and the most that its blocks can make."""
        if self.skippable:
            return self.start, 0
        at, bound, last = self.start, 0, False
        while not last:
            header = _little(data, at, 3)
            last, kind, size = bool(header & 1), header >> 1 & 3, header >> 3
            bound += _ZSTD_BLOCK if kind == 2 else size
            at += 3 + (1 if kind == 1 else size)
        return at + 4 * self.checksum, bound


def _little(data: Buffer, at: int, width: int) -> int:
    if at + width > len(data):
        raise ValueError("the frame ends before its end")
    return int.from_bytes(data[at : at + width], "little")


# --- lz4, base64 -------------------------------------------------------------------------------------------------

_LZ4_MOST: Final = 0x7E000000


def decode_lz4(data: Buffer, out: Out, limit: int) -> Any:
    """The decoded size as a uint32, then one LZ4 block."""
    size = _little(data, 0, 4)
    if size > limit or (out is not None and size != limit) or len(data) > _LZ4_MOST:
        raise ValueError(f"the header says {size} bytes decoded, expected {limit}")
    return lz4.decompress(data, out)


def encode_lz4(data: memoryview, config: Config) -> bytes:
    if data.nbytes > _LZ4_MOST:
        raise ValueError(f"lz4 takes at most {_LZ4_MOST} bytes, the chunk has {data.nbytes}")
    block: bytes = lz4.compress(data, _within(config.get("acceleration", 1), 1, 65537))
    return block


def decode_base64(data: Buffer, _out: Out, _limit: int) -> bytes:
    """The standard alphabet with padding, and nothing else between. [RFC 4648 §4]"""
    return binascii.a2b_base64(data, strict_mode=True)


def encode_base64(data: memoryview, _config: Config) -> bytes:
    return binascii.b2a_base64(data, newline=False)


def _level(config: Config, default: int, low: int, high: int) -> int:
    """A level that the library has: arrays may name one that it has not, and are written all the same."""
    return _within(config.get("level", default), low, high)


def _within(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)
