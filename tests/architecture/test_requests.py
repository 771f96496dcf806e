"""The page that follows requests through the code names the files that they enter, and these are few."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import pytest

from tests.architecture.sources import ROOT
from tests.architecture.trace import measure

BUDGETS: Final = {"slice": (33, 157, 23), "again": (12, 26, 12), "write": (43, 218, 23), "tile": (46, 284, 29)}
"""Files, functions and depth of each request, from the application inwards. Over one: remove a layer, or say why. Half
of the slice's depth is the read, which runs on the event loop below the middleware, instead of in a thread."""


@pytest.fixture(scope="module")
def measured() -> Mapping[str, Any]:
    return measure()


@pytest.mark.parametrize("name", BUDGETS)
def test_the_page_names_the_files_that_a_request_enters_in_order(measured: Mapping[str, Any], name: str) -> None:
    page = (ROOT / "docs" / "internals" / "requests.md").read_text(encoding="utf-8")
    section = page.partition(f"<!-- made: {name} -->")[2].partition("<!-- end -->")[0]
    named = re.findall(r"^\| `([\w/]+\.py)`|(?:^|→ )`([\w/]+\.py)`", section, flags=re.MULTILINE)

    assert [row or arrow for row, arrow in named] == measured[name]["files"], "run: python -m tests.docs"


@pytest.mark.parametrize("name", BUDGETS)
def test_a_request_enters_no_more_than_its_budget(measured: Mapping[str, Any], name: str) -> None:
    found = (len(measured[name]["files"]), measured[name]["functions"], measured[name]["depth"])

    assert all(count <= most for count, most in zip(found, BUDGETS[name], strict=True)), found
