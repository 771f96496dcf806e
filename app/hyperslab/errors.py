"""Exceptions. Their fields are the facts of the error, which problem documents contain.

Each class has a stable ``code``, a title, an HTTP status (by default its base's), and a ``sentence``, a format string
of the facts with the conversions ``!j`` (JSON), ``!b`` (JSON, but text without quotes), ``!l`` (list, separated by
commas), and ``!c`` (preceded by a colon; empty for None). `from_facts` is the inverse, for the client.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from itertools import islice
from string import Formatter
from types import MappingProxyType
from typing import Any, ClassVar, Final, cast, dataclass_transform


def shown(value: Any) -> str:
    """A value for an error message: JSON, with text in single quotes.

    Truncated to 120 characters, 60 of each text, 8 items of each list and mapping, and 3 nested ones.
    """
    text = _shown(value, 0)
    return text if len(text) <= 120 else f"{text[:119]}…"


def _shown(value: Any, depth: int) -> str:
    match value:
        case str():
            text = value if len(value) <= 60 else f"{value[:60]}…"
            return json.dumps(text, ensure_ascii=False) if depth else repr(text)
        case None | bool() | float():
            return json.dumps(value)
        case int() if value.bit_length() > 200:
            return f"an integer of {value.bit_length()} bits"
        case Mapping() | list() | tuple():
            opening, closing = "{}" if isinstance(value, Mapping) else "[]"
            inner = islice(value, 0 if depth == 3 else 8)
            parts = [_shown(item, depth + 1) for item in inner]
            if isinstance(value, Mapping):
                parts = [
                    f"{name}: {_shown(item, depth + 1)}" for name, item in zip(parts, value.values(), strict=False)
                ]
            return opening + ", ".join([*parts, *(["…"] if len(value) > len(parts) else [])]) + closing
    return str(value)


def _bare(value: Any) -> str:
    """`shown`, but text without quotes."""
    return value if isinstance(value, str) else shown(value)


class _Sentences(Formatter):
    """Formatter of sentences."""

    def convert_field(self, value: Any, conversion: str | None) -> Any:
        match conversion:
            case "j":
                return shown(value)
            case "b":
                return _bare(value)
            case "l":
                return ", ".join(value)
            case "c":
                return "" if value is None else f": {value}"
            case _:
                return super().convert_field(value, conversion)


ERRORS: Final[dict[str, type[HyperslabError]]] = {}
"""The classes by code."""


@dataclass_transform(eq_default=False, field_specifiers=(field,))
@dataclass(eq=False)
class HyperslabError(Exception):
    """Base of the exceptions of this package; subclasses are dataclasses of their facts."""

    code: ClassVar[str] = "error"
    title: ClassVar[str] = "Error"
    http_status: ClassVar[int] = 500
    sentence: ClassVar[str] = ""
    extra = cast("Mapping[str, Any]", MappingProxyType({}))
    """Further members of the problem document, such as the progress of the request."""

    def __init_subclass__(cls, *, code: str = "", title: str = "", status: int = 0) -> None:
        cls.code, cls.title = code or cls.code, title or cls.title
        cls.http_status = status or cls.http_status
        cls.__doc__ = cls.__doc__ or f"{cls.title}."  # which dataclass would make of the signature, slowly
        dataclass(eq=False)(cls)
        if code:
            ERRORS[code] = cls

    def __str__(self) -> str:
        return _Sentences().vformat(self.sentence, (), vars(self)) or self.title

    def facts(self) -> dict[str, Any]:
        """The fields by name: JSON-ready values."""
        return {f: getattr(self, f) for f in cast("tuple[str, ...]", self.__match_args__)}

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), HyperslabError.facts(self))


def _rebuild(cls: type[HyperslabError], facts: dict[str, Any]) -> HyperslabError:
    return cls(**facts)


class BadRequest(HyperslabError, code="bad-request", title="Malformed request", status=400):
    pass


class BadSelection(BadRequest, code="bad-selection", title="Malformed selection"):
    """``part`` is the invalid text, ``position`` its offset in ``select`` in characters."""

    select: str
    part: str
    position: int
    reason: str
    sentence = "select={select!r}: {part!r} at position {position}: {reason}"


class BadParameter(BadRequest, code="bad-parameter", title="Invalid parameter value"):
    name: str
    value: Any
    expected: str
    sentence = "{name}={value!j}: expected {expected}"


class BadPath(BadRequest, code="bad-path", title="Invalid path"):
    path: str
    reason: str
    sentence = "path {path!r}: {reason}"


class BadBody(BadRequest, code="bad-body", title="Invalid request body"):
    reason: str
    expected: Any = None
    found: Any = None

    def __str__(self) -> str:
        if self.expected is None and self.found is None:
            return self.reason
        return f"{self.reason}: expected {_bare(self.expected)}, found {_bare(self.found)}"


class DigestMismatch(BadRequest, code="digest-mismatch", title="Digest mismatch"):
    algorithm: str
    expected: str
    found: str
    sentence = "Content-Digest {algorithm}: sent {expected}, the body has {found}"


class ClientStalled(BadRequest, code="client-stalled", title="Request body timeout", status=408):
    received: int
    seconds: float
    sentence = "after {received} bytes of the body, nothing came for {seconds} seconds, or too little for longer"


class NotHttp(BadRequest, code="not-http", title="Not an HTTP/1.1 request"):
    reason: str
    sentence = "{reason}"


class HeadTooLarge(BadRequest, code="head-too-large", title="Request headers too large", status=431):
    limit: int
    sentence = "the target and the headers of a request may have {limit} bytes together"


class CodingUnknown(BadRequest, code="coding-unknown", title="Unknown transfer coding", status=501):
    found: str
    expected: str
    sentence = "Transfer-Encoding: {found}: expected {expected}"


class MethodNotAllowed(BadRequest, code="method-not-allowed", title="Method not allowed", status=405):
    method: str
    allowed: list[str]
    sentence = "{method}: allowed are {allowed!l}"


class Impossible(HyperslabError, code="impossible", title="Well-formed, but not possible", status=422):
    pass


class IndexOutOfRange(Impossible, IndexError, code="index-out-of-range", title="Index out of bounds"):
    axis: int
    index: int
    size: int
    sentence = "index {index} is out of bounds for axis {axis} with size {size}"


class TooManyIndices(Impossible, IndexError, code="too-many-indices", title="Too many indices"):
    given: int
    rank: int
    sentence = "{given} indices were given for an array of {rank} axes"


class LabelNotFound(Impossible, LookupError, code="label-not-found", title="No such label"):
    """``nearest``: labels that are there, as text."""

    path: str
    dimension: str
    label: str
    reason: str
    nearest: list[str]

    def __str__(self) -> str:
        near = f"; there are {' and '.join(self.nearest)}" if self.nearest else ""
        return f"{self.label} of {self.path!r}: {self.reason}{near}"


class NoCoordinate(LabelNotFound, code="no-coordinate", title="No coordinate for labels"):
    pass


class FieldRequired(Impossible, code="field-required", title="The array is structured: select one of its fields"):
    path: str
    fields: list[str]
    sentence = "{path!r} is structured: name one of its fields {fields!j}"


class FieldUnknown(Impossible, code="field-unknown", title="The array has no such field"):
    """``fields`` is empty if the dtype is not structured."""

    path: str
    field: str
    fields: list[str]

    def __str__(self) -> str:
        fields = f"its fields are {shown(self.fields)}" if self.fields else "its dtype has no fields"
        return f"{self.path!r} has no field {self.field!r}: {fields}"


class WrongKind(Impossible, code="wrong-kind", title="The node is of another kind"):
    path: str
    kind: str
    wanted: str

    def __str__(self) -> str:
        article, wanted = ("a", "an") if self.wanted == "array" else ("an", "a")
        return f"{self.path!r} is {article} {self.kind}, not {wanted} {self.wanted}"


class NotRepresentable(Impossible, code="not-representable", title="Values not representable in this format"):
    dtype: Any
    wanted: str
    reason: str
    sentence = "dtype {dtype!b} as {wanted}: {reason}"


class BadDefinition(Impossible, code="bad-definition", title="Invalid definition"):
    """``member`` is the invalid member of the request."""

    member: str
    reason: str
    sentence = "{member}: {reason}"


class StreamFull(Impossible, code="stream-full", title="More frames than the array has room for"):
    """``size`` and ``requested`` are in bytes."""

    path: str
    size: int
    requested: int
    sentence = "{path!r} has room for {size} bytes, this body would make it {requested}: none of it was stored"


class PartialFrame(Impossible, code="partial-frame", title="The last frame is not whole"):
    """``partial`` and ``frame`` are in bytes."""

    path: str
    partial: int
    frame: int
    sentence = "{path!r} ends with {partial} bytes of a frame of {frame}: pad=true fills it up, drop=true leaves it out"


class NotFound(HyperslabError, code="not-found", title="Not found", status=404):
    pass


class NodeNotFound(NotFound, code="node-not-found", title="No array or group at this path"):
    path: str
    sentence = "there is no array and no group at {path!r}"


class ChunkNotFound(NotFound, code="chunk-not-found", title="Chunk not found: it was never written"):
    path: str
    key: str
    sentence = "chunk {key!r} of {path!r} was never written"


class KeyNotFound(NotFound, code="key-not-found", title="Key not found in the store"):
    key: str
    sentence = "the store has no key {key!r}"


class FormNotFound(KeyNotFound, code="form-not-found", title="This Zarr format has no such node"):
    """The node exists, but cannot be represented in the format of ``/zarr2`` or ``/zarr3``."""

    reason: str
    sentence = "{key!r}: {reason}"


class TileNotFound(NotFound, code="tile-not-found", title="Tile not found"):
    path: str
    tile: str
    reason: str
    sentence = "tile {tile} of {path!r}: {reason}"


class StreamNotFound(NotFound, code="stream-not-found", title="No stream here"):
    path: str
    sentence = "there is no stream at {path!r}"


class RouteNotFound(NotFound, code="route-not-found", title="No route for this URL"):
    """Not a path of the service; see `NodeNotFound` for paths in stores."""

    path: str
    sentence = "no route leads to {path!r}: /v1 and /docs list those that exist"


class Conflict(HyperslabError, code="conflict", title="Conflict with the stored state", status=409):
    pass


class NodeExists(Conflict, code="node-exists", title="Node already exists"):
    """``member`` is the first member that differs, if an existing node was to be opened; ``keys`` are some of the keys
    below the node; ``reason``: why the first of them is not served, and cannot be removed, nor any other."""

    path: str
    kind: str
    member: str | None = None
    wanted: Any = None
    found: Any = None
    keys: list[str] = field(default_factory=list)
    reason: str | None = None

    def __str__(self) -> str:
        if self.member is None:
            return f"there is already a node ({self.kind}) at {self.path!r}"
        if self.member == "children":
            keys = ", ".join(map(repr, self.keys)) or repr(self.found)
            if self.reason is not None:
                return (
                    f"below {self.path!r} is what no request can remove, such as {keys} ({self.reason}): a recursive "
                    "deletion leaves it, and tools of the store can remove it"
                )
            return (
                f"{self.path!r} has children or other keys below it, such as {keys}: a recursive deletion takes "
                "nodes of Zarr v2, and with foreign=true all else too"
            )
        return f"{self.path!r} exists with {self.member}={shown(self.found)}, not {shown(self.wanted)}"


class AppendConflict(Conflict, code="append-conflict", title="Append offset does not match the length of the array"):
    path: str
    axis: int
    at: int
    length: int
    sentence = "append to {path!r} at={at}, but axis {axis} has length {length}"


class WriteConflict(Conflict, code="write-conflict", title="Conflicting write"):
    key: str
    reason: str
    sentence = "{key!r}: {reason}"


class ArrayChanged(Conflict, code="array-changed", title="The array has changed"):
    """``member``: ``shape``, ``dtype``, ``size`` or ``values``."""

    path: str
    member: str
    expected: Any
    found: Any
    sentence = "the {member} of {path!r} changed meanwhile: expected {expected!b}, found {found!b}"


class StreamConflict(Conflict, code="stream-conflict", title="Stream already exists"):
    """``member`` is the path of the first setting that differs, if the stream was to be resumed."""

    path: str
    member: str | None = None

    def __str__(self) -> str:
        if self.member is None:
            return f"there is already a stream at {self.path!r}: if_exists=resume goes on with it"
        return f"the stream at {self.path!r} has other settings: {self.member} differs"


class CompletedUpload(Conflict, code="completed-upload", title="Upload already complete"):
    path: str
    sentence = "{path!r} takes no more frames: its upload was declared complete"


class MismatchingUploadOffset(Conflict, code="mismatching-upload-offset", title="Upload offset mismatch"):
    """Offsets in bytes of the array at ``path``; ``reason`` if the offsets agree but the bytes differ."""

    path: str
    expected_offset: int
    provided_offset: int
    reason: str | None = None
    sentence = "{path!r}: offset {provided_offset} was sent, {expected_offset} bytes are stored{reason!c}"

    def facts(self) -> dict[str, Any]:
        return {name.replace("_", "-"): value for name, value in super().facts().items()}


class StaleEpoch(Conflict, code="stale-epoch", title="The stream was resumed by another sender"):
    sent: int
    current: int
    sentence = "Stream-Epoch {sent} was sent, the stream has been resumed as {current} since"


class ArrayFailed(Conflict, code="array-failed", title="An array of the stream has failed"):
    path: str
    reason: str
    sentence = "{path!r} takes no frames: {reason}; if_exists=resume tries again"


class PreconditionFailed(HyperslabError, code="precondition-failed", title="Precondition failed", status=412):
    """``current`` is the current tag; None if nothing exists."""

    header: str
    sent: str
    current: str | None

    def __str__(self) -> str:
        return f"{self.header}: {self.sent} was sent, the current tag is {self.current or '(nothing there)'}"


class TooLarge(HyperslabError, code="too-large", title="Request too large", status=413):
    """``requested`` and ``limit`` are in ``unit``; ``boxes`` are smaller selections within the limit, ``advice`` is
    text for requests without selections."""

    what: str
    requested: int
    limit: int
    unit: str = "bytes"
    boxes: list[str] = field(default_factory=list)
    advice: str = ""

    def __str__(self) -> str:
        text = f"{self.what}: {self.requested} {self.unit}, the limit is {self.limit}"
        return f"{text}; {self.advice}" if self.advice else text


class NotAcceptable(HyperslabError, code="not-acceptable", title="No acceptable format", status=406):
    accept: str
    offered: list[str]
    sentence = "Accept: {accept}: offered are {offered!l}"


class UnsupportedMediaType(HyperslabError, code="unsupported-media-type", title="Unsupported media type", status=415):
    found: str
    expected: list[str]
    header: str = "Content-Type"
    sentence = "{header} {found!r}: expected one of {expected!l}"


class RangeNotSatisfiable(HyperslabError, code="range-not-satisfiable", title="Byte range out of bounds", status=416):
    """``size`` is in bytes."""

    range: str
    size: int
    sentence = "Range: {range}: the whole has {size} bytes"


class Unauthorized(HyperslabError, code="unauthorized", title="Authentication required", status=401):
    reason: str
    sentence = "{reason}"
    challenges = cast("tuple[str, ...]", ("Bearer",))
    """Challenge of the header ``WWW-Authenticate``."""


class LinkExpired(HyperslabError, code="link-expired", title="This link has ended", status=401):
    ended: str
    sentence = "this link ended at {ended}: who made it can make another one"


class LinkInvalid(HyperslabError, code="link-invalid", title="This link was altered", status=401):
    sentence = "the signature of this link does not fit: a part of it was changed, or left out"


class LinkRevoked(HyperslabError, code="link-revoked", title="This link was ended", status=401):
    sentence = "this link was signed with a key that the service has no more: who made it can make another one"


class Forbidden(HyperslabError, code="forbidden", title="Forbidden", status=403):
    pass


class ReadOnly(Forbidden, code="read-only", title="The store is read-only"):
    store: str
    sentence = "the store {store!r} is read-only: the operator can make it writable"


class WriteForbidden(Forbidden, code="write-forbidden", title="This token does not permit this change"):
    """``action``: the one that is missing: write, create or delete."""

    action: str = "write"
    path: str = ""
    sentence = "the action {action!r} at {path!r} is not allowed with this token or link"


class ReadForbidden(Forbidden, code="read-forbidden", title="This token does not permit reading"):
    """Refusal to read a key of a store, whether it is there or not: to Zarr clients a 404 is a chunk of fill values."""

    action: str
    path: str
    sentence = "the action {action!r} at {path!r} is not allowed with this token or link"


class ForeignOrigin(Forbidden, code="foreign-origin", title="Pages of other origins may not write"):
    origin: str
    host: str
    sentence = (
        "the request comes from a page of {origin}, not of {host}: pages of other origins may make changes only if the "
        "setting cors_origins lists them"
    )


class ForeignHost(Forbidden, code="foreign-host", title="Unknown host name"):
    host: str
    sentence = (
        "this service accepts no changes under the host name {host!r}: use localhost or an IP address, or add the name "
        "to the setting allowed_hosts"
    )


class BrokenData(HyperslabError, code="broken-data", title="Stored data is broken", status=502):
    """The status is never 404, which means fill values to a Zarr client."""


class BadMetadata(BrokenData, code="bad-metadata", title="Invalid metadata document"):
    """``member`` is the invalid member, None for the whole document."""

    key: str
    member: str | None
    reason: str
    sentence = "{key}{member!c}: {reason}"


class CodecRefused(BrokenData, code="codec-refused", title="Codec not allowed"):
    """``member`` is the codec's place in the document, such as ``compressor`` or ``filters[0]``."""

    key: str
    codec: str
    reason: str
    member: str | None = None
    sentence = "{key}{member!c}: codec {codec!r}: {reason}"


