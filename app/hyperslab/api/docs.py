"""What the service says of itself: ``/openapi.json``, the same as a page at ``/docs`` and in short at ``/v1``.

The description is ``openapi.yaml``. The page needs no script and nothing from anywhere else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any, Final

import yaml

from hyperslab import __version__
from hyperslab.api.auth import OPEN
from hyperslab.api.options import ApiOptions
from hyperslab.api.request import Request
from hyperslab.api.response import Response, page_response
from hyperslab.api.routes import view
from hyperslab.engine.jsontext import dump_json
from hyperslab.wire import HTML, JSON

HEADERS: Final = {
    "cache-control": "no-cache",
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'",
    "x-content-type-options": "nosniff",
}

_STYLE: Final = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 56rem; margin: 2rem auto; padding: 0 1rem; }
h1 small { font-weight: normal; opacity: .7; font-size: 1rem; }
section { border-top: 1px solid #8884; padding: .5rem 0 1rem; }
h2 { font: 600 1rem ui-monospace, monospace; margin: .75rem 0 .25rem; overflow-wrap: anywhere; }
h2 b { display: inline-block; min-width: 4.5ch; padding: 0 .5ch; margin-right: 1ch; border-radius: .25rem;
  background: #4a7dff; color: #fff; text-align: center; }
h2 .put, h2 .patch, h2 .post { background: #2a8a4a; } h2 .delete { background: #c0392b; }
code, pre { font-family: ui-monospace, monospace; font-size: .9em; }
table { border-collapse: collapse; width: 100%; } td { padding: .2rem 1rem .2rem 0; vertical-align: top; }
td:first-child { white-space: nowrap; }
"""


def describe(options: ApiOptions) -> Mapping[str, Any]:
    """The OpenAPI document, with the tokens that each operation needs under these options."""
    return _described(options.documentation_url, bool(options.read_tokens), bool(options.write_tokens))


@cache
def _described(site: str | None, reads: bool, writes: bool) -> Mapping[str, Any]:
    """``reads`` and ``writes``: whether they need a token."""
    text = files("hyperslab.api").joinpath("openapi.yaml").read_bytes()
    document: dict[str, Any] = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    del document["x-shared"]
    document["info"]["version"] = __version__
    if site is not None:
        document["externalDocs"] = {"url": site, "description": "Tutorials, recipes and what is guaranteed"}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            operation["parameters"] = list(_flat(operation["parameters"]))
            is_open = path.encode() in OPEN or (method == "get" and view.is_page(path.encode()))
            needed: list[dict[str, Any]] = [{"bearer": []}]
            if path.startswith("/v1/points") and not reads:  # only some points are written
                needed = [{}, *needed]
            operation["security"] = needed if not is_open and (reads or (writes and method != "get")) else []
    return document


def _flat(parameters: Iterable[Any]) -> Iterator[Any]:
    """Parameters out of nested lists."""
    for item in parameters:
        if isinstance(item, list):
            yield from _flat(item)
        else:
            yield item


async def openapi_json(request: Request) -> Response:
    """The document; with the path that a proxy has cut off as its server."""
    servers = {"servers": [{"url": request.root_path}]} if request.root_path else {}
    described = describe(request.context.options)
    return page_response(dump_json({**described, **servers}), JSON, {"cache-control": "no-cache"})


async def docs(request: Request) -> Response:
    """The document as a page."""
    return page_response(render(describe(request.context.options), request.root_path), HTML, HEADERS)


async def index(request: Request) -> Response:
    """The routes in short."""
    listed = [
        {"method": method.upper(), "path": path, "summary": operation["summary"]}
        for path, methods in describe(request.context.options)["paths"].items()
        for method, operation in methods.items()
    ]
    links = {name: f"{request.root_path}/{name}" for name in ("docs", "openapi.json", "v1/metadata")}
    document = {"service": "hyperslab", "version": __version__, "links": links, "routes": listed}
    return page_response(dump_json(document), JSON, {"cache-control": "no-cache"})


def render(document: Mapping[str, Any], root: str) -> bytes:
    """The page of a description; ``root`` goes before links."""
    info, site = document["info"], document.get("externalDocs")
    more = "" if site is None else f'{escape(site["description"])}: <a href="{escape(site["url"])}">documentation</a>.'
    parts = [
        f"<h1>{escape(info['title'])} <small>{escape(info['version'])}</small></h1>",
        f"<p>{_rich(info.get('description', ''))} The same for machines: ",
        f'<a href="{escape(root)}/openapi.json">openapi.json</a>. {more}</p>',
        *_operations(document["paths"]),
    ]
    return _page(info["title"], parts)


def render_problem(explained: Mapping[str, Any], root: str) -> bytes:
    """The page of a problem's code."""
    title, members = escape(explained["title"]), [f"<code>{escape(name)}</code>" for name in explained["members"]]
    parts = [
        f"<h1>{title} <small>{escape(explained['code'])}, status {explained['status']}</small></h1>",
        f"<p><strong>What to do:</strong> {_rich(explained['remedy'])}.</p>",
        f"<p>Facts in the problem document: {', '.join(members) or 'none'}.</p>",
        f'<p>All routes: <a href="{escape(root)}/docs">docs</a>.</p>',
    ]
    return _page(explained["title"], parts)


def _page(title: str, parts: Sequence[str]) -> bytes:
    head = [
        "<!DOCTYPE html>",
        f'<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>',
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head><body>',
    ]
    return "\n".join([*head, *parts, "</body></html>\n"]).encode()


def _operations(paths: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for path, methods in paths.items():
        for method, operation in methods.items():
            yield f'<section><h2><b class="{method}">{method.upper()}</b>{escape(path)}</h2>'
            yield f"<p><strong>{_rich(operation.get('summary', ''))}.</strong> "
            yield f"{_rich(operation.get('description', ''))}</p>"
            if operation.get("parameters"):
                yield "<table>"
                for parameter in operation["parameters"]:
                    example = parameter.get("example")
                    shown = "" if example is None else f" For example <code>{escape(str(example))}</code>."
                    about = f"{_rich(parameter.get('description', ''))}{shown}"
                    yield f"<tr><td><code>{escape(parameter['name'])}</code></td><td>{about}</td></tr>"
                yield "</table>"
            yield "</section>"


def _rich(value: str) -> str:
    """Text in which backquotes mark code."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(value))
