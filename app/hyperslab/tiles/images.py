"""Opens images: arrays, OME-Zarr images, label images, plates and wells, tolerating broken metadata."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, takewhile
from math import isfinite, prod
from typing import Final, NamedTuple

from hyperslab.arrays.catalog import Catalog, Node
from hyperslab.arrays.nodes import ArrayNode, GroupNode, MountedStore, without_unread
from hyperslab.arrays.read import Reader
from hyperslab.cache import VersionedCache
from hyperslab.engine.metadata import UnreadAttributes
from hyperslab.errors import (
    BadMetadata,
    BadPath,
    BrokenData,
    FieldUnknown,
    Impossible,
    NodeNotFound,
    StoreDenied,
    WrongKind,
)
from hyperslab.tiles import ome as ome_zarr
from hyperslab.tiles.image import Axis, Image, Level, array_image, joined_versions
from hyperslab.tiles.ome import AxisFacts, Cell, Dataset, Mosaic, Multiscale, Ome, Omero, guess_type
from hyperslab.tiles.pyramid import axis_factor, axis_offset
from hyperslab.wire import kind_of

_FIRST_CELLS: Final = 8
"""The number of a mosaic's images to try in order, before evenly spaced others: a plate may be partly written."""
_MEASURED: Final = 16
"""The number of a mosaic's images whose shapes are looked at."""
_MOST_NUMBERED: Final = 4096
"""The most images of a collection that are looked for by number."""
_UNREADABLE: Final = (NodeNotFound, WrongKind, BadPath, BrokenData, StoreDenied)
"""Errors of one level or image that leave the others usable. A failing store is not among them: it is not absence; but
some buckets deny what is missing."""


class _Open(NamedTuple):
    """Cache entry: valid while the documents of ``nodes`` are unchanged and no ``missing`` image of a mosaic exists."""

    image: Image
    nodes: Sequence[Node]
    missing: Sequence[Cell] = ()


