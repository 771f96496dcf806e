"""What the documentation shows works, one page after the other in one folder, and prints what it says."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.examples import Interpreters, Runner, examples, is_as_shown
from tests.s3 import S3Server
from tests.tools import ROOT

DOCS: Final = ROOT / "docs"
PAGES: Final = sorted(
    str(page.relative_to(DOCS))
    for part in ("start", "tutorials", "recipes", "operate")
    for page in (DOCS / part).glob("*.md")
    if list(examples(page))
)

pytestmark = pytest.mark.skipif(
    None in (shutil.which("curl"), shutil.which("openssl")), reason="curl or openssl is not installed"
)


@pytest.fixture(scope="module")
def python() -> Iterator[Interpreters]:
    with Interpreters() as started:
        yield started


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reader")


@pytest.fixture
def runner(
    folder: Path, page: str, monkeypatch: pytest.MonkeyPatch, demo_url: str, python: Interpreters, s3_server: S3Server
) -> Iterator[Runner]:
    monkeypatch.chdir(folder)
    s3_server.client.create_bucket(Bucket="lab")
    for name in [name for name in os.environ if name.startswith("HYPERSLAB_")]:
        monkeypatch.delenv(name)
    with Runner(folder, page, demo_url, python, s3_server.url) as started:
        yield started


@pytest.mark.parametrize("page", PAGES)
def test_the_examples_of_a_page_do_what_it_says(runner: Runner, page: str) -> None:
    for example in examples(DOCS / page):
        printed = runner.run(example)
        shown = example.printed
        assert shown is None or is_as_shown(shown, printed), f"line {example.line}:\n{printed}\ninstead of\n{shown}"
