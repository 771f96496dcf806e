"""A server of numpy arrays that speaks the client's wire, over a socket, with faults on demand.

It is written from the HTTP contract and shares nothing with the real server but `hyperslab.wire`: numpy does the work.
"""

from __future__ import annotations

import hashlib
import io
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import numpy as np

from hyperslab import errors, wire
from hyperslab.wire import SelectionItem

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Call:
    """A request as it came."""

    method: str
    route: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong with one request: ``answer`` in place of the real one, or a body that is cut off.

    ``cut_after`` is the number of bytes that are sent; ``lose_answer``: the request is carried out, then the
    connection is closed. ``before`` is called first. The fault waits for a request of its ``route`` and ``method``.
    """

    answer: Answer | None = None
    cut_after: int | None = None
    lose_answer: bool = False
    before: Callable[[], None] = lambda: None
    route: str = "slice"
    method: str = "GET"


@dataclass(eq=False)
class StoredArray:
    values: Array
    chunks: tuple[int, ...]
    members: dict[str, Any]


class Oracle:
    """Arrays and groups by path; `url` is the service's. ``calls`` are all requests in order, ``faults`` wait for
    theirs.

    ``max_body`` is the most bytes of values in one answer or upload.
    """

    def __init__(self) -> None:
        self.arrays: dict[str, StoredArray] = {}
        self.groups: dict[str, dict[str, Any]] = {"": {}, "store": {}}
        self.calls: list[Call] = []
        self.faults: list[Fault] = []
        self.max_body: int | None = None
        self.page = 1000
        self.url = ""
        self._appended: dict[str, Any] = {}
        self._lock = threading.RLock()

    def add(self, path: str, values: Array, chunks: tuple[int, ...], **members: Any) -> str:
        """Serve a copy of ``values``; the URL of its node document."""
        self.arrays[path] = StoredArray(values.copy(), chunks, {"attributes": {}, "order": "C", **members})
        return f"{self.url}/v1/metadata/{path}"

    def calls_of(self, route: str, method: str = "GET") -> list[Call]:
        return [call for call in self.calls if (call.route, call.method) == (route, method)]

    def answer(self, call: Call) -> Answer:
        with self._lock:
            try:
                return _ROUTES[call.method, call.route](self, call)
            except errors.HyperslabError as error:
                return problem(_STATUS[type(error)], error)

    def take_fault(self, call: Call) -> Fault | None:
        with self._lock:
            self.calls.append(call)
            for fault in self.faults:
                if (fault.route, fault.method) == (call.route, call.method):
                    self.faults.remove(fault)
                    return fault
        return None

    def array(self, path: str) -> StoredArray:
        if path not in self.arrays:
            raise errors.NodeNotFound(path)
        return self.arrays[path]

    def check_size(self, nbytes: int) -> None:
        if self.max_body is not None and nbytes > self.max_body:
            raise errors.TooLarge(what="values", requested=nbytes, limit=self.max_body)

    def append_once(self, key: str, work: Callable[[], Any]) -> Any:
        if key not in self._appended:
            self._appended[key] = work()
        return self._appended[key]


_STATUS: dict[type[errors.HyperslabError], int] = {
    errors.AppendConflict: 409,
    errors.BadBody: 400,
    errors.BadDefinition: 422,
    errors.BadSelection: 400,
    errors.FieldUnknown: 422,
    errors.IndexOutOfRange: 422,
    errors.NodeExists: 409,
    errors.NodeNotFound: 404,
    errors.RangeNotSatisfiable: 416,
    errors.TooLarge: 413,
    errors.TooManyIndices: 422,
}


def problem(status: int, error: errors.HyperslabError, headers: Mapping[str, str] | None = None) -> Answer:
    """A problem document as the server writes it."""
    facts = {"code": error.code, "title": error.title, "detail": str(error), "status": status, **error.facts()}
    return Answer(status, {"Content-Type": wire.PROBLEM, **(headers or {})}, json.dumps(facts).encode())


# --- routes ------------------------------------------------------------------------------------------------------


def _document(oracle: Oracle, path: str) -> dict[str, Any]:
    if path in oracle.groups:
        return {"kind": "group", "path": path, "attributes": oracle.groups[path]}
    stored = oracle.array(path)
    members = {key: value for key, value in stored.members.items() if key != "zarr_dtype"}
    return {
        "kind": "array",
        "path": path,
        "shape": stored.values.shape,
        "chunks": stored.chunks,
        "dtype": stored.members.get("zarr_dtype", wire.dtype_to_json(stored.values.dtype)),
        "limits": {"max_request_bytes": None},
        **members,
    }


def _get_metadata(oracle: Oracle, call: Call) -> Answer:
    document = _document(oracle, call.path)
    if document["kind"] == "group":
        document |= _children(oracle, call)
    return _json(document)


def _children(oracle: Oracle, call: Call) -> dict[str, Any]:
    below = f"{call.path}/" if call.path else ""
    kinds = dict.fromkeys(oracle.groups, "group") | dict.fromkeys(oracle.arrays, "array")
    names = {p.removeprefix(below): kind for p, kind in kinds.items() if p.startswith(below) and p != call.path}
    listed = sorted(name for name in names if name and "/" not in name)
    after = [name for name in listed if name > call.query.get("cursor", "")]
    count = min(int(call.query.get("limit", oracle.page)), oracle.page)
    shown = after[:count]
    cursor = shown[-1] if shown and len(after) > count else None
    return {"children": [{"name": n, "kind": names[n]} for n in shown], "next_cursor": cursor}


def _put_metadata(oracle: Oracle, call: Call) -> Answer:
    asked = json.loads(call.body)
    if call.path in oracle.arrays or call.path in oracle.groups:
        assert call.query["mode"] == "create"
        raise errors.NodeExists(path=call.path, kind="array" if call.path in oracle.arrays else "group")
    if asked.pop("kind") == "group":
        oracle.groups[call.path] = asked.get("attributes", {})
        return _json(_document(oracle, call.path), 201)
    shape, dtype = tuple(asked.pop("shape")), asked.pop("dtype")
    if any(length < 0 for length in shape):
        raise errors.BadDefinition(member="shape", reason="lengths are not negative")
    chunks = tuple(asked.pop("chunks", shape))
    values = np.zeros(shape, wire.dtype_from_json(dtype))
    oracle.add(call.path, values, chunks, **{"zarr_dtype": dtype, **asked})
    return _json(_document(oracle, call.path), 201)


def _patch_metadata(oracle: Oracle, call: Call) -> Answer:
    patch = json.loads(call.body)
    if call.path in oracle.groups:
        oracle.groups[call.path] = _merge(oracle.groups[call.path], patch["attributes"])
        return _json(_document(oracle, call.path))
    stored = oracle.array(call.path)
    if "attributes" in patch:
        stored.members["attributes"] = _merge(stored.members["attributes"], patch["attributes"])
    if "shape" in patch:
        shape = [old if new is None else new for new, old in zip(patch["shape"], stored.values.shape, strict=True)]
        _resize(stored, tuple(shape))
    return _json(_document(oracle, call.path))


def _delete_metadata(oracle: Oracle, call: Call) -> Answer:
    if call.path not in oracle.arrays and call.path not in oracle.groups:
        raise errors.NodeNotFound(call.path)
    oracle.arrays.pop(call.path, None)
    oracle.groups.pop(call.path, None)
    return Answer(204)


def _merge(current: Any, patch: Any) -> Any:
    """RFC 7396, its pseudocode."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(current) if isinstance(current, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = _merge(merged.get(name), value)
    return merged