class CodecUnknown(CodecRefused, title="Unknown codec"):
    """A `CodecRefused` of a name that stands for nothing here; ``code`` is the same."""


class ChunkCorrupt(BrokenData, code="chunk-corrupt", title="A chunk cannot be decoded"):
    """``codec`` is the one that failed, None for a wrong size."""

    key: str
    codec: str | None
    reason: str

    def __str__(self) -> str:
        by = f" by {self.codec!r}" if self.codec else ""
        return f"chunk {self.key!r} cannot be decoded{by}: {self.reason}"


class StoredTooLarge(BrokenData, code="stored-too-large", title="Stored value too large"):
    """A document or chunk of ``size`` bytes, more than ``limit``; it was not read."""

    key: str
    size: int
    limit: int
    sentence = "{key!r} has {size} bytes, the limit is {limit}"


class StoreError(HyperslabError, code="store-failed", title="Store request failed", status=502):
    """``key``: empty if all of the store fails. ``place``: the bucket and its endpoint. ``written`` and ``failed`` are
    chunk keys of an incomplete write, which is safe to repeat."""

    store: str
    key: str
    reason: str
    written: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    place: str | None = None

    def __str__(self) -> str:
        key = f", key {self.key!r}" if self.key else ""
        place = f" ({self.place})" if self.place else ""
        part = f" ({len(self.written)} chunks were written, {len(self.failed)} were not)" if self.failed else ""
        return f"store {self.store!r}{key}: {self.reason}{place}{part}"


