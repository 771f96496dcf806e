"""Everything that can go wrong, as facts.

    HyperslabError
    ├── BadRequest                 the request cannot be understood
    │   ├── BadSelection             select= text, with the part and its position
    │   ├── BadParameter             a query parameter or header
    │   ├── BadPath                  a path or key that no store may hold
    │   ├── BadBody                  a body of the wrong length, shape, dtype or syntax
    │   ├── DigestMismatch           the body is not what Content-Digest says
    │   ├── ClientStalled            nothing of a body came for too long
    │   ├── NotHttp                  not a request as HTTP/1.1 has them
    │   ├── HeadTooLarge             a target and headers that are too long
    │   ├── CodingUnknown            a Transfer-Encoding that cannot be undone
    │   └── MethodNotAllowed         not a method of this resource
    ├── Impossible                 understood, but this node cannot do it
    │   ├── IndexOutOfRange          an index beyond an axis
    │   ├── TooManyIndices           more indices than axes
    │   ├── FieldRequired            a structured array, and no field named
    │   ├── FieldUnknown             a field that the dtype does not have
    │   ├── WrongKind                a group where an array is needed, or the reverse
    │   ├── NotRepresentable         these values have no form in the asked format or dtype
    │   └── BadDefinition            a new array or group that cannot be
    ├── NotFound
    │   ├── NodeNotFound             no array and no group at this path
    │   ├── ChunkNotFound            in the grid, never written
    │   ├── KeyNotFound              no such key in the store
    │   ├── TileNotFound             outside the picture, or no such level
    │   └── RouteNotFound            no path of the service at all
    ├── Conflict
    │   ├── NodeExists               something is there already
    │   ├── AppendConflict           at= is not the current length
    │   ├── WriteConflict            another writer came first, again and again
    │   └── ArrayChanged             (client) the array is no longer what the caller took it for
    ├── PreconditionFailed         If-Match / If-None-Match did not hold
    ├── TooLarge                   over a cap; says what would fit
    ├── NotAcceptable              no format that the client takes
    ├── UnsupportedMediaType       no body of this type can be read
    ├── RangeNotSatisfiable        the byte range lies outside
    ├── Unauthorized               who are you?
    ├── Forbidden
    │   ├── ReadOnly                 this store takes no writes
    │   ├── WriteForbidden           this token may not write
    │   ├── ForeignOrigin            a web page of another origin wants to change something
    │   └── ForeignHost              a name that may be a stranger's
    ├── BrokenData                 what the store holds is not Zarr v2
    │   ├── BadMetadata              a document with a wrong member
    │   ├── CodecRefused             a codec that is unknown or not allowed
    │   ├── ChunkCorrupt             a chunk that does not decode to its size
    │   ├── StoredTooLarge           a document or chunk that is larger than it can have to be
    │   └── UnsupportedFormat        a node of a format that is not read, such as Zarr v3
    ├── StoreError                 the store could not answer (never "absent")
    │   ├── StoreTimeout
    │   ├── StoreFull
    │   ├── StoreDenied              the store refused our credentials
    │   ├── InDoubt                  perhaps stored, and overwritten since
    │   ├── PartlyWritten            some chunks of a write are stored, some are not
    │   │   └── PartlyConflicting      because another writer came first
    │   └── ConsolidatedBehind       done, but a .zmetadata does not say so yet
    ├── Overloaded                 try again later
    │   └── ChangedWhileRead         somebody writes what is being read
    ├── Cancelled                  the client has left; nobody reads the answer
    ├── RemoteProblem              (client) another problem, or an answer of something else
    └── Unreachable                (client) the server cannot be reached, or sends no whole answer

Each class has a stable ``code``, which is what travels in a problem document; its dataclass fields are the
facts, and travel as members. `from_facts` turns a code and facts back into the same class (the client does).
No HTTP here: `api/problems.py` maps classes to statuses.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from itertools import islice
from typing import Any, ClassVar, Final

_SHOWN: Final = 120
_SHOWN_PART: Final = 60
_SHOWN_DEPTH: Final = 3
_SHOWN_ITEMS: Final = 8
_SHOWN_BITS: Final = 200


def shown(value: Any) -> str:
    """A value as it may stand in a sentence: as JSON spells it, short, whatever was sent; text in single quotes."""
    text = _shown(value, 0)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def _shown(value: Any, depth: int) -> str:
    match value:
        case str():
            text = value if len(value) <= _SHOWN_PART else f"{value[:_SHOWN_PART]}…"
            return json.dumps(text, ensure_ascii=False) if depth else repr(text)
        case None | bool() | float():
            return json.dumps(value)
        case int() if value.bit_length() > _SHOWN_BITS:
            return f"an integer of {value.bit_length()} bits"
        case Mapping() | list() | tuple():
            opening, closing = "{}" if isinstance(value, Mapping) else "[]"
            inner = islice(value, 0 if depth == _SHOWN_DEPTH else _SHOWN_ITEMS)
            parts = [_shown(item, depth + 1) for item in inner]
            if isinstance(value, Mapping):
                parts = [
                    f"{name}: {_shown(item, depth + 1)}" for name, item in zip(parts, value.values(), strict=False)
                ]
            return opening + ", ".join([*parts, *(["…"] if len(value) > len(parts) else [])]) + closing
    return str(value)


def _bare(value: Any) -> str:
    """As `shown`, but text, which is a part of the sentence, without quotes."""
    return value if isinstance(value, str) else shown(value)


@dataclass(eq=False)
class HyperslabError(Exception):
    """Base of all errors that this package raises on purpose."""

    code: ClassVar[str] = "error"
    title: ClassVar[str] = "Error"

    def __str__(self) -> str:
        return self.title

    def facts(self) -> dict[str, Any]:
        """The fields by name: JSON-ready values."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.facts())


