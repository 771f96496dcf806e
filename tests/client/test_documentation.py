"""What is public says what it is: shapes, units, and what it raises where it asks a server."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

from hyperslab.client import HTTPTransport, RemoteArray, RemoteGroup
from hyperslab.client.indexing import Indexer
from hyperslab.client.node import Attributes

PUBLIC = (RemoteArray, RemoteGroup, Attributes, Indexer, HTTPTransport)
USED_AS = {"__array__", "__contains__", "__getitem__", "__iter__", "__len__", "__setitem__"}
ASKS_NOTHING = {"asdict", "close", "from_parts"}


def members() -> Iterator[tuple[str, Any]]:
    for cls in PUBLIC:
        for name, member in inspect.getmembers(cls):
            ours = getattr(inspect.unwrap(getattr(member, "fget", member)), "__module__", "") or ""
            special = name in USED_AS and cls is not Attributes  # whose class says all of it
            if ours.startswith("hyperslab") and (special or not name.startswith("_")):
                yield f"{cls.__name__}.{name}", member


@pytest.mark.parametrize(("name", "member"), [pytest.param(*each, id=each[0]) for each in members()])
def test_every_public_member_says_what_it_is_and_raises(name: str, member: Any) -> None:
    words = member.__doc__ or ""

    assert words, name
    if inspect.isroutine(member) and name.split(".")[1] not in ASKS_NOTHING:
        assert "raise" in words.lower() or "`set_tagged`" in words or "as `" in words, name


@pytest.mark.parametrize("member", ["shape", "chunks", "nbytes", "size", "ndim", "append", "get"])
def test_sizes_have_a_unit(member: str) -> None:
    words = getattr(RemoteArray, member).__doc__

    assert any(unit in words for unit in ("items", "Items", "bytes", "Bytes", "axes", "shape"))
