"""Parser of OME-Zarr metadata: the attributes of a group as frozen records. Pure.

Follows version 0.4 of the specification (https://ngff.openmicroscopy.org/0.4/); 0.1 to 0.3, the attributes of 0.5
(nested in ``ome``), the coordinate systems of 0.6 and any axes (0.9, RFC 3) are accepted. A broken member is left out
and reported in `Ome.problems`. In the order of the specification: ``multiscales``, ``omero``, ``image-label``,
``plate`` and ``well``.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Literal, TypeVar

from hyperslab.errors import shown
from hyperslab.tiles.colour import RGBA

T = TypeVar("T")
Problems = list[str]

VERSIONS: Final = ("0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "0.9")
_WITH_SCALES: Final = VERSIONS[3:]
_MISSING: Final = object()
_AXIS_TYPES: Final = {
    **dict.fromkeys(("z", "depth", "height", "width"), "space"),
    **dict.fromkeys(("t", "time", "frame", "frames", "date"), "time"),
    **dict.fromkeys(("c", "channel", "channels", "band", "bands", "wavelength", "rgb"), "channel"),
}
_SIDES: Final = (
    ("x|longitude|lon", "y|latitude|lat"),
    ("n?x[cghqtuv]?|lng|[nr]?lon|longitude|east|easting|ni", "n?y[cghqtuv]?|[nr]?lat|latitude|north|northing|nj"),
    ("cols?|columns?|pixels?", "rows?|lines?|scanlines?"),
    ("width", "height"),
)
"""Names that run across and down, the surest first; a name of several words needs one of them."""


@dataclass(frozen=True, slots=True)
class AxisFacts:
    """Axis. ``type`` is ``space``, ``time``, ``channel``, a custom type, or None."""

    name: str
    type: str | None
    unit: str | None


@dataclass(frozen=True, slots=True)
class Dataset:
    """Resolution level. ``scale`` and ``translation`` are in physical units by axis; None if absent or broken."""

    path: str
    scale: tuple[float, ...] | None
    translation: tuple[float, ...] | None


@dataclass(frozen=True, slots=True)
class Multiscale:
    """Pyramid, finest level first. ``axes`` is None in versions 0.1 and 0.2, which have t, c, z, y, x.

    ``where`` is the JSON member it was read from.
    """

    where: str
    name: str
    version: str | None
    axes: tuple[AxisFacts, ...] | None
    datasets: tuple[Dataset, ...]
    downsampling: str | None


@dataclass(frozen=True, slots=True)
class Window:
    """Contrast limits (``start`` to ``end``), and the range of the values (``min`` to ``max``), by default the same."""

    min: float
    max: float
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class OmeroChannel:
    """Channel settings. ``color`` (six hexadecimal digits) and ``window`` are None if missing or broken; ``alone`` is
    the start or the end of a window that lacks the other."""

    label: str
    color: str | None
    window: Window | None
    active: bool
    inverted: bool
    alone: tuple[float | None, float | None] = (None, None)


@dataclass(frozen=True, slots=True)
class Omero:
    """Rendering settings; ``default_t`` and ``default_z`` are the initial indices."""

    channels: tuple[OmeroChannel, ...]
    default_t: int | None
    default_z: int | None
    greyscale: bool


@dataclass(frozen=True, slots=True)
class Cell:
    """Position of an image in a mosaic: the path of the image or well, and its row and column from 0."""

    path: str
    row: int
    column: int


@dataclass(frozen=True, slots=True)
class Mosaic:
    """Images on a sparse grid: the wells of a plate, with the ``names`` of its rows and columns, the fields of a well,
    or the images of a collection."""

    kind: Literal["plate", "well", "collection"]
    name: str | None
    rows: int
    columns: int
    cells: tuple[Cell, ...]
    names: tuple[tuple[str, ...], tuple[str, ...]] | None = None


@dataclass(frozen=True, slots=True)
class Ome:
    """OME-Zarr metadata of a group; a member is None if absent or broken, the latter with an entry in ``problems``.

    ``image_label`` maps label values to colours (the last of several). Paths in ``mosaic`` are relative to the group.
    """

    multiscale: Multiscale | None = None
    omero: Omero | None = None
    image_label: Mapping[float, RGBA] | None = None
    mosaic: Mosaic | None = None
    is_collection: bool = False
    problems: tuple[str, ...] = ()

    @property
    def holds_images(self) -> bool:
        """Whether the group is a plate, a well or a collection."""
        return self.mosaic is not None or (self.is_collection and self.multiscale is None)

    @property
    def is_empty(self) -> bool:
        """Whether there is no OME metadata, not even broken metadata."""
        return self == Ome()


def read_ome(attributes: Mapping[str, Any]) -> Ome:
    """The OME-Zarr metadata in the attributes of a group; never raises."""
    problems: Problems = []
    root = _root(attributes, problems)
    multiscales, omero, label, plate, well = (
        root[name] for name in ("multiscales", "omero", "image-label", "plate", "well")
    )
    version = root.get("version", None).value
    ome = Ome(
        multiscale=multiscales.optional(lambda m: parse_multiscales(m, version)),
        omero=omero.optional(parse_omero),
        # with broken colours it is still a label image
        image_label=(label.optional(parse_image_label) or {}) if label.is_given else None,
        mosaic=plate.optional(parse_plate) or well.optional(parse_well),
        is_collection=root["bioformats2raw.layout"].value == 3,
    )
    more = len(problems) - 100
    return replace(ome, problems=(*problems[:100], *([f"and {more} more"] if more > 0 else ())))


def guess_type(name: str) -> str | None:
    """The usual type of an axis with this name."""
    return _AXIS_TYPES.get(name.lower()) or ("space" if side_of(name) is not None else None)


def side_of(name: str) -> tuple[int, int] | None:
    """How little the name of an axis says of its direction, from 0, and whether that is across (0) or down (1); None if
    it says nothing: ``rlon``, ``projection_x_coordinate``, ``xi_rho`` and ``west_east`` run across."""
    words = [word.rstrip("0123456789") or word for word in re.split("[_ -]+", name.lower())]
    if len(words) > 1:
        words = [{"xi": "x", "eta": "y", "west": "x", "south": "y"}.get(word, word) for word in words]
    for rank, sides in enumerate(_SIDES):
        matching = [any(re.fullmatch(side, word) for word in words) for side in sides]
        if any(matching):
            return None if all(matching) else (rank, int(matching[1]))
    return None


def label_paths(attributes: Mapping[str, Any], problems: Problems) -> tuple[str, ...]:
    """The label images listed in the attributes of a ``labels`` group, without broken entries."""
    return _entries(_root(attributes, problems)["labels"], Member.path)


def series_paths(attributes: Mapping[str, Any], problems: Problems) -> tuple[str, ...]:
    """The images of a bioformats2raw collection, from the attributes of its ``OME`` group."""
    return _entries(_root(attributes, problems)["series"], Member.path)


def broken_dataset_paths(attributes: Mapping[str, Any]) -> tuple[str, ...]:
    """The array paths in a broken ``multiscales``; never raises."""
    try:
        entries = _root(attributes, []).get("multiscales", []).list()
        datasets = [dataset.value for entry in entries for dataset in entry.get("datasets", []).list()]
    except ValueError:
        return ()
    return tuple(d["path"] for d in datasets if isinstance(d, Mapping) and isinstance(d.get("path"), str))


def _root(attributes: Mapping[str, Any], problems: Problems) -> Member:
    """The object that holds the OME-Zarr members. Null members are dropped: some writers use them for absent ones; and
    a ``multiscales`` of the Zarr convention of that name, whose levels are groups."""
    nested = attributes.get("ome")
    block = nested if isinstance(nested, Mapping) else attributes
    outside = attributes.get("omero") if block is not attributes else None
    if isinstance(outside, Mapping) and block.get("omero") is None:
        problems.append("omero: stands beside 'ome', not in it; it is used")
        block = {**block, "omero": outside}
    members = {name: value for name, value in block.items() if value is not None}
    if isinstance(members.get("multiscales"), Mapping) and "layout" in members["multiscales"]:
        del members["multiscales"]
    return Member(members, "", problems)


def _entries(member: Member, parse: Callable[[Member], T]) -> tuple[T, ...]:
    """The valid entries of an optional list."""
    return member.optional(lambda m: m.usable(parse)) or ()


# --- typed access to untrusted JSON ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Member:
    """A JSON value with its path ``where`` in the document and the document's list of ``problems``.

    Methods named after a type return the value as that type and raise `ValueError` with the path if it is another.
    """

    value: Any
    where: str
    problems: Problems

    def __getitem__(self, name: str) -> Member:
        """A member of an object; its value is ``_MISSING`` if absent."""
        return self.get(name, _MISSING)

    def get(self, name: str, default: Any) -> Member:
        """A member of an object, with a default value."""
        return Member(self.object().get(name, default), f"{self.where}.{name}".lstrip("."), self.problems)

    @property
    def is_given(self) -> bool:
        """Whether the value is present and not null."""
        return self.value is not None and self.value is not _MISSING

    def error(self, reason: str) -> ValueError:
        return ValueError(f"{self.where}: {reason}")

    def mismatch(self, expected: str) -> ValueError:
        """The error for a missing or unexpected value."""
        return self.error("missing" if self.value is _MISSING else f"expected {expected}, found {shown(self.value)}")

    def report(self, problem: str) -> None:
        self.problems.append(f"{self.where}: {problem}")

    def object(self) -> Mapping[str, Any]:
        """A JSON object."""
        if not isinstance(self.value, Mapping):
            raise self.mismatch("an object")
        return self.value

    def list(self, *, at_least: int = 0) -> list[Member]:
        """The entries of a JSON array with a minimum length."""
        if not isinstance(self.value, list):
            raise self.mismatch("a list")
        if len(self.value) < at_least:
            raise self.error(f"expected at least {at_least}, found {len(self.value)}")
        return [Member(entry, f"{self.where}[{i}]", self.problems) for i, entry in enumerate(self.value)]

    def text(self) -> str:
        """A non-empty string."""
        if not isinstance(self.value, str) or not self.value:
            raise self.mismatch("a string")
        return self.value

    def text_or(self, default: T) -> str | T:
        """A string; ``default`` for anything else."""
        return self.value if isinstance(self.value, str) else default

    def flag(self) -> bool:
        """True or false; 1 and 0, which some writers use, are reported."""
        if type(self.value) is int and self.value in (0, 1):
            self.report(f"expected true or false, found {self.value}: read as {bool(self.value)}".lower())
            return bool(self.value)
        if not isinstance(self.value, bool):
            raise self.mismatch("true or false")
        return self.value

    def number(self) -> float:
        """A finite number within the range of float."""
        value = self.value
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
            raise self.mismatch("a number")
        return value

    def integer(self, *, at_least: int | None = None, at_most: int | None = None) -> int:
        """An integer (or integral float) within bounds."""
        value = self.number()
        if value != int(value):
            raise self.mismatch("an integer")
        if at_least is not None and value < at_least:
            raise self.error(f"expected {at_least} or more, found {value}")
        if at_most is not None and value > at_most:
            raise self.error(f"expected at most {at_most}, found {value}")
        return int(value)

    def path(self) -> str:
        """A path; an integer, outer slashes and segments ``.``, which some writers use, are converted and reported."""
        if isinstance(self.value, int) and not isinstance(self.value, bool):
            self.report(f"expected a string, found {self.value}: read as '{self.value}'")
            return str(self.value)
        text = self.text()
        path = re.sub(r"(?<![^/])\.(/|$)", "", text).strip("/")
        if path != text:
            if not path:
                raise self.error(f"{shown(text)} is no path below the group")
            self.report(f"{shown(text)} read as {shown(path)}")
        return path

    def version(self) -> str | None:
        """The version of the specification, without what marks a draft or a flavour (``0.6.dev3``,
        ``0.5-dev-spatialdata``); for others than `VERSIONS` the one it starts with, None if unknown."""
        if not self.is_given:
            return None
        if self.value in VERSIONS:
            return str(self.value)
        match = re.match(r"(0\.[1-69])(?![0-9])([-.]?(?:dev|rc|a|b)[-.\w]*$)?", str(self.value))
        if match is None or match[2] is None:
            read_as = f": read as {match[1]}" if match else ""
            self.report(f"{shown(self.value)} is none of {', '.join(VERSIONS)}{read_as}")
        return match[1] if match else None

    def lenient(self, parse: Callable[[Member], T]) -> T | None:
        """The parsed member; if ``parse`` raises `ValueError`, None, and the error becomes a problem."""
        try:
            return parse(self)
        except ValueError as error:
            self.problems.append(str(error))
            return None

    def optional(self, parse: Callable[[Member], T]) -> T | None:
        """`lenient` for an optional member; null counts as absent."""
        return self.lenient(parse) if self.is_given else None

    def usable(self, parse: Callable[[Member], T], *, at_least: int = 1) -> tuple[T, ...]:
        """The parsed entries of a list; broken and repeated ones are left out and reported as problems."""
        values: dict[str, T] = {}
        for entry in self.list(at_least=at_least):
            text = json.dumps(entry.value, sort_keys=True)
            if text in values:
                entry.report(f"{shown(entry.value)} is there twice")
            elif (parsed := entry.lenient(parse)) is not None:
                values[text] = parsed
        return tuple(values.values())


# --- multiscales -----------------------------------------------------------------------------------------------

_Transformation = tuple[tuple[float, ...] | None, tuple[float, ...] | None]


def parse_multiscales(member: Member, outer_version: Any) -> Multiscale | None:
    """The first entry of ``multiscales`` with a valid level, if any (OME-Zarr 0.4, 3.4).

    Raises `ValueError` for a missing or empty list.
    """
    entries = member.usable(lambda entry: _parse_entry(entry, outer_version))
    return entries[0] if entries else None


def _parse_entry(entry: Member, outer_version: Any) -> Multiscale:
    version = entry.get("version", outer_version).version()
    axes = entry.lenient(lambda e: _parse_axes(_intrinsic(e), version))
    rank = None if axes is None else len(axes)
    needs_scale = version in _WITH_SCALES or (version is None and axes is not None)
    outer = _parse_transformations(_without_other_systems(entry), rank)

    def parse_dataset(dataset: Member) -> Dataset:
        path = dataset["path"].path()
        if needs_scale and not dataset["coordinateTransformations"].is_given:
            dataset["coordinateTransformations"].report("missing")
        return Dataset(path, *_compose(_parse_transformations(dataset, rank), outer))

    datasets = entry["datasets"].usable(parse_dataset)
    if not datasets:
        raise entry["datasets"].error("none can be used")
    return Multiscale(entry.where, entry["name"].text_or(""), version, axes, datasets, entry["type"].text_or(None))


def _intrinsic(entry: Member) -> Member:
    """The member with ``axes``: in 0.6 the coordinate system that the datasets are transformed to, else the first."""
    if not entry["coordinateSystems"].is_given:
        return entry
    systems = entry["coordinateSystems"].list(at_least=1)
    outputs = []
    for dataset in entry["datasets"].value if isinstance(entry["datasets"].value, list) else ():
        steps = dataset.get("coordinateTransformations") if isinstance(dataset, Mapping) else None
        last = steps[-1] if isinstance(steps, list) and steps else None
        output = last.get("output") if isinstance(last, Mapping) else None
        outputs.append(output.get("name") if isinstance(output, Mapping) else output)
    named = (system for system in systems if isinstance(system.value, Mapping) and system.value.get("name") in outputs)
    system = next(named, systems[0])
    return replace(system, value={**system.object(), "datasets": entry["datasets"].value})


def _without_other_systems(entry: Member) -> Member:
    """The entry without transformations to other coordinate systems (0.6, and spatialdata before): they move all levels
    alike."""
    steps = entry["coordinateTransformations"].value
    if not isinstance(steps, list):
        return entry
    own = [step for step in steps if not (isinstance(step, Mapping) and "output" in step)]
    return replace(entry, value={**entry.object(), "coordinateTransformations": own if own or not steps else None})


def _parse_axes(entry: Member, version: str | None) -> tuple[AxisFacts, ...] | None:
    datasets = entry["datasets"].value
    looks_like_0_4 = isinstance(datasets, list) and any(
        isinstance(dataset, Mapping) and "coordinateTransformations" in dataset for dataset in datasets
    )
    if not entry["axes"].is_given and version not in _WITH_SCALES and not looks_like_0_4:
        return None
    members = entry["axes"].list(at_least=1)
    axes = [_parse_axis(axis, f"d{i}") for i, axis in enumerate(members)]
    for i, axis in enumerate(axes):
        if axis.name in [other.name for other in axes[:i]]:
            members[i].report(f"{shown(axis.name)} is there twice")
            axes[i] = replace(axis, name=f"d{i}")
    if version in _WITH_SCALES and any(isinstance(member.value, str) for member in members):
        entry["axes"].report("names, as in version 0.3, where objects are expected")
    spatial = sum(axis.type == "space" for axis in axes)
    if version == "0.9":  # any number of any axes
        pass
    elif not 2 <= len(axes) <= 5:
        entry["axes"].report(f"expected 2 to 5 axes, found {len(axes)}")
    elif not 2 <= spatial <= 3:
        entry["axes"].report(f"expected 2 or 3 axes of type space, found {spatial}")
    return tuple(axes)


def _parse_axis(axis: Member, unnamed: str) -> AxisFacts:
    """An axis; a broken one keeps its position and gets the name ``unnamed``."""
    if isinstance(axis.value, str):  # version 0.3
        return AxisFacts(axis.value or unnamed, guess_type(axis.value), None)
    if axis.lenient(Member.object) is None:
        return AxisFacts(unnamed, None, None)
    name = axis["name"].lenient(Member.text)
    kind, unit = (axis[m].optional(Member.text) for m in ("type", "unit"))
    return AxisFacts(name or unnamed, kind, unit)


def _parse_transformations(entry: Member, rank: int | None) -> _Transformation:
    """Scale and translation; None for each that is absent, broken, or not of length ``rank``. A ``sequence`` of 0.6 is
    taken as a whole or not at all."""
    transformations = entry["coordinateTransformations"]
    if not transformations.is_given:
        return None, None
    before = len(entry.problems)
    by_name: dict[str, _Transformation] = {}

    def parse(item: Member) -> bool:
        kind, step = _parse_transformation(item, rank)
        if kind in by_name and kind != "identity":
            raise item.error(f"{kind} is there twice")
        by_name[kind] = step
        return True

    transformations.lenient(lambda t: t.usable(parse))
    if not by_name.keys() & {"scale", "sequence", "identity"} and len(entry.problems) == before:
        transformations.report("scale is missing")
    if [*by_name][-2:] == ["translation", "scale"]:
        transformations.report("translation stands before scale; it is taken as if after it")
    whole: _Transformation = (None, None)
    for kind in ("sequence", "scale", "translation"):
        whole = _compose(whole, by_name.get(kind, (None, None)))
    if whole[0] is None and rank is not None and by_name.keys() & {"identity", "sequence"}:
        whole = (1.0,) * rank, whole[1]
    return whole


def _parse_transformation(item: Member, rank: int | None) -> tuple[str, _Transformation]:
    kind = item.get("type", None).value
    if kind == "identity":
        return kind, (None, None)
    if kind == "sequence":
        whole: _Transformation = (None, None)
        for step in item["transformations"].list():
            whole = _compose(whole, _parse_transformation(step, rank)[1])
        return kind, whole
    if kind not in ("scale", "translation"):
        raise item["type"].error(f"expected scale, translation, identity or sequence, found {shown(kind)}")
    numbers = item[kind].list(at_least=1)
    if rank not in (None, len(numbers)):
        raise item[kind].error(f"expected {rank} numbers, one for each axis, found {len(numbers)}")
    values = tuple([float(number.number()) for number in numbers])
    if kind == "scale" and 0 in values:
        item[kind].report("0 is not the size of a cell")
    return kind, ((values, None) if kind == "scale" else (None, values))


def _compose(inner: _Transformation, outer: _Transformation) -> _Transformation:
    """A transformation followed by another, such as that of a level by the pyramid's."""
    scale, translation = inner
    outer_scale, outer_translation = outer
    if outer_scale is not None:
        scale = tuple(a * b for a, b in zip(scale or (1.0,) * len(outer_scale), outer_scale, strict=True))
        translation = tuple(a * b for a, b in zip(translation, outer_scale, strict=True)) if translation else None
    if outer_translation is not None:
        translation = translation or (0.0,) * len(outer_translation)
        translation = tuple(a + b for a, b in zip(translation, outer_translation, strict=True))
    return scale, translation


