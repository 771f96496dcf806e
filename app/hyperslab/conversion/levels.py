"""Levels that an image lacks: which are to be added below its coarsest one, and the attributes that list them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

from hyperslab.client.address import Address
from hyperslab.conversion.making import Design, Options, levels_of
from hyperslab.conversion.model import KINDS, Array, Axis, CannotConvert, Image, Source, Undetermined
from hyperslab.conversion.places import Place, ServicePlace, StorePlace, is_service
from hyperslab.conversion.sources import open_source

KIND = "pyramid"
"""Kind of the marker: the image is whole while its new levels are not."""


def levels_to_add(
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
    if not isinstance(array, Array) or (old and name not in ("", *[each["path"] for each in old])):
        raise CannotConvert(f"{url} is neither an image, nor one of its levels, nor an array of its own")
    names = [str(axis["name"]) for axis in scales[0]["axes"]] if scales else [*(axes or array.dimension_names or ())]
    if len(names) != len(array.shape) or not set(names) <= KINDS.keys() or names[-2:] != ["y", "x"]:
        found = f"{url} of shape {list(array.shape)} has axes {names}"
        raise Undetermined(found, "axes", "tczyx"[-len(array.shape) :])
    scale, shift = _transformation(old[-1] if old else {}, len(names))
    units = [axis.get("unit") for axis in scales[0]["axes"]] if scales else [None] * len(names)
    image = Image(
        replace(array, dimension_names=tuple(names)),
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
    parts = [replace(part, path=paths[at + 1], above=paths[at]) for at, part in enumerate(parts)]
    parts[:1] = [replace(part, above=None, values=array.values) for part in parts[:1]]
    new = document.get("ome", document)["multiscales"][0]
    moved = []
    for each, path in zip(new["datasets"], paths, strict=True):
        sizes, translation = each["coordinateTransformations"]
        at = [a + b for a, b in zip(translation["translation"], shift, strict=True)]
        places = [sizes, {"type": "translation", "translation": at}]
        moved.append({"path": path, "coordinateTransformations": places})
    listed = {**new, **(scales[0] if scales else {}), "datasets": [*(old or moved[:1]), *moved[1:]]}
    changed: dict[str, Any] = {"multiscales": [listed, *scales[1:]]}
    if source.zarr_format == 3:
        changed = {"ome": {"version": "0.5", **changed}}
    place: Place = StorePlace(group, uuid4().hex, KIND)
    if is_service(group):
        place = ServicePlace(Address.parse(group).url("metadata"), token, KIND)
    return place, Design({}, tuple(parts), {}), changed


def _stored(url: str, token: str | None) -> Source:
    """Zarr at a URL, with the attributes of its own format."""
    found = open_source(url, token=token)
    return found if found.zarr_format == 3 else open_source(url, token=token, zarr_format=2)


def _transformation(dataset: Mapping[str, Any], rank: int) -> tuple[Sequence[float], Sequence[float]]:
    """Scale and translation of a level."""
    found = {each["type"]: each[each["type"]] for each in dataset.get("coordinateTransformations", ())}
    return found.get("scale", [1.0] * rank), found.get("translation", [0.0] * rank)
