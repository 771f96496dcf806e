"""What to do about each problem, by its code; docs/how-to/troubleshoot.md says it at more length, with links."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_BY_CODES: Final[Mapping[tuple[str, ...], str]] = {
    ("bad-selection",): (
        "`part` and `position` say which piece of `select` is not numpy's. In a shell, quote the URL; with curl, "
        "add `-g` where there are brackets. A `+` in a query is a space: write `%2B`"
    ),
    ("bad-parameter", "bad-request"): (
        "`name`, `value` and `expected` say what is wrong. Unknown parameters are refused because most of them are "
        "typing mistakes"
    ),
    ("bad-path",): (
        "the path contains `..`, `%2F`, a control character, or the service's own name `.hyperslab`; under `/zarr`, "
        "it is a key that no array can have"
    ),
    ("bad-body",): (
        "the body's length, shape or dtype: `expected` and `found`. For npy, `casting=same_kind` or `unsafe` allows "
        "more"
    ),
    ("client-stalled",): ("the body came too slowly, or nothing of it for `idle_seconds`: send it again"),
    ("not-http", "coding-unknown"): (
        "what arrived is not a valid HTTP/1.1 request: check the program that sent it, and proxies in between"
    ),
    ("head-too-large",): (
        "target and headers together have more than 64 KiB, mostly because of a long list of indices. Ask for it in "
        "parts, or as points"
    ),
    ("digest-mismatch",): ("the body was damaged or cut on the way: send it again"),
    ("unauthorized", "forbidden", "write-forbidden"): (
        "send `Authorization: Bearer …` with a token that the operator gave for this; the viewer page asks for it"
    ),
    ("foreign-origin",): ("a web page of another origin wants to change something: name its origin in `cors_origins`"),
    ("foreign-host",): (
        "the name in the URL is none that the service knows: use `localhost`, an address or a name without dots, or "
        "add it to `allowed_hosts`"
    ),
    ("read-only",): ("the store is not `writable` in the settings, or cannot be (archives, web servers)"),
    ("node-not-found", "not-found"): (
        "look at the group above: `GET /v1/metadata/{group}`. A path starts with the store's name"
    ),
    ("chunk-not-found", "key-not-found"): (
        "the chunk was never written: a Zarr client takes that for fill values. It is an error only if you ask for "
        "stored bytes, or with `fill_missing = false`"
    ),
    ("route-not-found", "method-not-allowed"): (
        "not a URL of the service: see `/docs`; the store's name comes after `/v1/slice/`"
    ),
    ("tile-not-found",): (
        "outside the picture; `info.json` has its size and zooms. With `empty=transparent` you get an empty picture "
        "instead"
    ),
    ("not-acceptable", "unsupported-media-type"): (
        "no answer has the type in `Accept`, or no body the one in `Content-Type`; `offered` and `expected` list "
        "the possible ones"
    ),
    ("node-exists",): (
        "something is there already: use it with `mode=open` (then `member` says what differs), replace it with "
        "`mode=replace`, or delete it with `recursive=true`. `keys` names what is in the way of a deletion: keys "
        "that are not of Zarr v2 go only with `foreign=true`"
    ),
    ("append-conflict",): (
        "somebody else appended: `length` is the current length. Leave `at` out if the place does not matter"
    ),
    ("write-conflict", "conflict"): (
        "other writers of the same chunk kept coming first: try again, and align writes to chunks if you can"
    ),
    ("array-changed",): ("the array was resized or replaced while the client read it: `refresh()` and read again"),
    ("precondition-failed",): (
        "somebody wrote since the tag was read; `current` is the tag now. Read, decide, write again (`change`)"
    ),
    ("too-large",): ("take the `boxes` one by one; or another format: raw and npy have no limit by default"),
    ("range-not-satisfiable",): ("your file is already complete, or you asked for more than 64 ranges at once"),
    ("bad-definition",): ("`member` names what is wrong in a new array or in a change"),
    ("field-required", "field-unknown"): ("`fields` lists those there are"),
    ("index-out-of-range", "too-many-indices"): ("`GET /v1/metadata/{path}` has the shape; others may have changed it"),
    ("not-representable",): (
        "these values cannot be written in this format, such as objects in npy, or three axes in CSV: choose "
        "another `format`"
    ),
    ("wrong-kind",): ("a group where an array is needed, or the reverse"),
    ("impossible",): ("understood, and impossible here: `detail` says why"),
    ("unsupported-format",): (
        "the node is of Zarr v3, which is not read yet: write it with `zarr_format=2` (zarr-python, xarray), or as "
        "OME-Zarr 0.4"
    ),
    ("bad-metadata", "codec-refused", "chunk-corrupt", "stored-too-large", "broken-data"): (
        "the store holds something broken: `key` names it. A codec that runs code (`pickle`) is always refused; "
        "`zfpy` and `pcodec` need the extra `codecs`. In a writable store you can delete a broken node, or put "
        "another in its place with `mode=replace`"
    ),
    ("store-failed", "store-timeout"): (
        "the store could not answer: look at `/readyz`; `timeout` and `retries` are settings of the store"
    ),
    ("store-denied",): ("the service's own credentials are refused by the store"),
    ("partly-conflicting",): (
        "another writer changed a chunk after the condition was checked: `written` are stored, `failed` are not. Read "
        "again, decide, and write again"
    ),
    ("write-in-doubt",): (
        "the store's answer was lost and another writer came: read, and write again if it is not there; repeat an "
        "append with its `Idempotency-Key`"
    ),
    ("store-full", "partly-written"): (
        "some chunks may be stored: `written` and `failed` list them. Make room, then repeat the request"
    ),
    ("consolidated-behind",): (
        "what you asked for is done, but a `.zmetadata` does not say so yet. Repeat the request to bring it up to "
        "date; repeat an append only with the same `Idempotency-Key`, or its rows are stored twice"
    ),
    ("overloaded",): (
        "too much at once: come back after `Retry-After` seconds. The operator can raise `bytes_in_flight`, or "
        "`request_threads` if `reason` speaks of writes"
    ),
    ("changed-while-read",): (
        "somebody writes what you read, at every attempt: come back after `Retry-After` seconds, or read smaller parts"
    ),
    ("internal-error",): ("a fault of the service: report it, with the lines that the log has under `id`"),
}

REMEDIES: Final[Mapping[str, str]] = {code: remedy for codes, remedy in _BY_CODES.items() for code in codes}
"""A sentence or two, in which backquotes mark code."""
