"""``multiscales``: the axes and the levels of a pyramid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from hyperslab.errors import shown
from hyperslab.tiles.ome.check import (
    MISSING,
    Problems,
    as_list,
    as_number,
    as_object,
    as_path,
    as_text,
    as_version,
    lenient,
    usable,
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


def parse_multiscales(value: Any, outer_version: Any, problems: Problems) -> Multiscale | None:
    """The first entry of ``multiscales`` that has a level, without what is broken in it; None where there is none.

    Raises `ValueError` where there are no entries (OME-Zarr 0.4, 3.4).
    """

    def parse_entry(entry: Any, where: str) -> Multiscale:
        return _parse_entry(entry, where, outer_version, problems)

    found = usable(parse_entry, value, "multiscales", problems)
    return found[0] if found else None


def _parse_entry(value: Any, where: str, outer_version: Any, problems: Problems) -> Multiscale:
    entry = as_object(value, where)
    version = as_version(entry.get("version", outer_version), f"{where}.version", problems)
    axes = lenient(lambda v, w: _parse_axes(v, w, version, problems), entry, where, problems)
    rank = None if axes is None else len(axes)
    needs_scale = version in ("0.4", "0.5") or (version is None and axes is not None)
    outer = _parse_transformations(entry, where, rank, problems)

    def parse_dataset(dataset: Any, where: str) -> Dataset:
        return _parse_dataset(dataset, where, rank, outer, problems, needs_scale=needs_scale)

    datasets = usable(parse_dataset, entry.get("datasets", MISSING), f"{where}.datasets", problems)
    if not datasets:
        raise ValueError(f"{where}.datasets: none can be used")
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
    given = as_list(entry.get("axes", MISSING), f"{where}.axes", at_least=1)
    axes = [_parse_axis(axis, f"{where}.axes[{i}]", f"d{i}", problems) for i, axis in enumerate(given)]
    for i, axis in enumerate(axes):
        if axis.name in [other.name for other in axes[:i]]:
            problems.append(f"{where}.axes[{i}]: {shown(axis.name)} is there twice")
            axes[i] = replace(axis, name=f"d{i}")
    spatial = sum(axis.type == "space" for axis in axes)
    if not 2 <= len(axes) <= 5:
        problems.append(f"{where}.axes: expected 2 to 5 axes, found {len(axes)}")
    elif not 2 <= spatial <= 3:
        problems.append(f"{where}.axes: expected 2 or 3 axes of type space, found {spatial}")
    return tuple(axes)


def _looks_like_0_4(entry: Mapping[str, Any]) -> bool:
    datasets = entry.get("datasets")
    return isinstance(datasets, list) and any(
        isinstance(dataset, Mapping) and "coordinateTransformations" in dataset for dataset in datasets
    )


def _parse_axis(value: Any, where: str, unnamed: str, problems: Problems) -> AxisFacts:
    """Axes are counted: one that is broken keeps its place, and gets a name."""
    if isinstance(value, str):  # 0.3 has names only
        return AxisFacts(value or unnamed, _TYPES_BY_NAME.get(value), None)
    axis = lenient(as_object, value, where, problems)
    if axis is None:
        return AxisFacts(unnamed, None, None)
    name = lenient(as_text, axis.get("name", MISSING), f"{where}.name", problems)
    kind, unit = (
        None if axis.get(member) is None else lenient(as_text, axis[member], f"{where}.{member}", problems)
        for member in ("type", "unit")
    )
    return AxisFacts(name or unnamed, kind, unit)


# --- levels ----------------------------------------------------------------------------------------------------

_Transformation = tuple[tuple[float, ...] | None, tuple[float, ...] | None]


def _parse_dataset(
    value: Any, where: str, rank: int | None, outer: _Transformation, problems: Problems, *, needs_scale: bool
) -> Dataset:
    dataset = as_object(value, where)
    path = as_path(dataset.get("path", MISSING), f"{where}.path", problems)
    if needs_scale and dataset.get("coordinateTransformations") is None:
        problems.append(f"{where}.coordinateTransformations: missing")
    inner = _parse_transformations(dataset, where, rank, problems)
    return Dataset(path, *_after(inner, outer))


def _parse_transformations(
    entry: Mapping[str, Any], where: str, rank: int | None, problems: Problems
) -> _Transformation:
    """The scale and the translation of one node; None for each that is absent, broken or has not ``rank`` numbers."""
    if entry.get("coordinateTransformations") is None:
        return None, None
    where, before = f"{where}.coordinateTransformations", len(problems)
    found: dict[str, tuple[float, ...]] = {}

    def parse(value: Any, where: str) -> bool:
        kind, numbers = _parse_transformation(value, where, rank)
        if kind in found:
            raise ValueError(f"{where}: {kind} is there twice")
        found[kind] = numbers
        return True

    lenient(lambda v, w: usable(parse, v, w, problems), entry["coordinateTransformations"], where, problems)
    if "scale" not in found and len(problems) == before:
        problems.append(f"{where}: scale is missing")
    return found.get("scale"), found.get("translation")


def _parse_transformation(
    value: Any, where: str, rank: int | None
) -> tuple[Literal["scale", "translation"], tuple[float, ...]]:
    item = as_object(value, where)
    kind = item.get("type")
    if kind not in ("scale", "translation"):
        raise ValueError(f"{where}.type: expected scale or translation, found {shown(kind)}")
    where = f"{where}.{kind}"
    numbers = as_list(item.get(kind, MISSING), where, at_least=1)
    if rank not in (None, len(numbers)):
        raise ValueError(f"{where}: expected {rank} numbers, one for each axis, found {len(numbers)}")
    return kind, tuple(float(as_number(n, f"{where}[{i}]")) for i, n in enumerate(numbers))


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
