"""Conversion of arrays and images to Zarr and out again, on dask: what the commands ``convert``, ``pyramid`` and
``rechunk`` do."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal
from uuid import uuid4

import numpy as np

from hyperslab.client.address import Address
from hyperslab.client.text import Progress, report
from hyperslab.conversion.making import Design, Made, Options, default_memory, design, levels_of, run
from hyperslab.conversion.model import KINDS, Array, Axis, CannotConvert, Image, Source, Undetermined, close_files
from hyperslab.conversion.outputs import is_file, write_file
from hyperslab.conversion.places import Place, ServicePlace, StorePlace, Target, is_service, open_place, place_of
from hyperslab.conversion.sources import check_unchanged, open_source
from hyperslab.storage.config import is_local

__all__ = ["CannotConvert", "Made", "Undetermined", "convert", "pyramid", "rechunk"]


def convert(
    src: str,
    dst: str,
    *,
    axes: str | None = None,
    pattern: str | None = None,
    chunks: Sequence[int] | None = None,
    shards: Sequence[int] | bool | None = None,
    compressor: Any = ...,
    zarr_format: Literal[2, 3] = 3,
    method: str | None = None,
    memory: int | None = None,
    replace: bool = False,
    scheduler: str | None = None,
    token: str | None = None,
    dry_run: bool = False,
    progress: Progress = False,
) -> Made:
    """Convert ``src`` to ``dst``; after an interruption, the same call goes on where it stopped.

    Args:
        src: A TIFF, NetCDF 3 or 4, HDF5 or npy file; a folder or glob of TIFF files; or Zarr in a folder, a bucket, on
            a web server, or a node of a service by its URL.
        dst: A folder, a bucket, or the URL of a node of a service; or a file ``.nc``, ``.ome.tif`` or ``.npy``, which
            an interruption leaves to be written again from the start.
        axes: Names of the axes of an image, of t, c, z, y and x.
        pattern: Names of the files, with ``{t}``, ``{c}`` and ``{z}`` where positions stand, and ``*`` for anything.
        chunks: Sizes of the last axes of a chunk; -1 is a whole axis, and axes before have 1.
        shards: The same of shards, or True or False; by default shards where there would be many chunks.
        compressor: A codec as name or configuration; None for none.
        zarr_format: 3 (OME-Zarr 0.5) or 2 (0.4).
        method: How levels are reduced, as that of `PyramidSettings`; by default the mean of numbers.
        memory: Bytes that this process takes at most; by default a quarter of the machine's.
        replace: Replace the nodes that are at ``dst``; keys that are not of Zarr stay.
        scheduler: The address of a scheduler of dask.distributed, whose workers read ``src`` and write ``dst``.
        token: A bearer token for a service.
        dry_run: Only say what would be made.
        progress: True for a bar, or a function of the bytes done and in all.

    Raises:
        Undetermined: The source does not say what an option does.
        CannotConvert: The source cannot be read, ``dst`` exists, or the cluster is gone. Also the errors of stores.
    """
    options = Options(
        chunks=None if chunks is None else tuple(chunks),
        shards=shards if shards is None or isinstance(shards, bool) else tuple(shards),
        compressor={"id": compressor} if isinstance(compressor, str) else compressor,
        zarr_format=zarr_format,
        method=method,
        memory=default_memory() if memory is None else memory,
        is_remote=is_service(dst) or not is_local(dst),
    )
    if (to_file := is_file(dst)) and (chunks, shards, compressor, zarr_format, method, scheduler) != FILE_OPTIONS:
        raise CannotConvert(f"{dst} is one file: chunks, shards, codec, format, method and scheduler are those of Zarr")
    if f"{place_of(src)}/".startswith(f"{place_of(dst)}/"):
        raise CannotConvert(f"{src} lies in {dst}: the destination must be another place")
    try:
        source = open_source(src, axes=axes, pattern=pattern, token=token, zarr_format=zarr_format)
        if to_file:
            return write_file(source, dst, options.memory, replace=replace, dry_run=dry_run, progress=progress)
        plan = design(source, options)
        several = f"{source.what}, {len(source.nodes)} arrays" if len(source.nodes) > 1 else source.what
        made = Made(dst, (several, *plan.lines(), *source.notes), plan.nbytes)
        if not dry_run:
            _make(src, dst, source, plan, options, token, scheduler, progress, replace=replace)
        return made
    finally:
        close_files()


FILE_OPTIONS = (None, None, ..., 3, None, None)
"""What `convert` takes for a destination that is a file."""


def _make(  # noqa: PLR0917
    src: str,
    dst: str,
    source: Source,
    plan: Design,
    options: Options,
    token: str | None,
    scheduler: str | None,
    progress: Progress,
    *,
    replace: bool,
) -> None:
    marker = _begin(src, dst, source, plan, token=token, replace=replace)
    place = open_place(dst, marker["job"], token=token)
    place.begin(marker, plan.groups, plan.arrays)
    with report(progress, plan.nbytes, "convert") as advance:
        run(place, plan, marker, options.memory, scheduler=scheduler, advance=advance)
    check_unchanged(source)
    groups = {
        path: (form, _with_channels(place, plan, path, source, extra)) for path, (form, extra) in plan.groups.items()
    }
    place.finish(groups, plan.arrays, resumed=marker["runs"] > 1)


def rechunk(src: str, dst: str, *, chunks: Sequence[int], **options: Any) -> Made:
    """`convert` Zarr to Zarr with other chunks; ``options``, and what is raised: as there."""
    return convert(src, dst, chunks=chunks, **options)


def _begin(src: str, dst: str, source: Source, plan: Design, *, token: str | None, replace: bool) -> dict[str, Any]:
    """The marker of this conversion: that of the interrupted one, if it is the same. Raises `CannotConvert` if there is
    something else at ``dst``."""
    arrays = {path: dict(definition) for path, definition in plan.arrays.items()}
    facts = json.dumps([source.identity, arrays, sorted(plan.groups)], sort_keys=True, default=str)
    digest = hashlib.blake2b(facts.encode(), digest_size=16).hexdigest()
    place = open_place(dst, uuid4().hex, token=token)
    marker, present = place.marker(), place.exists()
    if marker is not None and marker["digest"] == digest and not replace:
        return {**marker, "runs": marker["runs"] + 1}
    if marker is not None and not replace:
        raise CannotConvert(f"{dst} is half-made from {marker['source']}, or with other options: see --replace")
    if present is not None and not (replace and present.endswith("exists")):
        advice = ": it is not replaced" if replace else ": see --replace" if present.endswith("exists") else ""
        raise CannotConvert(f"{present}{advice}")
    if marker is not None or present is not None:
        kept = place.clear()
        if kept:
            raise CannotConvert(f"{dst} also holds what is not of Zarr, such as {kept[0]!r}, which was kept")
    made = {"arrays": arrays, "groups": [*plan.groups], "done": {}}
    return {"source": src, "digest": digest, "job": uuid4().hex, "runs": 1, **made}


def _with_channels(
    place: Place, plan: Design, path: str, source: Source, attributes: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Attributes of an image with its channels, whose display ranges are those that the source says, or else the least
    and the greatest value of the smallest level. [OME-Zarr 0.5: omero metadata]"""
    image = source.nodes.get(path)
    if not isinstance(image, Image) or not image.channels:
        return attributes
    part = next(part for part in plan.parts if part.path == plan.windows[path])
    target: Target = place.target(part.path, part.definition)
    names = [axis.name for axis in image.axes]
    axis = names.index("c") if "c" in names else None
    kind = image.array.dtype
    bounds = (0, 1) if kind.kind not in "iu" else (np.iinfo(kind).min, np.iinfo(kind).max)
    channels = []
    for number, channel in enumerate(image.channels):
        window = channel.window
        if window is None:
            window = bounds[0], bounds[1]
            box = [slice(0, size) for size in part.shape]
            if axis is not None:
                box[axis] = slice(number, number + 1)
            for other, name in enumerate(names):
                if name in "tz":  # one plane, in the middle
                    box[other] = slice(part.shape[other] // 2, part.shape[other] // 2 + 1)
            values = target.read(tuple(box))
            if kind.kind in "iuf" and values.size and np.isfinite(values).any():
                finite = values[np.isfinite(values)]
                least, most = float(finite.min()), float(finite.max())
                window = (least, most) if least < most else window
        least, most = (min(bounds[0], window[0]), max(bounds[1], window[1]))
        shown = {"min": least, "max": most, "start": window[0], "end": window[1]}
        color = channel.color or COLORS[number % len(COLORS)] if len(image.channels) > 1 else channel.color or "FFFFFF"
        label = {} if channel.label is None else {"label": channel.label}
        channels.append({**label, "color": color, "active": True, "window": shown})
    omero = {"channels": channels, "rdefs": {"model": "color"}}
    if "ome" in attributes:
        return {**attributes, "ome": {**attributes["ome"], "omero": omero}}
    return {**attributes, "omero": {"version": "0.4", **omero}}


COLORS = ("00FF00", "FF00FF", "00FFFF", "FFFF00", "FF0000", "0000FF", "FFFFFF")
"""Colours of channels of which the source says none."""


# --- levels of what is stored ----------------------------------------------------------------------------------------

PYRAMID = "pyramid"
"""Kind of the marker: the image is whole while its new levels are not."""


def pyramid(
    url: str,
    *,
    method: str | None = None,
    axes: str | None = None,
    memory: int | None = None,
    scheduler: str | None = None,
    token: str | None = None,
    dry_run: bool = False,
    progress: Progress = False,
) -> Made:
    """Add levels to a stored image, below its coarsest one, or to an array, whose group becomes an image.

    The image changes when all levels are stored; after an interruption, the same call goes on.

    Args:
        url: The group of an image, or an array, in a folder or bucket or on a service.
        axes: Names of the axes of an array that has none.

    Others, and what is raised: as of `convert`.
    """
    memory = default_memory() if memory is None else memory
    try:
        place, plan, attributes = _levels_to_add(url, method=method, axes=axes, token=token)
        if dry_run or not plan.parts:
            return Made(url, tuple(plan.lines() or ["it has all levels"]), plan.nbytes)
        arrays = {path: dict(definition) for path, definition in plan.arrays.items()}
        marker = place.marker()
        if marker is None or marker["arrays"] != arrays:
            marker = {"source": url, "job": uuid4().hex, "runs": 0, "arrays": arrays, "groups": [], "done": {}}
        marker["runs"] += 1
        if isinstance(place, StorePlace):
            place = dataclasses.replace(place, job=marker["job"])
        place.begin(marker, {}, arrays)
        with report(progress, plan.nbytes, "pyramid") as advance:
            run(place, plan, marker, memory, scheduler=scheduler, advance=advance)
        place.finish({}, arrays, resumed=marker["runs"] > 1, attributes=attributes)
        return Made(url, tuple(plan.lines()), plan.nbytes)
    finally:
        close_files()


def _levels_to_add(
    url: str, *, method: str | None, axes: str | None, token: str | None
) -> tuple[Place, Design, Mapping[str, Any]]:
    """The group of an image, the levels to be added, and the change of its attributes. Raises `CannotConvert` for what
    is no image, and `Undetermined` for an array without names of axes."""
    group, name, source = url.rstrip("/"), "", _stored(url.rstrip("/"), token)
    if "" in source.nodes:  # an array: its group becomes the image
        group, _, name = group.rpartition("/")
        try:
            source = _stored(group, token)
        except (CannotConvert, OSError) as error:
            raise CannotConvert(f"{url} lies in no group: hyperslab convert makes an image of it") from error
    attributes = source.groups[""]
    block: Mapping[str, Any] = attributes.get("ome", attributes)
    scales: list[Mapping[str, Any]] = [*(block.get("multiscales") or ())]
    old: list[Mapping[str, Any]] = [*scales[0]["datasets"]] if scales else []
    last = str(old[-1]["path"]) if old else name
    array = source.nodes.get(last)
    if not isinstance(array, Array) or (old and name not in ("", *[entry["path"] for entry in old])):
        raise CannotConvert(f"{url} is neither an image, nor one of its levels, nor an array of its own")
    names = [str(axis["name"]) for axis in scales[0]["axes"]] if scales else [*(axes or array.dimension_names or ())]
    if len(names) != len(array.shape) or not set(names) <= KINDS.keys() or names[-2:] != ["y", "x"]:
        described = f"{url} of shape {list(array.shape)} has axes {names}"
        raise Undetermined(described, "axes", "tczyx"[-len(array.shape) :])
    placed = {
        entry["type"]: entry[entry["type"]] for entry in (old[-1] if old else {}).get("coordinateTransformations", ())
    }
    scale, shift = (placed.get(kind, [start] * len(names)) for kind, start in (("scale", 1.0), ("translation", 0.0)))
    units = [axis.get("unit") for axis in scales[0]["axes"]] if scales else [None] * len(names)
    image = Image(
        dataclasses.replace(array, dimension_names=tuple(names)),
        tuple([Axis(n, unit, size) for n, unit, size in zip(names, units, scale, strict=True)]),
        str(scales[0].get("name", "")) if scales else name,
    )
    chunks = tuple([int(n) for n in array.definition["chunks"]])
    options = Options(chunks=chunks, zarr_format=source.zarr_format, method=method)
    (_, *parts), document = levels_of("", image, options)
    first = len(old) or 1
    paths = [last, *[str(first + number) for number in range(len(parts))]]
    if taken := [path for path in paths[1:] if path in source.nodes]:
        raise CannotConvert(f"{group} has an array {taken[0]!r} already, which is no level of the image")
    parts = [dataclasses.replace(part, path=paths[at + 1], above=paths[at]) for at, part in enumerate(parts)]
    parts[:1] = [dataclasses.replace(part, above=None, values=array.values) for part in parts[:1]]
    new = document.get("ome", document)["multiscales"][0]
    moved = []
    for entry, path in zip(new["datasets"], paths, strict=True):
        sizes, translation = entry["coordinateTransformations"]
        at = [a + b for a, b in zip(translation["translation"], shift, strict=True)]
        places = [sizes, {"type": "translation", "translation": at}]
        moved.append({"path": path, "coordinateTransformations": places})
    listed = {**new, **(scales[0] if scales else {}), "datasets": [*(old or moved[:1]), *moved[1:]]}
    changed: dict[str, Any] = {"multiscales": [listed, *scales[1:]]}
    if source.zarr_format == 3:
        changed = {"ome": {"version": "0.5", **changed}}
    place: Place = StorePlace(group, uuid4().hex, PYRAMID)
    if is_service(group):
        place = ServicePlace(Address.parse(group).url("metadata"), token, PYRAMID)
    return place, Design({}, tuple(parts), {}), changed


def _stored(url: str, token: str | None) -> Source:
    """Zarr at a URL, with the attributes of its own format."""
    source = open_source(url, token=token)
    return source if source.zarr_format == 3 else open_source(url, token=token, zarr_format=2)
