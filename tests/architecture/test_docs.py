"""The documentation says what the code does, and its links lead somewhere."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from hyperslab.api.inprocess import answer
from hyperslab.api.options import ApiOptions
from hyperslab.api.problems import SERVER_ERROR, remedies
from hyperslab.arrays.nodes import MountedStore
from hyperslab.asgi import create_app
from hyperslab.errors import ERRORS
from hyperslab.settings import Settings, StoreSettings
from hyperslab.storage import StoreConfig
from hyperslab.wire import ARRAY_CHUNKS, ARRAY_DTYPE, ARRAY_SHAPE, CONTENT_DIGEST, IDEMPOTENCY_KEY, SERVER_TIMING
from tests.architecture.sources import PACKAGE, ROOT, modules
from tests.docs import NEVER_SENT, stale
from tests.examples import requirements_of

PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
HTTP = (ROOT / "docs" / "reference" / "http.md").read_text(encoding="utf-8")
METHODS = {"get", "put", "post", "patch", "delete"}
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
DISTRIBUTIONS = {
    **{"PIL": "pillow", "hdmf_zarr": "hdmf-zarr", "mdio": "multidimio", "napari_ome_zarr": "napari-ome-zarr"},
    "IPython": "ipython",
}
"""Distributions that have another name than their module."""
BROUGHT = {"anndata": "pandas scipy zarr", "hdmf-zarr": "pynwb zarr", "jupyterlab": "ipython", "spatialdata": "pandas"}
"""What distributions bring that are not ours."""
CLIENT_HAS_LEFT = 499
"""Never sent."""


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Method, path and description of every operation of the service."""
    body: list[bytes] = []
    answer(create_app(Settings()), "/openapi.json", lambda _: None, body.append)
    for path, item in json.loads(b"".join(body))["paths"].items():
        yield from ((method, path, item[method]) for method in METHODS & item.keys())


def test_pages_made_from_the_code_are_up_to_date() -> None:
    assert list(stale()) == [], "run: python -m tests.docs"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    links = [link for link in re.findall(r"\]\(([^)]+)\)", text) if not link.startswith(("http:", "https:"))]

    assert [link for link in links if not _leads_somewhere(page, link)] == []


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent != ROOT], ids=lambda page: page.name)
def test_every_page_can_be_reached_from_another(page: Path) -> None:
    linked = {
        (other.parent / link.partition("#")[0]).resolve()
        for other in PAGES
        if other != page
        for link in re.findall(r"\]\(([^)]+)\)", other.read_text(encoding="utf-8"))
    }

    assert page.resolve() in linked


def test_every_route_is_described() -> None:
    rows = [line for line in HTTP.splitlines() if line.startswith("| `")]

    assert [
        f"{method.upper()} {path}"
        for method, path, _ in operations()
        if not any(f"`{path}`" in row and method.upper() in row for row in rows)
    ] == []


def test_every_parameter_is_described() -> None:
    parameters = {
        (path, parameter["name"])
        for _, path, operation in operations()
        for parameter in operation.get("parameters", [])
        if parameter["in"] == "query"
    }

    assert [f"{path}: {name}" for path, name in sorted(parameters) if not re.search(rf"`{name}[`=]", HTTP)] == []


def test_every_header_of_ours_is_described() -> None:
    ours = [ARRAY_SHAPE, ARRAY_DTYPE, ARRAY_CHUNKS, SERVER_TIMING, IDEMPOTENCY_KEY, CONTENT_DIGEST]

    assert [name for name in ours if name not in HTTP] == []


def test_every_status_is_described() -> None:
    statuses = {error.http_status for error in ERRORS.values()} - {CLIENT_HAS_LEFT}

    assert [status for status in sorted(statuses) if f"`{status}`" not in HTTP] == []


def test_every_problem_has_a_way_out() -> None:
    sent = {error.code for error in ERRORS.values() if error not in NEVER_SENT}

    assert remedies().keys() == sent | {SERVER_ERROR}


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.parent.name in ("start", "tutorials", "recipes")],
    ids=lambda page: str(page.relative_to(ROOT / "docs")),
)
def test_a_page_says_how_to_install_what_its_examples_import(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"^```(?:python|sh)\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    installed = {"numpy"}  # which is all that the client needs
    todo = requirements_of(page)
    while todo:
        named = re.fullmatch(r"(?P<name>[\w.-]+)(?:\[(?P<extras>[\w,-]+)\])?.*", todo.pop())
        assert named is not None
        installed |= {named["name"].lower(), *BROUGHT.get(named["name"], "").split()}
        if named["name"] == "hyperslab":
            todo += [each for extra in (named["extras"] or "").split(",") if extra for each in EXTRAS[extra]]

    imports = re.findall(r"(?:^|['\";]) *(?:from ([\w.]+) import|import ([\w., ]+))", code, re.MULTILINE)
    modules = {part.split()[0].partition(".")[0] for one, several in imports for part in (one or several).split(",")}
    needed = {DISTRIBUTIONS.get(module, module).lower() for module in modules - sys.stdlib_module_names - {"hyperslab"}}
    assert needed - installed == set()


def test_files_that_are_named_exist() -> None:
    pages = [
        ROOT / "docs" / "CONTRIBUTING.md",
        *(ROOT / "docs" / "internals").glob("*.md"),
        *(ROOT / "docs" / "adr").glob("*"),
    ]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    named = re.findall(r"`((?:api|arrays|cache|client|engine|storage|tiles|wire)/[a-z_/]+\.py)`", text)

    assert len(named) > 5
    assert [name for name in named if not (PACKAGE / name).is_file()] == []


def test_no_page_tells_of_where_it_was_written() -> None:
    """Nothing of one machine, and no document that a reader does not have."""
    foreign = re.compile(r"/(?:work|root|tmp|home)/|DESIGN|FIELD\.md")
    pages = {page: page.read_text(encoding="utf-8") for page in PAGES if page.parent.name != "adr"}

    assert [str(page.relative_to(ROOT)) for page, text in pages.items() if foreign.search(text)] == []


def test_no_comment_cites_a_document_that_the_repository_does_not_have() -> None:
    cited = re.compile(r"\b(?:DESIGN|VIEWERS|FIELD|EXAMPLES)(?:\.md|,? §| \d)")
    sources = [*(module.path for module in modules()), *(PACKAGE / "viewer" / "static").glob("*.js")]

    assert [str(path.relative_to(ROOT)) for path in sources if cited.search(path.read_text(encoding="utf-8"))] == []


def test_every_setting_is_put_to_use() -> None:
    roots = [PACKAGE / name for name in ("asgi.py", "cli.py", "server.py", "welcome.py")]
    code = "\n".join(path.read_text(encoding="utf-8") for path in roots)
    taken = {field.name for cls in (ApiOptions, MountedStore, StoreConfig) for field in fields(cls)}  # by `asgi`
    settings = {*Settings.model_fields, *StoreSettings.model_fields} - taken

    assert [name for name in settings if f".{name}" not in code and f"{name}=" not in code] == []


def _leads_somewhere(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.exists() or not anchor:
        return target.exists()
    headings = re.findall(r"^#+ (.+)$", target.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return anchor in {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
