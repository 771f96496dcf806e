"""What client and server both know of the names of nodes."""

from __future__ import annotations

import re
from typing import Final

LONGEST_KEY: Final = 1024
"""Bytes of UTF-8 that a key may have: the limit of S3 and of GCS."""


_DRIVER: Final = re.compile(r"\|(zarr[23]?):(.*)", re.DOTALL)


def without_driver(url: str) -> str:
    """The URL of a node or a store that may be spelt as in TensorStore: ``…|zarr2:path`` is ``…/path``.

    Raises `ValueError` for another format.
    """
    found = _DRIVER.search(url)
    if found is None:
        return url
    if found[1] != "zarr2":
        raise ValueError(f"{found[0]}: this service reads Zarr v2, which is |zarr2:")
    return "/".join(part for part in (url[: found.start()].rstrip("/"), found[2].strip("/")) if part)
