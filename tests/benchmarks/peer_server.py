"""``python -m tests.benchmarks.peer_server tiled|h5grove FOLDER``: other array servers on the same arrays.

Runs in an environment of its own that has them. Prints its port, and serves 127.0.0.1 until it is told to stop. Tiled
reads the Zarr arrays themselves; h5grove reads HDF5 files of the same chunks and codecs, which are made here.
"""

from __future__ import annotations

import importlib
import json
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_LARGEST = 1 << 30
"""Bytes of an array that is worth a copy."""


def tiled(folder: Path) -> Any:
    """Tiled's application with a Zarr adapter for each array."""
    zarr = importlib.import_module("zarr")
    adapters = importlib.import_module("tiled.adapters.zarr")
    mapping = importlib.import_module("tiled.adapters.mapping")
    structures = importlib.import_module("tiled.structures.array")
    server = importlib.import_module("tiled.server.app")
    authentication = importlib.import_module("tiled.config").Authentication(allow_anonymous_access=True)

    def adapter(path: Path) -> Any:
        array = zarr.open_array(str(path), mode="r")
        structure = structures.ArrayStructure.from_array(array, shape=array.shape, chunks=_tiled_chunks(array))
        return adapters.ZarrArrayAdapter(array, structure)

    tree = {path.parent.name: adapter(path.parent) for path in folder.glob("*/.zarray")}
    settings = {"response_bytesize_limit": 1 << 30}
    return server.build_app(mapping.MapAdapter(tree), authentication, server_settings=settings)


def h5grove(folder: Path) -> Any:
    """h5grove's router in an application of its own."""
    fastapi = importlib.import_module("fastapi")
    utils = importlib.import_module("h5grove.fastapi_utils")
    importlib.import_module("hdf5plugin")
    target = folder.parent / "hdf5"
    target.mkdir(exist_ok=True)
    for path in folder.glob("*/.zarray"):
        make_hdf5(path.parent, target / f"{path.parent.name}.h5")
    utils.settings.base_dir = str(target)
    app = fastapi.FastAPI()
    app.include_router(utils.router)
    return app


def make_hdf5(source: Path, target: Path) -> None:
    """An HDF5 file with the array as ``/data``; nothing is done where it is there or too large."""
    if target.exists():
        return
    zarr, h5py = importlib.import_module("zarr"), importlib.import_module("h5py")
    array = zarr.open_array(str(source), mode="r")
    if array.nbytes > _LARGEST:
        return
    unfinished = target.with_suffix(".unfinished")
    with h5py.File(unfinished, "w") as file:
        data = file.create_dataset("data", array.shape, array.dtype, chunks=array.chunks, **_hdf5_codec(source))
        step = array.chunks[0]
        for start in range(0, array.shape[0], step):
            data[start : start + step] = array[start : start + step]
    unfinished.rename(target)


def _hdf5_codec(source: Path) -> dict[str, Any]:
    plugins = importlib.import_module("hdf5plugin")
    compressor = json.loads((source / ".zarray").read_text())["compressor"] or {}
    if compressor.get("id") == "blosc":
        return dict(plugins.Blosc(cname="lz4", clevel=5, shuffle=plugins.Blosc.SHUFFLE))
    return dict(plugins.Zstd(clevel=1)) if compressor.get("id") == "zstd" else {}


def _tiled_chunks(array: Any) -> tuple[tuple[int, ...], ...]:
    pairs = zip(array.shape, array.chunks, strict=True)
    return tuple(tuple(min(c, n - start) for start in range(0, n, c)) for n, c in pairs)


PEERS: dict[str, Callable[[Path], Any]] = {"tiled": tiled, "h5grove": h5grove}


def main() -> None:
    name, folder = sys.argv[1:]
    channel, sys.stdout = sys.stdout, sys.stderr
    app = PEERS[name](Path(folder))
    uvicorn = importlib.import_module("uvicorn")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(app, log_level="critical", access_log=False)
        print(listener.getsockname()[1], file=channel, flush=True)
        uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
