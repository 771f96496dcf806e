"""Codec configurations: allow-list of codecs, validation of parameters, defaults.

Configurations come from untrusted documents. All codecs of numcodecs are allowed except pickle, which runs code;
parameters are checked by name and type.
"""

from __future__ import annotations

import codecs
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

import numcodecs
from numcodecs.abc import Codec
from numcodecs.registry import codec_registry

from hyperslab.errors import BadMetadata, CodecRefused, CodecUnknown, shown
from hyperslab.wire import numpy_dtype

CodecConfig: TypeAlias = Mapping[str, Any]
"""Codec configuration as in a ``.zarray``: ``id`` and parameters."""


TO_ITEMS: Final = ("delta", "fixedscaleoffset", "quantize", "bitround", "astype", "packbits")
"""numcodecs' filters from items to items, or to their bytes."""
FROM_ITEMS: Final = ("zfpy", "pcodec")
"""Codecs that compress items."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """Validation of a parameter; ``expected`` describes valid values.

    ``whole``: an integer, also if written as a float. ``decimal``: a number, also as text. ``texts``: values of texts
    that GDAL writes. ``null_is_absent``: null means the default. ``foreign``: not a parameter of numcodecs, and of
    no meaning for decoding. ``default``: that of numcodecs, if documents are completed with it. ``writable``: the
    stricter rule for new arrays, as decoding does not depend on levels.
    """

    accepts: Callable[[Any], bool]
    expected: str
    required: bool = False
    whole: bool = False
    decimal: bool = False
    texts: Mapping[str, Any] = field(default_factory=dict)
    null_is_absent: bool = False
    foreign: bool = False
    default: Any = None
    writable: Parameter | None = None


def check_codec_config(config: CodecConfig, *, key: str) -> None:
    """Check the configuration of a filter or compressor; ``key`` is that of the document.

    Raises `CodecRefused` for a codec that is unknown, not allowed or not installed, and `BadMetadata` for an unknown,
    missing or invalid parameter.
    """
    name = config.get("id")
    if not isinstance(name, str):
        raise BadMetadata(key, "id", f"expected the name of a codec, found {shown(name)}")
    parameters = CODECS.get(name)
    if parameters is None:
        if name in _REFUSED:
            raise CodecRefused(key, name, _REFUSED[name])
        raise CodecUnknown(key, name, "this codec is unknown; known are " + ", ".join(sorted(CODECS)))
    if name in FROM_ITEMS and name not in codec_registry:  # numcodecs registers them if they are installed
        raise CodecRefused(key, name, "needs a library that is not installed: pip install 'hyperslab[codecs]'")
    _check_parameters(name, config, parameters, key)


def check_v3_config(name: str, configuration: Mapping[str, Any], *, key: str) -> None:
    """`check_codec_config` of a codec of Zarr v3, where names of numcodecs may have the prefix ``numcodecs.``."""
    if "id" in configuration:
        raise BadMetadata(key, f"{name}.id", "is no parameter of this codec")
    if name in V3_CODECS:
        _check_parameters(name, configuration, V3_CODECS[name], key, exact=True)
    else:
        check_codec_config({**configuration, "id": name.removeprefix("numcodecs.")}, key=key)


def check_writable(config: CodecConfig, member: str, key: str) -> None:
    """Raise `BadMetadata` for a parameter of a checked configuration that can be read but not written, such as an
    unsupported level."""
    for name, parameter in CODECS.get(config["id"], {}).items():
        rule = parameter.writable
        if rule is not None and name in config and not rule.accepts(config[name]):
            raise BadMetadata(
                key, member, f"{config['id']}.{name}: expected {rule.expected}, found {shown(config[name])}"
            )


def plain_config(config: CodecConfig) -> dict[str, Any]:
    """The configuration for numcodecs: integers instead of integral floats, which TensorStore accepts, numbers instead
    of their text, and without nulls that mean the default and parameters of other libraries."""
    plain = dict(config)
    for name, rule in CODECS.get(config["id"], {}).items():
        value = plain.get(name)
        if isinstance(value, str) and (rule.decimal or value in rule.texts):
            plain[name] = value = rule.texts.get(value, _number_in(value))
        if rule.foreign or (rule.null_is_absent and value is None):
            plain.pop(name, None)
        elif rule.whole and type(value) is float and value.is_integer():
            plain[name] = int(value)
    return plain


def sized_shuffle(config: CodecConfig, itemsize: int) -> CodecConfig:
    """The configuration of a ``shuffle`` of items; others are unchanged. An ``elementsize`` of 0 is their size:
    netcdf-c 4.10 writes it for every compressed variable."""
    is_item = config["id"] == "shuffle" and config.get("elementsize") == 0
    return {**config, "elementsize": itemsize} if is_item else config


def codec_of(config: CodecConfig) -> Codec:
    """numcodecs' codec of a checked configuration."""
    return numcodecs.get_codec(dict(config))


