"""Object codecs: items of any length as Python objects. Counts are checked before allocation."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from typing import Any, Final

import msgpack  # type: ignore[import-untyped]
import numpy as np
import numpy.typing as npt

from hyperslab.engine.chain import UNSIZED_LIMIT, Buffer, Decode, Link, Stage
from hyperslab.engine.codec_config import CodecConfig, codec_of
from hyperslab.engine.filters import transposing
from hyperslab.engine.jsontext import MAX_DEPTH
from hyperslab.wire import check_nesting, check_text_nesting, numpy_dtype

NDArray = npt.NDArray[Any]

MAX_VALUES: Final = 1 << 24
"""Maximum number of values in a chunk's items, which take up to 1 GiB of memory."""
_MAX_DEPTH: Final = MAX_DEPTH
"""Maximum nesting of a chunk: as many levels as in a document, for its axes and its items."""

_PACKED_SIZES: Final = {
    **{0xA0 + size: 1 + size for size in range(32)},
    **dict(zip(range(0xCA, 0xD9), (5, 9, 2, 3, 5, 9, 2, 3, 5, 9, 3, 4, 6, 10, 18), strict=True)),
    **dict(zip(range(0xDC, 0xE0), (3, 5, 3, 5), strict=True)),
}
"""msgpack: bytes of a value by its first byte, without nested values; by default 1."""
_PACKED_LENGTHS: Final = {
    **{first: (1 << i, 0) for i, first in enumerate((0xC4, 0xC5, 0xC6))},
    **{first: (1 << i, 1) for i, first in enumerate((0xC7, 0xC8, 0xC9))},
    **{first: (1 << i, 0) for i, first in enumerate((0xD9, 0xDA, 0xDB))},
}
"""msgpack: by first byte, bytes of the length that follows, and of further data before the counted bytes."""


def vlen_link(config: CodecConfig, stage: Stage) -> Link:
    """``vlen-utf8``, ``vlen-bytes``, ``vlen-array``: the number of items, then length and bytes of each.

    With a ``transpose``, of Zarr v3, items are reordered first.
    """
    plain = {name: value for name, value in config.items() if name != "transpose"}
    codec = codec_of(plain)

    def decode(data: Buffer, _out: NDArray | None) -> Any:
        count = int.from_bytes(data[:4], "little") if len(data) >= 4 else -1
        if count != stage.items:
            raise ValueError(f"there are {max(count, 0)} items, the chunk has {stage.items}")
        if 4 * count > len(data) - 4:
            raise ValueError(f"{len(data)} bytes are too few for {count} items")
        return codec.decode(data)

    link = _object_link(plain, decode, stage, nested=False)
    if "transpose" not in config:
        return link
    to_stored, to_items = transposing(config["transpose"])
    return replace(
        link,
        decode=lambda data, _: to_items(decode(data, None)),
        encode=lambda items: link.encode(to_stored(items)),
    )


def json2_link(config: CodecConfig, stage: Stage) -> Link:
    """``json2``: a JSON list of the items, nested like the chunk, then dtype and shape."""
    encoding, strict = config.get("encoding", "utf-8"), config.get("strict", True)

    def decode(data: Buffer, _out: NDArray | None) -> Any:
        text = str(data, encoding)
        if len(text) > 2 * MAX_VALUES:  # each value takes two characters or more
            bare = re.sub(r'"(?:[^"\\]++|\\.)*+"?', "", text, flags=re.DOTALL)
            _check_values(sum(map(bare.count, "[{:,")))
        check_text_nesting(text.encode("utf-8", "surrogatepass"), _MAX_DEPTH)
        return _unpacked(json.loads(text, strict=strict), stage)

    return _object_link(config, decode, stage, nested=True)


def msgpack2_link(config: CodecConfig, stage: Stage) -> Link:
    """``msgpack2``: the list of ``json2`` as msgpack. Timestamps become seconds; other extension types are refused."""
    raw = config.get("raw", False)

    def decode(data: Buffer, _out: NDArray | None) -> Any:
        _check_packed(data)
        # msgpack itself counts the nesting, and refuses more than 1024 levels
        packed = msgpack.unpackb(data, raw=raw, timestamp=1, ext_hook=_refuse_extension)
        check_nesting([packed], _MAX_DEPTH)
        return _unpacked(packed, stage)

    return _object_link(config, decode, stage, nested=True)


def categorize_link(config: CodecConfig, stage: Stage) -> Link:
    """``categorize``: numbers of labels from 1; 0 and unknown numbers are the empty string."""
    codec = codec_of(config)
    before, behind = numpy_dtype(config["dtype"]), numpy_dtype(config.get("astype", "u1"))
    labels = np.array(["", *config["labels"]], dtype=object)

    def decode(data: Buffer, _out: NDArray | None) -> Any:
        numbers = np.frombuffer(data, behind)
        listed = (numbers > 0) & (numbers < len(labels))
        return labels[np.where(listed, numbers, 0).astype(np.int64)].astype(before, copy=False)

    return Link("categorize", decode, codec.encode, stage, stage.typed(before, behind))


def _object_link(config: CodecConfig, decode: Decode, stage: Stage, *, nested: bool) -> Link:
    """The link of an object codec; ``nested``: chunks in C order are written as nested lists, as by other libraries."""
    shaped = nested and stage.order == "C" and stage.shape != ()
    encoded = stage.raw(UNSIZED_LIMIT, exact=False)
    return Link(config["id"], decode, codec_of(config).encode, stage, encoded, shaped=shaped, unsized=True)


def _check_packed(data: Buffer) -> None:
    """Raise `ValueError` for more than about `MAX_VALUES` values; nested values follow their container."""
    position, count, stop = 0, 0, len(data)
    while stop > MAX_VALUES and position < stop and count <= MAX_VALUES:
        first = data[position]
        width, more = _PACKED_LENGTHS.get(first, (0, 0))
        position += (
            _PACKED_SIZES.get(first, 1)
            + width
            + more
            + int.from_bytes(data[position + 1 : position + 1 + width], "big")
        )
        count += 1
    _check_values(count)


def _check_values(count: int) -> None:
    if count > MAX_VALUES:
        raise ValueError(f"the items consist of more than {MAX_VALUES} values")


def _unpacked(packed: Any, stage: Stage) -> NDArray:
    """The items in stored order; the dtype in the data is ignored, and the shape only tells the nesting."""
    if not isinstance(packed, list) or len(packed) < 2:
        raise ValueError("expected a list of items, then their dtype and shape")
    *items, _dtype, shape = packed
    if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError("the last member is not a shape")
    if math.prod(shape) != stage.items:
        raise ValueError(f"there are {math.prod(shape)} items, the chunk has {stage.items}")
    flat: list[Any] = items
    for size in shape[1:]:
        if not all(isinstance(row, list) and len(row) == size for row in flat):
            raise ValueError("the items are not nested as their shape says")
        flat = [item for row in flat for item in row]
    if len(flat) != stage.items:
        raise ValueError(f"there are {len(flat)} items where the shape says {stage.items}")
    if stage.dtype != np.dtype(object):
        return np.array(flat, dtype=stage.dtype)
    return np.fromiter(flat, dtype=object, count=len(flat))


def _refuse_extension(code: int, _data: bytes) -> Any:
    raise ValueError(f"extension type {code} has no meaning here")
