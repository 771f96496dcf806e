"""``python -m tests.docs``: write the pages, or parts, that come from the code. A test says when they are behind."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import typer
from pydantic import BaseModel, ByteSize
from pydantic.fields import FieldInfo

import hyperslab.asgi
from hyperslab.api.inprocess import answer
from hyperslab.api.problems import remedies
from hyperslab.cli import app
from hyperslab.errors import ERRORS, Cancelled, HyperslabError, RemoteProblem, Unreachable
from hyperslab.settings import Settings, StoreSettings
from hyperslab.storage import client, http, local
from tests.architecture.sources import PACKAGE
from tests.architecture.trace import measure
from tests.interop.page import newest_versions, recorded_versions, support_page

DOCS = Path(__file__).parents[1] / "docs"
NEVER_SENT = (HyperslabError, Cancelled, RemoteProblem, Unreachable)
NOTE = "<!-- Made by `python -m tests.docs`: change the code, not this page. -->"


def settings_page() -> str:
    return f"""# Settings

{NOTE}

Each setting can be given in a TOML file, in the environment or, for the most common ones, on the command line. The
command line wins over the environment, the environment over the file, and the file over the default. A setting that
does not exist stops the start with a message that names it. How to choose them: [Deploy](../operate/deploy.md).

```toml
# hyperslab serve --config hyperslab.toml
port = 8080
cache_bytes = "2 GiB"
cors_origins = ["https://viewer.example"]

[stores]
atlas = "/data/atlas.zarr"            # a URL alone: a store with nothing but defaults

[stores.scans]
url = "s3://lab/scans"
writable = true

[stores.scans.options]
endpoint = "http://minio:9000"
access_key_id = "…"
secret_access_key = "…"
```

In the environment, names are upper case after `HYPERSLAB_`, with `__` between levels (store names become lower case),
and lists and tables are JSON: `HYPERSLAB_PORT=8080`, `HYPERSLAB_STORES__SCANS__OPTIONS__REGION=eu-north-1`,
`HYPERSLAB_CORS_ORIGINS='["https://viewer.example"]'`. `HYPERSLAB_CONFIG` names the TOML file.

Sizes are bytes, or text such as `"256 MiB"`. `hyperslab check --config FILE` opens every store and prints what is in
effect, secrets masked.

## The service

{_settings_table(Settings, "")}

## A store: `stores.NAME`

{_settings_table(StoreSettings, "stores.NAME.")}

## Options of stores

What `stores.NAME.options` may contain, by the kind of URL; anything else is an error that names the most similar
option. For other protocols, options are passed to fsspec's file system as they are. Those for the inner part of a
chained URL are written `protocol.name`.

| URL | options |
|---|---|
{chr(10).join(f"| {url} | {_names(names)} |" for url, names in _store_options().items())}

| option | meaning |
|---|---|
| `endpoint` | where an S3-compatible server or an Azure emulator is |
| `anonymous` | no signature: public data |
| `path_style` | the bucket in the path (`true`) or in the host name (`false`) |
| `conditional_put` | `auto` (try once), `true` or `false`: whether the server honours conditional puts |
| `listable` | whether keys can be listed; if not, groups contain what `.zmetadata` says |
| `file_locks` | `false` for file systems without `flock`; writers are then safe between threads only |
| `authorization` | the header that goes to a web server |
"""


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


def _store_options() -> Mapping[str, Collection[str]]:
    """The names of options by kind of store, as the stores know them."""
    common = client._OWN | client._CLIENT
    buckets = {kind: common | names for kind, names in client._OBSTORE_OPTIONS.items()}
    schemes = {"s3": "`s3://`", "gs": "`gs://`", "az": "`az://`"}
    named = {schemes[kind]: names for kind, names in buckets.items()}
    return {"a folder": local.OPTIONS, **named, "`http://`, `https://`": http.OPTIONS}


def problems_page() -> str:
    sent = [error for error in ERRORS.values() if error not in NEVER_SENT]
    rows = [_problem_row(error) for error in sorted(sent, key=lambda error: (error.http_status, error.code))]
    return f"""# Problems

