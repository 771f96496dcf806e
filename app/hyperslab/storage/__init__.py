"""Stores: versioned values by key, in folders, object stores, on web servers and in fsspec's file systems."""

from __future__ import annotations

from pathlib import Path

from hyperslab.errors import BadDefinition
from hyperslab.storage.base import Store
from hyperslab.storage.config import StoreConfig, local_path, scheme

__all__ = ["StoreConfig", "open_store"]


def open_store(config: StoreConfig) -> Store:
    """The store of a configuration; no request is sent before the first use (see `Store.check`).

    Raises `errors.BadDefinition` for an invalid option or URL, and `errors.StoreError` for a folder or archive that
    cannot be opened. Libraries are imported on demand.
    """
    match scheme(config.url):
        case "" | "file" | "local":
            from hyperslab.storage.local import LocalStore

            path = local_path(config.url)
            if Path(path).is_file():
                kind = "tar" if ".tar" in Path(path).name.lower() else "zip"
                reason = f"{path!r} is a file and no folder; what an archive holds is {kind}::{path}"
                raise BadDefinition("url", reason)
            return LocalStore(config, path)
        case "s3" | "s3a" | "gs" | "gcs" | "az" | "azure" | "memory":
            from hyperslab.storage.objects import ObjectStore

            return ObjectStore(config)
        case "http" | "https":
            from hyperslab.storage.http import HttpStore

            return HttpStore(config)
        case _:
            from hyperslab.storage.fsspec import FsspecStore

            return FsspecStore(config)
