"""Filters: codecs that turn items into other items, or add a checksum. Each ``*_link`` puts one into its place.

numcodecs does the work; the chain has checked the size of what it is given.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numcodecs
import numpy as np
import numpy.typing as npt
from numcodecs.abc import Codec

from hyperslab.engine.chain import BYTE, Buffer, Encoded, Link, Stage, flat_bytes
from hyperslab.engine.codec_config import CodecConfig
from hyperslab.wire import numpy_dtype

NDArray = npt.NDArray[Any]


def typed_link(config: CodecConfig, stage: Stage) -> Link:
    """``delta``, ``fixedscaleoffset`` and ``quantize``: ``dtype`` before, ``astype`` behind."""
    before = numpy_dtype(config["dtype"])
    behind = numpy_dtype(config["astype"]) if "astype" in config else before
    link = _item_link(config, stage, before, behind)
    wraps_around = config["id"] == "delta" and before == behind and before.kind in "iu"
    return replace(link, lossless=wraps_around)  # sums of floats are rounded


def astype_link(config: CodecConfig, stage: Stage) -> Link:
    """Casts, towards zero for integers."""
    return _item_link(config, stage, numpy_dtype(config["decode_dtype"]), numpy_dtype(config["encode_dtype"]))


def bitround_link(config: CodecConfig, stage: Stage) -> Link:
    """Rounded floats as integers of the same size; reading them back changes no bits."""
    codec = codec_of(config)
    return Link("bitround", lambda data, _out: data, codec.encode, stage, Stage(stage.nbytes, stage.exact, stage.dtype))


def packbits_link(config: CodecConfig, stage: Stage) -> Link:
    """A byte that counts the padding, then eight bools a byte."""
    codec = codec_of(config)

    def decode(data: Buffer, _out: NDArray | None) -> Any:
        if not len(data) or data[0] > 7:
            raise ValueError("the first byte does not count bits of padding")
        return codec.decode(data)

    encoded = stage.raw(1 + -(-stage.nbytes // 8), exact=True)
    return Link("packbits", decode, codec.encode, stage, encoded, lossless=stage.dtype == np.dtype(bool))


def shuffle_link(config: CodecConfig, stage: Stage) -> Link:
    """The first bytes of all elements, then the second bytes, and so on."""
    codec = codec_of(config)

    def encode(items: NDArray) -> Encoded:
        encoded: Encoded = codec.encode(flat_bytes(items))
        return encoded

    return Link("shuffle", codec.decode, encode, stage, stage.raw(stage.nbytes, exact=True), into=True, lossless=True)


def checksum_link(config: CodecConfig, stage: Stage) -> Link:
    """Four bytes in front of the data or behind them."""
    codec = codec_of(config)

    def decode(data: Buffer, _out: NDArray | None) -> Any:
        if len(data) < 4:
            raise ValueError(f"{len(data)} bytes are too few for a checksum")
        return codec.decode(data)

    encoded = stage.raw(stage.nbytes + 4, exact=True)
    return Link(config["id"], decode, lambda items: codec.encode(flat_bytes(items)), stage, encoded, lossless=True)


def zfpy_link(config: CodecConfig, stage: Stage) -> Link:
    """A zfp stream with a header, which is not trusted until it has been compared with the chunk. The library reads
    past the end of a stream that is too short, so the stream is padded with zeros.
    """
    import zfpy  # type: ignore[import-not-found]  # optional: only arrays that name it need it

    codec = codec_of({name: value for name, value in config.items() if name != "compression_kwargs"})

    def decode(data: Buffer, _out: NDArray | None) -> Any:
        header = zfpy.header(bytes(data))
        sizes = [header[axis] for axis in ("nx", "ny", "nz", "nw") if header[axis]]
        nbytes = math.prod(sizes) * np.dtype(header["type"]).itemsize
        if nbytes > stage.nbytes:
            raise ValueError(f"the header says {nbytes} bytes decoded, expected {stage.nbytes}")
        blocks = math.prod([-(-size // 4) for size in sizes])
        if blocks * header["config"]["expert"]["minbits"] > 8 * len(data):
            raise ValueError(f"{len(data)} bytes are too few for {blocks} blocks")
        return codec.decode(bytes(data) + bytes(len(data) + 16 * blocks + 4096))  # more than the largest block

    shaped = stage.order == "C" and stage.shape is not None and 1 <= len(stage.shape) <= 4
    return Link("zfpy", decode, codec.encode, stage, stage.compressed(), shaped=shaped)


def pcodec_link(config: CodecConfig, stage: Stage) -> Link:
    """Pco, standalone. The stream holds items of its own type: if that is not the stage's, others are tried."""
    from pcodec import standalone  # type: ignore[import-untyped,import-not-found,unused-ignore]  # optional

    codec = codec_of(config)
    known = [np.dtype(f"{kind}{size}") for size in (8, 4, 2) for kind in "uif"]
    others = [dtype for dtype in known if stage.nbytes % dtype.itemsize == 0 and dtype != stage.dtype]

    def decode_as(data: bytes, target: NDArray, dtype: np.dtype[Any]) -> NDArray:
        items = target.view(dtype)
        progress = standalone.simple_decompress_into(data, items)
        if progress.n_processed != items.size or not progress.finished:
            raise ValueError(f"the stream does not hold {items.size} items")
        return target

    def decode(data: Buffer, out: NDArray | None) -> Any:
        target, encoded = np.empty(stage.nbytes, BYTE) if out is None else out, bytes(data)
        *first, last = (stage.dtype, *others)
        for dtype in first:
            with suppress(RuntimeError, TypeError):  # of another type: the last one's error is the one to see
                return decode_as(encoded, target, dtype)
        return decode_as(encoded, target, last)

    return Link("pcodec", decode, codec.encode, stage, stage.compressed(), into=True, lossless=True)


def codec_of(config: CodecConfig) -> Codec:
    """numcodecs' codec for a configuration that has been checked."""
    return numcodecs.get_codec(dict(config))


def _item_link(config: CodecConfig, stage: Stage, before: np.dtype[Any], behind: np.dtype[Any]) -> Link:
    codec = codec_of(config)

    def decode(data: Buffer, _out: NDArray | None) -> Any:
        if len(data) // behind.itemsize * before.itemsize > stage.nbytes:
            raise ValueError(f"{len(data)} bytes hold more items than the chunk")
        with np.errstate(all="ignore"):  # what a value becomes is the filter's business, not a warning's
            return codec.decode(data)

    def encode(items: NDArray) -> Encoded:
        with np.errstate(all="ignore"):
            encoded: NDArray = codec.encode(items)
        return encoded

    return Link(config["id"], decode, encode, stage, stage.typed(before, behind))