def _rebuild(cls: type[HyperslabError], facts: dict[str, Any]) -> HyperslabError:
    return cls(**facts)


@dataclass(eq=False)
class BadRequest(HyperslabError):
    code: ClassVar[str] = "bad-request"
    title: ClassVar[str] = "The request cannot be understood"


@dataclass(eq=False)
class BadSelection(BadRequest):
    """``part`` is the offending text, ``position`` its offset (characters) in ``select``."""

    code: ClassVar[str] = "bad-selection"
    title: ClassVar[str] = "The selection cannot be understood"
    select: str
    part: str
    position: int
    reason: str

    def __str__(self) -> str:
        return f"select={self.select!r}: {self.part!r} at position {self.position}: {self.reason}"


@dataclass(eq=False)
class BadParameter(BadRequest):
    code: ClassVar[str] = "bad-parameter"
    title: ClassVar[str] = "A parameter has a value it cannot have"
    name: str
    value: Any
    expected: str

    def __str__(self) -> str:
        return f"{self.name}={shown(self.value)}: expected {self.expected}"


@dataclass(eq=False)
class BadPath(BadRequest):
    code: ClassVar[str] = "bad-path"
    title: ClassVar[str] = "Not a path that a store can hold"
    path: str
    reason: str

    def __str__(self) -> str:
        return f"path {self.path!r}: {self.reason}"


@dataclass(eq=False)
class BadBody(BadRequest):
    code: ClassVar[str] = "bad-body"
    title: ClassVar[str] = "The body does not fit the request"
    reason: str
    expected: Any = None
    found: Any = None

    def __str__(self) -> str:
        if self.expected is None and self.found is None:
            return self.reason
        return f"{self.reason}: expected {_bare(self.expected)}, found {_bare(self.found)}"


