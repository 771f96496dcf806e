"""``multiscales``: the axes and the levels of a pyramid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from hyperslab.tiles.ome.check import (
    MISSING,
    Problems,
    as_list,
    as_number,
    as_object,
    as_text,
    as_version,
    check_unique,
    lenient,
)

_TYPES_BY_NAME: Final = {"t": "time", "c": "channel", "z": "space", "y": "space", "x": "space"}


@dataclass(frozen=True, slots=True)
class AxisFacts:
    """``type`` is ``space``, ``time``, ``channel``, a custom word, or None where none is given."""

    name: str
    type: str | None
    unit: str | None


@dataclass(frozen=True, slots=True)
class Dataset:
    """One level. ``scale`` is physical units by axis, ``translation`` likewise; None where they do not fit the axes."""

    path: str
    scale: tuple[float, ...] | None
    translation: tuple[float, ...] | None


@dataclass(frozen=True, slots=True)
class Multiscale:
    """A pyramid, finest level first. ``axes`` is None where the version has none (0.1 and 0.2: t, c, z, y, x).

    ``where`` is the member that it was read from.
    """

    where: str
    name: str
    version: str | None
    axes: tuple[AxisFacts, ...] | None
    datasets: tuple[Dataset, ...]
    downsampling: str | None


def parse_multiscales(value: Any, outer_version: Any = None) -> tuple[Multiscale | None, tuple[str, ...]]:
    """The first entry of ``multiscales`` that is valid, and what is wrong with the others or can be done without.

    Raises `ValueError` where there are no entries (OME-Zarr 0.4, 3.4).
    """
    problems: Problems = []
    found = [
        lenient(lambda v, where: _parse_entry(v, where, outer_version, problems), entry, f"multiscales[{i}]", problems)
        for i, entry in enumerate(as_list(value, "multiscales", at_least=1))
    ]
    return next((entry for entry in found if entry is not None), None), tuple(problems)


def _parse_entry(value: Any, where: str, outer_version: Any, problems: Problems) -> Multiscale:
    entry = as_object(value, where)
    version = as_version(entry.get("version", outer_version), f"{where}.version")
    axes = _parse_axes(entry, where, version, problems)
    strict = version in ("0.4", "0.5") or (version is None and axes is not None)
    outer = _parse_transformations(entry, where, None if axes is None else len(axes))
    datasets = tuple(
        _parse_dataset(d, f"{where}.datasets[{i}]", axes, outer=outer, strict=strict)
        for i, d in enumerate(as_list(entry.get("datasets", MISSING), f"{where}.datasets", at_least=1))
    )
    return Multiscale(where, _text_or(entry, "name", ""), version, axes, datasets, _text_or(entry, "type", None))


def _text_or(entry: Mapping[str, Any], member: str, default: Any) -> Any:
    value = entry.get(member)
    return value if isinstance(value, str) else default


# --- axes ------------------------------------------------------------------------------------------------------


def _parse_axes(
    entry: Mapping[str, Any], where: str, version: str | None, problems: Problems
) -> tuple[AxisFacts, ...] | None:
    if "axes" not in entry and version not in ("0.4", "0.5") and not _looks_like_0_4(entry):
        return None
    given = as_list(entry.get("axes", MISSING), f"{where}.axes")
    axes = tuple(_parse_axis(axis, f"{where}.axes[{i}]", problems) for i, axis in enumerate(given))
    _check_axes(axes, f"{where}.axes")
    return axes


def _looks_like_0_4(entry: Mapping[str, Any]) -> bool:
    datasets = entry.get("datasets")
    return isinstance(datasets, list) and any(
        isinstance(dataset, Mapping) and "coordinateTransformations" in dataset for dataset in datasets
    )


def _parse_axis(value: Any, where: str, problems: Problems) -> AxisFacts:
    if isinstance(value, str):  # 0.3 has names only
        return AxisFacts(value, _TYPES_BY_NAME.get(value), None)
    axis = as_object(value, where)
    name = as_text(axis.get("name", MISSING), f"{where}.name")
    kind = as_text(axis["type"], f"{where}.type") if axis.get("type") is not None else None
    unit = lenient(as_text, axis["unit"], f"{where}.unit", problems) if axis.get("unit") is not None else None
    return AxisFacts(name, kind, unit)


def _check_axes(axes: tuple[AxisFacts, ...], where: str) -> None:
    check_unique([axis.name for axis in axes], where)
    if not 2 <= len(axes) <= 5:
        raise ValueError(f"{where}: expected 2 to 5 axes, found {len(axes)}")
    spatial = sum(axis.type == "space" for axis in axes)
    if not 2 <= spatial <= 3:
        raise ValueError(f"{where}: expected 2 or 3 axes of type space, found {spatial}")


# --- levels ----------------------------------------------------------------------------------------------------

_Transformation = tuple[tuple[float, ...] | None, tuple[float, ...] | None]


def _parse_dataset(
    value: Any, where: str, axes: tuple[AxisFacts, ...] | None, *, outer: _Transformation, strict: bool
) -> Dataset:
    dataset = as_object(value, where)
    path = as_text(dataset.get("path", MISSING), f"{where}.path")
    if strict and dataset.get("coordinateTransformations") is None:
        raise ValueError(f"{where}.coordinateTransformations: missing")
    inner = _parse_transformations(dataset, where, None if axes is None else len(axes))
    return Dataset(path, *_after(inner, outer))


def _parse_transformations(entry: Mapping[str, Any], where: str, rank: int | None) -> _Transformation:
    """The scale and the translation of one node; None for each that is absent or has not ``rank`` numbers."""
    if entry.get("coordinateTransformations") is None:
        return None, None
    where = f"{where}.coordinateTransformations"
    found: dict[str, tuple[float, ...]] = {}
    for i, item in enumerate(as_list(entry["coordinateTransformations"], where, at_least=1)):
        kind, numbers = _parse_transformation(item, f"{where}[{i}]")
        if kind in found:
            raise ValueError(f"{where}: {kind} is there twice")
        found[kind] = numbers
    if "scale" not in found:
        raise ValueError(f"{where}: scale is missing")
    fitting = {kind: numbers for kind, numbers in found.items() if rank in (None, len(numbers))}
    return fitting.get("scale"), fitting.get("translation")


def _parse_transformation(value: Any, where: str) -> tuple[Literal["scale", "translation"], tuple[float, ...]]:
    item = as_object(value, where)
    kind = item.get("type")
    if kind not in ("scale", "translation"):
        raise ValueError(f"{where}.type: expected scale or translation, found {kind!r:.80}")
    numbers = as_list(item.get(kind, MISSING), f"{where}.{kind}", at_least=2)
    return kind, tuple(float(as_number(n, f"{where}.{kind}[{i}]")) for i, n in enumerate(numbers))


def _after(inner: _Transformation, outer: _Transformation) -> _Transformation:
    """The level's own transformation followed by the one of the whole pyramid."""
    scale, translation = inner
    outer_scale, outer_translation = outer
    if scale is not None and outer_scale is not None:
        scale = tuple(a * b for a, b in zip(scale, outer_scale, strict=True))
        translation = tuple(a * b for a, b in zip(translation, outer_scale, strict=True)) if translation else None
    if outer_translation is not None:
        inside = translation or (0.0,) * len(outer_translation)
        translation = tuple(a + b for a, b in zip(inside, outer_translation, strict=True))
    return scale, translation
