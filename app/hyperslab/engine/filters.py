"""Filters: codecs that transform items or add a checksum. Each ``*_link`` function creates the link of a codec.

The chain checks sizes. Filters of Zarr v2 are from numcodecs; those of Zarr v3 follow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import ml_dtypes
import numpy as np
import numpy.typing as npt

from hyperslab.engine.chain import BYTE, Buffer, Encoded, Link, Stage, flat_bytes
from hyperslab.engine.codec_config import CodecConfig, codec_of, sized_shuffle
from hyperslab.engine.dtypes import parse_dtype
from hyperslab.engine.fill_value import number_of
from hyperslab.wire import kind_of, limits_of, numpy_dtype
from hyperslab.wire.data_types import NARROW_INTEGERS

NDArray = npt.NDArray[Any]


def item_link(config: CodecConfig, stage: Stage) -> Link:
    """``delta``, ``fixedscaleoffset`` and ``quantize``, from ``dtype`` to ``astype``, and ``astype``, which casts,
    towards zero for integers."""
    parts = ("decode_dtype", "encode_dtype") if config["id"] == "astype" else ("dtype", "astype")
    before, behind = (numpy_dtype(config.get(part, config.get("dtype"))) for part in parts)

    def check(data: Buffer) -> None:
        if len(data) // behind.itemsize * before.itemsize > stage.nbytes:
            raise ValueError(f"{len(data)} bytes hold more items than the chunk")

    wraps_around = config["id"] == "delta" and before == behind and before.kind in "iu"
    return _checked_link(config, stage, stage.typed(before, behind), check, lossless=wraps_around)


def bitround_link(config: CodecConfig, stage: Stage) -> Link:
    """``bitround``: floats rounded to fewer bits, decoded unchanged."""
    return _checked_link(config, stage, Stage(stage.nbytes, stage.exact, stage.dtype), lambda _: None)


def packbits_link(config: CodecConfig, stage: Stage) -> Link:
    """``packbits`` of Zarr v2: a byte with the number of padding bits, then eight bools per byte."""

    def check(data: Buffer) -> None:
        if not len(data) or data[0] > 7:
            raise ValueError("the first byte does not count bits of padding")

    encoded = stage.raw(1 + -(-stage.nbytes // 8), exact=True)
    return _checked_link(config, stage, encoded, check, lossless=stage.dtype == np.dtype(bool))


def checksum_link(config: CodecConfig, stage: Stage) -> Link:
    """Checksums of four bytes, before or after the data."""

    def check(data: Buffer) -> None:
        if len(data) < 4:
            raise ValueError(f"{len(data)} bytes are too few for a checksum")

    link = _checked_link(config, stage, stage.raw(stage.nbytes + 4, exact=True), check, lossless=True)
    return replace(link, encode=lambda items: link.encode(flat_bytes(items)))


def shuffle_link(config: CodecConfig, stage: Stage) -> Link:
    """``shuffle``: the first bytes of all elements, then the second bytes, and so on."""
    codec, encoded = codec_of(sized_shuffle(config, stage.dtype.itemsize)), stage.raw(stage.nbytes, exact=True)
    link = Link("shuffle", codec.decode, codec.encode, stage, encoded, into=True, lossless=True)
    return replace(link, encode=lambda items: codec.encode(flat_bytes(items)))


def _checked_link(
    config: CodecConfig, stage: Stage, encoded: Stage, check: Callable[[Buffer], None], *, lossless: bool = False
) -> Link:
    """The link of a codec of numcodecs, with a ``check`` of encoded data that raises `ValueError`."""
    codec = codec_of(config)

    def decode(data: Buffer, _out: NDArray | None) -> Any:
        check(data)
        with np.errstate(all="ignore"):
            return codec.decode(data)

    def encode(items: NDArray) -> Any:
        with np.errstate(all="ignore"):
            return codec.encode(items)

    return Link(config["id"], decode, encode, stage, encoded, lossless=lossless)


def zfpy_link(config: CodecConfig, stage: Stage) -> Link:
    """``zfpy``: a zfp stream, whose header is checked against the chunk. It is padded with zeros, as the library reads
    beyond the end of a truncated stream."""
    import zfpy  # type: ignore[import-not-found]  # optional dependency

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
    encoded = stage.raw(2 * stage.nbytes + (64 << 10), exact=False)  # 64 bits an item, which a fixed rate may ask for
    return Link("zfpy", decode, codec.encode, stage, encoded, shaped=shaped)


def pcodec_link(config: CodecConfig, stage: Stage) -> Link:
    """``pcodec``, standalone. Streams have items of their own dtype: if it is not the stage's, others are tried."""
    from pcodec import standalone  # type: ignore[import-untyped,import-not-found,unused-ignore]  # optional

    codec = codec_of(config)
    dtypes = [np.dtype(f"{kind}{size}") for size in (8, 4, 2) for kind in "uif"]
    others = [dtype for dtype in dtypes if stage.nbytes % dtype.itemsize == 0 and dtype != stage.dtype]

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
            with suppress(RuntimeError, TypeError):  # of another dtype
                return decode_as(encoded, target, dtype)
        return decode_as(encoded, target, last)

    return Link("pcodec", decode, codec.encode, stage, stage.compressed(), into=True, lossless=True)