@dataclass(eq=False)
class DigestMismatch(BadRequest):
    code: ClassVar[str] = "digest-mismatch"
    title: ClassVar[str] = "The body does not have the digest that was sent with it"
    algorithm: str
    expected: str
    found: str

    def __str__(self) -> str:
        return f"Content-Digest {self.algorithm}: sent {self.expected}, the body has {self.found}"


@dataclass(eq=False)
class ClientStalled(BadRequest):
    code: ClassVar[str] = "client-stalled"
    title: ClassVar[str] = "The body stopped coming"
    received: int
    seconds: float

    def __str__(self) -> str:
        return f"after {self.received} bytes of the body nothing came for {self.seconds} seconds, or little for longer"


@dataclass(eq=False)
class NotHttp(BadRequest):
    code: ClassVar[str] = "not-http"
    title: ClassVar[str] = "Not a request as HTTP/1.1 has them"
    reason: str

    def __str__(self) -> str:
        return self.reason


@dataclass(eq=False)
class HeadTooLarge(BadRequest):
    code: ClassVar[str] = "head-too-large"
    title: ClassVar[str] = "The head of a request is too long"
    limit: int

    def __str__(self) -> str:
        return f"the target and the headers of a request may have {self.limit} bytes together"


@dataclass(eq=False)
class CodingUnknown(BadRequest):
    code: ClassVar[str] = "coding-unknown"
    title: ClassVar[str] = "A transfer coding that cannot be undone"
    found: str
    expected: str

    def __str__(self) -> str:
        return f"Transfer-Encoding: {self.found}: expected {self.expected}"


@dataclass(eq=False)
class MethodNotAllowed(BadRequest):
    code: ClassVar[str] = "method-not-allowed"
    title: ClassVar[str] = "Not a method of this resource"
    method: str
    allowed: list[str]

    def __str__(self) -> str:
        return f"{self.method}: allowed are {', '.join(self.allowed)}"


@dataclass(eq=False)
class Impossible(HyperslabError):
    code: ClassVar[str] = "impossible"
    title: ClassVar[str] = "Well-formed, but it cannot be done here"


@dataclass(eq=False)
class IndexOutOfRange(Impossible, IndexError):
    code: ClassVar[str] = "index-out-of-range"
    title: ClassVar[str] = "An index lies outside the array"
    axis: int
    index: int
    size: int

    def __str__(self) -> str:
        return f"index {self.index} is out of bounds for axis {self.axis} with size {self.size}"


@dataclass(eq=False)
class TooManyIndices(Impossible, IndexError):
    code: ClassVar[str] = "too-many-indices"
    title: ClassVar[str] = "More indices than the array has axes"
    given: int
    rank: int

    def __str__(self) -> str:
        return f"{self.given} indices were given for an array of {self.rank} axes"


@dataclass(eq=False)
class FieldRequired(Impossible):
    code: ClassVar[str] = "field-required"
    title: ClassVar[str] = "The array is structured: name one of its fields"
    path: str
    fields: list[str]

    def __str__(self) -> str:
        return f"{self.path!r} is structured: name one of its fields {shown(self.fields)}"


@dataclass(eq=False)
class FieldUnknown(Impossible):
    """``fields`` is empty where the dtype has none."""

    code: ClassVar[str] = "field-unknown"
    title: ClassVar[str] = "The array has no such field"
    path: str
    field: str
    fields: list[str]

    def __str__(self) -> str:
        known = f"its fields are {shown(self.fields)}" if self.fields else "its dtype has no fields"
        return f"{self.path!r} has no field {self.field!r}: {known}"


@dataclass(eq=False)
class WrongKind(Impossible):
    code: ClassVar[str] = "wrong-kind"
    title: ClassVar[str] = "The node is of another kind"
    path: str
    kind: str
    wanted: str

    def __str__(self) -> str:
        found, wanted = ("a", "an") if self.wanted == "array" else ("an", "a")
        return f"{self.path!r} is {found} {self.kind}, not {wanted} {self.wanted}"


