"""What the tutorial and the guides show works, and prints what they say."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.examples import Runner, examples, is_as_shown
from tests.s3 import S3Server, s3_server
from tests.tools import ROOT

__all__ = ["s3_server"]

DOCS: Final = ROOT / "docs"
BROWSED: Final = ("web-viewers.md",)
"""Run by tests/viewer/test_recipes.py, in a browser."""
PAGES: Final = sorted(
    str(page.relative_to(DOCS))
    for part in ("tutorials", "recipes", "operate")
    for page in (DOCS / part).glob("*.md")
    if page.name not in BROWSED and list(examples(page))
)

pytestmark = pytest.mark.skipif(
    None in (shutil.which("curl"), shutil.which("openssl")), reason="curl or openssl is not installed"
)


@pytest.fixture
def replaced(s3_server: S3Server) -> Mapping[str, str]:
    """The S3 server of the pages and its bucket, as they are here."""
    if "lab" not in [bucket["Name"] for bucket in s3_server.client.list_buckets()["Buckets"]]:
        s3_server.client.create_bucket(Bucket="lab")
    return {"http://127.0.0.1:9000": s3_server.url}


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replaced: Mapping[str, str]) -> Iterator[Runner]:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("HYPERSLAB_")]:
        monkeypatch.delenv(name)
    with Runner(tmp_path, replaced) as started:
        yield started


@pytest.mark.parametrize("page", PAGES)
def test_the_examples_of_a_page_do_what_it_says(runner: Runner, page: str) -> None:
    for example in examples(DOCS / page):
        printed = runner.run(example)
        shown = example.printed
        assert shown is None or is_as_shown(shown, printed), f"line {example.line}:\n{printed}\ninstead of\n{shown}"
