"""Configurations of codecs: which are read, and what is said about the others."""

from __future__ import annotations

import json
import math
from typing import Any

import numcodecs
import numpy as np
import pytest

from hyperslab.engine.codec_config import CODECS, check_codec_config, check_writable
from hyperslab.engine.comparison import first_difference
from hyperslab.engine.creation import new_document
from hyperslab.errors import BadMetadata, CodecRefused
from tests.engine.arrays import array_of


@pytest.mark.parametrize(
    "name", ["pickle", "json", "msgpack", "no_such_codec", "ZLIB", "n5_wrapper", "imagecodecs_jpeg", ""]
)
def test_codecs_that_are_not_on_the_list_are_refused_by_name(name: str) -> None:
    with pytest.raises(CodecRefused) as caught:
        check_codec_config({"id": name}, key="a/.zarray")

    assert (caught.value.codec, caught.value.key) == (name, "a/.zarray")


@pytest.mark.parametrize("place", ["filter", "last filter", "compressor"])
@pytest.mark.parametrize("dtype", ["<i4", "|O"])
def test_pickle_is_refused_in_every_place(place: str, dtype: str) -> None:
    pickle: dict[str, Any] = {"id": "pickle", "protocol": 4}
    filters = {"filter": [pickle], "last filter": [{"id": "vlen-utf8"}, pickle], "compressor": [{"id": "vlen-utf8"}]}

    with pytest.raises(CodecRefused, match="runs code"):
        array_of([3], dtype, pickle if place == "compressor" else None, filters=filters[place])


def test_the_list_is_all_that_numcodecs_ships_but_pickle() -> None:
    assert set(CODECS) == set(numcodecs.registry.codec_registry) - {"pickle"}


@pytest.mark.parametrize(("config", "member"), [
    ({"id": "zlib", "leve": 1}, "zlib.leve"),
    ({"id": "zlib", "level": "one"}, "zlib.level"),
    ({"id": "zlib", "level": "1.5"}, "zlib.level"),
    ({"id": "zlib", "level": 1.5}, "zlib.level"),
    ({"id": "zlib", "level": True}, "zlib.level"),
    ({"id": "blosc", "cname": 3}, "blosc.cname"),
    ({"id": "blosc", "cname": "zip"}, "blosc.cname"),
    ({"id": "blosc", "clevel": 10}, "blosc.clevel"),
    ({"id": "blosc", "shuffle": -2}, "blosc.shuffle"),
    ({"id": "blosc", "blocksize": -1}, "blosc.blocksize"),
    ({"id": "blosc", "typesize": 0}, "blosc.typesize"),
    ({"id": "zstd", "checksum": 1}, "zstd.checksum"),
    ({"id": "delta", "dtype": "|O"}, "delta.dtype"),
    ({"id": "delta", "dtype": "<i4,<i4"}, "delta.dtype"),
    ({"id": "delta", "dtype": "(2,)<i4"}, "delta.dtype"),
    ({"id": "delta", "dtype": [["a", "<i4"]]}, "delta.dtype"),
    ({"id": "delta", "dtype": "<i3"}, "delta.dtype"),
    ({"id": "delta", "dtype": "<M8[01s]"}, "delta.dtype"),
    ({"id": "delta", "dtype": "<M8[s/2]"}, "delta.dtype"),
    ({"id": "delta", "dtype": "<i4", "astype": "|S4"}, "delta.astype"),
    ({"id": "quantize", "digits": 3, "dtype": "<i4"}, "quantize.dtype"),
    ({"id": "quantize", "digits": "-401", "dtype": "<f4"}, "quantize.digits"),
    ({"id": "fixedscaleoffset", "offset": "", "scale": 1, "dtype": "<f4"}, "fixedscaleoffset.offset"),
    ({"id": "fixedscaleoffset", "offset": 0, "scale": 0, "dtype": "<f4"}, "fixedscaleoffset.scale"),
    ({"id": "fixedscaleoffset", "offset": math.nan, "scale": 1, "dtype": "<f4"}, "fixedscaleoffset.offset"),
    ({"id": "bitround", "keepbits": -1}, "bitround.keepbits"),
    ({"id": "shuffle", "elementsize": -4}, "shuffle.elementsize"),
    ({"id": "shuffle", "elementsize": 2**40}, "shuffle.elementsize"),
    ({"id": "categorize", "labels": "ab", "dtype": "|O"}, "categorize.labels"),
    ({"id": "categorize", "labels": [1], "dtype": "|O"}, "categorize.labels"),
    ({"id": "categorize", "labels": [], "dtype": "<i4"}, "categorize.dtype"),
    ({"id": "categorize", "labels": [], "dtype": "|O", "astype": "|O"}, "categorize.astype"),
    ({"id": "crc32", "location": "middle"}, "crc32.location"),
    ({"id": "jenkins_lookup3", "prefix": "abc"}, "jenkins_lookup3.prefix"),
    ({"id": "vlen-array", "dtype": "object"}, "vlen-array.dtype"),
    ({"id": "json2", "encoding": "zlib"}, "json2.encoding"),
    ({"id": "json2", "encoding": "no such"}, "json2.encoding"),
    *(({"id": "json2", "encoding": name}, "json2.encoding")
      for name in ("punycode", "Puny-Code", "idna", "utf-7", "rot13", "unicode_escape", "raw_unicode_escape")),
    ({"id": "json2", "indent": 10**9}, "json2.indent"),
    ({"id": "json2", "separators": [","]}, "json2.separators"),
    ({"id": "msgpack2", "raw": 0}, "msgpack2.raw"),
    ({"id": "lzma", "format": 7}, "lzma.format"),
    ({"id": "lzma", "filters": [{"id": 33, "dict_size": 2**32 - 1}]}, "lzma.filters"),
    ({"id": "lzma", "filters": ["x"]}, "lzma.filters"),
    ({"id": "pcodec", "mode_spec": "try"}, "pcodec.mode_spec"),
    ({"id": "zfpy", "mode": 9}, "zfpy.mode"),
    ({"id": 3}, "id"),
], ids=str)  # fmt: skip
def test_wrong_parameters_are_named(config: dict[str, Any], member: str) -> None:
    with pytest.raises(BadMetadata) as caught:
        check_codec_config(config, key=".zarray")

    assert caught.value.member == member
    assert caught.value.reason


