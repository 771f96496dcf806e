"""Imports point down only, and each third-party library lives in one place."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys

import pytest

from tests.architecture.sources import imports, layer_of, modules

_GROUND = {"errors", "wire"}
_STATE = {"engine", "storage", "cache"} | _GROUND
_SERVICE = {"api", "tiles", "streams", "arrays", "viewer"} | _STATE
_ROOTS = {"asgi", "settings", "server", "welcome", "demo"}

MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "access": set(),
    "wire": {"errors"},
    "engine": _GROUND,
    "storage": _GROUND,
    "cache": _GROUND,
    "arrays": {"access"} | _STATE,
    "streams": {"arrays"} | _STATE,
    "tiles": {"arrays"} | _STATE,
    "viewer": set(),
    "api": {"access"} | _SERVICE,
    "client": _GROUND,
    "conversion": {"arrays", "client", "streams"} | _STATE,
    "demo": {"arrays"} | _STATE,
    "settings": {"storage", "access"} | _GROUND,
    "welcome": {"asgi", "settings", "storage", "arrays"} | _GROUND,
    "server": {"asgi", "settings"},
    "protocol": {"api", "errors"},
    "asgi": {"settings", "demo"} | _SERVICE,
    "cli": {"client", "access", "conversion"} | _ROOTS | _SERVICE,
    "__main__": {"cli"},
    "": {"client"},
}
"""For each layer, the others it may import; itself always."""

LIVES_IN: dict[str, str] = {
    "fastapi": r"api\b.*",
    "starlette": r"api\b.*",
    "asyncio": r"api\b.*",
    "anyio": r"api\b.*",
    "uvicorn": r"server|protocol",
    "fsspec": r"storage\b.*",
    "obstore": r"storage\b.*",
    "numcodecs": r"engine\.(blosc|streams|filters|codec_config)",
    "cramjam": r"engine\.(blosc|streams)",
    "pydantic": r"settings|api\b.*|engine\.validation|tiles\.query|streams\.(settings|record|tail|objects|heads)",
    "typer": r"cli",
    "tqdm": r"client\b.*|cli",
    "urllib3": r"storage\.(http|conditional|objects|s3_listing)",
    "PIL": r"tiles\b.*",
    "isal": r"tiles\b.*|engine\.streams",
    "cmap": r"tiles\b.*",
    "cftime": r"engine\.cf",
    "dateutil": r"engine\.cf",
    "jwt": r"api\.middleware\.identity",
    "itsdangerous": r"api\.links",
    "multiprocessing": r"server",
    "xarray": r"client\.(xarray|array|group)|conversion\b.*",
    "dask": r"client\.(array|view)|conversion\b.*",
}
"""For each library, the modules that may import it."""

SERVER_ONLY = {
    *("asyncio", "fastapi", "fsspec", "numcodecs", "obstore", "orjson", "pydantic", "starlette", "urllib3", "uvicorn"),
}


def test_every_module_belongs_to_a_layer_with_rules() -> None:
    assert {module.layer for module in modules()} <= MAY_IMPORT.keys()


@pytest.mark.parametrize("layer", MAY_IMPORT)
def test_layer_imports_only_what_lies_below_it(layer: str) -> None:
    allowed = MAY_IMPORT[layer] | {layer, ""}
    wrong = [i.where for i in imports() if i.module.layer == layer and layer_of(i.target) not in {None, *allowed}]

    assert wrong == []


def test_the_package_itself_is_imported_for_its_version_only() -> None:
    targets = {i.target for i in imports() if layer_of(i.target) == "" and i.module.layer != "client"}

    assert targets <= {"hyperslab.__version__", "hyperslab.client"}


@pytest.mark.parametrize("library", LIVES_IN)
def test_library_is_imported_in_its_own_place_only(library: str) -> None:
    place = re.compile(LIVES_IN[library])
    users = [i for i in imports() if i.target.partition(".")[0] == library]

    assert [i.where for i in users if not place.fullmatch(i.module.name)] == []


def test_the_environment_is_read_in_few_places() -> None:
    readers = {
        module.name
        for module in modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute | ast.Name | ast.alias) and _name(node) in {"environ", "getenv", "environb"}
    }

    assert readers == {"settings", "client.node", "storage.client", "api.metrics"}  # the last tells a library


def test_importing_the_client_loads_no_server_code() -> None:
    program = "import json, sys, hyperslab; hyperslab.RemoteArray; print(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stdout))

    ours = {name.split(".")[1] for name in loaded if name.startswith("hyperslab.")}
    assert ours <= {"client", "errors", "wire"}
    assert not SERVER_ONLY & {name.partition(".")[0] for name in loaded}


def test_importing_the_package_loads_not_even_the_client() -> None:
    program = "import json, sys, hyperslab; print(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)

    assert not {"numpy", "http.client", "hyperslab.client"} & set(json.loads(done.stdout))


def _name(node: ast.Attribute | ast.Name | ast.alias) -> str:
    match node:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case ast.alias():
            return node.name
