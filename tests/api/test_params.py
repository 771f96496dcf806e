"""Paths and query parameters: decoded once, refused with a reason."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperslab.api.request import Query, decode_path, raw_path
from hyperslab.errors import BadParameter, BadPath

NAMES = st.text(
    st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="/\\"), min_size=1, max_size=20
).filter(lambda name: name not in (".", "..") and not name.startswith(".hyperslab"))


@given(st.lists(NAMES, min_size=1, max_size=4))
def test_a_quoted_path_is_decoded_to_what_was_quoted(names: list[str]) -> None:
    path = "/".join(names)

    assert decode_path(quote(path).encode()) == path


@pytest.mark.parametrize(
    "raw",
    [
        b"/a%2Fb",
        b"/a%2fb",
        b"/../x",
        b"/a/%2e%2e/b",
        b"/./a",
        b"/a%00b",
        b"/a%0ab",
        b"/%ff",
        b"/..%5c..",
        b"/" + b"a" * 2000,
    ],
)
def test_a_path_that_no_store_can_hold_is_refused(raw: bytes) -> None:
    with pytest.raises(BadPath):
        decode_path(raw)


def test_the_raw_path_is_without_the_prefix_of_a_proxy() -> None:
    assert raw_path({"raw_path": b"/api/zarr/x%20y", "path": "/api/zarr/x y", "root_path": "/api"}) == b"/zarr/x%20y"
    assert raw_path({"raw_path": b"/zarr/x", "path": "/zarr/x", "root_path": "/api"}) == b"/zarr/x"
    assert raw_path({"path": "/zarr/x y"}) == b"/zarr/x%20y"


@pytest.mark.parametrize("query", [b"a=1&a=2", b"a=%ff", b"&".join(b"p%d=1" % i for i in range(200))])
def test_a_query_that_says_two_things_or_nothing_readable_is_refused(query: bytes) -> None:
    with pytest.raises(BadParameter):
        Query.parse(query)


@pytest.mark.parametrize("text", ["", "x", "1.5", "-1", "11", "٣", "1e3", "9" * 5000, "+3", " 3"])
def test_an_integer_outside_its_bounds_or_of_other_spelling_is_refused(text: str) -> None:
    with pytest.raises(BadParameter):
        Query({"limit": text}).integer("limit", 5, low=0, high=10)


def test_flags_and_choices_take_only_their_words() -> None:
    assert Query({"f": "TRUE"}).flag("f")
    assert not Query({"f": "0"}).flag("f", default=True)
    assert Query({"c": "a"}).choice("c", ("a", "b")) == "a"
    assert Query({}).choice("c", ("a", "b")) is None
    with pytest.raises(BadParameter):
        Query({"f": "perhaps"}).flag("f")
    with pytest.raises(BadParameter):
        Query({"c": "x"}).choice("c", ("a", "b"))