_NEEDED: list[dict[str, Any]] = [
    {"id": "delta", "dtype": "<i4"},
    {"id": "fixedscaleoffset", "offset": 0, "scale": 1, "dtype": "<f4"},
    {"id": "quantize", "digits": 3, "dtype": "<f4"},
    {"id": "bitround", "keepbits": 3},
    {"id": "astype", "encode_dtype": "<f4", "decode_dtype": "<f8"},
    {"id": "categorize", "labels": ["a"], "dtype": "|O"},
    {"id": "vlen-array", "dtype": "<i4"},
]


@pytest.mark.parametrize(("config", "name"), [(each, name) for each in _NEEDED for name in each if name != "id"])
def test_a_parameter_that_is_needed_is_missed_by_name(config: dict[str, Any], name: str) -> None:
    check_codec_config(config, key=".zarray")

    with pytest.raises(BadMetadata) as caught:
        check_codec_config({key: value for key, value in config.items() if key != name}, key=".zarray")

    assert caught.value.member == f"{config['id']}.{name}"


@pytest.mark.parametrize("config", [
    {"id": "zlib", "level": 10},
    {"id": "gzip", "level": -2},
    {"id": "bz2", "level": 0},
    {"id": "zstd", "level": 23},
    {"id": "zstd", "level": -131073},
    {"id": "blosc", "cname": "snappy"},
    {"id": "lzma", "format": 0},
    {"id": "pcodec", "level": 13},
], ids=str)  # fmt: skip
def test_what_can_be_read_but_not_written_is_refused_for_new_arrays_only(config: dict[str, Any]) -> None:
    check_codec_config(config, key=".zarray")

    with pytest.raises(BadMetadata):
        check_writable(config, "compressor", ".zarray")


def test_a_codec_whose_library_is_missing_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(numcodecs.registry.codec_registry, "zfpy")

    with pytest.raises(CodecRefused, match=r"hyperslab\[codecs\]"):
        check_codec_config({"id": "zfpy"}, key=".zarray")