class StoreTimeout(StoreError, code="store-timeout", title="Store request timed out", status=504):
    pass


class StoreFull(StoreError, code="store-full", title="Store out of space", status=507):
    pass


class StoreDenied(StoreError, code="store-denied", title="The store refused the service's credentials"):
    pass


class InDoubt(StoreError, code="write-in-doubt", title="Outcome of the write unknown"):
    """The store's response was lost and another writer followed: it is unknown whether this write was applied."""


class PartlyWritten(StoreError, code="partly-written", title="Only some chunks were written"):
    """A write was interrupted, but not by an error of the store."""


class PartlyConflicting(
    PartlyWritten, code="partly-conflicting", title="Conflicting write: only some chunks were written", status=409
):
    """Write of which one of the ``failed`` chunks was changed by another writer."""


class ConsolidatedBehind(StoreError, code="consolidated-behind", title="Consolidated metadata out of date"):
    """The change is done; ``key`` is consolidated metadata that does not contain it yet."""

    sentence = "store {store!r}: the change is done, but the copy of the metadata in {key!r} is out of date: {reason}"
    __str__ = HyperslabError.__str__


class Overloaded(HyperslabError, code="overloaded", title="Service overloaded", status=503):
    """``retry_after`` is in seconds."""

    reason: str
    retry_after: int = 1
    sentence = "{reason}; try again in {retry_after} s"