# --- Zarr v3 [Zarr v3 core: ``transpose``, ``bytes``; zarr-extensions: the others] ---------------------------------


def transpose_link(config: CodecConfig, stage: Stage) -> Link:
    """``transpose`` of a chunk in C order: axis i of the stored items is axis ``order[i]`` of the chunk."""
    to_stored, to_items = transposing(config)

    def decode(data: Buffer, _out: NDArray | None) -> NDArray:
        return to_items(np.frombuffer(data, f"V{stage.dtype.itemsize}"))

    def encode(items: NDArray) -> Encoded:
        return to_stored(items)

    return Link("transpose", decode, encode, stage, Stage(stage.nbytes, stage.exact, stage.dtype), lossless=True)


def transposing(config: CodecConfig) -> tuple[Callable[[NDArray], NDArray], Callable[[NDArray], NDArray]]:
    """Functions from flat items in chunk order to stored order, and back."""
    shape, order = config["shape"], config["order"]
    stored, back = [shape[axis] for axis in order], np.argsort(order)

    def to_stored(items: NDArray) -> NDArray:
        return items.reshape(shape).transpose(order).reshape(-1)

    def to_items(items: NDArray) -> NDArray:
        return items.reshape(stored).transpose(back).reshape(-1)

    return to_stored, to_items


def byteswap_link(config: CodecConfig, stage: Stage) -> Link:
    """``bytes`` with the other byte order, for dtypes that numpy has in native order only."""
    dtype = parse_dtype(config["dtype"], v3=True).numpy
    width = dtype.itemsize // 2 if kind_of(dtype) == "c" else 4 if dtype.kind == "U" else dtype.itemsize

    def swap(data: Any) -> NDArray:
        raw = np.frombuffer(np.ascontiguousarray(data).data.cast("B") if isinstance(data, np.ndarray) else data, BYTE)
        return np.ascontiguousarray(raw.reshape(-1, width)[:, ::-1]).reshape(-1)

    def encode(items: NDArray) -> Encoded:
        return swap(items.reshape(-1).view(BYTE))

    return Link(
        "bytes", lambda data, _out: swap(data), encode, stage, stage.raw(stage.nbytes, exact=True), lossless=True
    )


