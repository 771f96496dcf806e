"""Descriptions in the OpenAPI document of answers, headers and bodies; FastAPI has the rest from the routes.

``responses=`` of a route is made of these, as are members of the operation (``openapi_extra=``) that no signature has:
request headers, and bodies that are read as they come.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from hyperslab import errors
from hyperslab.api.middleware.access import is_open
from hyperslab.api.options import ApiOptions
from hyperslab.api.problems import SERVER_ERROR, remedies
from hyperslab.errors import ERRORS, HyperslabError
from hyperslab.wire import (
    ARRAY_CHUNKS,
    ARRAY_DTYPE,
    ARRAY_SHAPE,
    CONTENT_DIGEST,
    CSV,
    HTML,
    IDEMPOTENCY_KEY,
    JSON,
    NPY,
    OBJECTS,
    PROBLEM,
    RAW,
    SERVER_TIMING,
    STREAM_EPOCH,
    UPLOAD_COMPLETE,
    UPLOAD_LIMIT,
    UPLOAD_OFFSET,
)

Json = dict[str, Any]
Responses = dict[int | str, Json]

DESCRIPTION: Final = (
    "Zarr arrays as URLs that can be sliced, tiled, written and resized. HEAD works wherever GET does, and OPTIONS "
    "everywhere. Tutorials, recipes and what is guaranteed are in the documentation: `docs/index.md` of the source, as "
    "a site with `mkdocs serve -f deploy/mkdocs.yml`."
)

# --- bodies ----------------------------------------------------------------------------------------------------


def content(*media_types: str) -> Json:
    """Bodies of these media types."""
    return {media_type: {"schema": _schema(media_type)} for media_type in media_types}


def _schema(media_type: str) -> Json:
    if media_type.startswith("text/") or media_type.endswith(("xml", "jsonl")):
        return {"type": "string"}
    return {"type": "object"} if "json" in media_type else {"type": "string", "format": "binary"}


def schema(model: type[BaseModel]) -> Json:
    """The schema of a document in a body; `describe` moves what it refers to to the components."""
    return model.model_json_schema(ref_template="#/components/schemas/{model}")


VALUES: Final = {
    **content(RAW, NPY, CSV, OBJECTS),
    JSON: {"schema": {"description": "Nested lists, or one value."}},
}
PICTURES: Final = content("image/png", "image/jpeg", "image/webp")
STORED: Final = content(RAW, JSON, HTML)

# --- headers ---------------------------------------------------------------------------------------------------


def _header(description: str, kind: str = "string", *, always: bool = False) -> Json:
    described: Json = {"description": description, "schema": {"type": kind}}
    return {**described, "required": True} if always else described


TAG: Final = {"ETag": _header("The strong tag of what is there now.", always=True)}
PLACE: Final = {"Location": _header("Where it is.", always=True)}
CHUNKS: Final = {ARRAY_CHUNKS: _header("How many chunks it has touched.")}
COST: Final = {**CHUNKS, SERVER_TIMING: _header("Milliseconds by phase.")}
OF_VALUES: Final = {
    **TAG,
    **COST,
    ARRAY_SHAPE: _header("The shape of the whole answer, as JSON."),
    ARRAY_DTYPE: _header("Its dtype, as JSON."),
}
EPOCH: Final = {STREAM_EPOCH: _header("Which opening this is.", "integer")}
UPLOAD: Final = {
    UPLOAD_OFFSET: _header("Bytes of the array that are stored.", "integer"),
    UPLOAD_COMPLETE: _header("`?1`: it takes no more."),
    UPLOAD_LIMIT: _header("`max-size` in bytes, and `max-age`: seconds without a request."),
}

# --- responses -------------------------------------------------------------------------------------------------


def found(body: Json, headers: Json = TAG) -> Responses:
    """Responses to GET with conditions and ranges."""
    part = {"Content-Range": _header("Which bytes these are, where it is one range.")}
    multipart = content("multipart/byteranges")
    return {
        200: answer("The whole of it.", body, headers),
        206: answer("The bytes that `Range` asked for.", {**body, **multipart}, {**headers, **part}),
        304: answer("`If-None-Match` holds: nothing was read.", headers=TAG),
    }


def answer(description: str, body: Json | None = None, headers: Json | None = None) -> Json:
    """Description of a response."""
    described: Json = {"description": description}
    return described | ({"content": body} if body else {}) | ({"headers": headers} if headers else {})


def page(*media_types: str) -> Responses:
    """A response without conditions."""
    return problems() | {200: answer("The whole of it.", content(*media_types))}


def problems(*refused: type[HyperslabError]) -> Responses:
    """The problem documents of a route, with the codes that are its own."""
    codes = [f"`{error.code}` ({error.http_status})" for error in refused]
    text = f"What went wrong: {', '.join(codes)}, or one of all routes." if codes else "What went wrong."
    return {"default": answer(text, {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}})}


READS: Final = problems(
    errors.BadSelection,
    errors.NodeNotFound,
    errors.WrongKind,
    errors.IndexOutOfRange,
    errors.TooManyIndices,
    errors.LabelNotFound,
    errors.NoCoordinate,
    errors.FieldUnknown,
    errors.NotRepresentable,
    errors.NotAcceptable,
    errors.PreconditionFailed,
    errors.TooLarge,
    errors.RangeNotSatisfiable,
    errors.ChunkCorrupt,
    errors.ChangedWhileRead,
)
WRITES: Final = problems(
    errors.ReadOnly,
    errors.WriteForbidden,
    errors.ForeignOrigin,
    errors.NodeNotFound,
    errors.BadBody,
    errors.DigestMismatch,
    errors.UnsupportedMediaType,
    errors.PreconditionFailed,
    errors.WriteConflict,
    errors.TooLarge,
    errors.ClientStalled,
    errors.StoreFull,
)

# --- request headers and bodies --------------------------------------------------------------------------------


def header(name: str, description: str, kind: str = "string", **members: Any) -> Json:
    """A request header; ``members`` of its schema say which values are taken."""
    schema = {"type": kind, **members}
    return {"name": name, "in": "header", "required": False, "description": description, "schema": schema}


_TAGS: Final = {"pattern": r'^([!#-+\--~]+|(W/)?"[!#-~]*"(\s*,\s*(W/)?"[!#-~]*")*,?)$'}
_COUNT: Final = {"minimum": 0, "maximum": 10**19 - 1}
CONDITIONAL: Final = (
    header("If-Match", "Only where the tag is one of these; else 412.", **_TAGS),
    header(
        "If-None-Match", "Only where the tag is none of these (`*`: where nothing is there); else 304 or 412.", **_TAGS
    ),
)
READING: Final = (
    *CONDITIONAL,
    header("Range", "The bytes that are wanted."),
    header("If-Range", "The tag or time that the ranges are meant for; else the whole of it comes."),
)
_DIGEST: Final = "[a-z*][a-z0-9_.*-]*=:([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}(==|[A-Za-z0-9+/]=))?:"
DIGEST: Final = (
    header(
        CONTENT_DIGEST,
        "`sha-256`, `sha-512` or `crc32c` of the body (RFC 9530).",
        pattern=rf"^({_DIGEST}(\s*,\s*{_DIGEST})*,?)?$",
    ),
)
WRITING: Final = (*CONDITIONAL, *DIGEST)
STATED: Final = (
    *WRITING,
    header(
        ARRAY_SHAPE,
        "The shape of the values as JSON; refused where another one is expected.",
        pattern=r"^\[\s*([0-9]+(\s*,\s*[0-9]+)*\s*)?\]$",
    ),
    header(ARRAY_DTYPE, "The dtype of raw values, as JSON; refused where another one is expected."),
)
KEYED: Final = (
    *STATED,
    header(IDEMPOTENCY_KEY, "A retry with the same key appends nothing.", minLength=1, maxLength=256),
)
SENDER: Final = (
    header(
        STREAM_EPOCH,
        "What opening the stream has answered: 409 where somebody has resumed it since.",
        "integer",
        **_COUNT,
    ),
)
OFFSETS: Final = (
    header(UPLOAD_OFFSET, "Where in the array the bytes begin.", "integer", **_COUNT),
    header(UPLOAD_COMPLETE, "`?1`: the array takes no more.", enum=["?0", "?1"]),
    *SENDER,
    *DIGEST,
)


def headers(*described: Json) -> Json:
    """Members of an operation with these request headers."""
    return {"parameters": [*described]}


def body(media_types: Json, *described: Json) -> Json:
    """Members of an operation with a body, which is read as it comes, and request headers."""
    return {"requestBody": {"required": True, "content": media_types}, "parameters": [*described]}


VALUES_BODY: Final = {**content(RAW, NPY, OBJECTS), JSON: {"schema": {}, "example": 0}}

# --- the document ----------------------------------------------------------------------------------------------


def describe(app: FastAPI, options: ApiOptions) -> Json:
    """The OpenAPI document, with the tokens that operations require under these options."""
    site = options.documentation_url
    document = get_openapi(
        title=app.title,
        version=app.version,
        description=DESCRIPTION,
        routes=app.routes,
        external_docs={"url": site, "description": "Tutorials, recipes and what is guaranteed"} if site else None,
    )
    reads, writes = options.is_private, bool(options.write_tokens) or options.has_rules
    components = document.setdefault("components", {})
    components["schemas"] = {"Problem": problem_schema()}
    components["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
    if reads or writes:
        document["security"] = [{"bearer": []}]
    for path, method, operation in operations(document):
        for sent in operation.get("requestBody", {"content": {}})["content"].values():
            components["schemas"] |= sent["schema"].pop("$defs", {})
        for parameter in operation.get("parameters", ()):
            parameter["schema"] = _plain(parameter["schema"])
            if parameter["name"] == "limit":
                parameter["schema"]["maximum"] = options.max_listed
        if method == "get" and (not reads or is_open("GET", path)):
            operation["security"] = []
        elif path.startswith("/v1/points") and not reads and writes:  # most POST requests for points are reads
            operation["security"] = [{}, {"bearer": []}]
    return document


def operations(document: Mapping[str, Any]) -> Iterator[tuple[str, str, Json]]:
    """Path, method and description of each operation."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def problem_schema() -> Json:
    """The schema of problem documents (RFC 9457)."""
    text, codes = {"type": "string"}, sorted({*ERRORS, SERVER_ERROR} & remedies().keys())
    return {
        "type": "object",
        "required": ["type", "title", "status", "detail", "code"],
        "properties": {
            "type": {"type": "string", "format": "uri-reference"},
            "title": text,
            "status": {"type": "integer"},
            "detail": text,
            "instance": text,
            "code": {"type": "string", "enum": codes, "description": "Stable; the facts are further members."},
        },
    }


