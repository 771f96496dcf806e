"""From a path to a picture: an array, an OME-Zarr image, label image, plate or well, or what broken metadata leaves."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from threading import Lock

from hyperslab.arrays.catalog import Catalog, Node
from hyperslab.arrays.nodes import ArrayNode, GroupNode, MountedStore
from hyperslab.arrays.read import Reader
from hyperslab.cache import VersionedCache
from hyperslab.errors import (
    BadMetadata,
    BadPath,
    BrokenData,
    Impossible,
    NodeNotFound,
    WrongKind,
)
from hyperslab.tiles import ome as ome_zarr
from hyperslab.tiles.axes import Axis, ome_axes
from hyperslab.tiles.ome import Dataset, Multiscale, Ome
from hyperslab.tiles.opened import Made, Opened
from hyperslab.tiles.picture import Cell, Kind, Level, Mosaic, Picture
from hyperslab.tiles.plain import joined_versions, last_segment, plain_picture
from hyperslab.tiles.pyramid import axis_factor

_CHILDREN_TRIED = 100
_CELLS_TRIED = 8
"""So many images of a mosaic are looked for in order; then others, spread over all of it: it may be half filled."""
_MOST_CELLS_TRIED = 200
_SERIES_TRIED = 8
_MOST_FOUND = 1024
_PARSED_BYTES = 8 << 20
_UNREADABLE = (NodeNotFound, WrongKind, BadPath, BrokenData)
"""What makes a part of an image unusable. A store that fails is none of them: that is never taken for absence."""

_Opened = tuple[Dataset, ArrayNode]


class Pictures:
    """Opens pictures from a catalog. What is wrong with OME metadata becomes a problem of the picture, not an error."""

    def __init__(self, catalog: Catalog, reader: Reader) -> None:
        self.catalog = catalog
        self._reader = reader
        self._opened = Opened()
        self._cells = Opened()
        self._found: OrderedDict[str, Cell] = OrderedDict()
        self._lock = Lock()
        self._parsed: VersionedCache[Ome] = VersionedCache(_PARSED_BYTES)

    def open(self, path: str, field: str | None = None) -> Picture:
        """The picture at a path; for a collection of images the first of them.

        Raises `NodeNotFound`, `WrongKind` (a group that is no image), `FieldUnknown`, `NotRepresentable` (values that
        have no brightness), and whatever `Catalog.open_node` raises.
        """
        picture = self.known(path, field, may_block=True)
        return picture if picture is not None else self._open(path, field)

    def known(self, path: str, field: str | None, *, may_block: bool = False) -> Picture | None:
        """A picture that was opened before and has not changed; None elsewhere, and where only blocking could tell."""
        return self._unchanged(self._opened.get(path, field), may_block=may_block)

    def last(self, path: str, field: str | None) -> Picture | None:
        """The picture that was there when somebody last opened it; None where that is not known."""
        made = self._opened.get(path, field)
        return None if made is None else made.picture

    def documents(self, picture: Picture) -> Mapping[str, str | None]:
        """The keys of all documents that a picture was opened from, and their versions; empty where not known, and for
        a mosaic, whose images have their own."""
        made = self._opened.get(picture.path, None if picture.field is None else picture.field.name)
        return {} if made is None or made.picture is not picture or picture.mosaic is not None else made.documents

    def _unchanged(self, made: Made | None, *, may_block: bool = True) -> Picture | None:
        if made is None or not self.catalog.unchanged(made.nodes, may_block=may_block):
            return None
        return made.picture

    def _open(self, path: str, field: str | None) -> Picture:
        node = self.catalog.open_node(path)
        if isinstance(node, ArrayNode):
            return self._opened.keep(path, field, Made(plain_picture(node, field), [node]))
        ome = self._read_ome(node)
        if ome.is_empty:
            raise WrongKind(node.path, "group", "array")
        if ome.plate is not None or ome.well is not None:
            return self._assembled(path, node, field, ome)
        if ome.multiscale is not None:
            picture = self._image(node, field, ome, ome.multiscale)
            nodes: list[Node] = [node, *(level.array for level in picture.levels)]
            complete = len(picture.levels) == len(ome.multiscale.datasets)  # what is missing may come
            return self._opened.keep(path, field, Made(picture, nodes)) if complete else picture
        return self._collection(node, field) if ome.is_collection else self._salvaged(node, field, ome.problems)

    def _image_at(self, path: str, field: str | None) -> Picture:
        """A single image: what holds images in turn is refused, for such documents could lead in a circle."""
        known = self.known(path, field, may_block=True)
        if known is not None:
            return known
        node = self.catalog.open_node(path)
        if isinstance(node, GroupNode) and self._read_ome(node).holds_images:
            raise WrongKind(node.path, "group", "array")
        return self._open(path, field)

    def open_cell(self, path: str, field: str | None) -> Picture | None:
        """An image of a mosaic (of a well, its first one); None where it is missing or broken."""
        known = self._unchanged(self._cells.get(path, field))
        if known is not None:
            return known
        try:
            node = self.catalog.open_node(path)
            well = self._read_ome(node).well if isinstance(node, GroupNode) else None
            inner = path if well is None else f"{path}/{well.images[0].path}"
            picture = self._image_at(inner, field)
        except (*_UNREADABLE, Impossible):
            return None
        made = self._opened.get(inner, field)
        if made is None or made.picture is not picture:
            return picture
        return self._cells.keep(path, field, made if well is None else Made(picture, [node, *made.nodes]))

    def labels(self, picture: Picture) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
        """Names and paths of an image's label images, and what is wrong with their list."""
        group = self._group_or_none(f"{picture.path}/labels") if picture.kind == "multiscale" else None
        if group is None:
            return (), ()
        problems: list[str] = []
        names = ome_zarr.label_paths(group.attributes, problems)
        return tuple((name, f"{group.path}/{name}") for name in names), tuple(problems)

    def _read_ome(self, group: GroupNode) -> Ome:
        ome = self._parsed.get(group.path, group.version)
        if ome is None:
            ome = ome_zarr.read_ome(group.attributes)
            if not ome.is_empty:
                ome = replace(ome, problems=group.problems + ome.problems)
            wells = 0 if ome.plate is None else len(ome.plate.wells)
            self._parsed.put(group.path, group.version, ome, 4096 + 256 * wells)
        return ome

    def _group_or_none(self, path: str) -> GroupNode | None:
        try:
            return self.catalog.open_group(path)
        except _UNREADABLE:
            return None

    # --- images ------------------------------------------------------------------------------------------------

    def _image(self, group: GroupNode, field: str | None, ome: Ome, multiscale: Multiscale) -> Picture:
        opened, problems = self._open_datasets(group, multiscale)
        problems = ome.problems + problems
        if not opened:
            return self._salvaged(group, field, problems)
        finest, array = opened[0]
        picture = plain_picture(array, field, problems)
        image_label = ome.image_label
        if image_label is not None and picture.dtype.kind not in "biu":
            image_label, problems = None, (*problems, f"image-label: labels are integers, not {picture.dtype}")
        rank = len(array.metadata.shape)
        facts = multiscale.axes
        if facts is not None and len(facts) != rank:
            problems = (*problems, f"{multiscale.where}.axes: {len(facts)} axes are named, the array has {rank}")
            facts = None
        axes = ome_axes(picture.axes[:rank], facts, finest.scale, finest.translation)
        extra = picture.axes[rank:]
        found = [(level, _unlike(axes, level)) for level in opened]
        levels = tuple(_level(level, opened[0], len(extra)) for level, unlike in found if unlike is None)
        others = (f"level {level[0].path!r} has {unlike}" for level, unlike in found if unlike is not None)
        return replace(
            picture,
            problems=(*problems, *others),
            path=group.path,
            kind="multiscale" if image_label is None else "labels",
            name=multiscale.name or last_segment(group.path),
            axes=axes + extra,
            levels=levels,
            version=joined_versions(group.version, *(level.array.version for level in levels)),
            omero=ome.omero,
            image_label=image_label,
        )

    def _open_datasets(self, group: GroupNode, multiscale: Multiscale) -> tuple[list[_Opened], tuple[str, ...]]:
        """The levels that are there and like the first, and what is wrong with the others."""
        opened: list[_Opened] = []
        problems: list[str] = []
        paths = [f"{group.path}/{dataset.path}" for dataset in multiscale.datasets]
        found = self._reader.each(group.mount, self._array_or_error, paths) if group.mount is not None else []
        for i, (dataset, array) in enumerate(zip(multiscale.datasets, found, strict=True)):
            wrong = _difference(array, opened[0][1]) if isinstance(array, ArrayNode) and opened else None
            if isinstance(array, ArrayNode) and wrong is None:
                opened.append((dataset, array))
            else:
                problems.append(f"{multiscale.where}.datasets[{i}]: {wrong or array}")
        return opened, tuple(problems)

    def _array_or_error(self, path: str) -> ArrayNode | Exception:
        """What is wrong with an array that is not there or cannot be used; a store that fails is raised."""
        try:
            return self.catalog.open_array(path)
        except (*_UNREADABLE, ValueError) as error:
            return error

    def _salvaged(self, group: GroupNode, field: str | None, problems: tuple[str, ...]) -> Picture:
        """The first array of a group whose metadata is broken, as it stands."""
        for name in self._candidates(group):
            try:
                return plain_picture(self.catalog.open_array(f"{group.path}/{name}"), field, problems)
            except _UNREADABLE:  # perhaps the next one
                continue
        raise BadMetadata(f"{group.prefix}.zattrs", None, "; ".join(problems) or "it names no image")

    def _candidates(self, group: GroupNode) -> Iterator[str]:
        yield from ome_zarr.broken_dataset_paths(group.attributes)
        children = self.catalog.some_children(group, _CHILDREN_TRIED)
        yield from (child.name for child in children if child.kind == "array")

    def _collection(self, group: GroupNode, field: str | None) -> Picture:
        """The first image that is there of a bioformats2raw collection."""
        names, problems = self._series(group)
        for name in names[:_SERIES_TRIED]:
            try:
                picture = self._image_at(f"{group.path}/{name}", field)
            except _UNREADABLE as error:  # perhaps the next one
                problems.append(f"image {name!r}: {error}")
            else:
                return replace(picture, problems=(*picture.problems, *problems))
        raise BadMetadata(f"{group.prefix}.zattrs", "bioformats2raw.layout", "; ".join(problems))

    def _series(self, group: GroupNode) -> tuple[tuple[str, ...], list[str]]:
        """The names of a collection's images, which are numbered from 0 where no list says otherwise, and what is wrong
        with the list."""
        listed = self._group_or_none(f"{group.path}/OME")
        problems: list[str] = []
        names = ome_zarr.series_paths(listed.attributes, problems) if listed is not None else ()
        return names or ("0",), problems

    # --- plates ------------------------------------------------------------------------------------------------

    def _assembled(self, path: str, group: GroupNode, field: str | None, ome: Ome) -> Picture:
        """A plate or a well; it looks like the first of its images that is there."""
        mosaic = _mosaic(ome, group.path)
        template, problems = self._first_of(mosaic, field, group)
        kind: Kind = "plate" if ome.plate is not None else "well"
        if template is None:
            raise BadMetadata(f"{group.prefix}.zattrs", kind, "; ".join(problems))
        picture = replace(
            template,
            path=group.path,
            kind=kind,
            name=(ome.plate.name if ome.plate is not None else None) or last_segment(group.path),
            version=joined_versions(group.version, template.version),
            mosaic=mosaic,
            problems=ome.problems + problems + template.problems,
        )
        first = self._cells.get(mosaic.cells[0].path, field)
        if first is None or first.picture is not template:  # those before it may come
            return picture
        return self._opened.keep(path, field, Made(picture, [group, *first.nodes]))

    def _first_of(self, mosaic: Mosaic, field: str | None, group: GroupNode) -> tuple[Picture | None, tuple[str, ...]]:
        """The first image that is there, of some of them; and what to say where it is none of the very first."""
        first, others = mosaic.cells[:_CELLS_TRIED], mosaic.cells[_CELLS_TRIED:]
        others = others[:: max(1, -(-len(others) // (_MOST_CELLS_TRIED - _CELLS_TRIED)))]
        found = self._found.get(group.path)  # else the search would begin anew for every tile
        known = [cell for cell in others if cell == found]
        assert group.mount is not None  # the root of all stores has no attributes
        for cells in (first[:1], first[1:], known, *_batches(others, _CELLS_TRIED)):
            found_here = self._first_there(group.mount, cells, field)
            if found_here is None:
                continue
            cell, picture = found_here
            if cell in first:
                return picture, ()
            self._note_found(group.path, cell)
            return picture, (f"none of the first {len(first)} images is there; all are taken to be like {cell.path}",)
        tried = len(first) + len(others)
        return None, (f"none of {tried} images that were looked for is there, of {len(mosaic.cells)} in all",)

    def _first_there(
        self, mount: MountedStore, cells: Sequence[Cell], field: str | None
    ) -> tuple[Cell, Picture] | None:
        """The first image that is there; a far store is asked for all of them at once."""
        found: Iterable[Picture | None]
        if mount.is_remote:
            found = self._reader.each(mount, lambda cell: self.open_cell(cell.path, field), cells)
        else:
            found = (self.open_cell(cell.path, field) for cell in cells)
        pictures = zip(cells, found, strict=True)
        return next(((cell, picture) for cell, picture in pictures if picture is not None), None)

    def _note_found(self, path: str, cell: Cell) -> None:
        with self._lock:
            self._found[path] = cell
            self._found.move_to_end(path)
            while len(self._found) > _MOST_FOUND:
                self._found.popitem(last=False)


def _batches(cells: Sequence[Cell], most: int) -> Iterator[Sequence[Cell]]:
    return (cells[start : start + most] for start in range(0, len(cells), most))


def _difference(array: ArrayNode, first: ArrayNode) -> str | None:
    """What keeps a level from being one of the same image; None where nothing does."""
    if len(array.metadata.shape) != len(first.metadata.shape):
        return f"{len(array.metadata.shape)} axes, the first level has {len(first.metadata.shape)}"
    if _without_byte_order(array) != _without_byte_order(first):
        return f"dtype {array.metadata.dtype.json}, the first level has {first.metadata.dtype.json}"
    return None


def _without_byte_order(array: ArrayNode) -> object:
    """A dtype as metadata writes it, but for the order of bytes: values are the same in both. Not of records: their
    fields are found as the first level has them."""
    dtype = array.metadata.dtype.json
    return dtype.lstrip("<>|") if isinstance(dtype, str) else dtype


def _unlike(axes: tuple[Axis, ...], opened: _Opened) -> str | None:
    """What a level has that the first one has not; None where it is smaller in space and time alone."""
    sizes = list(zip(axes, opened[1].metadata.shape, strict=True))
    if any(axis.size != size and axis.type not in ("space", "time") for axis, size in sizes):
        return "other channels"
    return "no cells" if any(size == 0 != axis.size for axis, size in sizes) else None


def _level(opened: _Opened, first: _Opened, extra: int) -> Level:
    (dataset, array), scale, finest = opened, opened[0].scale, first[0].scale
    ratios: list[float | None] = [None] * len(array.metadata.shape)
    if scale is not None and finest is not None and len(scale) == len(ratios) and all(finest):
        ratios = [a / b for a, b in zip(scale, finest, strict=True)]
    sizes = zip(first[1].metadata.shape, array.metadata.shape, ratios, strict=True)
    return Level(dataset.path, array, tuple(axis_factor(*size) for size in sizes) + (1.0,) * extra)


def _mosaic(ome: Ome, path: str) -> Mosaic:
    """The wells of a plate where they are in it, or the fields of a well in rows."""
    if ome.plate is not None:
        wells = tuple(Cell(f"{path}/{well.path}", well.row, well.column) for well in ome.plate.wells)
        names = ome.plate.rows, ome.plate.columns
        return Mosaic(len(names[0]), len(names[1]), wells, names)
    assert ome.well is not None
    images = ome.well.images
    columns = max(1, round(len(images) ** 0.5 + 0.49))  # as near to a square as can be, wider rather than higher
    cells = tuple(Cell(f"{path}/{image.path}", *divmod(i, columns)) for i, image in enumerate(images))
    return Mosaic(-(-len(images) // columns), columns, cells)