def _check_parameters(
    name: str, config: CodecConfig, parameters: Mapping[str, Parameter], key: str, *, exact: bool = False
) -> None:
    """Check names and values; ``exact``: refuse integers written as floats or text, as zarr-python does in Zarr v3."""
    for parameter, rule in parameters.items():
        if rule.required and parameter not in config:
            raise BadMetadata(key, f"{name}.{parameter}", f"is missing: expected {rule.expected}")
    for parameter, value in config.items():
        if parameter == "id":
            continue
        if parameter not in parameters:
            names = ", ".join(parameters) or "none"
            raise BadMetadata(key, f"{name}.{parameter}", f"is no parameter of this codec (it has {names})")
        rule = parameters[parameter]
        if not rule.accepts(value) or (exact and rule.decimal and type(value) in (float, str)):
            raise BadMetadata(key, f"{name}.{parameter}", f"expected {rule.expected}, found {shown(value)}")


def complete(config: CodecConfig, defaults: CodecConfig | None = None) -> dict[str, Any]:
    """The configuration with default values of omitted members, by default those of numcodecs."""
    rules = CODECS.get(config["id"], {})
    if defaults is None:
        defaults = {name: rule.default for name, rule in rules.items() if rule.default is not None}
    has_astype = "dtype" in config and "astype" in rules and rules["astype"].null_is_absent
    return {"id": config["id"], **defaults, **({"astype": config["dtype"]} if has_astype else {}), **config}


def complete_as_tensorstore(config: CodecConfig) -> dict[str, Any]:
    """The configuration with TensorStore's default values of omitted members."""
    levels = {"level": 1} if config["id"] in ("bz2", "gzip", "zlib", "zstd") else {}
    return complete(config, {**DEFAULT, "shuffle": -1} if config["id"] == "blosc" else levels)


def complete_new(config: CodecConfig | None, chunk_nbytes: int) -> dict[str, Any] | None:
    """The complete configuration of a new array's compressor, in the form that all libraries read.

    ``chunk_nbytes`` is the size of its input. Raises `ValueError` for parameters that some library with this codec
    cannot read, and for chunks that are too large for it.
    """
    if config is None:
        return None
    codec, full = config["id"], complete(config)
    if codec == "blosc" and "typesize" in full:
        raise ValueError("typesize of blosc follows from the dtype; TensorStore and older numcodecs refuse the member")
    if codec == "zstd" and full["checksum"] is False:
        del full["checksum"]  # the default, and TensorStore refuses the member
    limit = {"blosc": BLOSC_MAX_BYTES, "lz4": LZ4_MAX_BYTES}.get(codec, chunk_nbytes)
    if chunk_nbytes > limit:
        raise ValueError(f"{codec} encodes at most {limit} bytes, a chunk has {chunk_nbytes}")
    return full


# --- kinds of parameters -------------------------------------------------------------------------------------------


def _integer(low: int = -(2**63), high: int = 2**63 - 1, **options: Any) -> Parameter:
    """An integer; ``options`` are further fields of the `Parameter`."""
    limits = "" if (low, high) == (-(2**63), 2**63 - 1) else f" from {low} to {high}"

    def accepts(value: Any) -> bool:
        value = _number_in(value)
        return (type(value) is int or (type(value) is float and value.is_integer())) and low <= value <= high

    return Parameter(accepts, f"an integer{limits}", whole=True, decimal=True, **options)


