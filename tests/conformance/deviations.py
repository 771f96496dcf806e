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
    Deviation("metadata", "meta-150", "zlib level -2", "accepted", _LEVELS),
    Deviation("metadata", "meta-153", "gzip level 10", "accepted", _LEVELS),
    Deviation("metadata", "meta-155", "bz2 level 10", "accepted", _LEVELS),
    Deviation("metadata", "meta-157", "zstd level -131073", "accepted", _LEVELS),
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
        "opening with a fill_value but no dtype",
        "compared",
        "The stored dtype says what the JSON means.",
    ),
    Choice(
        "creating an array of one axis in order F",
        "created",
        "TensorStore's own check fails on it, yet it opens such arrays.",
    ),
    Choice(
        "no field named of an array that has several",
        "whole records; tiles draw the first field",
        "Records have forms of their own. Where one field is needed (dtype=) it is an error that lists them.",
    ),
    Choice("NaN and infinities in the schema", "strings", "Bare tokens are not JSON."),
    Choice("items of more than 64 MiB", "refused", "A fill value is one item, and reading a document must stay cheap."),
    Choice("int4 and int2 fill values of more bits", "refused", "TensorStore wraps them, and writes none."),
)


def deviation(topic: Topic, case_id: str) -> Deviation | None:
    """The deviation from a case, None where we do what it expects."""
    return next((found for found in DEVIATIONS if (found.topic, found.case_id) == (topic, case_id)), None)
