"""OME-Zarr documents of a stream: version 0.4 in Zarr v2, 0.5 in v3. [OME-Zarr specifications 0.4 and 0.5]"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from hyperslab import __version__
from hyperslab.streams.settings import ArraySettings, Image, PlateSettings, WellSettings, stored_order


def image(array: Image, name: str, halvings: Sequence[Sequence[int]], zarr_format: int) -> dict[str, Any]:
    """Attributes of a multiscale image. ``halvings``: for each level, how often each dimension is halved.

    An item lies at the centre of its block, or with decimation at the first item. [OME-Zarr: multiscales metadata]
    """
    dimensions, order = array.dimensions, stored_order(array)
    middle = array.pyramid is not None and array.pyramid.method != "decimate"
    multiscale: dict[str, Any] = {
        **({"version": "0.4"} if zarr_format == 2 else {}),
        "name": name,
        "axes": [_present(name=d.name, type=d.type, unit=d.unit) for d in (dimensions[axis] for axis in order)],
        "datasets": [
            {
                "path": str(number),
                "coordinateTransformations": [
                    {"type": "scale", "scale": [dimensions[axis].scale * 2 ** times[axis] for axis in order]},
                    {
                        "type": "translation",
                        "translation": [
                            dimensions[axis].scale * (2 ** times[axis] - 1) / 2 if middle else 0.0 for axis in order
                        ],
                    },
                ],
            }
            for number, times in enumerate(halvings)
        ],
    }
    if array.pyramid is not None:
        halved = [dimensions[axis].name for axis in order if halvings[-1][axis]]
        multiscale["type"] = array.pyramid.method
        multiscale["metadata"] = {
            "description": "Each level reduces blocks of two items along each of the axes of the level above.",
            "method": "hyperslab.streams.pyramid.reduce",
            "version": __version__,
            "kwargs": {"method": array.pyramid.method, "axes": halved},
        }
    return _versioned({"multiscales": [multiscale]}, zarr_format)


def plate(settings: PlateSettings, name: str, zarr_format: int) -> dict[str, Any]:
    """Attributes of the group of a plate. ``name``: used if the settings have none. [OME-Zarr: plate metadata]"""
    rows, columns = ({name: index for index, name in enumerate(names)} for names in (settings.rows, settings.columns))
    counts = [Counter(field.acquisition for field in well.fields) for well in settings.wells]
    document: dict[str, Any] = {
        **({"version": "0.4"} if zarr_format == 2 else {}),
        "name": settings.name or name,
        "rows": [{"name": row} for row in settings.rows],
        "columns": [{"name": column} for column in settings.columns],
        "field_count": max((len(well.fields) for well in settings.wells), default=0),
        "wells": [
            {"path": f"{place.row}/{place.column}", "rowIndex": rows[place.row], "columnIndex": columns[place.column]}
            for place in settings.wells
        ],
    }
    if settings.acquisitions:
        document["acquisitions"] = [
            _present(
                id=acquisition.id,
                name=acquisition.name,
                maximumfieldcount=max((count[acquisition.id] for count in counts), default=0) or None,
                description=acquisition.description,
                starttime=acquisition.starttime,
                endtime=acquisition.endtime,
            )
            for acquisition in settings.acquisitions
        ]
    return _versioned({"plate": document}, zarr_format)


def well(settings: WellSettings, zarr_format: int) -> dict[str, Any]:
    """Attributes of the group of a well. [OME-Zarr: well metadata]"""
    images = [_present(path=field.key, acquisition=field.acquisition) for field in settings.fields]
    version = {"version": "0.4"} if zarr_format == 2 else {}
    return _versioned({"well": {"images": images, **version}}, zarr_format)


def plain(array: ArraySettings) -> dict[str, Any]:
    """Attributes of an array that is not an image: scales, and units as TensorStore and Neuroglancer read them, such as
    ``0.5 second``."""
    dimensions = [array.dimensions[axis] for axis in stored_order(array)]
    factors = ["" if dimension.scale == 1 else repr(dimension.scale) for dimension in dimensions]
    units = [f"{factor} {dimension.unit or ''}".strip() for factor, dimension in zip(factors, dimensions, strict=True)]
    return {
        "dimension_units": [unit or None for unit in units],
        "dimension_scales": [dimension.scale for dimension in dimensions],
    }


def warnings(array: ArraySettings) -> tuple[str, ...]:
    """Violations of the rules of OME-Zarr for axes, which some viewers do not open. [OME-Zarr: axes metadata]"""
    dimensions = [array.dimensions[axis] for axis in stored_order(array)]
    types = [dimension.type for dimension in dimensions]
    rest = [kind for kind in types if kind != "space"]
    texts = {
        f"OME-Zarr has 2 to 5 axes, not {len(types)}": not 2 <= len(types) <= 5,
        f"OME-Zarr has 2 or 3 axes of type space, not {types.count('space')}": types.count("space") > 3,
        "OME-Zarr has one axis of type time at most": types.count("time") > 1,
        "OME-Zarr has one axis of type channel, or of another type, at most": len(rest) - rest.count("time") > 1,
        "OME-Zarr orders axes by type: time, then channel or another, then space": types
        != sorted(types, key=lambda kind: {"time": 0, "space": 2}.get(kind, 1)),
    }
    return tuple([text for text, holds in texts.items() if holds])


def _versioned(attributes: dict[str, Any], zarr_format: int) -> dict[str, Any]:
    return attributes if zarr_format == 2 else {"ome": {"version": "0.5", **attributes}}


def _present(**members: Any) -> dict[str, Any]:
    """The members that are not None."""
    return {name: value for name, value in members.items() if value is not None}