def _number(*, required: bool = False, but: float | None = None) -> Parameter:
    """A finite number, other than ``but``."""

    def accepts(value: Any) -> bool:
        value = _number_in(value)
        return type(value) in (int, float) and value != but and abs(value) <= sys.float_info.max

    expected = "a number" if but is None else f"a number other than {but}"
    return Parameter(accepts, expected, required, decimal=True)


def _number_in(value: Any) -> Any:
    """The number of a decimal text, as CDO and early versions of netcdf-c write; any other value as it is."""
    if not isinstance(value, str) or _DECIMAL.fullmatch(value) is None:
        return value
    return int(value) if value.lstrip("-").isdigit() else float(value)


_DECIMAL: Final = re.compile(r"-?[0-9]{1,20}(\.[0-9]{1,20})?(e[+-]?[0-9]{1,3})?", re.ASCII | re.IGNORECASE)


def _choice(*choices: str, **options: Any) -> Parameter:
    return Parameter(lambda value: type(value) is str and value in choices, "one of " + ", ".join(choices), **options)


def _required(expected: str) -> Parameter:
    """A required parameter that is validated by its parser."""
    return Parameter(lambda _: True, expected, required=True)


def _or_null(parameter: Parameter) -> Parameter:
    accepts, expected = parameter.accepts, f"{parameter.expected} or null"
    return replace(parameter, accepts=lambda value: value is None or accepts(value), expected=expected)


def _or_text(parameter: Parameter, **texts: Any) -> Parameter:
    """A parameter that may also be one of ``texts``."""

    def accepts(value: Any) -> bool:
        return parameter.accepts(value) or (isinstance(value, str) and value in texts)

    return replace(parameter, accepts=accepts, texts=texts)


def _dtype(kinds: str, *, required: bool = False) -> Parameter:
    def accepts(value: Any) -> bool:
        if not isinstance(value, str) or len(value) > 32 or "," in value or "(" in value:
            return False
        try:
            dtype = numpy_dtype(value)
        except (TypeError, ValueError, SyntaxError):
            return False
        return dtype.kind in kinds and (dtype.itemsize > 0 or dtype.kind == "O")

    return Parameter(accepts, f"a simple dtype (kinds {kinds})", required)


def _astype(kinds: str) -> Parameter:
    """``astype``, which defaults to ``dtype`` in numcodecs, also for null."""
    return replace(_or_null(_dtype(kinds)), null_is_absent=True)


def _is_text_encoding(value: Any) -> bool:
    """Whether it is a name of one of `_TEXT_ENCODINGS` in Python."""
    if not isinstance(value, str):
        return False
    try:
        return codecs.lookup(value).name in _TEXT_ENCODINGS
    except (LookupError, ValueError):
        return False


def _are_strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _are_lzma_filters(value: Any) -> bool:
    """Whether it is a filter chain of liblzma; dictionary sizes are limited, as they are allocated before decoding."""
    return (
        isinstance(value, list)
        and 0 < len(value) <= 4
        and all(isinstance(item, dict) and type(item.get("id")) is int for item in value)
        and all(type(setting) is int for item in value for setting in item.values())
        and all(0 <= item.get("dict_size", 0) <= LZMA_MEMORY for item in value)
    )


# --- the codecs ------------------------------------------------------------------------------------------------------

LZMA_MEMORY: Final = 256 << 20
"""Maximum bytes of an LZMA decoder's dictionary."""
BLOSC_MAX_BYTES: Final = 2**31 - 1 - 16
LZ4_MAX_BYTES: Final = 0x7E000000
"""Maximum decoded bytes of a frame or block."""