@pytest.mark.parametrize(("spelled", "plain"), [
    ({"id": "zlib", "level": 1.0}, {"id": "zlib", "level": 1}),
    ({"id": "gzip", "level": 5.0}, {"id": "gzip", "level": 5}),
    ({"id": "bz2", "level": 9.0}, {"id": "bz2", "level": 9}),
    ({"id": "zstd", "level": 3.0}, {"id": "zstd", "level": 3}),
    ({"id": "lz4", "acceleration": 2.0}, {"id": "lz4", "acceleration": 2}),
    ({"id": "lzma", "preset": 1.0, "format": 1.0}, {"id": "lzma", "preset": 1, "format": 1}),
    ({"id": "blosc", "clevel": 5.0, "blocksize": 0.0}, {"id": "blosc", "clevel": 5, "blocksize": 0}),
    ({"id": "quantize", "digits": 2.0, "dtype": "<f4"}, {"id": "quantize", "digits": 2, "dtype": "<f4"}),
    ({"id": "quantize", "digits": 2, "dtype": "<f4", "astype": None}, {"id": "quantize", "digits": 2, "dtype": "<f4"}),
    ({"id": "delta", "dtype": "<f4", "astype": None}, {"id": "delta", "dtype": "<f4"}),
    (
        {"id": "fixedscaleoffset", "offset": 0.5, "scale": 10.0, "dtype": "<f4", "astype": None},
        {"id": "fixedscaleoffset", "offset": 0.5, "scale": 10.0, "dtype": "<f4"},
    ),
    ({"id": "bitround", "keepbits": 7.0}, {"id": "bitround", "keepbits": 7}),
    ({"id": "shuffle", "elementsize": 4.0}, {"id": "shuffle", "elementsize": 4}),
    ({"id": "shuffle", "elementsize": "4"}, {"id": "shuffle", "elementsize": 4}),  # of CDO
    ({"id": "shuffle", "elementsize": 0}, {"id": "shuffle", "elementsize": 4}),  # of netcdf-c 4.10
    ({"id": "zlib", "level": "5"}, {"id": "zlib", "level": 5}),
    ({"id": "blosc", "shuffle": "BIT"}, {"id": "blosc", "shuffle": 2}),  # of GDAL, and the next two
    ({"id": "zstd", "checksum": "YES"}, {"id": "zstd", "checksum": True}),
    ({"id": "lzma", "preset": 6, "delta": 1}, {"id": "lzma", "preset": 6}),
    ({"id": "quantize", "digits": "2", "dtype": "<f4"}, {"id": "quantize", "digits": 2, "dtype": "<f4"}),
    (
        {"id": "fixedscaleoffset", "offset": "0.5", "scale": "1e1", "dtype": "<f4"},
        {"id": "fixedscaleoffset", "offset": 0.5, "scale": 10.0, "dtype": "<f4"},
    ),
], ids=str)  # fmt: skip
def test_spellings_of_other_writers_are_read_as_they_mean_them(spelled: dict[str, Any], plain: dict[str, Any]) -> None:
    values = np.arange(6, dtype="<f4") / 4
    theirs, ours = (array_of([6], "<f4", {"id": "crc32"}, filters=[config]) for config in (spelled, plain))

    stored = theirs.codec.encode(values)

    assert stored == ours.codec.encode(values)
    np.testing.assert_array_equal(theirs.codec.decode(stored, "0"), ours.codec.decode(stored, "0"))
    assert theirs.document["filters"] == [spelled]  # as it was read, whatever becomes of it
    made = new_document({"shape": [6], "dtype": "<f4", "filters": [spelled], "compressor": None})
    assert json.dumps(made["filters"], sort_keys=True) == json.dumps([plain], sort_keys=True)
    assert first_difference({"filters": [spelled]}, ours) is None


@pytest.mark.parametrize("name", ["utf8", "UTF-16", "latin-1", "ascii", "windows-1252", "sjis", "gb18030"])
def test_common_text_encodings_are_known_by_any_of_their_names(name: str) -> None:
    check_codec_config({"id": "json2", "encoding": name}, key=".zarray")