def _resize(stored: StoredArray, shape: tuple[int, ...]) -> None:
    grown = np.zeros(shape, stored.values.dtype)
    common = tuple(slice(0, min(new, old)) for new, old in zip(shape, stored.values.shape, strict=True))
    grown[common] = stored.values[common]
    stored.values = grown


def _get_slice(oracle: Oracle, call: Call) -> Answer:
    values = _opened(oracle.array(call.path).values, call)
    chosen = values[(*mesh(call.query.get("select", ""), values.shape), ...)]
    return _values(oracle, chosen, call)


def _values(oracle: Oracle, values: Array, call: Call) -> Answer:
    headers = {wire.ARRAY_SHAPE: json.dumps(values.shape), wire.ARRAY_DTYPE: wire.format_dtype(values.dtype)}
    forms = {wire.JSON: "json", wire.RAW: "raw", wire.OBJECTS: "objects"}
    form = call.query.get("format") or forms[call.headers["Accept"]]
    if form == "objects":
        oracle.check_size(8 * values.size)
        body = wire.pack_objects(values.reshape(values.size).tolist())
        return _ranged(body, {**headers, "Content-Type": wire.OBJECTS}, call)
    if form == "json":
        oracle.check_size(8 * values.size)
        return Answer(200, {**headers, "Content-Type": wire.JSON}, json.dumps(values.tolist()).encode())
    oracle.check_size(values.nbytes)
    if form == "npy":
        file = io.BytesIO()
        np.save(file, np.asarray(values, order="C"))
        return _ranged(file.getvalue(), {**headers, "Content-Type": wire.NPY}, call)
    return _ranged(values.tobytes(), {**headers, "Content-Type": wire.RAW}, call)


