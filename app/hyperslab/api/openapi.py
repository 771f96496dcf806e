"""What operations take and answer, in OpenAPI's words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from hyperslab.api.negotiation import MEDIA_TYPES
from hyperslab.api.values import CASTINGS
from hyperslab.wire import (
    ARRAY_CHUNKS,
    ARRAY_DTYPE,
    ARRAY_SHAPE,
    CONTENT_DIGEST,
    CSV,
    HTML,
    JSON,
    OBJECTS,
    PROBLEM,
    RAW,
    SERVER_TIMING,
)

Members = dict[str, Any]


def query(name: str, description: str, schema: Mapping[str, Any], example: Any = None) -> Members:
    """A query parameter."""
    parameter = {"name": name, "in": "query", "description": description, "schema": dict(schema)}
    return parameter if example is None else {**parameter, "example": example}


TEXT: Final = {"type": "string"}
PATH: Final[Members] = {
    "name": "path",
    "in": "path",
    "required": True,
    "description": "The node: the store's name, then the path in the store; slashes stay as they are.",
    "schema": TEXT,
    "example": "demo/brain",
}
CHUNK: Final[Members] = {
    "name": "chunk",
    "in": "path",
    "required": True,
    "description": "The indices of the chunk in the chunk grid, with dots between.",
    "schema": {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)*$"},
    "example": "0.0.0",
}
SELECT: Final = query(
    "select",
    "What to read, as numpy writes it: integers, `a:b:c` with negative bounds and steps, `...`, and lists "
    "`[1,5,9]` for orthogonal selection. Axes left out at the end are whole, and so is everything by default.",
    TEXT,
    "10:20,...,::2",
)
FIELD: Final = query("field", "One field of a structured dtype; its subarray dimensions follow the array's.", TEXT)


def _format(*more: str) -> Members:
    schema = {"type": "string", "enum": [*MEDIA_TYPES, *more]}
    return query("format", "The form of the answer; wins over Accept.", schema, "npy")


FORMS: Final = (
    FIELD,
    _format(),
    query(
        "dtype",
        "Another dtype than the stored one, such as `<f4`; `safe` is one that a JavaScript typed array holds.",
        TEXT,
    ),
    query(
        "decode",
        "`cf`: as the array's CF attributes say: unpacked, missing values as NaN, times as dates.",
        {"type": "string", "enum": ["cf", "none"], "default": "none"},
    ),
)
DECODE: Final = FORMS[3]
CHUNK_FORMS: Final = (FIELD, _format("stored"), *FORMS[2:])
REDUCTION: Final = (
    query(
        "reduce",
        "Minimum, maximum and mean of parts of the last axis in place of its values: it becomes two, `(bins, 3)`.",
        {"type": "string", "enum": ["minmax"]},
    ),
    query("bins", "How many parts; no more than the axis is long.", {"type": "integer", "minimum": 1, "default": 1024}),
)
PAGES: Final = (
    query("limit", "The most children of a group to list.", {"type": "integer", "minimum": 0}),
    query("cursor", "`next_cursor` of the page before.", TEXT),
)
SEARCH: Final = query(
    "search",
    "Nodes at any depth below a group, as `matches` in place of `children`: those whose path from there has this text "
    "in it, in any case of letters. `limit` and `cursor` are about them.",
    TEXT,
)
CASTING: Final = query(
    "casting",
    "Which conversions of an npy body are allowed, in numpy's words.",
    {"type": "string", "enum": list(CASTINGS), "default": "safe"},
)
BOX_BYTES: Final = query("box_bytes", "The most bytes of each box of the split.", {"type": "integer", "minimum": 1})

BINARY: Final = {"schema": {"type": "string", "format": "binary"}}
VALUES: Final[Mapping[str, Any]] = {
    **dict.fromkeys([*MEDIA_TYPES.values(), OBJECTS], BINARY),
    JSON: {"schema": {"description": "Nested lists, or one value."}},
    CSV: {"schema": TEXT},
}
DOCUMENT: Final[Mapping[str, Any]] = {JSON: {"schema": {"type": "object"}}}
STORED: Final[Mapping[str, Any]] = {RAW: BINARY, JSON: {"schema": {"type": "object"}}, HTML: {"schema": TEXT}}

PROBLEM_CONTENT: Final[Mapping[str, Any]] = {
    PROBLEM: {
        "schema": {
            "type": "object",
            "required": ["type", "title", "status", "detail", "code"],
            "properties": {
                "type": {"type": "string", "format": "uri-reference"},
                "title": TEXT,
                "status": {"type": "integer"},
                "detail": TEXT,
                "instance": TEXT,
                "code": {"type": "string", "description": "Stable; the facts are further members."},
            },
        }
    }
}


FAILED: Final[Mapping[str, Members]] = {"default": {"description": "What went wrong.", "content": PROBLEM_CONTENT}}


def header(name: str, description: str) -> Members:
    """A header of a request."""
    return {"name": name, "in": "header", "description": description, "schema": TEXT}


CONDITIONS: Final = (
    header("If-Match", "Only where the tag is one of these; else 412."),
    header("If-None-Match", "Only where the tag is none of these (`*`: where nothing is there); else 304 or 412."),
)
_RANGES: Final = (
    header("Range", "The bytes that are wanted."),
    header("If-Range", "The tag or time that the ranges are meant for; else the whole of it comes."),
)
DIGEST: Final = header(CONTENT_DIGEST, "`sha-256`, `sha-512` or `crc32c` of the body (RFC 9530).")
STATED: Final = (
    header(ARRAY_SHAPE, "The shape of the values as JSON; refused where another one is expected."),
    header(ARRAY_DTYPE, "The dtype of raw values, as JSON; refused where another one is expected."),
)
WRITING: Final = (*CONDITIONS, DIGEST)
"""What every write with a body honours."""

TAG: Final = "ETag"
OF_VALUES: Final = (ARRAY_SHAPE, ARRAY_DTYPE, ARRAY_CHUNKS, SERVER_TIMING)
"""Headers of answers that hold values."""
_SENT: Final[Mapping[str, Members]] = {
    TAG: {"description": "The strong tag of what is there now.", "required": True, "schema": TEXT},
    ARRAY_SHAPE: {"description": "The shape of the whole answer, as JSON.", "schema": TEXT},
    ARRAY_DTYPE: {"description": "Its dtype, as JSON.", "schema": TEXT},
    ARRAY_CHUNKS: {"description": "How many chunks it has touched.", "schema": TEXT},
    SERVER_TIMING: {"description": "Milliseconds by phase.", "schema": TEXT},
    "Content-Range": {"description": "Which bytes these are, where it is one range.", "schema": TEXT},
    "Location": {"description": "Where it is.", "required": True, "schema": TEXT},
}


def answer(description: str, content: Mapping[str, Any] | None = None, headers: Sequence[str] = ()) -> Members:
    """One of the answers of an operation."""
    described: Members = {"description": description}
    if headers:
        described["headers"] = {name: _SENT[name] for name in headers}
    return described if content is None else {**described, "content": dict(content)}


def operation(
    summary: str,
    description: str,
    parameters: Sequence[Members],
    content: Mapping[str, Any],
    headers: Sequence[str] = (),
) -> Mapping[str, Any]:
    """A GET operation that honours conditions and ranges; ``headers`` of its answers besides the tag."""
    sent = (TAG, *headers)
    parts = {**content, "multipart/byteranges": BINARY}
    return {
        "summary": summary,
        "description": description,
        "parameters": [*parameters, *CONDITIONS, *_RANGES],
        "responses": {
            "200": answer("The whole of it.", content, sent),
            "206": answer("The bytes that `Range` asked for.", parts, (*sent, "Content-Range")),
            "304": answer("`If-None-Match` holds: nothing was read.", headers=(TAG,)),
            **FAILED,
        },
    }


def page(summary: str, media_type: str, parameters: Sequence[Members] = ()) -> Members:
    """A GET operation that always has something to answer."""
    content = {media_type: {"schema": {"type": "object"} if media_type == JSON else TEXT}}
    responses = {"200": answer("The whole of it.", content), **FAILED}
    return {"summary": summary, "parameters": list(parameters), "responses": responses}
