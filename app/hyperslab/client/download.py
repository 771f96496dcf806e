"""Downloading a selection into a file, and going on where an earlier attempt stopped."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from hyperslab.client.body import Body, BodyChanged
from hyperslab.client.progress import Progress, report
from hyperslab.client.session import Cancel, Request, Session
from hyperslab.errors import ArrayChanged, RangeNotSatisfiable

_PIECE = 1 << 20
_RESTARTS = 5

FORMATS: Final = {".npy": "npy", ".csv": "csv", ".json": "json", ".raw": "raw", ".bin": "raw"}
"""The form that a file holds, by its suffix; npy for any other."""


@dataclass(frozen=True, slots=True)
class Partial:
    """A file that is not whole yet, and beside it which body it is the beginning of."""

    data: Path
    origin: Path
    url: str

    @classmethod
    def of(cls, output: Path, url: str) -> Partial:
        """The partial file of ``output``."""
        return cls(output.with_name(f"{output.name}.part"), output.with_name(f"{output.name}.part.json"), url)

    def begun(self) -> tuple[int, str | None]:
        """Bytes in hand and the ETag of their body; none where they are of another URL."""
        try:
            known = json.loads(self.origin.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return 0, None
        if known.get("url") != self.url or not self.data.exists():
            return 0, None
        return self.data.stat().st_size, known.get("etag")

    def remember(self, etag: str | None) -> None:
        self.origin.write_text(json.dumps({"url": self.url, "etag": etag}), encoding="utf-8")

    def forget(self) -> None:
        """Start over."""
        self.origin.unlink(missing_ok=True)

    def finish(self, output: Path) -> None:
        self.data.replace(output)
        self.origin.unlink(missing_ok=True)


def download_file(session: Session, request: Request, output: Path, *, progress: Progress) -> None:
    """GET a body into ``output``; what an earlier attempt left beside it is resumed where the body is still the same.

    Raises `ArrayChanged` where the body changes again and again, and what the server or the transport raised.
    """
    partial = Partial.of(output, request.url)
    for _ in range(_RESTARTS):
        try:
            _read_rest(session, request, partial, progress)
        except BodyChanged:
            partial.forget()
        else:
            partial.finish(output)
            return
    raise ArrayChanged(path=request.url, member="values", expected="the same bytes", found="others at every attempt")


def _read_rest(session: Session, request: Request, partial: Partial, progress: Progress) -> None:
    begun = partial.begun()
    advance = _Advance()
    body = Body(session, request, check=lambda _: None, cancel=Cancel(), on_bytes=advance, begun=begun)
    try:
        remaining = body.open()
        partial.remember(body.etag)
        with (
            partial.data.open("ab" if begun[0] else "wb") as file,
            report(progress, begun[0] + remaining, partial.data.stem) as advance.told,
        ):
            advance(begun[0])
            _copy(body, remaining, cast("Callable[[memoryview], int]", file.write))
    except RangeNotSatisfiable as error:
        if error.size != begun[0]:
            raise BodyChanged("the body is shorter by now") from error
    finally:
        body.close()


class _Advance:
    """Reports to whoever is told by then: the size of a body shows only when it is open."""

    def __init__(self) -> None:
        self.told: Callable[[int], None] = lambda _: None

    def __call__(self, count: int) -> None:
        self.told(count)


def _copy(body: Body, remaining: int, write: Callable[[memoryview], int]) -> None:
    buffer = memoryview(bytearray(min(_PIECE, remaining)))
    while remaining:
        count = body.read(buffer[: min(len(buffer), remaining)])
        write(buffer[:count])
        remaining -= count