@dataclass(eq=False)
class NotRepresentable(Impossible):
    code: ClassVar[str] = "not-representable"
    title: ClassVar[str] = "The values cannot be given in this form"
    dtype: Any
    wanted: str
    reason: str

    def __str__(self) -> str:
        return f"dtype {_bare(self.dtype)} as {self.wanted}: {self.reason}"


@dataclass(eq=False)
class BadDefinition(Impossible):
    """``member`` is the member of the request that is wrong."""

    code: ClassVar[str] = "bad-definition"
    title: ClassVar[str] = "This cannot be created or changed as asked"
    member: str
    reason: str

    def __str__(self) -> str:
        return f"{self.member}: {self.reason}"


@dataclass(eq=False)
class NotFound(HyperslabError):
    code: ClassVar[str] = "not-found"
    title: ClassVar[str] = "Not found"


@dataclass(eq=False)
class NodeNotFound(NotFound):
    code: ClassVar[str] = "node-not-found"
    title: ClassVar[str] = "No array and no group here"
    path: str

    def __str__(self) -> str:
        return f"there is no array and no group at {self.path!r}"


@dataclass(eq=False)
class ChunkNotFound(NotFound):
    code: ClassVar[str] = "chunk-not-found"
    title: ClassVar[str] = "This chunk was never written"
    path: str
    key: str

    def __str__(self) -> str:
        return f"chunk {self.key!r} of {self.path!r} was never written"


@dataclass(eq=False)
class KeyNotFound(NotFound):
    code: ClassVar[str] = "key-not-found"
    title: ClassVar[str] = "No such key in the store"
    key: str

    def __str__(self) -> str:
        return f"the store has no key {self.key!r}"


@dataclass(eq=False)
class TileNotFound(NotFound):
    code: ClassVar[str] = "tile-not-found"
    title: ClassVar[str] = "No such tile"
    path: str
    tile: str
    reason: str

    def __str__(self) -> str:
        return f"tile {self.tile} of {self.path!r}: {self.reason}"


@dataclass(eq=False)
class RouteNotFound(NotFound):
    """Not a path of the service at all; `NodeNotFound` is the answer for what no store has."""

    code: ClassVar[str] = "route-not-found"
    title: ClassVar[str] = "The service has nothing at this URL"
    path: str

    def __str__(self) -> str:
        return f"no route leads to {self.path!r}: /v1 and /docs list those that exist"


@dataclass(eq=False)
class Conflict(HyperslabError):
    code: ClassVar[str] = "conflict"
    title: ClassVar[str] = "In conflict with what is stored"


@dataclass(eq=False)
class NodeExists(Conflict):
    """``member`` names what differs where an existing node was to be opened with constraints; ``keys`` are the first
    few of those that are in the way."""

    code: ClassVar[str] = "node-exists"
    title: ClassVar[str] = "Something is there already"
    path: str
    kind: str
    member: str | None = None
    wanted: Any = None
    found: Any = None
    keys: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        if self.member is None:
            return f"there is already a node ({self.kind}) at {self.path!r}"
        if self.member == "children":
            found = ", ".join(map(repr, self.keys)) or repr(self.found)
            return (
                f"{self.path!r} has children or other keys below it, such as {found}: a recursive deletion takes "
                "nodes of Zarr v2, and with foreign=true all else too"
            )
        return f"{self.path!r} exists with {self.member}={shown(self.found)}, not {shown(self.wanted)}"


@dataclass(eq=False)
class AppendConflict(Conflict):
    code: ClassVar[str] = "append-conflict"
    title: ClassVar[str] = "The array does not end where the append was to begin"
    path: str
    axis: int
    at: int
    length: int

    def __str__(self) -> str:
        return f"append to {self.path!r} at={self.at}, but axis {self.axis} has length {self.length}"


