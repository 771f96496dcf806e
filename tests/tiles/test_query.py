"""The query of a tile: what is understood, and what is refused with the name and what was expected."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from hyperslab.tiles.query import Colormap, TileQuery
from tests.tiles.support import parse_query


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("000,f00", ((0, 0, 0, 255), (255, 0, 0, 255))),
        ('["#000000", "ff000080"]', ((0, 0, 0, 255), (255, 0, 0, 128))),
        ("[[0, 0, 0], [1, 2, 3, 4]]", ((0, 0, 0, 255), (1, 2, 3, 4))),
        ('{"1": "f00", "2.5": [0, 0, 255]}', {1: (255, 0, 0, 255), 2.5: (0, 0, 255, 255)}),
    ],
)
def test_colour_maps_are_read(text: str, expected: Colormap) -> None:
    assert parse_query([("colormap", text)]).colormap == expected


REFUSED: dict[str, list[str]] = {
    "rescale": ["1", "3,1", "1,1", "1,nan", "1,inf", "1,2,3", "best"],
    "color": ["green", "12345"],
    "colormap": ["f00", "[1, 2]", "[[0, 0, 300], [0, 0, 0]]", '{"a": "f00"}', "[" * 5000],
    "axes": ["x", "x,x", "z,y,x"],
    "c": ["a", "9" * 30],
    "z": ["1.5", ""],
    "gamma": ["0", "-1"],
    "aspect": ["0", "nan", "1001"],
    "tile_size": ["16", "100000"],
    **{"anything": ["else"], "colormap_name": [""], "opacity": ["2"], "component": ["magnitude"], "labels": ["maybe"]},
    **{"quality": ["0"], "size": ["x"], "bins": ["1"], "nodata": ["nothing"], "empty": ["403"], "bg": ["blue"]},
}


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in REFUSED.items() for text in texts])
def test_what_makes_no_sense_is_refused_with_its_name(name: str, text: str) -> None:
    with pytest.raises(ValidationError) as raised:
        parse_query([(name, text)])

    (error,) = raised.value.errors()
    assert error["loc"] == (name,)
    assert str(error["ctx"]["error"])


@given(st.lists(st.tuples(st.sampled_from([*sorted(TileQuery.model_fields), "z"]), st.text(max_size=12)), max_size=4))
def test_no_text_breaks_the_parser(pairs: list[tuple[str, str]]) -> None:
    with suppress(ValidationError):
        parse_query(pairs)
