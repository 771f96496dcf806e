"""``python -m tests.architecture.trace``: which files of the package a slice, a write and a tile enter, in order."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Final
from unittest.mock import patch

import numpy as np
from starlette.types import ASGIApp, Receive, Scope, Send

from hyperslab.asgi import create_app
from hyperslab.settings import Settings, StoreSettings
from tests.architecture.sources import PACKAGE, ROOT
from tests.server import served

_ROOT: Final = f"{PACKAGE}/"
_PROTOCOL: Final = f"{_ROOT}protocol.py"
"""Called by the event loop whenever bytes arrive, whatever the application is doing."""
_BOX: Final = "select=10:20,30:90,5:9"
_SHAPE: Final = (64, 256, 256)


@dataclass
class Trace:
    """What one request enters: functions, and how deep they call each other, from the application inwards."""

    functions: dict[Any, None] = field(default_factory=dict)
    depth: int = 0

    @property
    def files(self) -> list[str]:
        """In the order in which they are first entered."""
        return list(dict.fromkeys(code.co_filename.removeprefix(_ROOT) for code in self.functions))

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(_ROOT) or code.co_name.startswith("<"):
            return
        if code.co_filename == _PROTOCOL:
            return
        self.functions[code] = None
        depth, outer = 0, frame.f_back
        while outer is not None:
            depth += outer.f_code.co_filename.startswith(_ROOT)
            outer = outer.f_back
        self.depth = max(self.depth, depth + 1)


class Traced:
    """An application that notes in ``trace``, if there is one, what its requests enter until they are done."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.trace: Trace | None = None
        self._active: Trace | None = None
        self.done = threading.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._active = self.trace if scope["type"] == "http" else None
        try:
            await self._app(scope, receive, send)
        finally:
            self._active = None
            self.done.set()

    def profile(self, frame: FrameType, event: str, argument: object) -> None:
        """For `threading.setprofile`: all threads that are started from now on."""
        if self._active is not None:
            self._active(frame, event, argument)


@contextmanager
def service() -> Iterator[tuple[Traced, str]]:
    """A service of one writable folder, whose threads can be traced, and its URL. Whatever the file system, it
    says that it has the bytes in memory."""
    preadv = os.preadv

    def in_memory(descriptor: int, buffers: Any, offset: int, _: int = 0) -> int:
        return preadv(descriptor, buffers, offset)

    with tempfile.TemporaryDirectory() as folder, patch.object(os, "preadv", in_memory):
        settings = Settings(stores={"lab": StoreSettings(url=folder, writable=True)})
        app = Traced(create_app(settings))
        threading.setprofile(app.profile)
        try:
            with served(app) as url:
                yield app, url
        finally:
            threading.setprofile(None)


def traces() -> Mapping[str, Trace]:
    """The traces of a first slice, the same slice again, a write of an unaligned box, and a first tile."""
    with service() as (app, url):
        made = {"kind": "array", "shape": _SHAPE, "chunks": [16, 64, 64], "dtype": "<u2"}
        values = np.arange(np.prod(_SHAPE), dtype="<u2").tobytes()
        for name in ("slice", "open", "write", "tile"):
            _send(app, "PUT", f"{url}/v1/metadata/lab/{name}", json.dumps(made).encode())
            _send(app, "PUT", f"{url}/v1/slice/lab/{name}", values, "application/octet-stream")
        _send(app, "GET", f"{url}/v1/slice/lab/open?{_BOX}")
        box = bytes(10 * 60 * 4 * 2)
        return {
            "slice": _traced(app, "GET", f"{url}/v1/slice/lab/slice?{_BOX}"),
            "again": _traced(app, "GET", f"{url}/v1/slice/lab/slice?{_BOX}"),
            "write": _traced(app, "PUT", f"{url}/v1/slice/lab/write?{_BOX}", box, "application/octet-stream"),
            "tile": _traced(app, "GET", f"{url}/v1/tile/lab/tile/0/0/0.png"),
        }


def _traced(app: Traced, *request: Any) -> Trace:
    app.trace = Trace()
    _send(app, *request)
    trace, app.trace = app.trace, None
    return trace


def _send(app: Traced, method: str, url: str, body: bytes | None = None, media: str = "application/json") -> None:
    """Returns when the application is done with the request, and not just answered."""
    app.done.clear()
    request = urllib.request.Request(url, body, {"content-type": media} if body else {}, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        answer.read()
    app.done.wait(60)


def measure() -> Mapping[str, Any]:
    """Files, number of functions and depth of each trace, from a process of its own: in this one, caches are warm."""
    command = [sys.executable, "-m", "tests.architecture.trace"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    measured: dict[str, Any] = json.loads(done.stdout)
    return measured


def main() -> None:
    found = {
        name: {"files": trace.files, "functions": len(trace.functions), "depth": trace.depth}
        for name, trace in traces().items()
    }
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