def _plain(schema: Json) -> Json:
    """A schema of a parameter without what the parameter says itself, and without null, which no query has."""
    members = {name: value for name, value in schema.items() if name not in ("title", "description")}
    if members.get("default", "") in (None, []):
        del members["default"]
    kinds = [variant for variant in schema.get("anyOf", ()) if variant.get("type") != "null"]
    return members if len(kinds) != 1 else {**kinds[0], **{name: members[name] for name in members if name != "anyOf"}}


# --- pages -----------------------------------------------------------------------------------------------------

_STYLE: Final = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 56rem; margin: 2rem auto; padding: 0 1rem; }
h1 small { font-weight: normal; opacity: .7; font-size: 1rem; }
code { font-family: ui-monospace, monospace; font-size: .9em; }
"""


def render_problem(explained: Mapping[str, Any], root: str) -> bytes:
    """The HTML page of a problem code; ``root`` is the prefix of links."""
    title, members = escape(explained["title"]), [f"<code>{escape(name)}</code>" for name in explained["members"]]
    remedy = re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(explained["remedy"]))
    parts = [
        "<!DOCTYPE html>",
        f'<html lang="en"><head><meta charset="utf-8"><title>{title}</title>',
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head><body>',
        f"<h1>{title} <small>{escape(explained['code'])}, status {explained['status']}</small></h1>",
        f"<p><strong>What to do:</strong> {remedy}.</p>",
        f"<p>Facts in the problem document: {', '.join(members) or 'none'}.</p>",
        f'<p>All routes: <a href="{escape(root)}/docs">docs</a>.</p>',
        "</body></html>\n",
    ]
    return "\n".join(parts).encode()
