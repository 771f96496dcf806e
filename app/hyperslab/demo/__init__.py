"""Demo store: some tens of megabytes, generated deterministically on first use."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hyperslab.demo import brain, climate, microscope, tables
from hyperslab.demo.ome import write_corner, write_microscope
from hyperslab.demo.writer import LZ4, ZSTD, Writer

VERSION: Final = 2
"""Version of the contents: a new one is written beside older ones."""


def demo_folder(parent: Path) -> Path:
    """Path of the demo store of this version below ``parent``."""
    return parent / f"demo-{VERSION}.zarr"


def make_demo(parent: Path) -> Path:
    """Path of the demo store below ``parent``, written atomically if it does not exist; raises `OSError`."""
    folder = demo_folder(parent)
    if folder.is_dir():
        return folder
    parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=parent))
    try:
        write_demo(unfinished)
        unfinished.chmod(0o755)
        unfinished.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def write_demo(root: Path) -> None:
    """Write the demo store to ``root``."""
    with closing(Writer(root)) as writer:
        writer.group("", {"title": "Hyperslab's demo: arrays of many kinds, all of them made up"})
        intensity, labels = microscope.stack()
        write_microscope(writer, "microscope", intensity, labels)
        write_corner(writer, "sharded", intensity)
        writer.group("climate", {"title": "A year of sea surface temperature", "Conventions": "CF-1.10"})
        for path, values, dimensions, attributes, definition in _arrays():
            writer.array(path, values, dimensions, attributes, **definition)
        writer.consolidate("climate")


def _arrays() -> Iterator[tuple[str, NDArray[Any], str, dict[str, Any], dict[str, Any]]]:
    """Path, values, names of dimensions, attributes, and the rest of the definition."""
    voxel = {"z": 2.5, "y": 0.45, "x": 0.45, "unit": "millimeter"}
    head = {"title": "A head, as a T1-weighted scan would show it", "_ARRAY_DIMENSIONS": None, "voxel_size": voxel}
    yield "brain", brain.volume(), "z y x", head, {"chunks": [16, 128, 128], "compressor": LZ4}
    cube = climate.cube()
    axes = {
        "time": {"units": "days since 2023-01-01", "calendar": "standard", "axis": "T"},
        "lat": {"units": "degrees_north", "standard_name": "latitude"},
        "lon": {"units": "degrees_east", "standard_name": "longitude"},
    }
    for name, attributes in axes.items():
        whole = {"chunks": [*cube[name].shape], "fill_value": None}
        yield f"climate/{name}", cube[name], name, attributes, whole
    land, mask = cube["land"], {"long_name": "whether the cell is land"}
    yield "climate/land", land, "lat lon", mask, {"chunks": [*land.shape], "compressor": ZSTD, "fill_value": None}
    sst = {"units": "degC", "standard_name": "sea_surface_temperature", "long_name": "sea surface temperature"}
    packed = {"chunks": [73, 45, 90], "compressor": ZSTD, "fill_value": "NaN"}
    yield "climate/sst", cube["sst"], "time lat lon", sst, packed
    units = {"time": "s", "energy": "keV", "x": "mm", "y": "mm", "z": "mm"}
    hits = {"title": "Hits in a detector", "units": units}
    yield "events", tables.events(), "event", hits, {"chunks": [8192], "compressor": LZ4, "fill_value": None}
    signal = {"title": "A heart's electrical signal", "units": "mV", "samples_per_second": tables.SAMPLES_PER_SECOND}
    yield "signal", tables.signal(), "sample", signal, {"chunks": [65536], "compressor": ZSTD}
    texts = {"chunks": [8], "compressor": LZ4, "fill_value": "", "filters": [{"id": "vlen-utf8"}]}
    yield "stations", tables.stations(), "station", {"title": "Names of weather stations"}, texts
    speed = {"title": "Speed of light", "units": "m/s"}
    yield "speed_of_light", np.array(299_792_458.0), "", speed, {"chunks": []}
