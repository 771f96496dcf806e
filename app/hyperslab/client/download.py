"""Downloading a selection into a file, and going on where an earlier attempt stopped."""

from __future__ import annotations

import errno
import json
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

from hyperslab import wire
from hyperslab.client.body import Body, BodyChanged
from hyperslab.client.session import Request, Session
from hyperslab.client.text import Progress, report
from hyperslab.client.transport import Cancel, Response
from hyperslab.errors import ArrayChanged, BadParameter, RangeNotSatisfiable, RemoteProblem

_PIECE = 1 << 20
_RESTARTS = 5

FORMATS: Final = {".npy": "npy", ".csv": "csv", ".json": "json", ".raw": "raw", ".bin": "raw"}
"""The form that a file holds, by its suffix."""

STDOUT: Final = Path("-")
"""The output that is no file of that name, as with other tools."""

_OPEN_FILES = re.compile(r"/dev|/proc/[^/]+(/task/[^/]+)?/fd")
"""Folders whose links stand for files that somebody has open: ``/dev/stdout`` and its like."""


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
        match known:
            case {"url": self.url, "etag": str(etag)} if self.data.exists():
                return self.data.stat().st_size, etag
        return 0, None

    def remember(self, etag: str | None) -> None:
        self.origin.write_text(json.dumps({"url": self.url, "etag": etag}), encoding="utf-8")

    def forget(self) -> None:
        """Start over."""
        self.origin.unlink(missing_ok=True)

    def finish(self, output: Path) -> None:
        self.data.replace(output)
        self.origin.unlink(missing_ok=True)


def check_output(output: Path) -> None:
    """Raises `BadParameter` for a folder, which no body can be written into, and where no file can be made."""
    if output.is_dir():
        raise BadParameter(name="output", value=str(output), expected="a file, and this is a folder")
    folder = Path(os.path.realpath(output)).parent
    if not (_takes_bytes_as_they_come(output) or os.access(folder, os.W_OK | os.X_OK)):
        expected = f"a file in a folder that is there and can be written to, which {folder} is not"
        raise BadParameter(name="output", value=str(output), expected=expected)


def form_of(output: Path) -> str:
    """The form that a file is to hold: that of its suffix, or npy where it has none, or is no file but a device or a
    pipe; raises `BadParameter` for a suffix of another form."""
    suffix = output.suffix.lower()
    if suffix and suffix not in FORMATS and not _takes_bytes_as_they_come(output):
        expected = f"a name that ends in {', '.join(FORMATS)}, or a format beside it: these can be written"
        raise BadParameter(name="output", value=str(output), expected=expected)
    return FORMATS.get(suffix, "npy")


def download_file(session: Session, request: Request, output: Path, *, progress: Progress) -> None:
    """GET a body into ``output``; what an earlier attempt left beside it is resumed where the body is still the same.

    Behind a link to a file it is the file that is replaced. A device or a pipe is no file that could be: it gets the
    bytes as they come, and nothing is resumed later; so does `STDOUT`. Raises what `check_output` does, `ArrayChanged`
    where the body changes again and again or can no longer be continued, and what the server or the transport raised.
    """
    check_output(output)
    if _takes_bytes_as_they_come(output):
        _write_straight(session, request, output, progress)
        return
    target = Path(os.path.realpath(output))
    partial = Partial.of(target, request.url)
    for _ in range(_RESTARTS):
        try:
            _read_rest(session, request, partial, progress)
        except BodyChanged:
            partial.forget()
        else:
            partial.finish(target)
            return
    raise _changed(request, "others at every attempt")


def _takes_bytes_as_they_come(output: Path) -> bool:
    if output == STDOUT:
        return True
    if output.exists() and not output.is_file():
        return True
    return output.is_symlink() and bool(_OPEN_FILES.fullmatch(os.path.realpath(output.parent)))


def _write_straight(session: Session, request: Request, output: Path, progress: Progress) -> None:
    advance = _Advance()
    body = Body(session, request, check=_check_values, cancel=Cancel(), on_bytes=advance)
    try:
        remaining = body.open()  # first: where the request is refused, nobody has to wait for a pipe's reader
        with _open_as_it_is(output) as file, report(progress, remaining, output.name) as advance.told:
            _copy(body, remaining, cast("Callable[[memoryview], int]", file.write))
    except BodyChanged as error:
        raise _changed(request, "others") from error
    finally:
        body.close()


def _open_as_it_is(output: Path) -> BinaryIO:
    if output == STDOUT:
        if sys.stdout is None:  # closed by who started this; its number may be that of our socket by now
            raise OSError(errno.EBADF, "stdout is closed")
        return open(sys.stdout.fileno(), "wb", closefd=False)
    return output.open("ab" if output.is_file() else "wb")  # behind what is there, where a link leads to a file


def _check_values(response: Response) -> None:
    """Raises `RemoteProblem` for what is no values of an array: a sign-in page, say."""
    if wire.ARRAY_SHAPE not in response.headers:
        found = response.headers.get("Content-Type", "an answer without a type")
        raise RemoteProblem(status=response.status, detail=f"expected values of an array, found {found}")


def _changed(request: Request, found: Any) -> ArrayChanged:
    return ArrayChanged(path=request.url, member="values", expected="the same bytes", found=found)


def _read_rest(session: Session, request: Request, partial: Partial, progress: Progress) -> None:
    begun = partial.begun()
    advance = _Advance()
    body = Body(session, request, check=_check_values, cancel=Cancel(), on_bytes=advance, begun=begun)
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
