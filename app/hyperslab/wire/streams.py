"""Settings of acquisition streams, as dataclasses of the client. The server's models are in
`hyperslab.streams.settings`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension:
    """Dimension of an array. The last two are the lines and columns of a frame.

    Attributes:
        name: A unique name.
        type: ``time``, ``channel``, ``space``, or any other text; ``space`` for the last two.
        size: Number of items; None for unlimited, which only the first dimension can be.
        chunk: Items per chunk.
        shard: Chunks per shard (Zarr v3).
        unit: As in OME-Zarr, such as ``second`` or ``micrometer``.
        scale: Distance between items, in units; greater than 0.
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
    """Coarser levels of an image.

    Each level halves y and x, and z if the last other stored dimension is of type ``space``, as long as the smaller of
    y and x is longer than its chunk. At odd edges, blocks are smaller.

    Attributes:
        method: ``mean``, exact and rounded once, half to even (floats in double precision); ``min`` or ``max``; all
            three propagate NaN. ``mode``, for labels: the most frequent, of several the smallest. ``nearest`` or
            ``decimate``: the first item of a block, at the block's centre or at its own position.
        max_levels: Maximum number of coarser levels; None for no limit.
    """

    method: str
    max_levels: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArraySettings:
    """Array of frames, or image.

    With a pyramid, and as a field of a plate, it is an OME-Zarr image (0.4 in Zarr v2, 0.5 in v3) with levels ``0``,
    ``1``, …; else an array with scales and units in its attributes.

    Attributes:
        key: Path below the stream, ``""`` for the stream's own: letters, digits, ``_``, ``.``, ``-`` and ``/``. Fields
            of plates have none.
        dtype: As in a ``.zarray``, but no objects.
        dimensions: From slowest to fastest in order of acquisition. Two dimensions are a single frame.
        fill_value: Value of missing frames; None for zero.
        storage_order: Names of the dimensions in stored order; None for the order of acquisition.
        compressor: As in a ``.zarray``, None for none; by default Blosc with LZ4.
        filters: As in a ``.zarray``.
        codecs: As in a ``zarr.json``, instead of ``compressor`` and ``filters``.
        pyramid: Coarser levels; None for none.
        attributes: Attributes of the image or array.
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
    """Acquisition of a plate, as in OME-Zarr.

    Attributes:
        id: Number, to which fields refer.
        name: Display name.
        description: Description.
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
    """Field of view of a well.

    Attributes:
        key: Name, of letters and digits.
        array: The image.
        acquisition: The id of its acquisition; optional if there is at most one.
    """

    key: str
    array: ArraySettings
    acquisition: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WellSettings:
    """Well of a plate.

    Attributes:
        row: Name of its row.
        column: Name of its column.
        fields: At least one.
    """

    row: str
    column: str
    fields: tuple[FieldSettings, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlateSettings:
    """Plate; the key of a field's array is ``plate/row/column/field``.

    Attributes:
        key: Path below the stream.
        rows: Names of letters and digits, unique regardless of case.
        columns: The same.
        wells: Wells with fields.
        name: Display name; by default the last segment of the key.
        acquisitions: Acquisitions of the fields.
    """

    key: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    wells: tuple[WellSettings, ...]
    name: str | None = None
    acquisitions: tuple[Acquisition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSettings:
    """Settings of a stream, with at least one array or field.

    Attributes:
        arrays: Arrays and images.
        plates: Plates, with their wells and fields.
        zarr_format: 2 or 3.
        expires_in: Seconds without a request, at most 86,400, after which the stream is closed; it can be resumed.
        ack: When frames are acknowledged: once stored in the ``tail``, or in their ``chunk``.
    """

    arrays: tuple[ArraySettings, ...] = ()
    plates: tuple[PlateSettings, ...] = ()
    zarr_format: int = 2
    expires_in: int = 600
    ack: str = "tail"

    def to_document(self) -> dict[str, Any]:
        """The settings as JSON."""
        document: dict[str, Any] = asdict(self)
        for plate in document["plates"]:
            for well in plate["wells"]:
                for view in well["fields"]:
                    del view["array"]["key"]  # follows from its position
        return document