def bits_link(config: CodecConfig, stage: Stage) -> Link:
    """``packbits`` of Zarr v3: the bits ``first`` to ``last`` of each item, least significant first, without gaps.

    A byte before or after them has the number of padding bits. Signed integers are sign-extended.
    """
    dtype = parse_dtype(config["dtype"], v3=True).numpy
    first, last, padding = config["first"], config["last"], config["padding"]
    width, count = last - first + 1, stage.nbytes // dtype.itemsize
    packed = -(-count * width // 8)
    idle = 8 * packed - count * width
    nbytes = packed + (padding != "none")
    signed = kind_of(dtype) == "i"

    def decode(data: Buffer, _out: NDArray | None) -> NDArray:
        raw = np.frombuffer(data, BYTE)
        is_bare = width == 8 * dtype.itemsize and len(raw) == packed  # zarrs omits the byte for whole items
        if padding != "none" and not is_bare:
            stated = raw[0] if padding == "first_byte" else raw[-1]
            if stated != idle:
                raise ValueError(f"{stated} bits of padding are stated, there are {idle}")
            raw = raw[1:] if padding == "first_byte" else raw[:-1]
        if len(raw) != packed:
            raise ValueError(f"{len(raw)} bytes, expected {packed}")
        bits = np.unpackbits(raw, count=count * width, bitorder="little").reshape(count, width)
        whole = np.zeros((count, 8 * dtype.itemsize), BYTE)
        whole[:, first : last + 1] = bits
        if signed:
            whole[:, last + 1 :] = bits[:, -1:]
        return np.packbits(whole, axis=1, bitorder="little").reshape(-1)

    def encode(items: NDArray) -> Encoded:
        raw = np.ascontiguousarray(items).view(BYTE).reshape(count, dtype.itemsize)
        bits = np.unpackbits(raw, axis=1, bitorder="little")[:, first : last + 1]
        stored = np.packbits(bits.reshape(-1), bitorder="little")
        around = {"none": (stored,), "first_byte": ([idle], stored), "last_byte": (stored, [idle])}[padding]
        return np.concatenate(around).astype(BYTE)

    whole = width == 8 * dtype.itemsize or config["dtype"] == "|b1"
    return Link("packbits", decode, encode, stage, stage.raw(nbytes, exact=padding == "none"), lossless=whole)


def scale_offset_link(config: CodecConfig, stage: Stage) -> Link:
    """``scale_offset``: ``(item - offset) * scale`` in the arithmetic of the data type; exact for integers."""
    dtype = parse_dtype(config["dtype"], v3=True).numpy
    offset, scale = number_of(config.get("offset", 0), dtype), number_of(config.get("scale", 1), dtype)
    if scale == 0:
        raise ValueError("scale_offset.scale: expected another number than 0")
    whole = kind_of(dtype) in "iu"

    def decode(data: Buffer, _out: NDArray | None) -> NDArray:
        items = np.frombuffer(data, dtype)
        if whole:
            by, divisor = int(offset), int(scale)
            return _whole(items, lambda item: item // divisor + by, dtype, divisor)
        with np.errstate(all="ignore"):
            return np.asarray(items / scale + offset, dtype)

    def encode(items: NDArray) -> Encoded:
        if whole:
            by, factor = int(offset), int(scale)
            return _whole(items, lambda item: (item - by) * factor, dtype)
        with np.errstate(all="ignore"):
            return np.asarray((items - offset) * scale, dtype)

    return Link("scale_offset", decode, encode, stage, Stage(stage.nbytes, stage.exact, stage.dtype), lossless=whole)


def _whole(items: NDArray, formula: Callable[[Any], Any], dtype: np.dtype[Any], divisor: int = 1) -> NDArray:
    """A linear ``formula`` of integers that divides by ``divisor``. Raises `ValueError` for a remainder or a result out
    of the range of ``dtype``; within the range, wrapping arithmetic is exact."""
    values = items.astype(np.int8) if dtype.name in NARROW_INTEGERS else items
    low, high = limits_of(dtype)
    if not all(low <= formula(int(end)) <= high for end in (np.min(values), np.max(values))):
        raise ValueError(f"a value is out of range for {dtype}")
    if (values % divisor).any():
        raise ValueError(f"a value is no multiple of the scale, {divisor}")
    with np.errstate(all="ignore"):
        return np.asarray(formula(values)).astype(dtype)


def cast_value_link(config: CodecConfig, stage: Stage) -> Link:
    """``cast_value``: see `cast`."""
    before, behind = (parse_dtype(config[name], v3=True).numpy for name in ("dtype", "astype"))
    maps = config.get("scalar_map") or {}
    rounding, limits = config.get("rounding") or "nearest-even", config.get("out_of_range")
    to_stored = [(number_of(a, before), number_of(b, behind)) for a, b in maps.get("encode", [])]
    to_items = [(number_of(a, behind), number_of(b, before)) for a, b in maps.get("decode", [])]

    def decode(data: Buffer, _out: NDArray | None) -> NDArray:
        return cast(np.frombuffer(data, behind), before, to_items, rounding, limits)

    def encode(items: NDArray) -> Encoded:
        return cast(items, behind, to_stored, rounding, limits)

    return Link("cast_value", decode, encode, stage, stage.typed(before, behind))


def cast(
    items: NDArray, target: np.dtype[Any], mapped: list[tuple[NDArray, NDArray]], rounding: str, limits: str | None
) -> NDArray:
    """``items`` cast to ``target``, with ``mapped`` values replaced first. Fractions are rounded; values out of range
    are clamped (to infinity if there is one) or wrapped by ``limits``. Raises `ValueError` otherwise, and for NaN and
    infinity without a value in ``target``."""
    special = np.zeros(items.shape, bool)
    out = np.zeros(items.shape, target)
    for source, replacement in mapped:
        is_nan = source.dtype.kind not in "iub" and bool(np.isnan(source.astype(np.float64)))
        where = (np.isnan(items) if is_nan else items == source) & ~special
        out[where] = replacement
        special |= where
    with np.errstate(all="ignore"):
        out[~special] = _converted(items[~special], target, rounding, limits)
    return out


_ROUNDINGS: Final[Mapping[str, Callable[[NDArray], NDArray]]] = {
    "nearest-even": np.rint,
    "towards-zero": np.trunc,
    "towards-positive": np.ceil,
    "towards-negative": np.floor,
    "nearest-away": lambda values: np.trunc(values) + np.copysign(np.abs(values - np.trunc(values)) >= 0.5, values),
}


def _converted(items: NDArray, target: np.dtype[Any], rounding: str, limits: str | None) -> NDArray:
    if kind_of(target) not in "iu":
        return _as_floats(items, target, rounding, limits)
    whole = kind_of(items.dtype) in "iub"
    values = items.astype(np.int8) if items.dtype.name in NARROW_INTEGERS else items
    if not whole:
        values = _ROUNDINGS[rounding](items.astype(np.float64))
        if not np.isfinite(values).all():
            raise ValueError(f"NaN and infinity have no value in {target}")
    low, high = limits_of(target)
    below, above = values < low, values >= high + 1.0 if not whole else values > high
    if limits == "clamp":
        inside = np.where(below | above, 0, values)
        exact = inside.astype(np.uint64 if high > 2**63 else np.int64)
        return np.where(below, low, np.where(above, high, exact)).astype(target)
    if not (below | above).any():
        return values.astype(target)
    if limits == "wrap":
        wrapped = [(int(value) - low) % (high - low + 1) + low for value in values.tolist()]
        return np.array(wrapped, np.int64 if low else np.uint64).astype(target)
    raise ValueError(f"a value is out of range for {target}")


def _as_floats(items: NDArray, target: np.dtype[Any], rounding: str, limits: str | None) -> NDArray:
    """Numbers rounded as if the exponent was unlimited; those beyond the largest number are then out of range."""
    exact = (items if items.dtype.kind in "iu" else items.astype(np.float64)).astype(np.longdouble)
    floats, is_finite = items.astype(target), np.isfinite(exact)
    near = _wide(floats)
    if not np.array_equal(exact[~is_finite], near[~is_finite], equal_nan=True):
        raise ValueError(f"NaN or infinity has no value in {target}")
    if np.array_equal(exact, near, equal_nan=True):
        return floats
    lower, upper = _neighbours(exact, floats)
    most = np.full(1, ml_dtypes.finfo(target).max).astype(target)  # type: ignore[no-untyped-call]
    step = _wide(most) - _wide(_neighbours(np.nextafter(_wide(most), 0), most)[0])
    beyond, size = _wide(most) + step, np.abs(exact)
    if rounding.startswith("nearest"):
        is_away = rounding == "nearest-away"
        to_lower, to_upper = exact - _wide(lower), _wide(upper) - exact
        ties_up = exact > 0 if is_away else _is_odd(lower)
        takes_upper = (to_upper < to_lower) | ((to_upper == to_lower) & ties_up)
        half = beyond - step / 2
        is_out = size >= half if is_away or _is_odd(most) else size > half
    else:
        takes_upper = exact < 0 if rounding == "towards-zero" else np.full(exact.shape, rounding == "towards-positive")
        is_out = np.where(takes_upper == (exact > 0), size > _wide(most), size >= beyond)
    if (is_finite & is_out).any() and limits != "clamp":
        raise ValueError(f"a value is out of range for {target}")
    has_infinity = bool(np.isinf(np.full(1, np.inf).astype(target))[0])
    end = np.copysign(np.inf if has_infinity else _wide(most), exact).astype(target)
    rounded = np.where(takes_upper, upper, lower)
    signed = np.where(_wide(rounded) == 0, np.copysign(0.0, exact).astype(target), rounded)
    return np.where(is_finite & (exact != near), np.where(is_out, end, signed), floats)


def _wide(items: NDArray) -> NDArray:
    """Floats as longdouble, which also represents 64-bit integers exactly."""
    return items.astype(np.float64).astype(np.longdouble)


def _is_odd(items: NDArray) -> NDArray:
    """Whether the last bit of floats is 1, for ties to even."""
    return np.asarray(items.view(f"u{items.dtype.itemsize}") & 1 == 1)


def _neighbours(exact: NDArray, found: NDArray) -> tuple[NDArray, NDArray]:
    """The adjacent floats below and above ``exact`` in the dtype of ``found``, one of them; raises `ValueError` for a
    number below all floats."""
    if found.dtype.itemsize > 1:
        near = _wide(found)
        lower = np.where(near > exact, np.nextafter(found, np.full(1, -np.inf).astype(found.dtype)), found)
        return lower, np.where(near < exact, np.nextafter(found, np.full(1, np.inf).astype(found.dtype)), found)
    items = np.arange(256, dtype=np.uint8).view(found.dtype)
    items = items[np.isfinite(_wide(items))]
    items = items[np.argsort(_wide(items), kind="stable")]
    below = np.searchsorted(_wide(items), exact, "right") - 1
    if (below < 0).any() and _wide(items)[0] >= 0:
        raise ValueError(f"a value is out of range for {found.dtype}")
    return items[below.clip(0)], items[(below + 1).clip(0, len(items) - 1)]
