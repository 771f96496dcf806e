"""Demo store: some tens of megabytes, generated deterministically on first use."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import numpy as np

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
        _write_brain(writer)
        _write_climate(writer)
        _write_tables(writer)


def _write_brain(writer: Writer) -> None:
    attributes = {
        "title": "A head, as a T1-weighted scan would show it",
        "_ARRAY_DIMENSIONS": ["z", "y", "x"],
        "voxel_size": {"z": 2.5, "y": 0.45, "x": 0.45, "unit": "millimeter"},
    }
    writer.array("brain", brain.volume(), "z y x", attributes=attributes, chunks=[16, 128, 128], compressor=LZ4)


def _write_climate(writer: Writer) -> None:
    attributes: dict[str, Mapping[str, Any]] = {
        "time": {"units": "days since 2023-01-01", "calendar": "standard", "axis": "T"},
        "lat": {"units": "degrees_north", "standard_name": "latitude"},
        "lon": {"units": "degrees_east", "standard_name": "longitude"},
        "land": {"long_name": "whether the cell is land"},
        "sst": {
            "units": "degC",
            "standard_name": "sea_surface_temperature",
            "long_name": "sea surface temperature",
        },
    }
    cube = climate.cube()
    writer.group("climate", {"title": "A year of sea surface temperature", "Conventions": "CF-1.10"})
    for name in ("time", "lat", "lon"):
        members = {"attributes": attributes[name], "chunks": [*cube[name].shape], "fill_value": None}
        writer.array(f"climate/{name}", cube[name], name, **members)
    land = {"chunks": [*cube["land"].shape], "compressor": ZSTD, "fill_value": None}
    writer.array("climate/land", cube["land"], "lat lon", attributes=attributes["land"], **land)
    sst = {"chunks": [73, 45, 90], "compressor": ZSTD, "fill_value": "NaN"}
    writer.array("climate/sst", cube["sst"], "time lat lon", attributes=attributes["sst"], **sst)
    writer.consolidate("climate")


def _write_tables(writer: Writer) -> None:
    units = {"time": "s", "energy": "keV", "x": "mm", "y": "mm", "z": "mm"}
    events = {"attributes": {"title": "Hits in a detector", "units": units}, "chunks": [8192], "compressor": LZ4}
    writer.array("events", tables.events(), "event", fill_value=None, **events)
    signal = {"title": "A heart's electrical signal", "units": "mV", "samples_per_second": tables.SAMPLES_PER_SECOND}
    writer.array("signal", tables.signal(), "sample", attributes=signal, chunks=[65536], compressor=ZSTD)
    stations = {"attributes": {"title": "Names of weather stations"}, "filters": [{"id": "vlen-utf8"}]}
    writer.array("stations", tables.stations(), "station", chunks=[8], compressor=LZ4, fill_value="", **stations)
    speed = {"title": "Speed of light", "units": "m/s"}
    writer.array("speed_of_light", np.array(299_792_458.0), attributes=speed, chunks=[])