_TEXT_ENCODINGS: Final = frozenset(
    [f"{unicode}{order}" for unicode in ("utf-16", "utf-32") for order in ("", "-le", "-be")]
    + ["utf-8", "utf-8-sig", "ascii", "koi8-r", "koi8-u", "gbk", "gb18030", "big5", "shift_jis", "euc_jp", "euc_kr"]
    + [f"iso8859-{part}" for part in range(1, 17)]
    + [f"cp125{page}" for page in range(9)]
)
"""Text encodings that Python decodes in linear time."""
_BOOLEAN: Final = Parameter(lambda value: type(value) is bool, "true or false")
_NUMERIC = "biufcmM"

SHUFFLES: Final = {"noshuffle": 0, "shuffle": 1, "bitshuffle": 2}
"""Blosc's shuffles by their names in Zarr v3."""

_BLOSC: Final = ("blosclz", "lz4", "lz4hc", "snappy", "zlib", "zstd")
_NEW_BLOSC: Final = tuple(name for name in _BLOSC if name != "snappy")
_NO_SNAPPY: Final = f"one of {', '.join(_NEW_BLOSC)}: numcodecs, and so zarr-python, cannot read snappy"

CODECS: Final[Mapping[str, Mapping[str, Parameter]]] = {
    "blosc": {
        "cname": _choice(*_BLOSC, default="lz4", writable=replace(_choice(*_NEW_BLOSC), expected=_NO_SNAPPY)),
        "clevel": _integer(0, 9, default=5),
        "shuffle": _or_text(_integer(-1, 2, default=1), NONE=0, BYTE=1, BIT=2),
        "blocksize": _integer(0, 2**31 - 1, default=0),
        "typesize": _or_null(_integer(1, 2**31 - 1)),
    },
    # TensorStore refuses the level -1, the library's default
    **{name: {"level": _integer(default=1, writable=_integer(0, 9))} for name in ("zlib", "gzip")},
    "bz2": {"level": _integer(default=1, writable=_integer(1, 9))},
    "zstd": {
        "level": _integer(default=0, writable=_integer(-131072, 22)),
        "checksum": _or_text(replace(_BOOLEAN, default=False), YES=True, NO=False),
    },
    "lz4": {"acceleration": _integer(default=1)},
    "lzma": {
        "format": _integer(0, 3, writable=_integer(1, 3)),
        "check": _integer(-1, 15),
        "preset": _or_null(_integer(0, 2**32 - 1)),
        "filters": _or_null(Parameter(_are_lzma_filters, "a list of LZMA filters")),
        "delta": _integer(1, 256, foreign=True),
    },
    "delta": {"dtype": _dtype(_NUMERIC, required=True), "astype": _astype(_NUMERIC)},
    "fixedscaleoffset": {
        "offset": _number(required=True),
        "scale": _number(required=True, but=0),
        "dtype": _dtype(_NUMERIC, required=True),
        "astype": _astype(_NUMERIC),
    },
    "quantize": {
        "digits": _integer(-400, 400, required=True),
        "dtype": _dtype("f", required=True),
        "astype": _astype("f"),
    },
    "bitround": {"keepbits": _integer(0, 64, required=True)},
    "astype": {
        "encode_dtype": _dtype(_NUMERIC + "SU", required=True),
        "decode_dtype": _dtype(_NUMERIC + "SU", required=True),
    },
    "categorize": {
        "labels": Parameter(_are_strings, "a list of strings", required=True),
        "dtype": _dtype("OU", required=True),
        "astype": _dtype("iu"),
    },
    "shuffle": {"elementsize": _integer(0, 2**31 - 1, default=4)},
    **{name: {"location": _choice("start", "end")} for name in ("crc32", "crc32c", "adler32")},
    "jenkins_lookup3": {
        "initval": _integer(0, 2**32 - 1),
        "prefix": Parameter(lambda value: value is None, "null"),
    },
    **{name: {} for name in ("packbits", "fletcher32", "base64", "vlen-utf8", "vlen-bytes")},
    "vlen-array": {"dtype": _dtype(_NUMERIC + "SU", required=True)},
    "json2": {
        "encoding": Parameter(_is_text_encoding, "a common text encoding, as utf-8 or latin-1"),
        **dict.fromkeys(("skipkeys", "ensure_ascii", "check_circular", "allow_nan", "sort_keys", "strict"), _BOOLEAN),
        "indent": _or_null(_integer(0, 100)),
        "separators": _or_null(Parameter(lambda v: _are_strings(v) and len(v) == 2, "a list of two strings")),
    },
    "msgpack2": dict.fromkeys(("raw", "use_bin_type", "use_single_float"), _BOOLEAN),
    "zfpy": {
        "mode": _integer(2, 4),
        **dict.fromkeys(("tolerance", "rate", "precision"), _number()),
        "compression_kwargs": _or_null(Parameter(lambda value: isinstance(value, dict), "an object")),
    },
    "pcodec": {
        "level": _integer(writable=_integer(0, 12)),
        "mode_spec": _choice("auto", "classic"),
        "delta_spec": _choice("auto", "none", "try_consecutive", "try_lookback"),
        "paging_spec": _choice("equal_pages_up_to"),
        "delta_encoding_order": _or_null(_integer(0, 7)),
        "equal_pages_up_to": _integer(1, 2**24),
    },
}
"""Parameters of all allowed codecs by id, as in numcodecs 0.16."""

