"""Reader plugin of napari: images and arrays as layers, of which only the planes on the screen are read.

``napari.yaml`` in this package is its manifest (npe2).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any, Final

import numpy as np

from hyperslab.client.address import Address
from hyperslab.client.array import RemoteArray
from hyperslab.client.node import open_session
from hyperslab.client.session import Request
from hyperslab.errors import BadParameter

Layer = tuple[list[Any], dict[str, Any], str]
"""Arrays from fine to coarse, the options of the layer, and its kind, as napari's readers return them."""

_URL: Final = re.compile(r"https?://[^/?#]+(/[^?#]*)?/(v1/(metadata|slice|tile)|view)/[^?#]+")
_SIDE: Final = 1024
"""Cells along the sides of a block of dask, about."""


def get_reader(path: str | Sequence[str]) -> Callable[[str], list[Layer]] | None:
    """The reader of a URL of a node (of its document, a slice, a tile or the page); None for anything else, which is
    left to other plugins."""
    return read_layers if isinstance(path, str) and _URL.match(path) else None


def read_layers(url: str) -> list[Layer]:
    """The layers of an image or an array, and of its label images.

    A channel axis becomes a layer for each channel, with its name, colour and contrast limits; that of a photograph
    stays the last axis. The token is that of the environment variable ``HYPERSLAB_TOKEN``.

    Raises:
        BadParameter: The URL is of several pictures: a plate, a well or a collection. Otherwise the server's errors.
    """
    address = Address.parse(url)
    info = _describe(address)
    layers: list[Layer] = [_image(address, info)]
    for label in info["labels"]:
        described = _describe(Address(address.base, label["path"]))
        levels = _levels(address, described)
        options = {"name": label["name"], **_place(described)}
        axis = _channel_axis(described)
        if axis is not None and levels[0].shape[axis] == 1:  # layers of labels have no channels
            levels = [level.squeeze(axis) for level in levels]
            options = {"name": label["name"], **_place(described, axis)}
        layers.append((levels, {**options, "multiscale": len(levels) > 1}, "labels"))
    return [(levels if options["multiscale"] else levels[0], options, kind) for levels, options, kind in layers]


def _describe(address: Address) -> Mapping[str, Any]:
    """The ``info.json`` of a picture."""
    with closing(open_session(1, None, None, None)) as session:
        info, _ = session.read_json(Request("GET", address.child("info.json").url("tile")))
    if info["images"]:
        raise BadParameter("path", address.path, "one picture: this is a mosaic of several")
    return info


def _image(address: Address, info: Mapping[str, Any]) -> Layer:
    levels, axis, channels = _levels(address, info), _channel_axis(info), info["channels"]
    options: dict[str, Any] = {"multiscale": len(levels) > 1}
    last = len(info["axes"]) - 1
    if axis == last and levels[0].shape[axis] in (3, 4) and levels[0].dtype == np.uint8 and not info["omero"]:
        return levels, {**options, "rgb": True, "name": info["name"], **_place(info, axis)}, "image"
    if info["kind"] == "labels":
        return levels, {**options, "name": info["name"], **_place(info)}, "labels"
    limits = [[channel["window"]["start"], channel["window"]["end"]] for channel in channels]
    if axis is None:
        options |= {"name": info["name"], "contrast_limits": limits[0]}
        return levels, {**options, **_place(info)}, "image"
    options |= {"channel_axis": axis, "name": [channel["label"] for channel in channels]}
    options |= {"contrast_limits": limits, "visible": [channel["active"] for channel in channels]}
    options["colormap"] = []
    for channel in channels:
        ends = [[0.0, 0.0, 0.0, 1.0], [*(byte / 255 for byte in bytes.fromhex(channel["color"])), 1.0]]
        options["colormap"].append({"name": channel["color"], "colors": ends[:: -1 if channel["inverted"] else 1]})
    if len(channels) < levels[0].shape[axis]:  # the document describes the first ones only
        levels = [level[(slice(None),) * axis + (slice(0, len(channels)),)] for level in levels]
    return levels, {**options, **_place(info, axis)}, "image"


def _levels(address: Address, info: Mapping[str, Any]) -> list[Any]:
    """Levels as dask arrays of planes, in blocks along their chunks."""
    names, levels = [axis["name"] for axis in info["axes"]], []
    for level in info["levels"]:
        url = Address(address.base, level["path"]).url("metadata")
        array = RemoteArray(url, field=info["field"])
        in_plane = [name in info["plane"] for name in names]
        sides = (max(size, _SIDE // size * size) for size in (*array.chunks, *array.shape[len(array.chunks) :]))
        levels.append(
            array.to_dask(chunks=tuple([s if shown else 1 for s, shown in zip(sides, in_plane, strict=True)]))
        )
    return levels


def _channel_axis(info: Mapping[str, Any]) -> int | None:
    names = [axis["name"] for axis in info["axes"]]
    return None if info["channel_axis"] is None else names.index(info["channel_axis"])


def _place(info: Mapping[str, Any], without: int | None = None) -> dict[str, Any]:
    """Scale and translation in the units of the axes, of all axes but one; 1 and 0 where they are unknown."""
    axes = [axis for i, axis in enumerate(info["axes"]) if i != without]
    return {
        "scale": [axis["scale"] or 1.0 for axis in axes],
        "translate": [axis["translation"] or 0.0 for axis in axes],
        "metadata": {"path": info["path"], "axes": axes},
    }