@dataclass(eq=False)
class WriteConflict(Conflict):
    code: ClassVar[str] = "write-conflict"
    title: ClassVar[str] = "Another writer came first"
    key: str
    reason: str

    def __str__(self) -> str:
        return f"{self.key!r}: {self.reason}"


@dataclass(eq=False)
class ArrayChanged(Conflict):
    """``member`` (shape, dtype or values) was ``expected`` by a client and is now ``found``."""

    code: ClassVar[str] = "array-changed"
    title: ClassVar[str] = "The array was changed meanwhile"
    path: str
    member: str
    expected: Any
    found: Any

    def __str__(self) -> str:
        expected, found = _bare(self.expected), _bare(self.found)
        return f"the {self.member} of {self.path!r} changed meanwhile: expected {expected}, found {found}"


@dataclass(eq=False)
class PreconditionFailed(HyperslabError):
    """``current`` is the tag that would match now; None where nothing is there."""

    code: ClassVar[str] = "precondition-failed"
    title: ClassVar[str] = "The precondition does not hold"
    header: str
    sent: str
    current: str | None

    def __str__(self) -> str:
        return f"{self.header}: {self.sent} was sent, the current tag is {self.current or '(nothing there)'}"


@dataclass(eq=False)
class TooLarge(HyperslabError):
    """``requested`` and ``limit`` in ``unit``; ``boxes`` are selections, each of which fits; ``advice`` says what would
    where no selection does."""

    code: ClassVar[str] = "too-large"
    title: ClassVar[str] = "More than one request may ask for"
    what: str
    requested: int
    limit: int
    unit: str = "bytes"
    boxes: list[str] = field(default_factory=list)
    advice: str = ""

    def __str__(self) -> str:
        text = f"{self.what}: {self.requested} {self.unit}, the limit is {self.limit}"
        return f"{text}; {self.advice}" if self.advice else text


@dataclass(eq=False)
class NotAcceptable(HyperslabError):
    code: ClassVar[str] = "not-acceptable"
    title: ClassVar[str] = "No format that the client accepts"
    accept: str
    offered: list[str]

    def __str__(self) -> str:
        return f"Accept: {self.accept}: offered are {', '.join(self.offered)}"


@dataclass(eq=False)
class UnsupportedMediaType(HyperslabError):
    code: ClassVar[str] = "unsupported-media-type"
    title: ClassVar[str] = "A body of this type cannot be read"
    found: str
    expected: list[str]
    header: str = "Content-Type"

    def __str__(self) -> str:
        return f"{self.header} {self.found!r}: expected one of {', '.join(self.expected)}"


@dataclass(eq=False)
class RangeNotSatisfiable(HyperslabError):
    """``size`` in bytes."""

    code: ClassVar[str] = "range-not-satisfiable"
    title: ClassVar[str] = "The byte range lies outside"
    range: str
    size: int

    def __str__(self) -> str:
        return f"Range: {self.range}: the whole has {self.size} bytes"


@dataclass(eq=False)
class Unauthorized(HyperslabError):
    code: ClassVar[str] = "unauthorized"
    title: ClassVar[str] = "Credentials are needed"
    reason: str

    def __str__(self) -> str:
        return self.reason


@dataclass(eq=False)
class Forbidden(HyperslabError):
    code: ClassVar[str] = "forbidden"
    title: ClassVar[str] = "Not allowed"


@dataclass(eq=False)
class ReadOnly(Forbidden):
    code: ClassVar[str] = "read-only"
    title: ClassVar[str] = "The store is read-only"
    store: str

    def __str__(self) -> str:
        return f"the store {self.store!r} is read-only: the operator can make it writable"


@dataclass(eq=False)
class WriteForbidden(Forbidden):
    """The token may read, and only read."""

    code: ClassVar[str] = "write-forbidden"
    title: ClassVar[str] = "This token may not write"


