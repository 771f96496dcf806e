"""Budgets: how large the house may be. Over one of them: delete something, or change the figure here with a reason.

The figures are what is measured, and are lowered whenever something goes.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT, importers, modules

PACKAGES: dict[str, tuple[int, int]] = {
    "": (2669, 10),  # 700 of it are the commands and rules of access
    "api": (8165, 49),  # 1,300 describe routes; 800 are tokens, links, audit and identity
    "arrays": (8822, 31),  # 500 of it read shards, 210 show what may be seen, 290 are tables and labels
    "cache": (169, 1),
    "client": (4926, 20),  # 200 of it are the transport, which was a library; 500 are views, labels, xarray and napari
    "conversion": (2936, 8),
    "demo": (599, 8),
    "engine": (7886, 29),  # 1,200 of it are Zarr v3: sharding and v3*; 200 are times as xarray reads them
    "storage": (4193, 16),  # 300 of it name what cannot be served, and 111 list keys that obstore cannot represent
    "streams": (3649, 15),
    "tiles": (5079, 20),  # 500 of it place levels by their transformations; 210 are TIFF files, 80 draw samples
    "viewer": (71, 1),
    "wire": (1628, 11),  # 380 of it are data types and times, which the client and the service read alike
}
"""Lines and files of each part of the package; its top-level modules are ``""``."""

PRIVATE_CONSTANTS = 231
TEST_LINES = 58_062
DOCUMENT_WORDS = 56_740
"""With examples and tables; a word has a letter or a digit, so that the bars of tables are none."""
USER_WORDS = 28_236
"""Of all pages but those for developers, without examples."""
DECISIONS = 21


def lines_of(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def part_of(path: Path) -> str:
    inner = path.relative_to(ROOT / "app" / "hyperslab").parts
    return inner[0] if len(inner) > 1 else ""


@pytest.mark.parametrize("part", PACKAGES)
def test_a_package_is_no_larger_than_its_budget(part: str) -> None:
    paths = [module.path for module in modules() if part_of(module.path) == part]
    lines, files = PACKAGES[part]

    assert sum(map(lines_of, paths)) <= lines
    assert len(paths) <= files


def test_every_package_has_a_budget() -> None:
    assert {part_of(module.path) for module in modules()} == PACKAGES.keys()


def test_modules_do_not_import_each_other_in_circles() -> None:
    """Types included; the package itself names what it imports when it is asked for."""
    TopologicalSorter({name: found - {""} for name, found in importers().items() if name}).prepare()


def test_private_constants_are_few() -> None:
    private = Counter(
        target.id
        for module in modules()
        for node in module.tree.body
        for target in (node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)])
        if isinstance(target, ast.Name) and re.fullmatch(r"_[A-Z][A-Z0-9_]*", target.id)
    )

    assert private.total() <= PRIVATE_CONSTANTS


def test_tests_are_no_longer_than_their_budget() -> None:
    assert sum(map(lines_of, (ROOT / "tests").rglob("*.py"))) <= TEST_LINES


def test_documents_are_no_longer_than_their_budgets() -> None:
    docs = ROOT / "docs"
    texts = {page: page.read_text(encoding="utf-8") for page in docs.rglob("*.md")}
    folders = {docs / name for name in ("tutorials", "recipes", "operate", "reference", "concepts")}
    ours = [text for page, text in texts.items() if page.parent in folders or page.name == "index.md"]

    assert sum(map(words, texts.values())) <= DOCUMENT_WORDS
    assert sum(words(re.sub("```.*?```", "", text, flags=re.DOTALL)) for text in ours) <= USER_WORDS
    assert len(list((docs / "adr").glob("0*.md"))) - 1 <= DECISIONS  # one is the template


def words(text: str) -> int:
    return sum(any(map(str.isalnum, word)) for word in text.split())
