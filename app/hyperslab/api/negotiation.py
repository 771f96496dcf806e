"""Which form an answer takes: ``format=`` wins, then ``Accept``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from hyperslab.errors import BadParameter, NotAcceptable
from hyperslab.wire import CSV, JSON, NPY, OBJECTS, RAW

MEDIA_TYPES: Final[Mapping[str, str]] = MappingProxyType({"raw": RAW, "npy": NPY, "json": JSON, "csv": CSV})
"""Media type by the word that ``format=`` takes; the first one is what a client gets that does not care."""

_OF_OBJECTS: Final[Mapping[str, str]] = MappingProxyType({**MEDIA_TYPES, "raw": OBJECTS})


def media_types(dtype: np.dtype[Any]) -> Mapping[str, str]:
    """The media type of each form of values of this dtype: objects have a binary form of their own."""
    return _OF_OBJECTS if dtype.hasobject else MEDIA_TYPES


def choose_format(asked: str | None, accept: str | None, offered: Mapping[str, str] = MEDIA_TYPES) -> str:
    """The format for ``format=asked`` and an Accept header; ties go to the one offered first.

    Raises `BadParameter` for an unknown format and `NotAcceptable`.
    """
    if asked is not None:
        if asked not in offered:
            raise BadParameter("format", asked, f"one of {', '.join(offered)}")
        return asked
    if accept is None or accept.strip() in ("", "*/*"):
        return next(iter(offered))
    ranges = _parse_accept(accept)
    quality = {name: _quality(media_type, ranges) for name, media_type in offered.items()}
    best = max(quality, key=lambda name: quality[name])
    if quality[best] <= 0:
        raise NotAcceptable(accept, list(offered.values()))
    return best


def accepts(accept: str | None, media_type: str) -> bool:
    """Whether a client that sent this Accept header takes this media type."""
    return accept is None or not accept.strip() or _quality(media_type, _parse_accept(accept)) > 0


def _parse_accept(text: str) -> list[tuple[str, float]]:
    """Media ranges in lower case with their weights; parameters other than ``q`` are not looked at."""
    ranges = []
    for part in text.split(","):
        media_range, *parameters = (p.strip().lower() for p in part.split(";"))
        if media_range:
            ranges.append((media_range, _weight(parameters)))
    return ranges


def _weight(parameters: Sequence[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return min(1.0, max(0.0, float(value)))
            except ValueError:
                return 0.0
    return 1.0


def _quality(media_type: str, ranges: Sequence[tuple[str, float]]) -> float:
    """The weight of the most specific range that covers the type (RFC 9110 §12.5.1)."""
    kind = media_type.partition("/")[0]
    weights = dict(ranges)
    for covering in (media_type, f"{kind}/*", "*/*"):
        if covering in weights:
            return weights[covering]
    return 0.0
