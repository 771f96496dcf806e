"""Settings of acquisition streams as dataclasses, shared by client and server.

`hyperslab.streams.settings` parses and checks them; `to_document` is their JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension:
    """One dimension of an array. The last two are the lines and columns of a frame.

    Attributes:
        name: Unique name.
        type: ``time``, ``channel``, ``space``, or any other text; ``space`` for the last two.
        size: Items; None (first dimension only) for no limit.
        chunk: Items in a chunk.
        shard: Chunks in a shard; Zarr v3 only.
        unit: As in OME-Zarr, such as ``second`` or ``micrometer``.
        scale: Distance of two items, in units; more than 0.
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
    and x is longer than its chunk. An odd edge is reduced from the items that exist.

    Attributes:
        method: ``mean`` of numbers, exact and rounded once, half to even (floats in double precision); ``min`` or
            ``max``; in these three NaN wins. ``mode``, for labels: the smallest of the most frequent. ``nearest`` or
            ``decimate``: the first item, placed at the centre of its block, or where it is.
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
        key: Path below the stream, ``""`` for the stream's own: letters, digits, ``_``, ``.``, ``-`` and ``/``. A field
            of a plate has none.
        dtype: As in a ``.zarray``, but no objects.
        dimensions: From slowest to fastest in order of arrival. Two dimensions are a single frame.
        fill_value: Value of missing frames, None for zero.
        storage_order: Names of the dimensions in stored order, None for order of arrival.
        compressor: As in a ``.zarray``, None for none; by default Blosc with LZ4.
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
        id: Number, by which fields refer to it.
        name: Display name.
        description: Display text.
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
        key: Name, of letters and digits.
        array: Image.
        acquisition: Id of its acquisition; optional if the plate has at most one.
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
        key: Path below the stream.
        rows: Names of letters and digits, unique without regard to case.
        columns: The same.
        wells: Wells that have fields.
        name: Display name; by default the last part of the key.
        acquisitions: Acquisitions that fields refer to.
    """

    key: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    wells: tuple[WellSettings, ...]
    name: str | None = None
    acquisitions: tuple[Acquisition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSettings:
    """Settings of a stream, with at least one array, including fields of plates.

    Attributes:
        arrays: Arrays and images.
        plates: Plates, with their wells and fields.
        zarr_format: 2 or 3.
        expires_in: Seconds without a request, at most 86,400, after which the stream is closed; it can be resumed.
        ack: When frames are acknowledged: stored in the ``tail``, stored in their ``chunk``, or queued in ``memory``,
            where a crash loses them.
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