def _ranged(body: bytes, headers: dict[str, str], call: Call) -> Answer:
    etag = '"' + hashlib.sha256(body + repr(headers).encode()).hexdigest()[:16] + '"'
    headers = {**headers, "ETag": etag}
    asked = call.headers.get("Range")
    if asked is None or call.headers.get("If-Range", etag) != etag:
        return Answer(200, headers, body)
    start = int(asked.removeprefix("bytes=").removesuffix("-"))
    if start >= len(body):
        raise errors.RangeNotSatisfiable(range=asked, size=len(body))
    return Answer(206, {**headers, "Content-Range": f"bytes {start}-{len(body) - 1}/{len(body)}"}, body[start:])


def _put_slice(oracle: Oracle, call: Call) -> Answer:
    values = _opened(oracle.array(call.path).values, call)
    index = mesh(call.query.get("select", ""), values.shape)
    oracle.check_size(len(call.body))
    values[index] = _body(call, values.dtype)
    return Answer(204)


def _body(call: Call, dtype: np.dtype[Any]) -> Any:
    """What was sent, checked against its headers."""
    match call.headers["Content-Type"]:
        case wire.JSON:
            return json.loads(call.body)
        case wire.NPY:
            return np.load(io.BytesIO(call.body))
        case wire.OBJECTS:
            shape = json.loads(call.headers.get(wire.ARRAY_SHAPE, "[]"))
            return np.array(wire.unpack_objects(call.body), object).reshape(shape)
    shape = json.loads(call.headers[wire.ARRAY_SHAPE])
    if wire.parse_dtype(call.headers[wire.ARRAY_DTYPE]) != dtype:
        raise errors.BadBody(reason="dtype", expected=str(dtype), found=call.headers[wire.ARRAY_DTYPE])
    return np.frombuffer(call.body, dtype).reshape(shape)


def _post_points(oracle: Oracle, call: Call) -> Answer:
    values = _opened(oracle.array(call.path).values, call)
    body = io.BytesIO(call.body)
    cells = tuple(np.load(body).T)
    if call.query.get("values") == "1":
        values[cells] = np.load(body)
        return Answer(204)
    return _values(oracle, values[cells], call)


