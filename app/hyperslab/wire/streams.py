"""Settings of acquisition streams as dataclasses: what a client writes and a server parses.

`hyperslab.streams.settings` checks them; `to_document` is the JSON that a request carries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension:
    """One dimension of an array. The last two are the lines and columns of a frame.

    Attributes:
        name: Its name, unlike the others'.
        type: ``time``, ``channel``, ``space``, or any other text; of the last two, ``space``.
        size: Items; None, of the first dimension only, for no end.
        chunk: Items in a chunk.
        shard: Chunks in a shard, which only arrays of Zarr v3 have.
        unit: As in OME-Zarr, such as ``second`` or ``micrometer``.
        scale: What lies between two items, in units; more than 0.
    """

    name: str
    type: str
    size: int | None
    chunk: int
    shard: int = 1
    unit: str | None = None
    scale: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PyramidSettings:
    """The coarser levels of an image.

    Each level halves y and x, and z where the last other stored dimension is of type ``space``, while the smaller of y
    and x is longer than its chunk. What remains at an odd edge stands alone.

    Attributes:
        method: ``mean`` of numbers, exact and rounded once, half to even (floats in double precision); ``min`` or
            ``max``; in these three NaN wins. ``mode``, for labels: the smallest of the most frequent. ``nearest`` or
            ``decimate``: the first item, which stands for the whole block, or for itself.
        max_levels: Levels below the first, None for as many as there can be.
    """

    method: str
    max_levels: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArraySettings:
    """One array of frames, or one image.

    With a pyramid, and as a field of a plate, it is an OME-Zarr image (0.4 in Zarr v2, 0.5 in v3), whose levels are
    arrays named ``0``, ``1``, …; else an array with scales and units among its attributes.

    Attributes:
        key: Where it lies below the stream, ``""`` for the stream's own path: letters, digits, ``_``, ``.``, ``-`` and
            ``/``. A field of a plate has none.
        dtype: As in a ``.zarray``, but no objects.
        dimensions: From slowest to fastest, as frames arrive. Two dimensions are a single frame.
        fill_value: What missing frames read as, None for zero.
        storage_order: The names in the order in which they are stored, None for the order in which they arrive.
        compressor: As in a ``.zarray``, None for none; Blosc with LZ4 if it is left out.
        filters: As in a ``.zarray``.
        codecs: As in a ``zarr.json``, in place of ``compressor`` and ``filters``.
        pyramid: The coarser levels, None for none.
        attributes: Of the image, or of the array.
    """

    key: str = ""
    dtype: Any
    dimensions: tuple[Dimension, ...]
    fill_value: Any = None
    storage_order: tuple[str, ...] | None = None
    compressor: Mapping[str, Any] | None = field(default_factory=lambda: {"id": "blosc"})
    filters: tuple[Mapping[str, Any], ...] | None = None
    codecs: tuple[Any, ...] | None = None
    pyramid: PyramidSettings | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Acquisition:
    """One acquisition of a plate, as in OME-Zarr.

    Attributes:
        id: Its number, which fields name.
        name: For people.
        description: For people.
        starttime: Seconds since 1970.
        endtime: Seconds since 1970.
    """

    id: int
    name: str | None = None
    description: str | None = None
    starttime: int | None = None
    endtime: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldSettings:
    """One field of view of a well.

    Attributes:
        key: Its name, of letters and digits.
        array: Its image.
        acquisition: The acquisition that it belongs to; it may be left out where there is one at most.
    """

    key: str
    array: ArraySettings
    acquisition: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WellSettings:
    """A well of a plate that has fields.

    Attributes:
        row: One of the plate's rows.
        column: One of the plate's columns.
        fields: At least one.
    """

    row: str
    column: str
    fields: tuple[FieldSettings, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlateSettings:
    """A plate: the key of a field's array is ``plate/row/column/field``.

    Attributes:
        key: Where it lies below the stream.
        rows: Names of letters and digits, different without regard to case.
        columns: The same.
        wells: Those that have fields.
        name: For people; the last part of the key if it is left out.
        acquisitions: Those that fields name.
    """

    key: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    wells: tuple[WellSettings, ...]
    name: str | None = None
    acquisitions: tuple[Acquisition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSettings:
    """What a stream makes: at least one array, fields of plates included.

    Attributes:
        arrays: Arrays and images.
        plates: Plates, with their wells and fields.
        zarr_format: 2 or 3.
        expires_in: Seconds without a request, at most 86,400, after which it is closed; it can be resumed.
        ack: When frames are acknowledged: stored in the ``tail``, or in their ``chunk``, or in ``memory``, which
            promises nothing: what waits is lost with the process.
    """

    arrays: tuple[ArraySettings, ...] = ()
    plates: tuple[PlateSettings, ...] = ()
    zarr_format: int = 2
    expires_in: int = 600
    ack: str = "tail"

    def to_document(self) -> dict[str, Any]:
        """The JSON of these settings: ``parse_settings`` of it gives the same again."""
        document: dict[str, Any] = asdict(self)
        for plate in document["plates"]:
            for well in plate["wells"]:
                for found in well["fields"]:
                    del found["array"]["key"]  # its place in the plate is its key
        return document
