"""A digest that is the same for the same values, and an append that is not taken for another one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from hyperslab.arrays.append import digest_of
from hyperslab.arrays.chunks import NDArray
from hyperslab.arrays.service import Service
from hyperslab.errors import BadParameter
from tests.arrays.support import read_all, service_on

A = "data/a"
CUBE = np.arange(24).reshape(2, 3, 4)
ROWS = np.arange(8, dtype="<i4").reshape(2, 4)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """``ROWS`` were appended with the key ``k``, and then one row with another."""
    with service_on(tmp_path) as found:
        found.creator.create_array(A, {"shape": [3, 4], "chunks": [2, 2], "dtype": "<i4"})
        found.appender.append(A, ROWS, idempotency_key="k")
        found.appender.append(A, ROWS[:1], idempotency_key="l")
        yield found


def test_what_values_are_counts_and_not_how_they_lie_in_memory() -> None:
    """To the last one, also of more than a piece."""
    for same in (CUBE.copy(order="F"), CUBE.repeat(2, 2)[..., ::2]):
        assert digest_of(same) == digest_of(CUBE)
    for other in (CUBE[::-1], CUBE.reshape(3, 2, 4), CUBE + (CUBE == 23)):
        assert digest_of(other) != digest_of(CUBE)
    large = np.zeros((3, 1 << 20), "<i2")
    last = large.copy()
    last[-1, -1] = 1
    assert digest_of(large.copy(order="F")) == digest_of(large) != digest_of(last)
    for dtype in ("?", "<M8[s]", ">f4", "<U3", "S4", "V5", "<c16", ml_dtypes.bfloat16, ml_dtypes.int4):
        assert digest_of(np.zeros((2, 2), dtype)) == digest_of(np.zeros((2, 2), dtype)) is not None


def test_what_lies_between_the_fields_of_records_does_not_count() -> None:
    spaced: Any = {"names": ["x", "y"], "formats": ["u1", ("<i4", (2,))], "offsets": [0, 4], "itemsize": 12}
    first, second = np.zeros(3, spaced), np.zeros(3, spaced)
    second.view(np.uint8)[1] = 7
    third = second.copy()
    third["y"][2, 1] = 1

    assert digest_of(first) == digest_of(second) != digest_of(third)


def test_objects_have_one_but_for_those_that_have_no_bytes() -> None:
    def objects(*items: object) -> NDArray:
        values = np.empty(len(items), object)
        values[:] = items
        return values

    nested: list[Any] = []
    for _ in range(200):
        nested = [nested]
    deep = np.empty(1, object)
    deep[0] = nested

    assert digest_of(objects("a", None, b"c")) == digest_of(objects("a", None, b"c"))
    assert digest_of(objects("a", "bc")) != digest_of(objects("ab", "c"))
    assert digest_of(deep) is None


Request = Callable[[Service], object]


@pytest.mark.parametrize(
    ("request_", "differs"),
    [
        (lambda s: s.appender.append(A, ROWS + 1, idempotency_key="k"), "values"),
        (lambda s: s.appender.append(A, ROWS, at=6, idempotency_key="k"), "at"),
        (lambda s: s.appender.append(A, ROWS[:1], idempotency_key="k"), "length and values"),
        (lambda s: s.appender.append(A, np.ones((6, 2), "<i4"), axis=1, idempotency_key="k"), "axis and values"),
    ],
)
def test_another_request_with_the_key_is_refused(service: Service, request_: Request, differs: str) -> None:
    with pytest.raises(BadParameter) as caught:
        request_(service)

    assert caught.value.expected.endswith(f"the append of 2 at 3 along axis 0 had this one, with other {differs}")
    assert read_all(service).shape == (6, 4)


def test_an_append_that_was_remembered_without_a_digest_is_told_by_its_length(tmp_path: Path, service: Service) -> None:
    """As the documents have it that were written before there were digests."""
    document = json.loads((tmp_path / "a" / ".zarray").read_text())
    for entry in document["hyperslab"]["appends"]:
        del entry["digest"]
    (tmp_path / "a" / ".zarray").write_text(json.dumps(document))

    assert service.appender.append(A, ROWS + 1, idempotency_key="k").repeated
    with pytest.raises(BadParameter):
        service.appender.append(A, ROWS[:1], idempotency_key="k")