{NOTE}

Everything that goes wrong is answered with a problem document (RFC 9457, `application/problem+json`): `code` is stable
and made for programs, `detail` is a sentence for people, and the facts are members of their own. `RemoteArray` raises
the exception of the table's last column, from `hyperslab.errors`, with the facts as attributes.
`/problems/{{code}}` of a service says what to do, as the second table does.

```json
{{"type": "/problems/index-out-of-range", "title": "Index out of bounds", "status": 422,
 "detail": "index 99 is out of bounds for axis 0 with size 64", "instance": "/v1/slice/demo/brain",
 "code": "index-out-of-range", "axis": 0, "index": 99, "size": 64}}
```

| status | code | what it means | facts | exception |
|--:|---|---|---|---|
{chr(10).join(rows)}

A status of 500 with the code `internal-error` is a fault of the service: the document holds an `id` under which the
service's log has the details.

## What to do

| code | what to do |
|---|---|
{chr(10).join(_remedy_rows())}
"""


def commands_page() -> str:
    group: Any = typer.main.get_command(app)
    sections = [_command_section(name, command) for name, command in group.commands.items()]
    return f"""# Command line

{NOTE}

`hyperslab COMMAND --help` says the same. Errors are one sentence on stderr; the exit code is 0 when done, 1 when it
failed and 2 when the command or the settings could not be understood.

{chr(10).join(sections)}"""


def metrics_page() -> str:
    lines: list[bytes] = []
    answer(hyperslab.asgi.create_app(Settings()), "/metrics", lambda _: None, lines.append)
    text = b"".join(lines).decode()
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    rows = [f"| `{name}` | {kinds[name]} | {_labels(name)} | {words} |" for name, words in _helps(text)]
    return f"""# Metrics

{NOTE}

`GET /metrics` returns them in Prometheus's text format: the sum over all workers of one service, whichever of them
answers. Values of other workers may be a second old. Counters include those of workers that have ended; gauges and
limits are those of running workers.

| name | type | labels | |
|---|---|---|---|
{chr(10).join(rows)}

