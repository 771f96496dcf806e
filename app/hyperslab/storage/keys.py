"""Keys and logical paths: the only path-safety code.

A key is UTF-8 segments joined by ``/``; a prefix is ``""`` or a key with a ``/`` at its end. What a client names goes
through `normalise_path` once, after percent-decoding, and is safe to join to any root from then on.

A segment has no limit of its own here, because object stores have none; a disk's (255 bytes) is `storage.local`'s.
"""

from __future__ import annotations

import re
from typing import Final

from hyperslab.errors import BadPath
from hyperslab.wire import LONGEST_KEY

HIDDEN: Final = ".hyperslab"
"""Prefix of the service's own names: ``.hyperslab`` and ``.hyperslab.<anything>``."""


def normalise_path(text: str) -> str:
    """The canonical form of a logical path or key (Zarr v2 "Logical storage paths"); ``""`` is the root.

    Backslashes become slashes, slashes at either end go, repeated ones collapse. ``text`` is percent-decoded already:
    ``%2e%2e`` is an ordinary name here. Raises `errors.BadPath`.
    """
    segments = [segment for segment in text.replace("\\", "/").split("/") if segment]
    for segment in segments:
        if segment in (".", ".."):
            raise BadPath(_shown(text), f"the segment {segment!r} is not allowed")
        if is_hidden(segment):
            raise BadPath(_shown(text), f"names that begin with {HIDDEN!r} belong to the service")
    path = "/".join(segments)
    if bad := re.search(r"[\x00-\x08\x0a-\x1f\x7f]", path):  # a tab is an ordinary blank
        raise BadPath(_shown(text), f"the control character {bad.group()!r} is not allowed")
    try:
        length = len(path.encode())
    except UnicodeEncodeError:
        raise BadPath(_shown(text), "it is not UTF-8") from None
    if length > LONGEST_KEY:
        raise BadPath(_shown(text), f"it has {length} bytes of UTF-8, the limit is {LONGEST_KEY}")
    return path


def is_hidden(segment: str) -> bool:
    """Whether a name is the service's own (locks, probes, unfinished writes): never listed, never served."""
    return segment.startswith(HIDDEN) and segment[len(HIDDEN) : len(HIDDEN) + 1] in ("", ".")


def has_hidden_segment(key: str) -> bool:
    """Whether any segment of a key is hidden."""
    return HIDDEN in key and any(map(is_hidden, key.split("/")))


def join(*parts: str) -> str:
    """The key made of normalised parts; empty ones (the root) are left out."""
    return "/".join(part for part in parts if part)


def as_prefix(path: str) -> str:
    """The prefix of all keys below a normalised path: ``""`` for the root, else ``path/``."""
    return f"{path}/" if path else ""


def prefixes(path: str) -> list[str]:
    """Those of a normalised path, or of its prefix, and of all above it, from the root down: ``["", "a/", "a/b/"]``."""
    parts = path.rstrip("/").split("/") if path else []
    return ["".join(part + "/" for part in parts[:depth]) for depth in range(len(parts) + 1)]


def _shown(text: str) -> str:
    """A text as an answer can carry it: valid UTF-8, and not longer than anyone reads."""
    spelled = text.encode("utf-8", "backslashreplace").decode()
    return spelled if len(spelled) <= 256 else f"{spelled[:255]}…"