class ChangedWhileRead(Overloaded, code="changed-while-read", title="Changed while it was read"):
    """Other writers changed the data at each attempt to read it."""


class Cancelled(HyperslabError, code="cancelled", title="Client disconnected", status=499):
    """The client has disconnected; the status appears only in metrics."""


class RemoteProblem(HyperslabError, code="remote-problem", title="Server error", status=502):
    """A problem with an unknown code, or a response that is not from a Hyperslab server."""

    status: int
    detail: str
    sentence = "HTTP {status}: {detail}"


class Unreachable(HyperslabError, ConnectionError, code="unreachable", title="Server unreachable", status=502):
    """No complete response after ``attempts``; ``cause`` is the transport's exception, which a traceback leaves out."""

    host: str
    port: int
    reason: str
    attempts: int = 1
    cause = cast("Exception | None", None)

    def __str__(self) -> str:
        tried = f" after {self.attempts} attempts" if self.attempts > 1 else ""
        return f"{self.host} port {self.port} cannot be reached{tried}: {self.reason}"


class BadSettings(Exception):
    """Invalid settings of the service, with a sentence for each error."""


def from_facts(code: str, facts: Mapping[str, Any]) -> HyperslabError | None:
    """The error of a problem document; None if the code is unknown or a fact is missing."""
    cls = ERRORS.get(code)
    if cls is None:
        return None
    named = {name.replace("-", "_"): fact for name, fact in facts.items()}
    try:
        return cls(**{f.name: named[f.name] for f in fields(cls) if f.name in named})
    except TypeError:  # a fact is missing: from another version of the server
        return None
