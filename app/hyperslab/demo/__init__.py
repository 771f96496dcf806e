"""Demo store: some tens of megabytes, generated deterministically on first use."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Final

import numpy as np

from hyperslab.demo import brain, climate, microscope, tables
from hyperslab.demo.files import LZ4, ZSTD, consolidate, write_array, write_group
from hyperslab.demo.ome import write_corner, write_microscope

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
    write_group(root, {"title": "Hyperslab's demo: arrays of many kinds, all of them made up"})
    intensity, labels = microscope.stack()
    write_microscope(root / "microscope", intensity, labels)
    write_corner(root / "sharded", intensity)
    _write_brain(root / "brain")
    _write_climate(root / "climate")
    _write_tables(root)


def _write_brain(folder: Path) -> None:
    attributes = {
        "title": "A head, as a T1-weighted scan would show it",
        "_ARRAY_DIMENSIONS": ["z", "y", "x"],
        "voxel_size": {"z": 2.5, "y": 0.45, "x": 0.45, "unit": "millimeter"},
    }
    write_array(folder, brain.volume(), attributes, chunks=(16, 128, 128), compressor=LZ4, sparse=True)


def _write_climate(folder: Path) -> None:
    cube = climate.cube()
    group = write_group(folder, {"title": "A year of sea surface temperature", "Conventions": "CF-1.10"})
    for name, attributes in (
        ("time", {"units": "days since 2023-01-01", "calendar": "standard", "axis": "T"}),
        ("lat", {"units": "degrees_north", "standard_name": "latitude"}),
        ("lon", {"units": "degrees_east", "standard_name": "longitude"}),
    ):
        values = cube[name]
        write_array(group / name, values, {**attributes, **_dims(name)}, chunks=values.shape, fill_value=None)
    mask = {"long_name": "whether the cell is land", **_dims("lat", "lon")}
    write_array(group / "land", cube["land"], mask, chunks=cube["land"].shape, compressor=ZSTD, fill_value=None)
    temperature = {
        "units": "degC",
        "standard_name": "sea_surface_temperature",
        "long_name": "sea surface temperature",
        **_dims("time", "lat", "lon"),
    }
    write_array(group / "sst", cube["sst"], temperature, chunks=(73, 45, 90), compressor=ZSTD, fill_value="NaN")
    consolidate(group)


def _write_tables(root: Path) -> None:
    columns = {
        "title": "Hits in a detector",
        "units": {"time": "s", "energy": "keV", "x": "mm", "y": "mm", "z": "mm"},
        **_dims("event"),
    }
    write_array(root / "events", tables.events(), columns, chunks=(8192,), compressor=LZ4, fill_value=None)
    trace = {
        "title": "A heart's electrical signal",
        "units": "mV",
        "samples_per_second": tables.SAMPLES_PER_SECOND,
        **_dims("sample"),
    }
    write_array(root / "signal", tables.signal(), trace, chunks=(65536,), compressor=ZSTD)
    names, texts = {"title": "Names of weather stations", **_dims("station")}, [{"id": "vlen-utf8"}]
    stations = tables.stations()
    write_array(root / "stations", stations, names, chunks=(8,), compressor=LZ4, fill_value="", filters=texts)
    speed = {"title": "Speed of light", "units": "m/s", **_dims()}
    write_array(root / "speed_of_light", np.array(299_792_458.0), speed, chunks=())


def _dims(*names: str) -> dict[str, list[str]]:
    return {"_ARRAY_DIMENSIONS": list(names)}
