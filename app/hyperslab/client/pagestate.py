"""What a URL of the viewer page shows, as a selection."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from hyperslab.client.address import Address
from hyperslab.client.session import Request, Session
from hyperslab.errors import BadParameter, NotRepresentable

_PAGE: Final = re.compile(r"/view(/|$)")
_OF_THE_PAGE: Final = frozenset(("view", "off", "overlay", "smooth", "box", "range", "row", "column", "c"))
"""Parameters whose names are taken: an axis that is called like one of them stands in ``sel=name:position``."""


def page_selection(session: Session, url: str) -> tuple[Address, str | None]:
    """The array behind a URL of the page, and numpy text for what it shows: the whole plane at its positions, or the
    range of a plot.

    A picture of several resolutions stands for its largest array. For any other kind of URL, one without a state of the
    page in it, and what has no plane, it is the node itself and None. Raises what the server raises.
    """
    address, state = Address.parse(url), parse_qs(urlsplit(url).query)
    if not _PAGE.search(urlsplit(url).path) or not state.keys() - {"field", "select"}:
        return address, None
    if ends := re.fullmatch(r"([0-9]+),([0-9]+)", state.get("range", [""])[-1]):
        return address, f"{ends[1]}:{int(ends[2]) + 1}"
    query = {name: state[name][-1] for name in ("axes", "field") if name in state}
    try:
        info, _ = session.read_json(
            Request("GET", Address(address.base, f"{address.path}/info.json").url("tile", **query))
        )
    except NotRepresentable:
        return address, None
    if info["images"]:
        raise BadParameter(name="url", value=url, expected="one picture: this is a mosaic of several")
    image = Address(address.base, info["levels"][0]["path"])
    return image, ",".join(_of_axis(axis["name"], info, state) for axis in info["axes"])


def _of_axis(name: str, info: Mapping[str, Any], state: Mapping[str, list[str]]) -> str:
    if name == info["channel_axis"]:
        channels = state.get("c", [])
        return ":" if not channels else channels[0] if len(channels) == 1 else f"[{','.join(channels)}]"
    if name in info["plane"]:
        return ":"
    escaped = [text.rpartition(":")[2] for text in state.get("sel", ()) if text.rpartition(":")[0] == name]
    own = [] if name in _OF_THE_PAGE else state.get(name, [])
    return [str(info["selection"].get(name, 0)), *own, *escaped][-1]
