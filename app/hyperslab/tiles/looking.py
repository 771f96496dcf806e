"""Opening a picture and finding out what a request needs to know of it, in as few round trips as can be."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from hyperslab.arrays.cost import Cancel
from hyperslab.arrays.read import Reader
from hyperslab.arrays.workers import Attempt, attempt
from hyperslab.errors import HyperslabError
from hyperslab.tiles.asked import Asked
from hyperslab.tiles.frame import Frame, make_frame
from hyperslab.tiles.opening import Pictures
from hyperslab.tiles.orientation import Orientations
from hyperslab.tiles.picture import Picture

A = TypeVar("A")
B = TypeVar("B")


class Looking:
    """Where a store is far, the picture is taken to be what it was when it was last opened: what is found out of that
    one meanwhile counts if its documents turn out to be unchanged. Safe to call from many threads."""

    def __init__(self, pictures: Pictures, reader: Reader, orientations: Orientations) -> None:
        self._pictures = pictures
        self._orientations = orientations
        self._reader = reader

    def look(
        self,
        path: str,
        asked: Asked,
        first: Callable[[Frame], A],
        second: Callable[[Frame], B],
        cancel: Cancel | None = None,
    ) -> tuple[Frame, A, B]:
        """The plane that is asked for, and what ``first`` and ``second`` say of it, neither of which waits for the
        other. Raises what `Pictures.open`, `make_frame` and they raise, in this order."""
        asked = self._orientations.settled(path, asked)
        frame = self._guess(path, asked)
        attempts: list[Attempt] = []
        if frame is None:
            picture = self._pictures.open(path, asked.field)
        else:
            opened, *attempts = self._tried(frame.picture, cancel, self._opening(path, asked), first, second, of=frame)
            picture = opened.result()
        if frame is None or picture is not frame.picture:
            frame = make_frame(picture, asked)
            attempts = self._tried(picture, cancel, first, second, of=frame)
        return frame, attempts[0].result(), attempts[1].result()

    def _guess(self, path: str, asked: Asked) -> Frame | None:
        """The plane of the picture as it was last opened; None where there is none, or nothing to be won."""
        picture = self._pictures.last(path, asked.field)
        if picture is None or not picture.levels[0].array.mount.is_remote:
            return None
        try:
            return make_frame(picture, asked)
        except HyperslabError:  # the picture that is there now may have such a plane
            return None

    def _opening(self, path: str, asked: Asked) -> Callable[[Frame], Picture]:
        return lambda _: self._pictures.open(path, asked.field)

    def _tried(
        self, picture: Picture, cancel: Cancel | None, *works: Callable[[Frame], Any], of: Frame
    ) -> list[Attempt]:
        mount = picture.levels[0].array.mount
        found: list[Attempt] = self._reader.each(mount, attempt, [partial(work, of) for work in works], cancel)
        return found
