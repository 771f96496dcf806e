"""Chunk shapes: TensorStore's bisection and layout constraints, zarr-python's guess."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hyperslab.engine.chunk_shape import ChunkLayout, choose_chunks, parse_chunk_layout, parse_chunk_shape
from tests.engine.oracles import tensorstore_created


def _chosen(shape: list[int], layout: dict[str, Any]) -> tuple[list[int], str]:
    parsed = parse_chunk_layout(layout, len(shape), ChunkLayout())
    chunks = choose_chunks(
        shape, chunk_shape=parsed.chunk_shape, aspect_ratio=parsed.aspect_ratio, elements=parsed.elements
    )
    return list(chunks), parsed.order or "C"


_SIZES = st.integers(0, 300) | st.sampled_from([1000, 4096, 10**6])
_RATIOS = st.sampled_from([0, 1, 2, 0.5, 1.5, 3, 10, 0.1])


def _optional(entries: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=entries)


@st.composite
def _requests(draw: st.DrawFn) -> tuple[list[int], dict[str, Any]]:
    shape = draw(st.lists(_SIZES, min_size=1, max_size=4))
    rank = len(shape)
    sizes = st.lists(st.sampled_from([0, 0, -1, 1, 7, 100]), min_size=rank, max_size=rank)
    ratios = st.lists(_RATIOS, min_size=rank, max_size=rank)
    hard = {"shape": sizes, "aspect_ratio": ratios, "elements": st.integers(0, 10**7)}
    soft = {f"{name}_soft_constraint": strategy for name, strategy in hard.items()}
    order = st.permutations(range(rank)).map(list)
    chunk = _optional({**hard, **soft})
    beside = _optional({**soft, "shape": sizes})
    layout = {"chunk": chunk, "read_chunk": beside, "write_chunk": beside, "inner_order_soft_constraint": order}
    return shape, draw(_optional(layout))


@given(_requests())
@example(([1], {"chunk": {"shape": [-1]}, "write_chunk": {"shape": [36]}}))
@example(([1000, 50000], {"chunk": {"shape": [-1, -1]}, "read_chunk": {"shape_soft_constraint": [35, -1]}}))
@example(([1000, 50000], {"chunk": {"shape_soft_constraint": [35, -1]}, "read_chunk": {"shape": [-1, -1]}}))
@example(([100], {"chunk": {"shape": [-1], "shape_soft_constraint": [5]}}))
@example(([100], {"chunk": {"shape_soft_constraint": [-1]}, "write_chunk": {"shape": [5]}}))
def test_layouts_give_what_tensorstore_chooses(request_: tuple[list[int], dict[str, Any]]) -> None:
    shape, layout = request_
    try:
        theirs = tensorstore_created({"dtype": "uint8", "schema": {"domain": {"shape": shape}, "chunk_layout": layout}})
    except ValueError:
        with pytest.raises(ValueError, match="cannot be both"):
            _chosen(shape, layout)
        return

    chunks, order = _chosen(shape, layout)

    assert chunks == theirs["chunks"]
    assert order == theirs["order"] or len(shape) < 2


@given(
    st.lists(st.integers(0, 2**62), max_size=5),
    st.integers(0, 2**62) | st.none(),
    st.sampled_from([1e-9, 1e-3, 1.0, 1e9]),
)
def test_search_ends_and_stays_within_target_and_array(shape: list[int], elements: int | None, ratio: float) -> None:
    chunks = choose_chunks(shape, elements=elements, aspect_ratio=[ratio, *[1.0] * (len(shape) - 1)] if shape else ())

    assert all(1 <= chunk <= max(1, size) for chunk, size in zip(chunks, shape, strict=True))
    assert math.prod(chunks) <= max(1, 1 << 20 if elements is None else elements)


_IMPOSSIBLE: list[Any] = [
    {"chunk": {"shape": [10, 0, 0]}, "read_chunk": {"shape": [11, 0, 0]}},
    {"chunk": {"elements": 10}, "write_chunk": {"elements": 20}},
    {"chunk": {"aspect_ratio": [1, 0, 0]}, "write_chunk": {"aspect_ratio": [2, 0, 0]}},
    {"codec_chunk": {"shape": [10, 10, 10]}},
    *({"chunk": {"shape": [10, 20, *rest]}} for rest in ([], [-2], [1.5], [math.inf], [True])),
    {"chunk": {"shape": 10}},
    *({"chunk": {"elements": elements}} for elements in (-1, 1.5, 2**62)),
    *({"chunk": {"aspect_ratio": ratios}} for ratios in ([-1, 1, 1], [1, 1], [math.nan, 1, 1], [1e-320, 1, 1])),
    *({"chunk": {"nope": 1}}, {"chunk": None}, {"nope": 1}, {"rank": 2}, []),
    *({"inner_order": order} for order in ([1, 0, 2], [0, 0, 1], [0, 1])),
    *({"grid_origin": origin} for origin in ([0, 0, 1], [0, 0], [[0], 0, 0])),
]


@pytest.mark.parametrize("layout", _IMPOSSIBLE, ids=str)
def test_layout_that_cannot_be_is_refused_with_a_reason(layout: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_chunk_layout(layout, 3, ChunkLayout())


def test_harmless_members_of_a_layout_are_accepted() -> None:
    layout = {
        "rank": 3,
        "grid_origin": [None, 0, 0],
        "grid_origin_soft_constraint": [1, 2, 3],
        "codec_chunk": {"elements": 9},
    }

    assert parse_chunk_layout(layout, 3, ChunkLayout()).elements is None
    assert parse_chunk_layout({"inner_order": [2, 1, 0]}, 3, ChunkLayout()).order == "F"
    assert parse_chunk_layout({"inner_order": [0]}, 1, ChunkLayout(order="F")).order == "F"


def test_null_is_the_whole_axis_as_in_zarr_python() -> None:
    assert parse_chunk_shape([10, None, -1], 3) == (10, -1, -1)
    assert parse_chunk_shape(None, 3) == ()
