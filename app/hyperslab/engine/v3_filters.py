"""Codecs of Zarr v3 that v2 has not: each ``*_link`` puts one into its place in a chain.

[zarr-extensions: ``packbits``, ``scale_offset``, ``cast_value``; Zarr v3 core: ``transpose``, ``bytes``]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import ml_dtypes
import numpy as np
import numpy.typing as npt

from hyperslab.engine.chain import BYTE, Buffer, Encoded, Link, Stage
from hyperslab.engine.codec_config import CodecConfig
from hyperslab.engine.dtypes import NARROW_INTEGERS, parse_dtype
from hyperslab.engine.object_codecs import vlen_link
from hyperslab.engine.v3_dtypes import number_of

NDArray = npt.NDArray[Any]

_ROUNDINGS: Final[Mapping[str, Callable[[NDArray], NDArray]]] = {
    "nearest-even": np.rint,
    "towards-zero": np.trunc,
    "towards-positive": np.ceil,
    "towards-negative": np.floor,
    "nearest-away": lambda values: np.trunc(values) + np.copysign(np.abs(values - np.trunc(values)) >= 0.5, values),
}


def transpose_link(config: CodecConfig, stage: Stage) -> Link:
    """The chunk (``shape``, in C order) with its axes in another order: axis i of what is stored was ``order[i]``."""
    to_stored, to_items = _transposing(config)

    def decode(data: Buffer, _out: NDArray | None) -> NDArray:
        return to_items(np.frombuffer(data, f"V{stage.dtype.itemsize}"))

    def encode(items: NDArray) -> Encoded:
        return to_stored(items)

    return Link("transpose", decode, encode, stage, Stage(stage.nbytes, stage.exact, stage.dtype), lossless=True)


def _transposing(config: CodecConfig) -> tuple[Callable[[NDArray], NDArray], Callable[[NDArray], NDArray]]:
    """From the items of a chunk to those that are stored, flat, and back."""
    shape, order = config["shape"], config["order"]
    stored, back = [shape[axis] for axis in order], np.argsort(order)

    def to_stored(items: NDArray) -> NDArray:
        return items.reshape(shape).transpose(order).reshape(-1)

    def to_items(items: NDArray) -> NDArray:
        return items.reshape(stored).transpose(back).reshape(-1)

    return to_stored, to_items


def transposed_vlen_link(config: CodecConfig, stage: Stage) -> Link:
    """Objects of any length; where there is a ``transpose``, their axes are put into another order first."""
    transpose, link = config.get("transpose"), vlen_link({"id": config["id"]}, stage)
    if transpose is None:
        return link
    to_stored, to_items = _transposing(transpose)

    def decode(data: Buffer, out: NDArray | None) -> NDArray:
        return to_items(np.asarray(link.decode(data, out)))

    def encode(items: NDArray) -> Encoded:
        return link.encode(to_stored(items))

    return Link(config["id"], decode, encode, stage, link.encoded, lossless=link.lossless, unsized=link.unsized)


def byteswap_link(config: CodecConfig, stage: Stage) -> Link:
    """Items whose bytes lie the other way round, of a type that numpy has in its own order alone."""
    dtype = parse_dtype(config["dtype"], v3=True).numpy
    width = dtype.itemsize // 2 if dtype.kind == "c" else 4 if dtype.kind == "U" else dtype.itemsize

    def swap(data: Any) -> NDArray:
        raw = np.frombuffer(np.ascontiguousarray(data).data.cast("B") if isinstance(data, np.ndarray) else data, BYTE)
        return np.ascontiguousarray(raw.reshape(-1, width)[:, ::-1]).reshape(-1)

    def encode(items: NDArray) -> Encoded:
        return swap(items.reshape(-1).view(BYTE))

    return Link(
        "bytes", lambda data, _out: swap(data), encode, stage, stage.raw(stage.nbytes, exact=True), lossless=True
    )


def bits_link(config: CodecConfig, stage: Stage) -> Link:
    """``packbits``: the bits ``first`` to ``last`` of each item, the least significant first, without gaps.

    A byte in front or behind says how many bits of padding there are. Signed integers are extended on reading.
    """
    dtype = parse_dtype(config["dtype"], v3=True).numpy
    first, last, padding = config["first"], config["last"], config["padding"]
    width, count = last - first + 1, stage.nbytes // dtype.itemsize
    packed = -(-count * width // 8)
    idle = 8 * packed - count * width
    nbytes = packed + (padding != "none")
    signed = dtype.kind == "i" or dtype.name in ("int2", "int4")

    def decode(data: Buffer, _out: NDArray | None) -> NDArray:
        raw = np.frombuffer(data, BYTE)
        if padding != "none":
            stated = raw[0] if padding == "first_byte" else raw[-1]
            if stated != idle:
                raise ValueError(f"{stated} bits of padding are stated, there are {idle}")
            raw = raw[1:] if padding == "first_byte" else raw[:-1]
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
    return Link("packbits", decode, encode, stage, stage.raw(nbytes, exact=True), lossless=whole)


def scale_offset_link(config: CodecConfig, stage: Stage) -> Link:
    """``(item - offset) * scale`` is stored, in the arithmetic of the data type itself."""
    dtype = parse_dtype(config["dtype"], v3=True).numpy
    offset, scale = number_of(config.get("offset", 0), dtype), number_of(config.get("scale", 1), dtype)

    def decode(data: Buffer, _out: NDArray | None) -> NDArray:
        items = np.frombuffer(data, dtype)
        with np.errstate(all="ignore"):
            divided = items / scale if dtype.kind not in "iu" else items // scale
            return np.asarray(divided + offset, dtype)

    def encode(items: NDArray) -> Encoded:
        with np.errstate(all="ignore"):
            return np.asarray((items - offset) * scale, dtype)

    return Link("scale_offset", decode, encode, stage, Stage(stage.nbytes, stage.exact, stage.dtype))


def cast_value_link(config: CodecConfig, stage: Stage) -> Link:
    """Items as another type of numbers, and back: see `cast`."""
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
    """``items`` as ``target``. Values of ``mapped`` become what they are paired with; fractions are rounded; of what is
    out of range ``limits`` says whether it is clamped or wraps round. Raises `ValueError` for what has no value."""
    special = np.zeros(items.shape, bool)
    out = np.zeros(items.shape, target)
    for source, replacement in mapped:
        where = np.isnan(items) if source.dtype.kind == "f" and np.isnan(source) else items == source
        out[where] = replacement
        special |= where
    with np.errstate(all="ignore"):
        out[~special] = _converted(items[~special], target, rounding, limits)
    return out


def _converted(items: NDArray, target: np.dtype[Any], rounding: str, limits: str | None) -> NDArray:
    if target.kind not in "iu" and target.name not in NARROW_INTEGERS:
        return _as_floats(items, target, rounding, limits)
    whole = items.dtype.kind in "iub" or items.dtype.name in NARROW_INTEGERS
    values = items.astype(np.int8) if items.dtype.name in NARROW_INTEGERS else items
    if not whole:
        values = _ROUNDINGS[rounding](items.astype(np.float64))
        if np.isnan(values).any():
            raise ValueError(f"NaN has no value in {target}")
    width = NARROW_INTEGERS.get(target.name, 8 * target.itemsize)
    signed = target.kind == "i" or target.name in ("int2", "int4")
    low, high = (-(2 ** (width - 1)), 2 ** (width - 1) - 1) if signed else (0, 2**width - 1)
    below, above = values < low, values >= high + 1.0 if not whole else values > high
    if limits == "clamp":
        inside = np.where(below | above, 0, values)
        exact = inside.astype(np.uint64 if high > 2**63 else np.int64)
        return np.where(below, low, np.where(above, high, exact)).astype(target)
    if not (below | above).any():
        return values.astype(target)
    if limits == "wrap" and (whole or np.isfinite(values).all()):
        wrapped = [(int(value) - low) % 2**width + low for value in values.tolist()]
        return np.array(wrapped, np.int64 if low else np.uint64).astype(target)
    raise ValueError(f"a value is out of range for {target}")


def _as_floats(items: NDArray, target: np.dtype[Any], rounding: str, limits: str | None) -> NDArray:
    """Rounded to what ``target`` has: to the nearest, ties to even, or from there to a neighbour."""
    found = items.astype(target)
    exact, near = (each.astype(np.float64).astype(np.longdouble) for each in (items, found))
    if items.dtype.kind in "iu":
        exact = items.astype(np.longdouble)
    over = np.isfinite(exact) & ~np.isfinite(near)
    if over.any():
        if limits != "clamp":
            raise ValueError(f"a value is out of range for {target}")
        most = ml_dtypes.finfo(target).max  # type: ignore[no-untyped-call]
        found = np.where(over, np.copysign(np.asarray(most, np.float64), near), found.astype(np.float64)).astype(target)
        near = found.astype(np.float64).astype(np.longdouble)
    towards = {"towards-zero": -np.sign(exact), "towards-positive": 1, "towards-negative": -1}.get(rounding)
    if rounding == "nearest-even" or np.array_equal(exact, near, equal_nan=True):
        return found
    if towards is None:  # ties go away from zero
        outer = np.nextafter(found, np.copysign(np.inf, near).astype(target))
        is_tie = np.abs(exact) - np.abs(near) == np.abs(outer.astype(np.float64)) - np.abs(exact)
        return np.where(is_tie, outer, found)
    missed = (exact != near) & (np.sign(exact - near) == towards)  # the nearest lies on the other side
    ends = np.copysign(np.full(found.shape, np.inf), np.asarray(towards, np.float64)).astype(target)
    return np.where(missed, np.nextafter(found, ends), found)
