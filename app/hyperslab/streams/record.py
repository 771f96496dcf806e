"""What the store holds of a stream beside its arrays: below ``.hyperslab.stream`` in its group, where no listing, route
or client shows it, and where it goes with the group.

``stream.json`` is the record, changed on condition; ``ID.json`` has the settings and never changes; ``ID/N/K`` is the
tail of the Nth array for its Kth group of rows, ``ID.frames/N/K`` are metadata of its frames (see `notes`). While a
stream writes to an array, the array's own document has a mark ``{"id", "up", "array", "level", "rows"}``: ``up`` is how
many names the stream's group lies above it, ``array`` its number, ``rows`` how many rows its chunks hold. Where the
shape does not say the same, somebody else has changed it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Literal, get_args

from hyperslab.arrays.lease import MOST_TRIES, attempts
from hyperslab.arrays.nodes import MountedStore
from hyperslab.cache import VersionedCache
from hyperslab.engine.jsontext import dump_json, parse_json
from hyperslab.errors import (
    BadMetadata,
    BadParameter,
    HyperslabError,
    InDoubt,
    StaleEpoch,
    StreamNotFound,
    WriteConflict,
)
from hyperslab.storage.base import ABSENT, Absent, VersionConflict
from hyperslab.storage.keys import HIDDEN
from hyperslab.streams.layout import Layout, StreamArray
from hyperslab.streams.settings import parse_settings
from hyperslab.wire.streams import StreamSettings

FOLDER: Final = f"{HIDDEN}.stream"
State = Literal["opening", "open", "closed", "finishing", "finished", "discarding"]

Ranges = list[tuple[int, int, str]]
"""Half-open ranges of frames, and why they are missing."""

_ID: Final = re.compile(r"[0-9a-f]{16}")
_PLANS: Final = 64 << 20
_LARGEST: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class ArrayRecord:
    """``missing``: of frames in chunks; ``error``: why it takes no more, and ``stored`` the bytes that it had by then;
    ``complete``: it was said to be; ``padded``: bytes that were made up."""

    missing: Ranges = field(default_factory=list)
    error: str | None = None
    stored: int = 0
    complete: bool = False
    padded: int = 0


@dataclass(frozen=True, slots=True)
class Record:
    """``made``: paths of the nodes that the stream has made, those above first; ``frames``: the document of frames in
    the group is the stream's; ``version``: that of the record."""

    id: str
    state: State
    epoch: int
    made: list[str]
    arrays: dict[str, ArrayRecord] = field(default_factory=dict)
    finished: str | None = None
    frames: bool = False
    version: str | None = None

    def array(self, key: str) -> ArrayRecord:
        return self.arrays.get(key, ArrayRecord())

    def check_epoch(self, epoch: int | None) -> None:
        """Raise `StaleEpoch` for a sender that has an older one; None stands for any."""
        if epoch is not None and epoch < self.epoch:
            raise StaleEpoch(epoch, self.epoch)

    def with_array(self, key: str, **changes: Any) -> Record:
        return replace(self, arrays={**self.arrays, key: replace(self.array(key), **changes)})


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """What never changes of a stream; ``arrays`` in the order of their numbers."""

    settings: StreamSettings
    layout: Layout
    arrays: tuple[StreamArray, ...]

    @classmethod
    def of(cls, settings: StreamSettings, path: str) -> StreamPlan:
        """The plan of a stream at a path. Raises as `Layout.of`."""
        layout = Layout.of(settings, path)
        return cls(settings, layout, tuple(layout.arrays.values()))

    def number(self, key: str) -> int:
        return list(self.layout.arrays).index(key)


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream as its record has it. ``prefix`` is that of its group."""

    mount: MountedStore
    prefix: str
    path: str
    record: Record
    plan: StreamPlan

    def array(self, key: str | None) -> tuple[int, StreamArray]:
        """The number of an array, and the array; None names the only one. Raises `BadParameter`."""
        arrays = self.plan.layout.arrays
        if not key and len(arrays) == 1:
            return 0, self.plan.arrays[0]
        if key is None or key not in arrays:
            known = ", ".join([repr(name) for name, _ in zip(arrays, range(8), strict=False)])
            raise BadParameter("key", key, f"the key of an array of the stream, such as {known}")
        return self.plan.number(key), arrays[key]

    def tails(self, number: int) -> str:
        return tail_prefix(self.prefix, self.record.id, number)

    def notes(self, number: int) -> str:
        return notes_prefix(self.prefix, self.record.id, number)


class Records:
    """Reads and changes the records of streams. ``prefix`` is that of a stream's group."""

    def __init__(self) -> None:
        self._plans = VersionedCache[StreamPlan](_PLANS)

    def get(self, mount: MountedStore, prefix: str) -> Record | None:
        """The record as it is now. Raises `BadMetadata`."""
        stored = mount.store.get(f"{prefix}{FOLDER}/stream.json", _LARGEST)
        if stored is None:
            return None
        try:
            document = parse_json(stored.data, limit=_LARGEST)
            arrays = {
                key: ArrayRecord(**{**each, "missing": [(int(a), int(b), str(why)) for a, b, why in each["missing"]]})
                for key, each in document.pop("arrays").items()
            }
            record = Record(**document, arrays=arrays, version=stored.version)
            numbers = [record.epoch, *[n for each in arrays.values() for n in (each.stored, each.padded)]]
            below = all(f"{made}/".startswith(f"{mount.path(prefix)}/") for made in record.made)
            fits = is_id(record.id) and record.state in get_args(State) and below
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise BadMetadata(f"{prefix}{FOLDER}/stream.json", None, str(error)) from error
        if not (fits and all(type(n) is int and n >= 0 for n in numbers)):
            reason = "its id, its state, its numbers or the nodes that it names are not those of a stream here"
            raise BadMetadata(f"{prefix}{FOLDER}/stream.json", None, reason)
        return record

    def put(self, mount: MountedStore, prefix: str, record: Record) -> Record:
        """Store a record in place of the one that it was made from; raises `VersionConflict`."""
        document = asdict(record)
        del document["version"]
        condition: str | Absent = ABSENT if record.version is None else record.version
        key = f"{prefix}{FOLDER}/stream.json"
        return replace(record, version=mount.store.put(key, dump_json(document), if_version=condition))

    def change(self, stream: Stream, change: Callable[[Record], Record]) -> Record:
        """Change the record of a stream; raises `StreamNotFound` where another is in its place, or none."""
        mount, prefix = stream.mount, stream.prefix
        for _ in attempts():
            record = self.get(mount, prefix)
            if record is None or record.id != stream.record.id:
                raise StreamNotFound(stream.path)
            changed = change(record)
            if changed == record:
                return record
            try:
                return self.put(mount, prefix, changed)
            except (VersionConflict, InDoubt):
                continue
        raise WriteConflict(f"{prefix}{FOLDER}/stream.json", f"other writers changed it {MOST_TRIES} times")

    def put_settings(self, mount: MountedStore, prefix: str, stream: str, settings: StreamSettings) -> None:
        mount.store.put(f"{prefix}{FOLDER}/{stream}.json", dump_json(settings.to_document()))

    def plan(self, mount: MountedStore, prefix: str, stream: str) -> StreamPlan | None:
        """The plan of a stream; None where its settings are gone. Raises `BadMetadata`."""
        name = (mount.name, prefix, stream)
        known = self._plans.get(name, "")
        if known is not None:
            return known
        key = f"{prefix}{FOLDER}/{stream}.json"
        stored = mount.store.get(key, _LARGEST)
        if stored is None:
            return None
        try:
            settings = parse_settings(parse_json(stored.data, limit=_LARGEST))
            found = StreamPlan.of(settings, mount.path(prefix))
        except (ValueError, HyperslabError) as error:
            raise BadMetadata(key, None, str(error)) from error
        self._plans.put(name, "", found, 8 * len(stored.data) + 1024)
        return found


def is_id(value: object) -> bool:
    """Whether a document may name a stream so: it becomes a part of keys."""
    return isinstance(value, str) and _ID.fullmatch(value) is not None


def tail_prefix(prefix: str, stream: str, number: int) -> str:
    """Where the tails of an array lie, by the prefix of the stream's group."""
    return f"{prefix}{FOLDER}/{stream}/{number}/"


def notes_prefix(prefix: str, stream: str, number: int) -> str:
    """Where the metadata of an array's frames lie, which stay when the stream is finished."""
    return f"{prefix}{FOLDER}/{stream}.frames/{number}/"
