"""The conformance vectors as plain dictionaries; README.md beside this file says what a case holds."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

Case = dict[str, Any]
Topic = Literal[
    "chunk_keys",
    "chunk_layout",
    "codecs",
    "created_docs",
    "dtypes",
    "fields_zarr",
    "fill_values",
    "guess_chunks",
    "hierarchy",
    "history",
    "metadata",
    "objects",
    "open_modes",
    "paths",
    "slices",
    "tensorstore",
]

FIRM: Final = frozenset({"must", "must-spec"})
"""The levels that are pass or fail."""

_DIRECTORY = Path(__file__).parent / "data"


def cases(topic: Topic) -> list[Case]:
    """All cases of a topic, in the order of the file. The cases are shared: do not change them."""
    return list(_load(topic))


def case_id(case: Case) -> str:
    """For ``pytest.mark.parametrize(..., ids=case_id)``."""
    return str(case["id"])


def is_firm(case: Case) -> bool:
    """Whether ``expect`` is pass or fail (`FIRM`); a case without a level is firm."""
    return case["expect"].get("level", "must") in FIRM


@cache
def _load(topic: Topic) -> tuple[Case, ...]:
    document = json.loads((_DIRECTORY / f"{topic}.json").read_text("utf-8"))
    found = tuple(document["cases"])
    if len(found) != document["count"]:
        raise ValueError(f"{topic}.json says that it has {document['count']} cases, but has {len(found)}")
    return found
