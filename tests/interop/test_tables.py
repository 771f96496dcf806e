"""The tables that are shown say nothing that is not so."""

from __future__ import annotations

from typing import Any

import pytest

from hyperslab.engine.codec_config import CODECS
from hyperslab.engine.dtypes import parse_dtype
from hyperslab.engine.fill_value import OBJECT_CODECS
from hyperslab.wire.data_types import EXTENSION_FLOATS, V3_ONLY
from tests.conformance.service import Conformance
from tests.interop.tables import COMPRESSORS, DTYPES, FILLS, FILTERS, CodecRow


@pytest.mark.parametrize(("dtype", "value", "stored"), [example for row in FILLS for example in row.examples], ids=str)
def test_fill_values_are_what_they_are_said_to_be(service: Conformance, dtype: Any, value: Any, stored: str) -> None:
    node = service.array(dtype=dtype, fill_value=value, shape=[2], chunks=[1])

    assert node.values().tobytes().hex() == stored * 2
    assert node.remote()[...].tobytes().hex() == stored * 2


def test_every_codec_that_can_be_used_is_shown() -> None:
    shown = {row.id for row in (*COMPRESSORS, *FILTERS)} | OBJECT_CODECS

    assert shown - {"null"} == set(CODECS)


def test_every_kind_of_dtype_is_shown() -> None:
    examples = [example for row in DTYPES for example in row.examples]
    kinds = {parse_dtype(example).numpy.kind for example in examples}

    assert kinds >= set("biufcmMSUVO")
    assert {example for example in examples if isinstance(example, str)} >= (EXTENSION_FLOATS - V3_ONLY) | {
        "int2",
        "int4",
    }


@pytest.mark.parametrize("row", [row for row in (*COMPRESSORS, *FILTERS) if row.id in CODECS], ids=lambda row: row.id)
def test_every_parameter_of_a_codec_is_shown(row: CodecRow) -> None:
    assert [name for name in CODECS[row.id] if f"`{name}`" not in row.parameters] == []