class Images:
    """Opens and caches images of a catalog. Broken OME metadata is listed in `Image.problems` and raises no error.
    Thread-safe."""

    def __init__(self, catalog: Catalog, reader: Reader) -> None:
        self.catalog = catalog
        self._reader = reader
        self._open_images: VersionedCache[_Open] = VersionedCache(4096)

    def open(self, path: str, field: str | None = None, *, single: bool = False) -> Image:
        """The image at a path.

        Raises `NodeNotFound`, `WrongKind` (a group that is not an image, or with ``single``, one that holds several:
        nested ones could refer to each other in a circle), `FieldUnknown`, `NotRepresentable` (values without a
        brightness), and the errors of `Catalog.open_node`.
        """
        image = self._unchanged((path, field))
        if image is not None and not (single and image.mosaic):
            return image
        node = self.catalog.open_node(path)
        if isinstance(node, ArrayNode):
            return self._cache((path, field), array_image(node, field), [node])
        ome = ome_zarr.read_ome(node.attributes)
        if ome.is_empty or (single and ome.holds_images):
            raise WrongKind(node.path, "group", "array")
        ome = replace(ome, problems=node.problems + ome.problems)
        if ome.mosaic is not None:
            return self._open_mosaic(path, node, field, ome, ome.mosaic)
        if ome.multiscale is not None:
            image = self._open_multiscale(node, field, ome, ome.multiscale)
            complete = len(image.levels) == len(ome.multiscale.datasets)  # a missing level may appear any time
            nodes: list[Node] = [node, *(level.array for level in image.levels)]
            return self._cache((path, field), image, nodes) if complete else image
        return (
            self._open_series(path, node, field, ome) if ome.is_collection else self._salvage(node, field, ome.problems)
        )

    def remembered(self, path: str, field: str | None) -> Image | None:
        """The image of a remote store as last opened, without a check that it is current; else None."""
        entry = self._open_images.any_version((path, field))
        return entry.image if entry is not None and entry.image.mount.is_remote else None

    def documents(self, image: Image) -> Mapping[str, str | None]:
        """Versions by key of all documents behind an image; empty if unknown, and for mosaics."""
        entry = self._open_images.any_version((image.path, image.field_name))
        if entry is None or entry.image is not image or image.mosaic:
            return {}
        return self.catalog.documents(entry.nodes)

    def open_cell(self, path: str, field: str | None) -> Image | None:
        """An image of a mosaic (the first image of a well); None if it is missing or broken."""
        try:
            return self._open_cell(path, field)
        except (*_UNREADABLE, Impossible):
            return None

    def _open_cell(self, path: str, field: str | None) -> Image:
        image = self._unchanged((path, field, "cell"))
        if image is not None:
            return image
        node = self.catalog.open_node(path)
        well = ome_zarr.read_ome(node.attributes).mosaic if isinstance(node, GroupNode) else None
        inner = path if well is None else f"{path}/{well.cells[0].path}"
        image = self.open(inner, field, single=True)
        entry = self._open_images.any_version((inner, field))
        if entry is None or entry.image is not image:
            return image
        return self._cache((path, field, "cell"), image, entry.nodes if well is None else [node, *entry.nodes])

    def labels(self, image: Image) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
        """Names and paths of an image's label images, and problems of their list."""
        group = self._group_or_none(f"{image.path}/labels") if image.kind == "multiscale" else None
        if group is None:
            return (), ()
        attributes, unread = without_unread(group)
        problems = [*unread]
        names = ome_zarr.label_paths(attributes, problems)
        assert group.mount is not None  # the root of all stores has no images
        nodes = group.mount.each(lambda name: self.catalog.find_readable(f"{group.path}/{name}"), names[:_MEASURED])
        problems += [f"labels: {name!r} is not there" for name, node in zip(names, nodes, strict=False) if node is None]
        return tuple((name, f"{group.path}/{name}") for name in names), tuple(problems)

    def _unchanged(self, key: tuple[str | None, ...]) -> Image | None:
        """The cached image, if it is still valid."""
        entry = self._open_images.any_version(key)
        if entry is None or not self.catalog.unchanged(entry.nodes):
            return None
        return entry.image if not any(self._open_cells(entry.image.mount, entry.missing, key[1])) else None

    def _cache(
        self, key: tuple[str | None, ...], image: Image, nodes: Sequence[Node], missing: Sequence[Cell] = ()
    ) -> Image:
        """Store an image, and return the cached one: another thread may have stored an equal one before."""
        version = joined_versions(*(f"{node.path} {node.version}" for node in nodes), *(cell.path for cell in missing))
        return self._open_images.load(key, version, lambda: (_Open(image, nodes, missing), version, 1)).value.image

    def _group_or_none(self, path: str) -> GroupNode | None:
        try:
            return self.catalog.open_group(path)
        except _UNREADABLE:
            return None

    # --- multiscale images -------------------------------------------------------------------------------------

    def _open_multiscale(self, group: GroupNode, field: str | None, ome: Ome, multiscale: Multiscale) -> Image:
        """The image of the levels that exist and match the first."""

        def open_array(dataset: Dataset) -> ArrayNode | Exception:
            try:
                array = self.catalog.open_array(f"{group.path}/{dataset.path}")
            except (*_UNREADABLE, ValueError) as error:
                return error
            return array.attributes.error if isinstance(array.attributes, UnreadAttributes) else array

        assert group.mount is not None  # the root of all stores has no attributes
        problems = [*ome.problems]
        opened: list[tuple[Dataset, ArrayNode]] = []
        arrays = group.mount.each(open_array, multiscale.datasets)
        for i, (dataset, array) in enumerate(zip(multiscale.datasets, arrays, strict=True)):
            problem = array if isinstance(array, Exception) else _mismatch(array, opened[0][1]) if opened else None
            if problem is None and isinstance(array, ArrayNode):
                opened.append((dataset, array))
            else:
                problems.append(f"{multiscale.where}.datasets[{i}]: {problem}")
        if all(isinstance(array, WrongKind) for array in arrays):  # as ndpyramid has datasets of xarray
            raise WrongKind(group.path, "group", "array")
        if not opened:
            return self._salvage(group, field, tuple(problems))
        ordered = sorted(opened, key=_cell_size(opened))
        if ordered != opened:
            problems.append(
                f"{multiscale.where}.datasets: not in order of resolution; the finest is {ordered[0][0].path!r}"
            )
        finest, first = ordered[0]
        image = array_image(first, field)
        image_label = ome.image_label
        if image_label is not None and image.dtype.kind not in "biu":
            image_label = None
            problems.append(f"image-label: labels are integers, not {image.dtype}")
        rank = len(first.metadata.shape)
        axes = _axes(image.axes[:rank], multiscale, finest, problems)
        problems += _disagreements(ome.omero, ordered if multiscale.axes is not None else [], axes)
        levels: list[Level] = []
        for dataset, array in ordered:
            level = _level(dataset, array, finest, first, inner=len(image.axes) - rank)
            problem, usable = _extent_problem(level, axes)
            problems += [f"level {dataset.path!r} {problem}"] if problem else []
            turned = [a.name for a, step in zip(axes, dataset.scale or (), strict=False) if (a.scale or 0) * step < 0]
            problems += [f"level {dataset.path!r} runs the other way along {', '.join(turned)}"] if turned else []
            levels += [level] if usable else []
        return replace(
            image,
            path=group.path,
            kind="multiscale" if image_label is None else "labels",
            name=multiscale.name or group.path.rpartition("/")[2],
            axes=axes + image.axes[rank:],
            levels=tuple(levels),
            version=joined_versions(group.version, *(level.array.version for level in levels)),
            omero=ome.omero,
            image_label=image_label,
            problems=tuple(problems),
        )

    def _salvage(self, group: GroupNode, field: str | None, problems: tuple[str, ...]) -> Image:
        """The first readable array of a group with broken metadata, as an image of one level."""

        def names() -> Iterator[str]:
            yield from ome_zarr.broken_dataset_paths(group.attributes)
            yield from (c.name for c in self.catalog.some_children(group, 100) if c.kind == "array")

        for name in names():
            try:
                return array_image(self.catalog.open_array(f"{group.path}/{name}"), field, problems)
            except _UNREADABLE:
                continue
        raise BadMetadata(group.attributes_key, None, "; ".join(problems) or "it names no image")

    def _open_series(self, path: str, group: GroupNode, field: str | None, ome: Ome) -> Image:
        """The images of a bioformats2raw collection as a mosaic, or the only one; without a list of names, those
        numbered from 0 on."""
        series = self._group_or_none(f"{group.path}/OME")
        attributes, unread = ({}, ()) if series is None else without_unread(series)
        problems = [*unread]
        names = ome_zarr.series_paths(attributes, problems) if attributes else ()
        names = names or self._numbered(group)

        def look(name: str) -> Image | Exception:
            try:
                return self.open(f"{group.path}/{name}", field, single=True)
            except _UNREADABLE as error:
                return error

        assert group.mount is not None  # the root of all stores has no attributes
        sizes = dict(zip(names, group.mount.each(look, names[:_MEASURED]), strict=False))
        problems += [f"image {name!r}: {error}" for name, error in sizes.items() if isinstance(error, Exception)]
        images = {name: image for name, image in sizes.items() if isinstance(image, Image)}
        if len(names) == len(sizes) and len(images) == 1:
            (image,) = images.values()
            return replace(image, problems=(*image.problems, *problems))
        rest = [name for name in names[len(sizes) :] if not set(name.split("/")) & {"", ".", ".."}]
        if not images and not rest:
            raise BadMetadata(group.attributes_key, "bioformats2raw.layout", "; ".join(problems))
        ome = replace(ome, problems=(*ome.problems, *problems))
        return self._open_mosaic(path, group, field, ome, ome_zarr.square("collection", [*images, *rest]))

    def _numbered(self, group: GroupNode) -> tuple[str, ...]:
        """The groups 0, 1, 2 and so on, up to the first that is missing; at least the name of the first."""
        assert group.mount is not None
        names: list[str] = []
        while len(names) < _MOST_NUMBERED:
            batch = [str(i) for i in range(len(names), len(names) + _MEASURED)]
            groups = group.mount.each(lambda name: self._group_or_none(f"{group.path}/{name}"), batch)
            names += [name for name, _ in takewhile(lambda pair: pair[1] is not None, zip(batch, groups, strict=True))]
            if None in groups:
                break
        return tuple(names) or ("0",)

    # --- plates and wells --------------------------------------------------------------------------------------

    def _open_mosaic(self, path: str, group: GroupNode, field: str | None, ome: Ome, mosaic: Mosaic) -> Image:
        """A plate, a well or a collection, with axes, levels and dtype of the first image found; at most 200 are tried,
        and the shapes of up to 16 looked at, so that the largest of them fits into its place."""
        cells = tuple(replace(cell, path=f"{group.path}/{cell.path}") for cell in mosaic.cells)
        first, others = cells[:_FIRST_CELLS], cells[_FIRST_CELLS:]
        tried = (*first, *others[:: max(1, -(-len(others) // (200 - _FIRST_CELLS)))])
        assert group.mount is not None  # the root of all stores has no attributes
        size = _FIRST_CELLS if group.mount.is_remote else 1
        batches = (tried[:1], *(tried[i : i + size] for i in range(1, len(tried), size)))
        opened = (self._open_cells(group.mount, batch, field) for batch in batches)
        place, template = next(
            ((i, image) for i, image in enumerate(chain.from_iterable(opened)) if image is not None), (0, None)
        )
        if template is None:
            if field is not None:  # tell images without this field from no images
                raise FieldUnknown(group.path, field, [*self.open(path).fields])
            problem = f"none of {len(tried)} images that were looked for is there, of {len(cells)} in all"
            raise BadMetadata(group.attributes_key, mosaic.kind, problem)
        wells = cells[:: max(1, -(-len(cells) // _MEASURED))]
        names = [axis.name for axis in template.axes]
        problems, shapes = ome.problems, dict[str, tuple[int, ...]]()
        for cell, other in zip(wells, self._open_cells(group.mount, wells, field), strict=True):
            if other is None:
                try:
                    self._open_cell(cell.path, field)
                except NodeNotFound:  # it may be written yet
                    pass
                except (*_UNREADABLE, Impossible) as error:
                    problems += (f"{cell.path} cannot be shown: {error}",)
                continue
            if [axis.name for axis in other.axes] == names:
                shapes[cell.path] = tuple([axis.size for axis in other.axes])
            else:
                theirs = ", ".join(axis.name for axis in other.axes)
                problems += (f"{cell.path} has the axes {theirs}, not {', '.join(names)}: it is left out",)
        if place >= len(first):
            problems += (
                f"none of the first {len(first)} images is there; all are taken to be like {tried[place].path}",
            )
        image = replace(
            template,
            path=group.path,
            kind=mosaic.kind,
            name=mosaic.name or group.path.rpartition("/")[2],
            version=joined_versions(group.version, template.version),
            mosaic=replace(mosaic, cells=cells),
            shapes=shapes,
            problems=problems + template.problems,
        )
        found = self._open_images.any_version((tried[place].path, field, "cell"))
        if found is None or found.image is not template:
            return image
        # once one of the first images appears, it becomes the template; later ones are not checked
        return self._cache((path, field), image, [group, *found.nodes], first[:place])

    def _open_cells(self, mount: MountedStore, cells: Sequence[Cell], field: str | None) -> list[Image | None]:
        return mount.each(lambda cell: self.open_cell(cell.path, field), cells)


def _mismatch(array: ArrayNode, first: ArrayNode) -> str | None:
    """The reason why a level does not match the first, if any. Numbers of other dtypes do: writers store means as
    floats, or coarse labels in fewer bits."""
    if len(array.metadata.shape) != len(first.metadata.shape):
        return f"{len(array.metadata.shape)} axes, the first level has {len(first.metadata.shape)}"
    dtypes = [node.metadata.dtype.json for node in (array, first)]
    # byte order may differ, except in records: all levels are read with the fields of the first
    plain, plain_first = (dtype.lstrip("<>|") if isinstance(dtype, str) else dtype for dtype in dtypes)
    kinds = [
        kind_of(node.metadata.dtype.numpy) if isinstance(node.metadata.dtype.json, str) else ""
        for node in (array, first)
    ]
    are_numbers = all(kind and kind in "biuf" for kind in kinds) or kinds == ["c", "c"]
    return None if plain == plain_first or are_numbers else f"dtype {dtypes[0]}, the first level has {dtypes[1]}"


def _disagreements(
    omero: Omero | None, levels: Sequence[tuple[Dataset, ArrayNode]], axes: Sequence[Axis]
) -> Iterator[str]:
    """Rendering settings of what the image does not have, and levels whose dimensions are not the axes."""
    sizes = {axis.name.lower(): axis.size for axis in axes}
    if omero is not None:
        have, named = next((axis.size for axis in axes if axis.type == "channel"), 1), len(omero.channels)
        if named not in (0, have):
            yield f"omero.channels: {named} are described, the image has {have}"
        for name, index in (("t", omero.default_t), ("z", omero.default_z)):
            if index is not None and index >= sizes.get(name, 1):
                yield f"omero.rdefs.default{name.upper()}: {index} is beyond the last of {sizes.get(name, 1)}"
    for dataset, array in levels:
        names = array.metadata.dimension_names or ()
        if any(name not in (None, axis.name) for name, axis in zip(names, axes, strict=False)):
            theirs, ours = ", ".join(map(str, names)), ", ".join(axis.name for axis in axes)
            yield f"level {dataset.path!r} has the dimensions {theirs}, the axes are {ours}"


def _axes(plain: Sequence[Axis], multiscale: Multiscale, finest: Dataset, problems: list[str]) -> tuple[Axis, ...]:
    """Axes of a pyramid; ``plain`` are those of its first array.

    Without usable metadata those of early versions are named after the last of t, c, z, y, x, others like plain ones.
    """
    rank, facts = len(plain), multiscale.axes
    if facts is not None and len(facts) != rank:
        problems.append(f"{multiscale.where}.axes: {len(facts)} axes are named, the array has {rank}")
        facts = None
    is_early = multiscale.version in (None, "0.1", "0.2")  # always t, c, z, y, x, of which some leave out the first
    if facts is None and rank <= 5 and (is_early or rank in (2, 5)):
        facts = tuple(AxisFacts(name, guess_type(name), None) for name in "tczyx"[5 - rank :])
    elif facts is None:
        facts = tuple(AxisFacts(axis.name, axis.type, None) for axis in plain)
    scale, translation = (
        numbers if numbers is not None and len(numbers) == rank else [None] * rank
        for numbers in (finest.scale, finest.translation)
    )
    return tuple(
        Axis(fact.name, fact.type or guess_type(fact.name), fact.unit, axis.size, step, start)
        for fact, axis, step, start in zip(facts, plain, scale, translation, strict=True)
    )


def _cell_size(opened: Sequence[tuple[Dataset, ArrayNode]]) -> Callable[[tuple[Dataset, ArrayNode]], float]:
    """The key that sorts levels from fine to coarse: the size of a cell, or without scales the number of cells."""
    if all(dataset.scale is not None and all(dataset.scale) for dataset, _ in opened):
        return lambda level: abs(prod(level[0].scale or ()))
    if all(dataset.scale is None for dataset, _ in opened):
        return lambda level: -prod(level[1].metadata.shape)
    return lambda _: 0


def _level(dataset: Dataset, array: ArrayNode, finest: Dataset, first: ArrayNode, *, inner: int) -> Level:
    """The place of a level by its transformations, axis by axis; sizes only decide without a usable scale. ``inner``:
    the axes of a field's subarray."""
    shape, full = array.metadata.shape, first.metadata.shape
    nothing = [0.0] * len(shape)
    fine, coarse, start, shift = (
        numbers if numbers is not None and len(numbers) == len(shape) else nothing
        for numbers in (finest.scale, dataset.scale, finest.translation, dataset.translation)
    )
    factors, offsets = [], []
    for axis, (size, cells) in enumerate(zip(shape, full, strict=True)):
        ratio = coarse[axis] / fine[axis] if fine[axis] else 0.0
        usable = dataset is not finest and isfinite(ratio) and ratio > 0
        factor = axis_factor(cells, size, ratio if usable else None)
        distance = (shift[axis] - start[axis]) / fine[axis] if usable else 0.0
        factors.append(factor)
        offsets.append(axis_offset(distance, factor) if usable and isfinite(distance) else 0.0)
    return Level(dataset.path, array, (*factors, *[1.0] * inner), (*offsets, *[0.0] * inner))


def _extent_problem(level: Level, axes: Sequence[Axis]) -> tuple[str, bool]:
    """The flaw of the extent of a level, by up to a cell (some writers halve by rounding down), and whether it
    can be used all the same. Cells beyond the finest level are padding, and not wrong."""
    parts = []
    for axis, size, factor, offset in zip(axes, level.array.metadata.shape, level.factors, level.offsets, strict=False):
        start, stop = max(offset, 0), min(offset + size * factor, axis.size)
        if size == 0 != axis.size:
            return "has no cells", False
        if axis.type not in ("space", "time") and factor != 1:
            return "has other channels", False
        if start >= stop and axis.size:
            return f"lies outside of the finest level along {axis.name}", False
        if start >= 1 or axis.size - stop >= max(factor, 1):
            parts.append(f"{axis.name} from {start:g} to {stop:g} of {axis.size}")
    return f"has only {', '.join(parts)}: the rest is taken from finer levels" if parts else "", True