_BIT: Final = _or_null(_integer(0, 63))

V3_CODECS: Final[Mapping[str, Mapping[str, Parameter]]] = {
    "bytes": {"endian": _choice("little", "big")},
    "transpose": {"order": _required("the axes in some order")},
    "reshape": {"shape": _required("sizes, or lists of axes")},
    "scale_offset": dict.fromkeys(("offset", "scale"), Parameter(lambda _: True, "a number")),
    "cast_value": {
        "data_type": _required("a data type"),
        "rounding": _or_null(
            _choice("nearest-even", "nearest-away", "towards-zero", "towards-positive", "towards-negative")
        ),
        "out_of_range": _or_null(_choice("error", "clamp", "wrap")),
        "scalar_map": _or_null(
            Parameter(lambda v: isinstance(v, dict) and v.keys() <= {"encode", "decode"}, "an object: encode, decode")
        ),
    },
    "packbits": {
        "padding_encoding": _choice("none", "first_byte", "last_byte"),
        "first_bit": _BIT,
        "last_bit": _BIT,
    },
    "sharding_indexed": {
        "chunk_shape": _required("the shape of a chunk"),
        **dict.fromkeys(("codecs", "index_codecs"), _required("a list of codecs")),
        "index_location": _choice("start", "end"),
    },
    "blosc": {**CODECS["blosc"], "shuffle": replace(_choice(*SHUFFLES), required=True)},
    "gzip": {"level": _integer(-1, 9)},
    "zstd": {"level": _integer(-131072, 22), "checksum": _BOOLEAN},
    "crc32c": {},
}
"""Codecs of Zarr v3 that are not in `CODECS`, or have other parameters."""

_LEVELS: Final = tuple([{"level": level} for level in (1, 3, 5, 7, 9)])

OTHER_SPELLINGS: Final[Mapping[str, tuple[Mapping[str, Any], ...]]] = {
    "blosc": tuple(
        [{"shuffle": s, "clevel": level, "blocksize": b} for s in range(3) for level in (1, 9) for b in (0, 256)]
    ),
    **dict.fromkeys(("zlib", "gzip", "bz2"), _LEVELS),
    "zstd": (*_LEVELS, {"checksum": True}, {"checksum": False}),
    "lz4": tuple([{"acceleration": a} for a in (1, 10, 100, 1000)]),
    "lzma": tuple([{"preset": p, "filters": None} for p in range(1, 7)]),
}
"""Variants of parameters that do not affect decoding, so that a chunk has several encodings."""

_REFUSED: Final = {
    "pickle": "decoding it runs code from the data, so it is never allowed",
    "json": "numcodecs before 0.6 wrote it without a shape, and no library reads it any more",
    "msgpack": "numcodecs before 0.6 wrote it without a shape, and no library reads it any more",
    "n5_wrapper": "it is for N5 data, which this is not",
}

DEFAULT: Final[CodecConfig] = complete({"id": "blosc"})
"""The default compressor of a new array: that of zarr-python 2, which TensorStore and zarr-python 3 also read."""
