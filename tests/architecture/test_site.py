"""The site of the documentation is built without a warning, and loads nothing from elsewhere."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hyperslab.client import RemoteArray, RemoteGroup, RemoteStream
from hyperslab.client.node import Attributes
from tests.architecture.sources import ROOT

PARTS = ("start", "tutorials", "recipes")
IN_SERVER = {"hyperslab", "numpy", "fastapi", "urllib3", "PIL", "tifffile"}
IMPORTED_AS = {"hdmf_zarr": "hdmf-zarr", "pynwb": "hdmf-zarr", "mdio": "multidimio", "IPython": "jupyterlab"}
IMPORTED_AS |= {"pandas": "anndata", "scipy": "anndata", "napari_ome_zarr": "napari-ome-zarr"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "-f", "deploy/mkdocs.yml", "--strict", "--quiet", "-d", str(folder)],
        cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_page_can_be_found_in_the_menu(site: Path) -> None:
    menu = set(re.findall(r'href="([^"#:]+\.html)', (site / "index.html").read_text(encoding="utf-8")))
    pages = {str(page.relative_to(site)) for page in site.rglob("*.html")} - {"404.html"}

    assert sorted(page for page in pages - menu if not page.startswith("adr/0")) == []


def test_the_site_can_be_searched(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    found = {entry["location"].partition("#")[0] for entry in index["docs"] if "Idempotency-Key" in entry["text"]}

    assert {"recipes/append.html", "reference/http.html"} <= found


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    tags = r'<(?:script|img|iframe)[^>]*\bsrc="(https?:[^"]+)|<link[^>]*rel="stylesheet"[^>]*href="(https?:[^"]+)'

    assert [page.name for page in site.rglob("*.html") if re.search(tags, page.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize("cls", [RemoteArray, RemoteGroup, RemoteStream, Attributes])
def test_every_public_member_of_the_client_is_described(site: Path, cls: type) -> None:
    text = (site / "reference" / "python.html").read_text(encoding="utf-8")
    ours = [base for base in cls.__mro__ if base.__module__.startswith("hyperslab.")]
    names = {name for base in ours for name in vars(base) if not name.startswith("_")} - {"from_parts"}

    assert len(names) > 3
    assert sorted(name for name in names if f'.{cls.__name__}.{name}"' not in text) == []


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "recipes").glob("[a-z]*.md")), ids=lambda page: page.stem)
def test_a_recipe_is_short_and_answers_one_question(page: Path) -> None:
    text = page.read_text(encoding="utf-8")

    assert re.match(r"# How do I .+\?\n", text)
    assert len(text.split()) <= 300


@pytest.mark.parametrize(
    "page", sorted(page for part in PARTS for page in (ROOT / "docs" / part).glob("*.md")), ids=lambda page: page.stem
)
def test_a_page_says_first_what_has_to_be_installed(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL))
    imported = {IMPORTED_AS.get(name, name) for name in re.findall(r"^(?:import|from) (\w+)", code, flags=re.MULTILINE)}
    first = "\n".join(text.splitlines()[:8])
    named = set(re.findall(r"[\w-]+", " ".join(re.findall(r"pip install ([^`\n]*)", first))))

    named |= {"xarray"} if "convert" in named else set()
    assert imported - sys.stdlib_module_names - IN_SERVER - named == set()