# --- omero -----------------------------------------------------------------------------------------------------


def parse_omero(block: Member) -> Omero:
    """The ``omero`` member without its broken parts; raises `ValueError` without a list of channels."""
    channels = tuple([_parse_channel(channel) for channel in block["channels"].list()])
    rdefs = block["rdefs"] if isinstance(block["rdefs"].value, Mapping) else replace(block["rdefs"], value={})
    default_t, default_z = (rdefs[m].optional(lambda d: d.integer(at_least=0)) for m in ("defaultT", "defaultZ"))
    return Omero(channels, default_t, default_z, greyscale=rdefs["model"].value == "greyscale")


def _parse_channel(channel: Member) -> OmeroChannel:
    """A channel; a broken one keeps its position, with defaults."""
    if channel.lenient(Member.object) is None:
        return OmeroChannel("", None, None, active=True, inverted=False)
    active, inverted = (channel[m].optional(Member.flag) for m in ("active", "inverted"))
    window = channel["window"].optional(_parse_window)
    return OmeroChannel(
        label=_label(channel["label"].value),
        color=channel["color"].optional(_parse_colour),
        window=window if isinstance(window, Window) else None,
        active=active is not False,
        inverted=bool(inverted),
        alone=window if isinstance(window, tuple) else (None, None),
    )


