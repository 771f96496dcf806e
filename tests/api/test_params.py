"""Paths: decoded once. What is refused of them, and of query parameters, is in `tests.api.test_bad_input`."""

from __future__ import annotations

from urllib.parse import quote

from hypothesis import given
from hypothesis import strategies as st

from hyperslab.api.request import decode_path, raw_path

NAMES = st.text(
    st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="/\\"), min_size=1, max_size=20
).filter(lambda name: name not in (".", "..") and not name.startswith(".hyperslab"))


@given(st.lists(NAMES, min_size=1, max_size=4))
def test_a_quoted_path_is_decoded_to_what_was_quoted(names: list[str]) -> None:
    path = "/".join(names)

    assert decode_path(quote(path).encode()) == path


def test_the_raw_path_is_without_the_prefix_of_a_proxy() -> None:
    assert raw_path({"raw_path": b"/api/zarr/x%20y", "path": "/api/zarr/x y", "root_path": "/api"}) == b"/zarr/x%20y"
    assert raw_path({"raw_path": b"/zarr/x", "path": "/zarr/x", "root_path": "/api"}) == b"/zarr/x"
    assert raw_path({"path": "/zarr/x y"}) == b"/zarr/x%20y"