@dataclass(eq=False)
class ForeignOrigin(Forbidden):
    code: ClassVar[str] = "foreign-origin"
    title: ClassVar[str] = "A page of another origin may not change anything"
    origin: str
    host: str

    def __str__(self) -> str:
        return (
            f"the request comes from a page of {self.origin}, not of {self.host}: pages of other origins may change "
            "something only if the setting cors_origins names them"
        )


@dataclass(eq=False)
class ForeignHost(Forbidden):
    code: ClassVar[str] = "foreign-host"
    title: ClassVar[str] = "Not a name of this service"
    host: str

    def __str__(self) -> str:
        return (
            f"{self.host!r} is no name under which this service takes changes: use localhost or an address, or name it "
            "in the setting allowed_hosts"
        )


@dataclass(eq=False)
class BrokenData(HyperslabError):
    code: ClassVar[str] = "broken-data"
    title: ClassVar[str] = "What the store holds is broken"


@dataclass(eq=False)
class BadMetadata(BrokenData):
    """``member`` is the wrong member, or None where the document as a whole is."""

    code: ClassVar[str] = "bad-metadata"
    title: ClassVar[str] = "A metadata document is broken"
    key: str
    member: str | None
    reason: str

    def __str__(self) -> str:
        where = self.key if self.member is None else f"{self.key}: {self.member}"
        return f"{where}: {self.reason}"


@dataclass(eq=False)
class CodecRefused(BrokenData):
    """``member`` is where the codec stands: ``compressor`` or ``filters[0]``."""

    code: ClassVar[str] = "codec-refused"
    title: ClassVar[str] = "A codec is unknown or not allowed"
    key: str
    codec: str
    reason: str
    member: str | None = None

    def __str__(self) -> str:
        where = self.key if self.member is None else f"{self.key}: {self.member}"
        return f"{where}: codec {self.codec!r}: {self.reason}"


@dataclass(eq=False)
class ChunkCorrupt(BrokenData):
    """``codec`` is the one that failed, None where the size is wrong."""

    code: ClassVar[str] = "chunk-corrupt"
    title: ClassVar[str] = "A chunk cannot be decoded"
    key: str
    codec: str | None
    reason: str

    def __str__(self) -> str:
        by = f" by {self.codec!r}" if self.codec else ""
        return f"chunk {self.key!r} cannot be decoded{by}: {self.reason}"


@dataclass(eq=False)
class StoredTooLarge(BrokenData):
    """A document or chunk of ``size`` bytes where at most ``limit`` make sense; nothing of it was read."""

    code: ClassVar[str] = "stored-too-large"
    title: ClassVar[str] = "A stored value is too large to be read"
    key: str
    size: int
    limit: int

    def __str__(self) -> str:
        return f"{self.key!r} has {self.size} bytes, the limit is {self.limit}"


@dataclass(eq=False)
class UnsupportedFormat(BrokenData):
    """A node that is sound, but of another format than Zarr v2; ``key`` is its document."""

    code: ClassVar[str] = "unsupported-format"
    title: ClassVar[str] = "A node of a format that is not read yet"
    path: str
    key: str

    def __str__(self) -> str:
        return f"{self.path!r} is of Zarr v3 ({self.key}): only Zarr v2 is read, as zarr_format=2 writes it"


@dataclass(eq=False)
class StoreError(HyperslabError):
    """Where a write had begun, ``written`` and ``failed`` are chunk keys; repeating the request is safe."""

    code: ClassVar[str] = "store-failed"
    title: ClassVar[str] = "The store could not answer"
    store: str
    key: str
    reason: str
    written: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        part = f" ({len(self.written)} chunks were written, {len(self.failed)} were not)" if self.failed else ""
        return f"store {self.store!r}, key {self.key!r}: {self.reason}{part}"


@dataclass(eq=False)
class StoreTimeout(StoreError):
    code: ClassVar[str] = "store-timeout"
    title: ClassVar[str] = "The store did not answer in time"


