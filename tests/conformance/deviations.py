"""Where Hyperslab does not do what a vector expects, and why. The reference pages list this table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tests.conformance.vectors import Topic


@dataclass(frozen=True, slots=True)
class Deviation:
    """``ours`` is what we do instead of what the case ``case_id`` of ``topic`` expects."""

    topic: Topic
    case_id: str
    subject: str
    ours: str
    reason: str


@dataclass(frozen=True, slots=True)
class Choice:
    """A decision where no vector says what is expected, or where a reference differs from us on purpose."""

    subject: str
    ours: str
    reason: str


_LEVELS = "Levels are not needed to read: data that no library writes today stays readable. Refused on creation."

_STALE = "Data that was cut off must not come back when the array grows again."
_ORPHANS = "It would leave chunks behind that come back when the array grows again."

_NO_FIELD = (
    "no field named of an array that has several",
    "whole records; tiles draw the first field",
    "Records have forms of their own. Where one field is needed (`dtype=`), it is an error that lists them.",
)
_ONE_MODE = "A request has one mode: create, open or replace."
_ASSUMED = "`assume_metadata` belongs to the configuration of a store."
_ARRAY_OR_GROUP = "A path names an array or a group, as in zarr-python; TensorStore knows no groups."
_MEANT = "The stored dtype says what the JSON means."
_SECONDS = "Seconds are what an operator can choose; `always` and `never` are the ends."

DEVIATIONS: Final = (
    Deviation(
        "fill_values",
        "fill-375",
        "fill_value '2000-01-01' of a datetime",
        "refused",
        "No library writes it; counts and 'NaT' are read.",
    ),
    Deviation(
        "metadata",
        "meta-020",
        "a byte order mark",
        "accepted",
        "TensorStore and zarr-python 3 read it, and its meaning is beyond doubt.",
    ),
    Deviation("history", "history-037", "cells of edge chunks that a shrink cuts off", "cleared", _STALE),
    Deviation("history", "history-040", "cells of edge chunks that a shrink cuts off", "cleared", _STALE),
    Deviation("history", "history-047", "resize_metadata_only", "not offered", _ORPHANS),
    Deviation("history", "history-055", "resize_metadata_only", "not offered", _ORPHANS),
    Deviation(
        "chunk_layout",
        "layout-105",
        "chunks of records of several fields, where they are left open",
        "those for the field with the most elements",
        "A request for a new array names no field; where there is one, its subarray counts as in TensorStore.",
    ),
    Deviation("metadata", "meta-145", "blosc level '5', as text", "accepted", "CDO writes numbers as text."),
    Deviation("metadata", "meta-150", "zlib level -2", "accepted", _LEVELS),
    Deviation("metadata", "meta-153", "gzip level 10", "accepted", _LEVELS),
    Deviation("metadata", "meta-155", "bz2 level 10", "accepted", _LEVELS),
    Deviation("metadata", "meta-157", "zstd level -131073", "accepted", _LEVELS),
    *(
        Deviation("open_modes", case_id, "creating without create", "not offered", _ONE_MODE)
        for case_id in ("open-038", "open-070")
    ),
    *(
        Deviation("open_modes", case_id, "contradicting flags", "not offered", _ONE_MODE)
        for case_id in ("open-043", "open-060", "open-062", "open-075", "open-078")
    ),
    *(
        Deviation("open_modes", case_id, "assume_metadata in a request", "not offered", _ASSUMED)
        for case_id in ("open-047", "open-048", "open-050", "open-082", "open-083")
    ),
    *(
        Deviation("open_modes", case_id, "creating an array where a group is", "refused", _ARRAY_OR_GROUP)
        for case_id in ("open-072", "open-073")
    ),
    Deviation("tensorstore", "ts-000", _NO_FIELD[0], _NO_FIELD[1], _NO_FIELD[2]),
    Deviation("tensorstore", "ts-005", "field null", "no field", "As the driver's documentation says."),
    Deviation("tensorstore", "ts-013", "resize_tied_bounds", "not needed", "The shape is the array's, not a field's."),
    Deviation("tensorstore", "ts-022", "open_as_void", "not offered", "`format=stored` and `/zarr` give the bytes."),
    Deviation("tensorstore", "ts-068", "key_encoding", "unknown", "It is the old name of `dimension_separator`."),
    Deviation("tensorstore", "ts-083", "opening with a fill_value but no dtype", "compared", _MEANT),
    Deviation(
        "tensorstore",
        "ts-097",
        "keys of other formats below an array that is replaced",
        "kept",
        "What is not Zarr v2 is not ours to remove: the answer names what stays, `foreign=true` removes it too.",
    ),
    Deviation(
        "tensorstore",
        "ts-100",
        "fill values that are written where missing chunks are errors",
        "stored",
        "A write that was acknowledged must not read as missing: `fill_missing = false` stores such chunks.",
    ),
    Deviation("tensorstore", "ts-122", "a zlib stream without its checksum", "refused", "It may be cut off anywhere."),
    Deviation("tensorstore", "ts-137", "resizing through a view", "not offered", "There are no views to resize."),
    Deviation("tensorstore", "ts-143", "assume_cached_metadata", "not offered", _ASSUMED),
    Deviation("tensorstore", "ts-147", "recheck_cached_data as a point in time", "seconds", _SECONDS),
    Deviation("tensorstore", "ts-152", "recheck_cached_metadata as a point in time", "seconds", _SECONDS),
    Deviation("tensorstore", "ts-153", "metadata since it was opened", "as of now", "Each request opens anew."),
    Deviation(
        "slices",
        "slice-025",
        "the slice 3:5:-1",
        "empty",
        "Negative steps are numpy's, where it is empty; the references refuse it because they have none such.",
    ),
    Deviation(
        "slices",
        "slice-132",
        "an index array with two dimensions in oindex",
        "refused",
        "Both versions of zarr-python refuse it; vindex and plain indexing take such arrays.",
    ),
)

CHOICES: Final = (
    Choice(
        "fill_value '0x7fc00001' of a float",
        "the NaN with these bits",
        "As Zarr v3 spells payloads; TensorStore takes it for the number 2143289345. Refused on creation.",
    ),
    Choice(
        "opening with a dimension_separator other than the default, where the stored document has none",
        "refused",
        "The separator in effect is a property of the store and the document; no request changes it.",
    ),
    Choice(
        "creating an array of one axis in order F",
        "created",
        "TensorStore's own check fails on it, yet it opens such arrays.",
    ),
    Choice(
        "lists that are nested in chunks of `json2` and `msgpack2` in order F",
        "the items as they stand",
        "As zarr-python 2 reads them, though it writes them so that they come back in other places. Ours are flat.",
    ),
    Choice(
        "what others have stored in edge chunks beyond the shape",
        "kept by writes; set to the fill value when `/v1` makes the array larger there",
        "It is no data of the array. A client that puts a larger `.zarray` itself finds its bytes as they were.",
    ),
    Choice("NaN and infinities in the schema", "strings", "Bare tokens are not JSON."),
    Choice("items of more than 64 MiB", "refused", "A fill value is one item, and reading a document must stay cheap."),
    Choice(
        "base64 of the fill value of big-endian records in Zarr v3",
        "bytes in the order of the codec",
        "As in zarr-extensions and TensorStore; zarr-python 3.4 takes them for little-endian. We write an object.",
    ),
    Choice(
        "a `.zarray` without `compressor` or `filters`",
        "read as null, named in `problems`; complete below `/zarr2`",
        "zarr-python 3 and zarrita.js read it; TensorStore, GDAL and zarr-python 2 do not. Refused on creation.",
    ),
    Choice("int4 and int2 fill values of more bits", "refused", "TensorStore wraps them, and writes none."),
)


def deviation(topic: Topic, case_id: str) -> Deviation | None:
    """The deviation from a case, None where we do what it expects."""
    return next((found for found in DEVIATIONS if (found.topic, found.case_id) == (topic, case_id)), None)
