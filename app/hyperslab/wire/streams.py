"""Settings of acquisition streams as dataclasses: what a client writes and a server parses.

`hyperslab.streams.settings` checks them; `to_document` is the JSON that a request carries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension:
    """One dimension. ``type`` is ``time``, ``channel``, ``space`` or any other text; ``size`` and ``chunk`` are in
    items, ``shard`` in chunks; ``size`` None, of the first dimension only, grows without limit."""

    name: str
    type: str
    size: int | None
    chunk: int
    shard: int = 1
    unit: str | None = None
    scale: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PyramidSettings:
    """``method``: ``decimate``, ``mean``, ``min``, ``max``, ``mode`` or ``nearest``. ``max_levels``: how many levels
    below level 0 there may be, None for as many as there can be."""

    method: str
    max_levels: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArraySettings:
    """One array, or one multiscale image where there is a ``pyramid``.

    ``dimensions`` from slowest to fastest as frames arrive; ``storage_order`` is any permutation of their names, None
    for that order. ``dtype``, ``fill_value`` (None: zero), ``compressor`` and ``filters`` are as in a ``.zarray``,
    ``codecs`` as in a ``zarr.json``, in place of both.
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
    """One acquisition of a plate; times in seconds since 1970, as OME-Zarr has them."""

    id: int
    name: str | None = None
    description: str | None = None
    starttime: int | None = None
    endtime: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldSettings:
    """One field of view of a well: its name, its image, and the acquisition that it belongs to."""

    key: str
    array: ArraySettings
    acquisition: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WellSettings:
    row: str
    column: str
    fields: tuple[FieldSettings, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlateSettings:
    """A plate: its fields lie at ``key/row/column/field``."""

    key: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    wells: tuple[WellSettings, ...]
    name: str | None = None
    acquisitions: tuple[Acquisition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSettings:
    """What a stream makes. ``expires_in``: seconds without a request after which it is closed. ``ack``: when frames
    are acknowledged, stored in the ``tail``, stored in a ``chunk``, or as soon as they are in ``memory``."""

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
