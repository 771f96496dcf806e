"""Keys and logical paths, and their normalisation, which makes them safe.

A key is UTF-8 segments joined by ``/``; a prefix is ``""`` or a key followed by ``/``. Paths from clients pass
`normalise_path` once, after percent-decoding, and can then be joined to any root. Segments have no limit of length, as
in object stores; file systems have their own.
"""

from __future__ import annotations

import re
from typing import Final

from hyperslab.errors import BadPath
from hyperslab.wire import MAX_KEY_BYTES

HIDDEN: Final = ".hyperslab"
"""Name of the service's own files: ``.hyperslab`` and ``.hyperslab.<anything>``."""
STREAM: Final = f"{HIDDEN}.stream"
"""Name of the folder in which a group keeps what belongs to its stream."""
CONVERTIBLE: Final = {
    **dict.fromkeys((".tif", ".tiff", ".btf", ".svs", ".lsm", ".stk", ".ndpi", ".qptiff", ".ome"), "TIFF"),
    **dict.fromkeys((".nc", ".nc4", ".cdf"), "NetCDF"),
    **dict.fromkeys((".h5", ".hdf5", ".he5", ".hdf"), "HDF5"),
    ".npy": "npy",
}
"""Kinds of files that ``hyperslab convert`` makes Zarr of, by suffix."""

_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")  # a tab is an ordinary blank

_PLAIN: Final = re.compile("[A-Za-z0-9_-][A-Za-z0-9_.-]*(?:/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*")  # nearly all paths


def normalise_path(text: str) -> str:
    """The canonical form of a logical path or key (Zarr v2 "Logical storage paths"); ``""`` is the root.

    Backslashes become slashes; leading, trailing and repeated slashes are removed. ``text`` is already percent-decoded.
    Raises `errors.BadPath`.
    """
    if len(text) <= MAX_KEY_BYTES and _PLAIN.fullmatch(text):
        return text
    segments = [segment for segment in text.replace("\\", "/").split("/") if segment]
    for segment in segments:
        if segment in (".", ".."):
            raise BadPath(printable(text), f"the segment {segment!r} is not allowed")
        if is_hidden(segment):
            raise BadPath(printable(text), f"names that begin with {HIDDEN!r} belong to the service")
    path = "/".join(segments)
    if bad := _CONTROL.search(path):
        raise BadPath(printable(text), f"the control character {bad.group()!r} is not allowed")
    try:
        length = len(path.encode())
    except UnicodeEncodeError:
        raise BadPath(printable(text), "it is not UTF-8") from None
    if length > MAX_KEY_BYTES:
        raise BadPath(printable(text), f"it has {length} bytes of UTF-8, the limit is {MAX_KEY_BYTES}")
    return path


def flaw_of(name: str, prefix: str = "") -> str | None:
    """Why a name found below a prefix of a store cannot be a segment of a path, because `normalise_path` would refuse
    it or make another of it; None if it can."""
    if _PLAIN.fullmatch(name) and 4 * len(prefix) + len(name) <= MAX_KEY_BYTES:
        return None
    if name in ("", ".", ".."):
        return f"{name!r} is no name"
    if "\\" in name:
        return "a backslash is in its name"
    if bad := _CONTROL.search(name):
        return f"the control character {bad.group()!r} is in its name"
    try:
        length = len(prefix.encode()) + len(name.encode())
    except UnicodeEncodeError:
        return "its name is not UTF-8"
    return None if length <= MAX_KEY_BYTES else f"its path is longer than {MAX_KEY_BYTES} bytes"


def is_hidden(segment: str) -> bool:
    """Whether a name is the service's own (locks, probes, unfinished writes), which is neither listed nor served."""
    return segment.startswith(HIDDEN) and segment[len(HIDDEN) : len(HIDDEN) + 1] in ("", ".")


def has_hidden_segment(key: str) -> bool:
    """Whether any segment of a key is hidden."""
    return HIDDEN in key and any(map(is_hidden, key.split("/")))


def join(*parts: str) -> str:
    """The key of normalised parts; empty ones (the root) are skipped."""
    return "/".join(part for part in parts if part)


def as_prefix(path: str) -> str:
    """The prefix of all keys below a normalised path: ``""`` for the root, else ``path/``."""
    return f"{path}/" if path else ""


def prefixes(path: str) -> list[str]:
    """The prefixes of a normalised path and of all its parents, from the root: ``["", "a/", "a/b/"]``."""
    parts = path.rstrip("/").split("/") if path else []
    return ["".join(part + "/" for part in parts[:depth]) for depth in range(len(parts) + 1)]


def printable(text: str) -> str:
    """A text for messages: valid UTF-8, at most 256 characters."""
    printable = text.encode("utf-8", "backslashreplace").decode()
    return printable if len(printable) <= 256 else f"{printable[:255]}…"