def _post_append(oracle: Oracle, call: Call) -> Answer:
    stored = oracle.array(call.path)
    axis = int(call.query.get("axis", "0"))

    def append() -> dict[str, Any]:
        offset = stored.values.shape[axis]
        if int(call.query.get("at", offset)) != offset:
            raise errors.AppendConflict(path=call.path, axis=axis, at=int(call.query["at"]), length=offset)
        oracle.check_size(len(call.body))
        stored.values = np.concatenate([stored.values, _body(call, stored.values.dtype)], axis=axis)
        return {"offset": offset, "shape": stored.values.shape}

    return _json(oracle.append_once(call.headers[wire.IDEMPOTENCY_KEY], append))


def _opened(values: Array, call: Call) -> Array:
    name = call.query.get("field")
    if name is None:
        return values
    if name not in (values.dtype.names or ()):
        raise errors.FieldUnknown(path=call.path, field=name, fields=list(values.dtype.names or ()))
    opened: Array = values[name]
    return opened


def mesh(select: str, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """The numpy index of an orthogonal selection."""
    items: list[SelectionItem] = list(wire.parse_selection(select))
    if Ellipsis not in items:
        items.append(Ellipsis)
    at = items.index(Ellipsis)
    items[at : at + 1] = [slice(None)] * (len(shape) - len(items) + 1)
    for axis, (item, length) in enumerate(zip(items, shape, strict=True)):
        if isinstance(item, int) and not -length <= item < length:
            raise errors.IndexOutOfRange(axis=axis, index=item, size=length)
    kept = [axis for axis, item in enumerate(items) if not isinstance(item, int)]
    columns: list[Any] = []
    for axis, (item, length) in enumerate(zip(items, shape, strict=True)):
        taken = np.arange(length)[item]
        columns.append(taken.reshape([-1 if axis == k else 1 for k in kept]) if axis in kept else int(taken))
    return tuple(columns)


def _json(document: Any, status: int = 200) -> Answer:
    body = json.dumps(document).encode()
    etag = '"' + hashlib.sha256(body).hexdigest()[:16] + '"'
    return Answer(status, {"Content-Type": wire.JSON, "ETag": etag}, body)


_ROUTES: dict[tuple[str, str], Callable[[Oracle, Call], Answer]] = {
    ("GET", "metadata"): _get_metadata,
    ("PUT", "metadata"): _put_metadata,
    ("PATCH", "metadata"): _patch_metadata,
    ("DELETE", "metadata"): _delete_metadata,
    ("GET", "slice"): _get_slice,
    ("PUT", "slice"): _put_slice,
    ("POST", "points"): _post_points,
    ("POST", "append"): _post_append,
}


# --- the socket --------------------------------------------------------------------------------------------------


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    oracle: Oracle

    def _handle(self) -> None:
        parts = urlsplit(self.path)
        _, _, route, *tail = parts.path.split("/")
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = unquote("/".join(tail)).strip("/")
        call = Call(self.command, route, path, query, dict(self.headers.items()), body)
        fault = self.oracle.take_fault(call) or Fault()
        fault.before()
        answer = fault.answer or self.oracle.answer(call)
        if fault.lose_answer:
            self.close_connection = True
            return
        self._send(answer, fault.cut_after)

    def _send(self, answer: Answer, cut_after: int | None) -> None:
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body if cut_after is None else answer.body[:cut_after])
        self.close_connection = cut_after is not None

    do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = _handle  # noqa: N815 - http.server looks for these names

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Tests keep their output."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves in the middle is what some tests are about; all else shows."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def serve(oracle: Oracle) -> Iterator[Oracle]:
    """Serve ``oracle`` on a free port of the loopback while the context lasts."""
    handler = type("_BoundHandler", (_Handler,), {"oracle": oracle})
    server = _Server(("127.0.0.1", 0), handler)
    oracle.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield oracle
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def pause(seconds: float) -> Callable[[], None]:
    """For `Fault.before`: the server takes its time."""
    return lambda: time.sleep(seconds)
