"""The demo store: a few tens of megabytes, made on first use, the same every time."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Final

import numpy as np

from hyperslab.demo import brain, climate, tables
from hyperslab.demo.files import LZ4, ZSTD, Layout, consolidate, write_array, write_group
from hyperslab.demo.ome import write_microscope

VERSION: Final = 1
"""Goes up when the contents change, so that an older demo is left alone and a new one made."""


def demo_folder(parent: Path) -> Path:
    """Where the demo store of this version lives below ``parent``."""
    return parent / f"demo-{VERSION}.zarr"


def make_demo(parent: Path) -> Path:
    """The demo store below ``parent``, made if it is not there yet; raises `OSError` where that cannot be written.

    It is made under a temporary name and renamed when complete, so whoever comes first wins and nobody sees half of it.
    """
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
    """Write all nodes of the demo store below ``root``."""
    write_group(root, {"title": "Hyperslab's demo: arrays of many kinds, all of them made up"})
    write_microscope(root / "microscope")
    _write_brain(root / "brain")
    _write_climate(root / "climate")
    _write_tables(root)


def _write_brain(folder: Path) -> None:
    attributes = {
        "title": "A head, as a T1-weighted scan would show it",
        "_ARRAY_DIMENSIONS": ["z", "y", "x"],
        "voxel_size": {"z": 2.5, "y": 0.45, "x": 0.45, "unit": "millimeter"},
    }
    write_array(folder, brain.volume(), Layout((16, 128, 128), LZ4, sparse=True), attributes)


def _write_climate(folder: Path) -> None:
    cube = climate.cube()
    group = write_group(folder, {"title": "A year of sea surface temperature", "Conventions": "CF-1.10"})
    place = ["lat", "lon"]
    days = {"units": "days since 2023-01-01", "calendar": "standard", "axis": "T", "_ARRAY_DIMENSIONS": ["time"]}
    write_array(group / "time", cube.days, Layout(cube.days.shape, None, None), days)
    latitude = {"units": "degrees_north", "standard_name": "latitude", "_ARRAY_DIMENSIONS": ["lat"]}
    write_array(group / "lat", cube.latitude, Layout(cube.latitude.shape, None, None), latitude)
    longitude = {"units": "degrees_east", "standard_name": "longitude", "_ARRAY_DIMENSIONS": ["lon"]}
    write_array(group / "lon", cube.longitude, Layout(cube.longitude.shape, None, None), longitude)
    mask = {"long_name": "whether the cell is land", "_ARRAY_DIMENSIONS": place}
    write_array(group / "land", cube.land, Layout(cube.land.shape, ZSTD, None), mask)
    temperature = {
        "units": "degC",
        "standard_name": "sea_surface_temperature",
        "long_name": "sea surface temperature",
        "_ARRAY_DIMENSIONS": ["time", *place],
    }
    write_array(group / "sst", cube.temperature, Layout((73, 45, 90), ZSTD, "NaN"), temperature)
    consolidate(group)


def _write_tables(root: Path) -> None:
    columns = {
        "title": "Hits in a detector",
        "units": {"time": "s", "energy": "keV", "x": "mm", "y": "mm", "z": "mm"},
        "_ARRAY_DIMENSIONS": ["event"],
    }
    write_array(root / "events", tables.events(), Layout((8192,), LZ4, None), columns)
    trace = {
        "title": "A heart's electrical signal",
        "units": "mV",
        "samples_per_second": tables.SAMPLES_PER_SECOND,
        "_ARRAY_DIMENSIONS": ["sample"],
    }
    write_array(root / "signal", tables.signal(), Layout((65536,), ZSTD), trace)
    texts = Layout((8,), LZ4, "", filters=({"id": "vlen-utf8"},))
    names = {"title": "Names of weather stations", "_ARRAY_DIMENSIONS": ["station"]}
    write_array(root / "stations", tables.stations(), texts, names)
    speed = {"title": "Speed of light", "units": "m/s", "_ARRAY_DIMENSIONS": []}
    write_array(root / "speed_of_light", np.array(299_792_458.0), Layout(()), speed)
