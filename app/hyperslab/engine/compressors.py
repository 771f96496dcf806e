"""What codec configurations say without running a codec: members left out, and the limits of a new array's.

Reading does not need these limits (CONFORMANCE 32): data with a level that no library writes today is still readable.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from hyperslab.engine.jsontext import shown

Config = Mapping[str, Any]

DEFAULT: Final[Config] = {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0}
"""The compressor of a new array that asks for none: zarr-python 2's, which TensorStore and zarr-python 3 read too."""

DEFAULTS: Final[Mapping[str, Config]] = {
    "blosc": {"cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0},
    "bz2": {"level": 1},
    "gzip": {"level": 1},
    "lz4": {"acceleration": 1},
    "zlib": {"level": 1},
    "zstd": {"level": 0, "checksum": False},
}
"""Members left out, as numcodecs takes them."""

TENSORSTORE_DEFAULTS: Final[Mapping[str, Config]] = {
    "blosc": {"cname": "lz4", "clevel": 5, "shuffle": -1, "blocksize": 0},
    "bz2": {"level": 1},
    "gzip": {"level": 1},
    "zlib": {"level": 1},
    "zstd": {"level": 1},
}
"""Members left out, as TensorStore takes them (CONFORMANCE 144)."""

_LIMITS: Final[Mapping[str, Mapping[str, tuple[int, int]]]] = {
    "blosc": {"clevel": (0, 9), "shuffle": (-1, 2), "blocksize": (0, 2**31 - 1)},
    "bz2": {"level": (1, 9)},
    "gzip": {"level": (0, 9)},
    "lz4": {"acceleration": (1, 65537)},
    "pcodec": {"level": (0, 12)},
    "zlib": {"level": (0, 9)},
    "zstd": {"level": (-131072, 22)},
}
_TYPED_FILTERS = frozenset({"delta", "fixedscaleoffset", "quantize"})
_BLOSC_NAMES = ("blosclz", "lz4", "lz4hc", "zlib", "zstd")
_MAX_INPUT_BYTES = {"blosc": 2**31 - 1 - 16, "lz4": 0x7E000000}


def complete(config: Config, defaults: Mapping[str, Config] = DEFAULTS) -> dict[str, Any]:
    """The configuration with the members that it leaves out."""
    return {"id": config["id"], **defaults.get(config["id"], {}), **_astype(config), **config}


def complete_new(config: Config, *, chunk_nbytes: int) -> dict[str, Any]:
    """The configuration of a codec of a new array, complete and in the form that every library reads.

    ``chunk_nbytes`` is what the codec is given to encode. Raises `ValueError` for a member out of range (CONFORMANCE
    32), and for what some library cannot read at all.
    """
    codec, full = config["id"], complete(config)
    for name, (low, high) in _LIMITS.get(codec, {}).items():
        if name in full and not (type(full[name]) is int and low <= full[name] <= high):
            raise ValueError(f"{name} of {codec} is an integer from {low} to {high}, not {shown(full[name])}")
    if codec == "blosc":
        _check_blosc(full)
    if codec == "zstd" and full.get("checksum") is False:
        del full["checksum"]  # the default, and TensorStore refuses the member (CONFORMANCE 148)
    limit = _MAX_INPUT_BYTES.get(codec, chunk_nbytes)
    if chunk_nbytes > limit:
        raise ValueError(f"{codec} encodes at most {limit} bytes, a chunk has {chunk_nbytes}")
    return full


def _astype(config: Config) -> Config:
    """These filters store the type that they are given unless told otherwise."""
    return {"astype": config["dtype"]} if config["id"] in _TYPED_FILTERS and "dtype" in config else {}


def _check_blosc(config: Config) -> None:
    if config["cname"] not in _BLOSC_NAMES:
        raise ValueError(f"cname of blosc is one of {list(_BLOSC_NAMES)}, not {shown(config['cname'])}")
    if "typesize" in config:
        raise ValueError("typesize of blosc follows from the dtype; TensorStore and older numcodecs refuse the member")
