"""Compressors of byte streams, with limits on decoded sizes."""

from __future__ import annotations

import binascii
import bz2
import lzma
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

import cramjam
import numpy as np
from isal import isal_zlib
from numcodecs import lz4, zstd
from numpy.typing import NDArray

from hyperslab.engine import blosc
from hyperslab.engine.chain import Buffer
from hyperslab.engine.codec_config import LZ4_MAX_BYTES, LZMA_MEMORY, CodecConfig, codec_of

Out = NDArray[Any] | None
Decoder: TypeAlias = Callable[[Buffer, Out, int], Any]
"""Takes encoded bytes, an optional destination (uint8, of ``limit`` bytes), and ``limit``, and returns the destination
or new bytes, whose size the caller checks. Raises `ValueError` and exceptions of the libraries."""
MakeStream: TypeAlias = Callable[[], Any]
"""Creates a decoder of a stream of zlib, bz2 or lzma, which have the same interface."""
Start: TypeAlias = Callable[[Buffer, NDArray[Any]], bool]
"""Fills the destination with the beginning of a decoded stream; returns False if the stream must be decoded whole."""

_GZIP_WINDOW: Final = 31
_STREAMS: Final[Mapping[str, MakeStream]] = {
    "zlib": isal_zlib.decompressobj,
    "gzip": partial(isal_zlib.decompressobj, _GZIP_WINDOW),
    "bz2": bz2.BZ2Decompressor,
}
_LEVELS: Final = {
    **dict.fromkeys(("zlib", "gzip"), ("level", -1, 9)),
    "bz2": ("level", 1, 9),
    "zstd": ("level", -131072, 22),
    "lz4": ("acceleration", 1, 65537),
}
"""Levels of the libraries: those of existing arrays, which may be others, are clipped to them."""


def decoder(config: CodecConfig) -> Decoder:
    """The decoder of a checked configuration: of any number of streams or members, of zlib of one."""
    name = config["id"]
    if name == "lzma":
        return partial(_decode_streams, partial(_lzma_stream, config))
    if name in _STREAMS:
        return partial(_decode_streams, _STREAMS[name], single=name == "zlib")
    return {"blosc": blosc.decompress, "zstd": _decode_zstd, "lz4": _decode_lz4, "base64": _decode_base64}[name]


def encoder(config: CodecConfig, itemsize: int) -> Callable[[memoryview], bytes]:
    """The encoder of a checked configuration; ``itemsize`` of the data. It raises exceptions of the libraries."""
    name, *limits = _LEVELS.get(config["id"], ("", 0, 0))
    if name in config:
        config = {**config, name: min(max(config[name], limits[0]), limits[1])}
    if config["id"] == "gzip":
        # with a time of zero in the header, so that equal chunks have equal bytes
        return lambda data: zlib.compress(data, config.get("level", 1), _GZIP_WINDOW)
    if config["id"] == "blosc":
        return lambda data: blosc.compress(data, config, itemsize)
    encode: Callable[[memoryview], bytes] = codec_of(config).encode
    return encode


def starter(name: str) -> Start | None:
    """The decoder of beginnings of a codec's streams, if it has one."""
    if name == "zstd":
        return _start_zstd
    return partial(_start_stream, _STREAMS[name]) if name in ("zlib", "gzip") else None


# --- zlib, gzip, bz2, lzma ---------------------------------------------------------------------------------------


def _decode_streams(make: MakeStream, data: Buffer, _out: Out, limit: int, *, single: bool = False) -> bytes:
    """Decode concatenated streams, with optional zero padding after each, or if ``single``, one without trailing data.
    The first, nearly always the only one, gets all input at once. [RFC 1950, 1952]"""
    view, decoded, position, size = memoryview(data), [], 0, len(data)
    while position < len(view) or not position:
        stream = make()
        while not stream.eof:
            part = view[position : position + size]
            if not part:
                raise ValueError("the stream ends before its end")
            decoded.append(stream.decompress(part, limit + 1))
            limit -= len(decoded[-1])
            if limit < 0:
                raise ValueError("the stream makes more bytes than expected")
            position += len(part) - len(stream.unused_data)
        if single and position < len(view):
            raise ValueError(f"{len(view) - position} bytes follow the end of the stream")
        size = 16 << 10  # limits the copies of unused input
        while position < len(view) and not view[position]:
            position += 1
    return decoded[0] if len(decoded) == 1 else b"".join(decoded)


def _lzma_stream(config: CodecConfig) -> Any:
    """A decoder of xz, lzma-alone, or raw with its filters."""
    format_ = config.get("format", lzma.FORMAT_XZ)
    if format_ == lzma.FORMAT_RAW:
        return lzma.LZMADecompressor(format_, filters=config.get("filters"))
    return lzma.LZMADecompressor(format_, memlimit=LZMA_MEMORY + (1 << 20))  # besides its dictionary


def _start_stream(make: MakeStream, data: Buffer, out: NDArray[Any]) -> bool:
    decoded = make().decompress(data, out.nbytes)
    if is_whole := len(decoded) == out.nbytes:
        out[:] = np.frombuffer(decoded, np.uint8)
    return is_whole


# --- zstd, lz4, base64 -------------------------------------------------------------------------------------------


def _decode_zstd(data: Buffer, out: Out, limit: int) -> Any:
    """Any number of frames, with or without content size. [RFC 8878]

    The one-shot decoder of numcodecs is faster, but does not return the decoded size, so that must be known.
    """
    most = (len(data) // 4 + 1) << 17  # a block has at least four bytes, and decodes to at most 128 KiB
    target = np.empty(min(limit, most), np.uint8) if out is None else out
    content = _zstd_content(data) or 0
    if content > limit:
        raise ValueError(f"a frame says {content} bytes decoded, expected {limit}")
    if content == target.nbytes:
        return zstd.decompress(data, target)
    return target[: cramjam.zstd.decompress_into(data, target.data)]


def _start_zstd(data: Buffer, out: NDArray[Any]) -> bool:
    try:
        cramjam.zstd.decompress_into(data, out.data)
    except cramjam.DecompressionError as error:
        return "failed to write whole buffer" in str(error)  # other errors are raised by decoding the whole
    return False


def _zstd_content(data: Buffer) -> int | None:
    """The content size in the header of the first frame, if stated."""
    flags = _little(data, 4, 1) if data[:4] == b"\x28\xb5\x2f\xfd" else 0
    start = 6 - bool(flags & 0x20) + (0, 1, 2, 4)[flags & 3]  # after the window descriptor, unless single-segment
    width = (1 if flags & 0x20 else 0, 2, 4, 8)[flags >> 6]
    return _little(data, start, width) + (256 if width == 2 else 0) if width else None


def _little(data: Buffer, at: int, width: int) -> int:
    if at + width > len(data):
        raise ValueError("the frame ends before its end")
    return int.from_bytes(data[at : at + width], "little")


def _decode_lz4(data: Buffer, out: Out, limit: int) -> Any:
    """The decoded size as uint32, then an LZ4 block."""
    size = _little(data, 0, 4)
    if size > limit or (out is not None and size != limit) or len(data) > LZ4_MAX_BYTES:
        raise ValueError(f"the header says {size} bytes decoded, expected {limit}")
    return lz4.decompress(data, out)


def _decode_base64(data: Buffer, _out: Out, _limit: int) -> bytes:
    """base64 in the standard alphabet with padding, without other characters. [RFC 4648 §4]"""
    return binascii.a2b_base64(data, strict_mode=True)