@dataclass(eq=False)
class StoreFull(StoreError):
    code: ClassVar[str] = "store-full"
    title: ClassVar[str] = "The store has no space left"


@dataclass(eq=False)
class StoreDenied(StoreError):
    code: ClassVar[str] = "store-denied"
    title: ClassVar[str] = "The store refused the service's credentials"


@dataclass(eq=False)
class InDoubt(StoreError):
    """An answer was lost, and another writer came before anybody could look: was ours stored in between?"""

    code: ClassVar[str] = "write-in-doubt"
    title: ClassVar[str] = "Whether it was stored is not known"


@dataclass(eq=False)
class PartlyWritten(StoreError):
    """Something other than the store ended a write half way."""

    code: ClassVar[str] = "partly-written"
    title: ClassVar[str] = "Only a part of the chunks was written"


@dataclass(eq=False)
class PartlyConflicting(PartlyWritten):
    """Another writer came first at one of the chunks that are ``failed``."""

    code: ClassVar[str] = "partly-conflicting"
    title: ClassVar[str] = "Another writer came first; only a part of the chunks was written"


@dataclass(eq=False)
class ConsolidatedBehind(StoreError):
    """What was asked is done and published; ``key`` is a copy of the metadata that does not say so yet."""

    code: ClassVar[str] = "consolidated-behind"
    title: ClassVar[str] = "It is done, but consolidated metadata does not say so yet"

    def __str__(self) -> str:
        return f"store {self.store!r}: what was asked is done, but {self.key!r} does not say so yet: {self.reason}"


@dataclass(eq=False)
class Overloaded(HyperslabError):
    """``retry_after`` in seconds."""

    code: ClassVar[str] = "overloaded"
    title: ClassVar[str] = "Too much at once"
    reason: str
    retry_after: int = 1

    def __str__(self) -> str:
        return f"{self.reason}; try again in {self.retry_after} s"


@dataclass(eq=False)
class ChangedWhileRead(Overloaded):
    """Somebody has written what was being read, and at every new attempt again."""

    code: ClassVar[str] = "changed-while-read"
    title: ClassVar[str] = "It was written while it was read"


@dataclass(eq=False)
class Cancelled(HyperslabError):
    code: ClassVar[str] = "cancelled"
    title: ClassVar[str] = "The client has left"


@dataclass(eq=False)
class RemoteProblem(HyperslabError):
    """A problem whose code this version does not know, or an answer that is none of this service."""

    code: ClassVar[str] = "remote-problem"
    title: ClassVar[str] = "The server reported a problem"
    status: int
    detail: str

    def __str__(self) -> str:
        return f"HTTP {self.status}: {self.detail}"


@dataclass(eq=False)
class Unreachable(HyperslabError, ConnectionError):
    """No answer, or none that was whole, after ``attempts``; the transport's own exception is the cause."""

    code: ClassVar[str] = "unreachable"
    title: ClassVar[str] = "The server cannot be reached"
    host: str
    port: int
    reason: str
    attempts: int = 1

    def __str__(self) -> str:
        tried = f" after {self.attempts} attempts" if self.attempts > 1 else ""
        return f"{self.host} port {self.port} cannot be reached{tried}: {self.reason}"


def all_errors() -> Iterator[type[HyperslabError]]:
    """Every class of the tree, bases first."""
    waiting: list[type[HyperslabError]] = [HyperslabError]
    while waiting:
        cls = waiting.pop(0)
        yield cls
        waiting.extend(cls.__subclasses__())


def from_facts(code: str, facts: Mapping[str, Any]) -> HyperslabError | None:
    """The error that a problem document stands for; None where the code or a fact is unknown."""
    cls = next((c for c in all_errors() if c.code == code), None)
    if cls is None:
        return None
    try:
        return cls(**{f.name: facts[f.name] for f in fields(cls) if f.name in facts})
    except TypeError:  # a fact is missing: an older or newer server
        return None
