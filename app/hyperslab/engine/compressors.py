"""What the configurations of compressors mean to other libraries: members left out, and forms that not all read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

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

_TYPED_FILTERS = frozenset({"delta", "fixedscaleoffset", "quantize"})
_MAX_INPUT_BYTES = {"blosc": 2**31 - 1 - 16, "lz4": 0x7E000000}


def complete(config: Config, defaults: Mapping[str, Config] = DEFAULTS) -> dict[str, Any]:
    """The configuration with the members that it leaves out."""
    return {"id": config["id"], **defaults.get(config["id"], {}), **_astype(config), **config}


def complete_new(config: Config, *, chunk_nbytes: int) -> dict[str, Any]:
    """The configuration of the compressor of a new array, complete and in the form that every library reads.

    ``chunk_nbytes`` is what it is given to encode. Raises `ValueError` for what some library that has this compressor
    cannot read, and for chunks that are too large for it.
    """
    codec, full = config["id"], complete(config)
    if codec == "blosc" and "typesize" in full:
        raise ValueError("typesize of blosc follows from the dtype; TensorStore and older numcodecs refuse the member")
    if codec == "zstd" and full["checksum"] is False:
        del full["checksum"]  # the default, and TensorStore refuses the member (CONFORMANCE 148)
    limit = _MAX_INPUT_BYTES.get(codec, chunk_nbytes)
    if chunk_nbytes > limit:
        raise ValueError(f"{codec} encodes at most {limit} bytes, a chunk has {chunk_nbytes}")
    return full


def _astype(config: Config) -> Config:
    """These filters store the type that they are given unless told otherwise."""
    return {"astype": config["dtype"]} if config["id"] in _TYPED_FILTERS and "dtype" in config else {}