`route` is the first part of a path below `/v1` (`slice`, `chunk`, `tile`, …), `zarr`, the name of a page (`view`,
`docs`, …), or `other`. A request whose client left before the answer began has the status 499.
"""


def _helps(text: str) -> list[tuple[str, str]]:
    return re.findall(r"^# HELP (\S+) (.*)$", text, re.MULTILINE)


def _labels(name: str) -> str:
    by_request = {"hyperslab_requests_total": ("route", "method", "status")}
    by_route = ("hyperslab_request_seconds", "hyperslab_sent_", "hyperslab_abandoned_", "hyperslab_cut_")
    labels = by_request.get(name, ("route",) if name.startswith(by_route) else ())
    return ", ".join(f"`{label}`" for label in labels)


def requests_page() -> str:
    """The page as it is, with the files that requests enter now."""
    text = (DOCS / "internals" / "requests.md").read_text(encoding="utf-8")
    for name, measured in measure().items():
        listed = (
            _described(measured["files"]) if name == "slice" else " → ".join(f"`{file}`" for file in measured["files"])
        )
        before, mark, rest = text.partition(f"<!-- made: {name} -->\n")
        _, end, after = rest.partition("<!-- end -->")
        text = f"{before}{mark}\n{listed}\n\n{end}{after}"
    return text


def _described(files: Iterable[str]) -> str:
    """Each with the first sentence of its docstring."""
    rows = [f"| `{file}` | {_first_sentence(PACKAGE / file)} |" for file in files]
    return "\n".join(["| file | what it is |", "|---|---|", *rows])


def _first_sentence(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    sentence = re.split(r"(?<=[.:;])\s", " ".join(docstring.split()), maxsplit=1)[0]
    return sentence.rstrip(".:;").replace("``", "`").replace("|", "\\|")


def zarr_page(*, newest: bool = False) -> str:
    """With the versions that it has, as the suite runs with others too, or the ``newest``."""
    path = DOCS / "reference" / "zarr-support.md"
    page = path.read_text(encoding="utf-8") if path.is_file() else ""
    return support_page(NOTE, newest_versions(page) if newest else recorded_versions(page))


PAGES: Mapping[str, Callable[[], str]] = {
    "reference/settings.md": settings_page,
    "reference/problems.md": problems_page,
    "reference/command-line.md": commands_page,
    "reference/metrics.md": metrics_page,
    "reference/zarr-support.md": zarr_page,
}


def _settings_table(model: type[BaseModel], prefix: str) -> str:
    rows = [
        f"| `{prefix}{name}` | {_type(field)} | {_default(field)} | {(field.description or '').replace(chr(10), ' ')} |"
        for name, field in model.model_fields.items()
    ]
    return "\n".join(["| key | type | default | |", "|---|---|---|---|", *rows])


def _type(field: FieldInfo) -> str:
    text = str(field.annotation) if not isinstance(field.annotation, type) else field.annotation.__name__
    if literal := re.search(r"Literal\[(.*?)\]", text):
        words = literal[1].replace("'", '"').split(", ")
        return " or ".join([*(f"`{word}`" for word in words), *(["seconds"] if "float" in text else [])])
    if text.startswith("dict"):
        return "table of secret text" if "SecretStr" in text else "table"
    names = {"ByteSize": "size", "SecretStr": "secret text", "bool": "true or false"}
    names |= {"float": "number", "int": "integer", "Path": "path", "str": "text"}
    found = next((names[name] for name in names if name in text), text)
    return f"list of {found}" if text.startswith("list") else found


def _default(field: FieldInfo) -> str:
    extra = field.json_schema_extra
    if isinstance(extra, Mapping) and "default" in extra:
        return str(extra["default"])
    if field.is_required():
        return "(required)"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, ByteSize):
        return f"{value.to('MiB'):g} MiB"
    if isinstance(value, list):
        return ", ".join(f"`{item}`" for item in value) or "none"
    return f"`{json.dumps(value)}`" if value not in (None, {}) else "none"


def _problem_row(error: type[HyperslabError]) -> str:
    facts = ", ".join(f"`{fact.name}`" for fact in fields(error))
    return f"| {error.http_status} | `{error.code}` | {error.title} | {facts} | `{error.__name__}` |"


def _remedy_rows() -> Iterator[str]:
    """A row for each remedy, with the codes that share it."""
    codes: dict[str, list[str]] = {}
    for code, remedy in remedies().items():
        codes.setdefault(remedy, []).append(f"`{code}`")
    return (f"| {', '.join(found)} | {remedy} |" for remedy, found in codes.items())


def _command_section(name: str, command: Any) -> str:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and p.name != "help"]
    usage = " ".join(["hyperslab", name, *(_argument(p) for p in arguments), "[OPTIONS]"])
    rows = [f"| `{_spelling(p)}` | {p.help} |" for p in [*arguments, *options]]
    table = "\n".join(["| | |", "|---|---|", *rows])
    return f"## `{name}`\n\n{command.help}\n\n```\n{usage}\n```\n\n{table}\n"


def _argument(parameter: Any) -> str:
    spelling = _spelling(parameter) + (" …" if parameter.nargs == -1 else "")
    return spelling if parameter.required else f"[{spelling}]"


def _spelling(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return str(parameter.metavar or parameter.name.upper())
    takes = "" if parameter.is_flag else f" {parameter.metavar or parameter.name.upper()}"
    return ", ".join(parameter.opts) + takes


def stale() -> Iterator[str]:
    """The names of pages that the code no longer agrees with."""
    for name, page in PAGES.items():
        path = DOCS / name
        if not path.is_file() or path.read_text(encoding="utf-8") != page():
            yield name


def main() -> None:
    newest: dict[str, Callable[[], str]] = {
        "reference/zarr-support.md": partial(zarr_page, newest=True),
        "internals/requests.md": requests_page,
    }
    for name, page in {**PAGES, **newest}.items():
        (DOCS / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
