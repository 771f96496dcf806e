"""The documentation says what the code does, and its links lead somewhere."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hyperslab.api.once import answer
from hyperslab.asgi import create_app
from hyperslab.settings import Settings, StoreSettings
from tests.architecture.sources import PACKAGE, ROOT
from tests.docs import stale

PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
HTTP = (ROOT / "docs" / "reference" / "http.md").read_text(encoding="utf-8")
METHODS = {"get", "put", "post", "patch", "delete"}


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


def test_every_setting_is_put_to_use() -> None:
    roots = [PACKAGE / name for name in ("asgi.py", "cli.py", "server.py", "welcome.py")]
    code = "\n".join(path.read_text(encoding="utf-8") for path in roots)
    settings = [*Settings.model_fields, *StoreSettings.model_fields]

    assert [name for name in settings if f".{name}" not in code and f"{name}=" not in code] == []


def _leads_somewhere(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.exists() or not anchor:
        return target.exists()
    headings = re.findall(r"^#+ (.+)$", target.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return anchor in {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