def _label(value: Any) -> str:
    """A label; spatialdata writes names of channels that are numbers, such as wavelengths, as they are."""
    return str(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else ""


def _parse_colour(colour: Member) -> str:
    match = re.fullmatch(r"#?([0-9A-Fa-f]{6})([0-9A-Fa-f]{2})?", colour.text_or("").strip())
    if match is None:
        raise colour.mismatch("six hexadecimal digits")
    return match[1].upper()


def _parse_window(window: Member) -> Window | tuple[float | None, float | None]:
    """A window; of contrast limits and range, each end stands for the other's if that is missing or broken. A limit
    that is left alone is reported."""
    low, high, start, end = (window[name].optional(Member.number) for name in ("min", "max", "start", "end"))
    wrong = None
    if start is not None and end is not None and start >= end:
        wrong, start, end = f"start {start} is not below end {end}", None, None
    if low is not None and high is not None and low >= high:
        low = high = None
    start, end = low if start is None else start, high if end is None else end
    low, high = start if low is None else low, end if high is None else high
    if wrong is None and (start is None) != (end is None):
        window.report(f"{'start' if start is None else 'end'} is missing, and taken from the data")
        return start, end
    if start is None or end is None or low is None or high is None or start >= end or low >= high:
        raise window.error(wrong or "neither start and end nor min and max can be used")
    if wrong is not None:
        window.report(wrong)
    return Window(low, high, start, end)


# --- image-label -----------------------------------------------------------------------------------------------


def parse_image_label(block: Member) -> Mapping[float, RGBA]:
    """Colours by label value, without broken entries (OME-Zarr 0.4, 3.6); raises `ValueError` if not an object."""
    block["version"].version()
    colors = _entries(block["colors"], _parse_color)
    _entries(block["properties"], _parse_label_value)
    block["source"].optional(lambda source: source["image"].optional(Member.text))
    return {label: rgba for label, rgba in colors if rgba is not None}


def _parse_color(color: Member) -> tuple[float, RGBA | None]:
    label, rgba = _parse_label_value(color), color["rgba"]
    if not rgba.is_given:
        return label, None
    parts = rgba.list()
    if len(parts) != 4:
        raise rgba.error(f"expected four numbers, found {len(parts)}")
    red, green, blue, alpha = (part.integer(at_least=0, at_most=255) for part in parts)
    return label, (red, green, blue, alpha)


def _parse_label_value(entry: Member) -> float:
    return entry["label-value"].number()


# --- plates and wells -------------------------------------------------------------------------------------------


def parse_plate(block: Member) -> Mosaic:
    """A plate without its broken wells (OME-Zarr 0.4, 3.7); raises `ValueError` if no well is valid."""
    version = block["version"].version()
    block["field_count"].optional(lambda count: count.integer(at_least=1))
    rows, columns = _parse_names(block["rows"]), _parse_names(block["columns"])
    paths_only = version in ("0.1", "0.2", "0.3")
    parse = partial(_parse_plate_well, names=(rows, columns), taken={}, paths_only=paths_only)
    wells = block["wells"].usable(parse)
    if not wells:
        raise block["wells"].error("none can be used")
    block["acquisitions"].optional(lambda a: a.usable(_check_acquisition, at_least=0))
    return Mosaic("plate", block["name"].text_or(None), len(rows), len(columns), wells, (rows, columns))


def parse_well(block: Member) -> Mosaic:
    """The images of a well (OME-Zarr 0.4, 3.8); raises `ValueError` if none is valid."""
    block["version"].version()
    images = block["images"].usable(_parse_field)
    if not images:
        raise block["images"].error("none can be used")
    return square("well", images)


def square(kind: Literal["well", "collection"], images: Sequence[str]) -> Mosaic:
    """Images in a near-square, row by row."""
    columns = max(1, round(len(images) ** 0.5 + 0.49))
    cells = tuple(Cell(image, *divmod(i, columns)) for i, image in enumerate(images))
    return Mosaic(kind, None, -(-len(images) // columns), columns, cells)


def _parse_names(member: Member) -> tuple[str, ...]:
    """Names of rows or columns; a broken one keeps its position, as an empty string."""
    names: list[str] = []
    for item in member.list(at_least=1):
        name = item.lenient(lambda i: i["name"].path()) or ""
        if name:
            item["name"].lenient(partial(_checked, name=name))
        if name and name in names:
            item.report(f"{shown(name)} is there twice")
        names.append(name)
    return tuple(names)


def _checked(member: Member, name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9]+", name):
        raise member.error(f"{shown(name)} has more in it than letters and digits")
    return name


def _check_inside(member: Member, path: str) -> None:
    """Raise `ValueError` for a path that is none, or leads out of the group."""
    if set(path.split("/")) & {"", ".", ".."}:
        raise member.error(f"{shown(path)} is no path below the group")


def _parse_plate_well(
    well: Member,
    names: tuple[tuple[str, ...], tuple[str, ...]],
    taken: dict[tuple[int, ...], str],
    *,
    paths_only: bool,
) -> Cell:
    """A well; missing or broken indices follow from its path. ``taken``: paths of wells by place, of which each has
    one. ``paths_only``: the version has no indices."""
    path = well["path"].path()
    _check_inside(well["path"], path)
    match = re.fullmatch(r"([^/]+)/([^/]+)", path)
    if match is None:
        problem = f"{shown(path)} is not of the form row/column"
        if not (well["rowIndex"].is_given and well["columnIndex"].is_given):
            raise well["path"].error(problem)
        well["path"].report(problem)
    places = []
    for member, members, name in zip(
        ("rowIndex", "columnIndex"), names, match.groups() if match else (None, None), strict=True
    ):
        try:
            place = well[member].integer(at_least=0)
            if place >= len(members):
                raise well[member].error(f"{place} is beyond the last of {len(members)}")
        except ValueError as error:
            if name not in members:
                raise
            place = members.index(name)
            if not paths_only or well[member].is_given:
                well.problems.append(str(error))
        places.append(place)
    first = taken.setdefault(tuple(places), path)
    if first != path:
        raise well.error(f"{shown(path)} has the place of {shown(first)}, which is shown there")
    return Cell(path, *places)


def _check_acquisition(entry: Member) -> int:
    """Report the problems of an acquisition; the result is unused."""
    number = entry["id"].integer(at_least=0)
    for member, least in (("maximumfieldcount", 1), ("starttime", 0), ("endtime", 0)):
        entry[member].optional(partial(Member.integer, at_least=least))
    return number


def _parse_field(image: Member) -> str:
    path = image["path"].path()
    _check_inside(image["path"], path)
    image["path"].lenient(lambda member: _checked(member, path))
    image["acquisition"].optional(Member.integer)
    return path
