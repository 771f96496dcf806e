"""Looking into fsspec's memory file system.

Its own `info` and `ls` go through all names there are, so that reading n keys costs n², and `ls` fails where another
thread removes a file at that moment.
"""

from __future__ import annotations

from typing import Any

from fsspec.implementations.memory import MemoryFileSystem  # type: ignore[import-untyped]

Info = dict[str, Any]


def info(fs: MemoryFileSystem, path: str) -> Info:
    """What is known of one file; raises `FileNotFoundError`."""
    name = fs._strip_protocol(path)
    file = fs.store.get(name)
    if file is None:
        raise FileNotFoundError(path)
    return {"name": name, "type": "file", "size": file.size, "created": file.created}


def ls(fs: MemoryFileSystem, path: str) -> list[Info]:
    """The files and the implied directories directly below a path; empty directories are not kept count of."""
    below = fs._strip_protocol(path).rstrip("/") + "/"
    found: dict[str, Info] = {}
    for name, file in list(fs.store.items()):  # a copy: other threads write
        if name.startswith(below):
            first, deeper, _ = name[len(below) :].partition("/")
            child = below + first
            if deeper:
                found[child] = {"name": child, "type": "directory", "size": 0}
            else:
                found[child] = {"name": child, "type": "file", "size": file.size, "created": file.created}
    return list(found.values())
