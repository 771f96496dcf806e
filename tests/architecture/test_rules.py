"""Rules against growing back: what is small and used once belongs to its user."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.architecture.sources import Module, importers, modules
from tests.benchmarks.registry import SUITES
from tests.benchmarks.suites.tuning import CONSTANTS

LINES_OF_A_MODULE = 150
LINES_OF_A_FUNCTION = 12

SMALL_MODULES = {
    *("api.app", "api.inprocess"),
    *("demo.brain", "demo.climate", "demo.microscope", "demo.ome", "demo.tables"),
    *("engine.minmax", "streams.ome"),
    "streams.pyramid",  # OME documents name it as what made their levels
    *("protocol", "welcome", "wire.selections"),
    "storage.s3_listing",  # requests and XML of one service, beside a module of 500 lines for all buckets
}
"""Modules of fewer lines that only one other imports, beside routes and middleware: merge one when you change it. The
list only gets shorter."""

SMALL_FUNCTIONS = {
    **{"": 0, "api": 15, "arrays": 14, "asgi": 0, "cache": 0, "client": 17, "demo": 12, "engine": 21, "protocol": 0},
    **{"server": 0, "settings": 1, "storage": 17, "streams": 5, "tiles": 20, "viewer": 0, "welcome": 2, "wire": 5},
}
"""By package or module, how many private functions have one caller and fewer lines. The figures only go down."""

MECHANISMS = {
    "ThreadPoolExecutor": {"api.threads", "arrays.workers", "client.session", "storage.base", "storage.objects"}
    | {"streams.writer"},
    "OrderedDict": {"cache", "arrays.nodes", "arrays.feed", "api.services", "conversion.model", "streams.tails"},
    "sleep": {"wire.retry", "api.metrics", "api.middleware.audit", "arrays.changes", "arrays.feed", "arrays.lease"}
    | {"client.session", "server", "storage.local", "arrays.workers"},
}
"""Modules that make threads, forget the oldest, and wait. Chunks are worked on by `arrays.workers`, which
gives way (ADR 0024), a cache is a `VersionedCache`, and an attempt one of `wire.retry.attempts`. The sets only get
smaller."""

IRREGULAR = {"Built", "Cut", "Done", "Found", "Given", "Held", "Kept", "Known", "Left", "Lost", "Made", "Read", "Seen"}
IRREGULAR |= {"Sent", "Shown", "Split", "Taken", "Told", "Written"}
NOUNS = {"ChangeFeed", "Made"}
"""Names that end like participles; `Made` is what the public functions of `conversion` return."""


def small_functions(module: Module) -> Iterator[str]:
    """The names of private functions and methods that are short, and named once beside their definition: by a call."""
    nodes = list(ast.walk(module.tree))
    named = Counter(name for node in nodes for name in [_name(node)] if name)
    called = {_name(node.func) for node in nodes if isinstance(node, ast.Call)}
    for node in nodes:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.decorator_list:
            continue
        lines = (node.end_lineno or node.lineno) - node.lineno + 1
        private = node.name.startswith("_") and not node.name.endswith("__")
        if private and named[node.name] == 1 and node.name in called and lines < LINES_OF_A_FUNCTION:
            yield node.name


def _name(node: ast.AST) -> str | None:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return None


def test_a_module_has_two_importers_or_a_good_length() -> None:
    known = importers()
    small = {
        module.name
        for module in modules()
        if module.path.name not in {"__init__.py", "__main__.py"}
        and not module.name.startswith(("api.routes.", "api.middleware."))
        and len(known[module.name]) < 2
        and len(module.path.read_text(encoding="utf-8").splitlines()) < LINES_OF_A_MODULE
    }

    assert sorted(small - SMALL_MODULES) == []


def test_a_private_function_has_two_callers_or_some_lines() -> None:
    found: dict[str, list[str]] = {}
    for module in modules():
        found.setdefault(module.layer, []).extend(f"{module.name}.{name}" for name in small_functions(module))

    assert {layer: names for layer, names in found.items() if len(names) > SMALL_FUNCTIONS.get(layer, 0)} == {}


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_there_is_one_pool_one_cache_and_one_retry(mechanism: str) -> None:
    users = {
        module.name
        for module in modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call | ast.keyword)
        for made in [node.func if isinstance(node, ast.Call) else node.value]
        if _name(made.value if isinstance(made, ast.Subscript) else made) == mechanism
    }

    assert users == MECHANISMS[mechanism]


def test_classes_are_named_by_nouns_and_not_by_participles() -> None:
    """But for errors, which say what has happened."""
    classes = [node for module in modules() for node in ast.walk(module.tree) if isinstance(node, ast.ClassDef)]
    bases = {node.name: [_name(base) or "" for base in node.bases] for node in classes}

    def is_error(name: str) -> bool:
        return name.endswith(("Error", "Exception")) or any(map(is_error, bases.get(name, ())))

    words = {name: re.findall("[A-Z][a-z0-9]*", name)[-1] for name in bases if not is_error(name)}
    assert {name for name, last in words.items() if last.endswith("ed") or last in IRREGULAR} == NOUNS


def test_constants_that_tune_are_few_and_name_their_benchmark() -> None:
    """Those of the benchmark of constants, and whatever else names one."""
    texts = {module.name: module.path.read_text(encoding="utf-8") for module in modules()}
    named = [suite for text in texts.values() for suite in re.findall(r"(?i)benchmark(?: suite)?\s``(\w+)``", text)]
    docstring = r'{}\b[^\n]* = [^\n]*\n(?:[A-Z_]+[^\n]*\n)*"""[^"]*``tuning``'
    tuned = {
        name: re.search(docstring.format(name.rpartition(".")[2]), texts[name.rpartition(".")[0]]) for name in CONSTANTS
    }

    assert set(named) <= SUITES.keys()
    assert len(named) <= 60
    assert [name for name, found in tuned.items() if found is None] == []
