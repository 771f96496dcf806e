"""Stores: versioned values by key, in folders, object stores, on web servers and in fsspec's file systems."""

from __future__ import annotations

import shlex
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

from hyperslab.errors import BadDefinition, StoreError
from hyperslab.storage.base import Store
from hyperslab.storage.config import StoreConfig, local_path, scheme
from hyperslab.storage.keys import CONVERTIBLE

__all__ = ["CONVERTIBLE", "StoreConfig", "is_companion", "kind_of_file", "open_store"]


def open_store(config: StoreConfig) -> Store:
    """The store of a configuration; a file is the archive that it holds. No request is sent before the first use (see
    `Store.check`).

    Raises `errors.BadDefinition` for an invalid option or URL, and `errors.StoreError` for a folder or archive that
    cannot be opened. Libraries are imported on demand.
    """
    match scheme(config.url):
        case "" | "file" | "local":
            from hyperslab.storage.local import LocalStore

            path = local_path(config.url)
            if not Path(path).is_file():
                return LocalStore(config, path)
            kind = _archive_in(path)
            if kind is None and (form := kind_of_file(Path(path))) is not None:
                made = shlex.quote(str(Path(path).with_suffix(".zarr")))
                advice = f"hyperslab convert {shlex.quote(path)} {made}"
                raise BadDefinition("url", f"{path!r} is a file of {form}, of which a command makes Zarr: {advice}")
            if kind is None:
                raise BadDefinition("url", f"{path!r} is a file, and neither a folder nor a zip or tar archive")
            from hyperslab.storage.fsspec import FsspecStore

            protocol, options = kind
            return FsspecStore(
                replace(config, url=f"{protocol}::{Path(path).absolute()}", options={**options, **config.options})
            )
        case "s3" | "s3a" | "gs" | "gcs" | "az" | "azure" | "memory":
            from hyperslab.storage.objects import ObjectStore

            return ObjectStore(config)
        case "http" | "https":
            from hyperslab.storage.http import HttpStore

            return HttpStore(config)
        case _:
            from hyperslab.storage.fsspec import FsspecStore

            return FsspecStore(config)


def is_companion(path: Path) -> bool:
    """Whether a file is OME-XML beside its TIFFs, by its name. [OME-TIFF: companion files]"""
    return path.suffix.lower() == ".ome"


def kind_of_file(path: Path) -> str | None:
    """``TIFF``, ``NetCDF or HDF5`` or ``npy``, by the first bytes of a file; None for others. OME-XML beside the TIFFs
    of an image counts as TIFF."""
    try:
        with path.open("rb") as file:
            first = file.read(8)
    except OSError:
        return None
    if first[:4] in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"):
        return "TIFF"
    if first[:4] in (b"CDF\1", b"CDF\2", b"CDF\5") or first == b"\x89HDF\r\n\x1a\n":
        return "NetCDF or HDF5"
    if is_companion(path):
        return "TIFF"
    return "npy" if first[:6] == b"\x93NUMPY" else None


def _archive_in(path: str) -> tuple[str, dict[str, str]] | None:
    """The kind of archive that a file is by its content, whatever its name (``.zip``, ``.ozx``, ``.tgz``, …), if it is
    one, and the options to open it: of its compression fsspec goes by the name."""
    compressions = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\xfd7zXZ\0": "xz"}
    try:
        with Path(path).open("rb") as file:
            first = file.read(6)
        if not first.startswith((b"PK\x03\x04", b"PK\x05\x06")) and tarfile.is_tarfile(path):
            name = next((name for magic, name in compressions.items() if first.startswith(magic)), None)
            return "tar", {} if name is None else {"tar.compression": name}
        return ("zip", {}) if zipfile.is_zipfile(path) else None
    except OSError as error:
        raise StoreError(path, "", f"it cannot be opened ({type(error).__name__})") from error
