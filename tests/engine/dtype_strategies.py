"""Random Zarr v2 dtypes, as JSON."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from hyperslab.wire.data_types import EXTENSION_FLOATS, V3_ONLY

_ORDERS = st.sampled_from("<>")
_UNITS = st.sampled_from(["Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as"])

bools = st.sampled_from(["|b1", "<b1", ">b1"])
integers = st.sampled_from(
    ["|i1", "|u1", "<u1", "<i2", ">i2", "<u2", ">u2", "<i4", ">i4", "<u4", ">u4", "<i8", ">i8", "<u8", ">u8"]
)
floats = st.sampled_from(["<f2", ">f2", "<f4", ">f4", "<f8", ">f8"])
complexes = st.sampled_from(["<c8", ">c8", "<c16", ">c16"])
extensions = st.sampled_from(sorted((EXTENSION_FLOATS | {"int2", "int4"}) - V3_ONLY))
times = st.builds("{}{}8[{}{}]".format, _ORDERS, st.sampled_from("mM"), st.sampled_from(["", "2", "10"]), _UNITS)
byte_strings = st.builds("|S{}".format, st.integers(1, 12))
raw = st.builds("|V{}".format, st.integers(1, 12))
texts = st.builds("{}U{}".format, _ORDERS, st.integers(1, 6))

simple_dtypes = bools | integers | floats | complexes | extensions | times | byte_strings | raw | texts
"""Type strings that are no objects."""


_NAMES = st.lists(st.text("abcxyzé_", min_size=1, max_size=3), min_size=1, max_size=4, unique=True)
_SHAPE = st.lists(st.integers(1, 3), min_size=1, max_size=2)


def _fields(base: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    rest = st.tuples(base) | st.tuples(base, _SHAPE)
    return _NAMES.flatmap(lambda names: _named(names, rest))


def _named(names: list[str], rest: st.SearchStrategy[tuple[Any, ...]]) -> st.SearchStrategy[list[Any]]:
    found = st.lists(rest, min_size=len(names), max_size=len(names))
    return found.map(lambda fields: [[name, *field] for name, field in zip(names, fields, strict=True)])


structured_dtypes = st.recursive(_fields(simple_dtypes), lambda inner: _fields(simple_dtypes | inner), max_leaves=3)
"""Field lists, some nested, some with subarrays."""
