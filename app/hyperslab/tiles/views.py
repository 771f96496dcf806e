"""A frame and its style, kept for the many tiles of one look at a picture."""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock
from typing import Final

from hyperslab.arrays.cost import Cancel
from hyperslab.storage.locks import KeyedLocks
from hyperslab.tiles.asked import Asked
from hyperslab.tiles.frame import Frame
from hyperslab.tiles.opening import Pictures
from hyperslab.tiles.style import Style, Stylist

_MOST_KEPT: Final = 1024
_SECONDS: Final = 0.5
"""For so long a window that was taken from the data is good without another look."""


@dataclass(frozen=True, slots=True)
class View:
    """What a query makes of a picture. ``until`` is a time of the monotonic clock."""

    frame: Frame
    style: Style
    identity: str
    until: float


class Views:
    """Views by path and query. Safe to call from many threads."""

    def __init__(self, pictures: Pictures, stylist: Stylist) -> None:
        self._pictures = pictures
        self._stylist = stylist
        self._kept: OrderedDict[tuple[str, Asked], View] = OrderedDict()
        self._lock = Lock()
        self._making = KeyedLocks()

    def of(self, path: str, frame: Frame, asked: Asked, cancel: Cancel | None = None) -> View:
        """The view of a plane that was just opened, made once however many ask for it; raises what `Stylist.style`
        raises. May read, until ``cancel`` is set."""
        kept = self._get(path, asked)
        if kept is not None and kept.frame.picture is frame.picture:
            return kept
        with self._making.hold(f"{path}?{hash(asked)}"):
            kept = self._get(path, asked)
            if kept is not None and kept.frame.picture is frame.picture:
                return kept
            return self._make(path, asked, frame, cancel)

    def _make(self, path: str, asked: Asked, frame: Frame, cancel: Cancel | None) -> View:
        style = self._stylist.style(frame, asked, cancel)
        view = View(frame, style, f"{frame.identity}|{style.identity}", time.monotonic() + _SECONDS)
        self._keep(path, asked, view)
        return view

    def known(self, path: str, asked: Asked) -> View | None:
        """The view where it is kept and its picture has not changed, told without blocking; else None."""
        kept = self._get(path, asked)
        if kept is None or self._pictures.known(path, asked.field) is not kept.frame.picture:
            return None
        return kept

    def _get(self, path: str, asked: Asked) -> View | None:
        with self._lock:
            kept = self._kept.get((path, asked))
        return kept if kept is not None and time.monotonic() < kept.until else None

    def _keep(self, path: str, asked: Asked, view: View) -> None:
        with self._lock:
            self._kept[path, asked] = view
            self._kept.move_to_end((path, asked))
            while len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
