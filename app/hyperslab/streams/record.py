"""Record of a stream beside its arrays: keys below ``.hyperslab.stream`` in its group, which no listing, route or
client shows, and which are removed with the group.

``stream.json`` is the record, changed by conditional puts; ``ID.json`` has the settings and never changes. Keys below
``ID/N/`` are the tail of the Nth array, keys below ``ID.frames/N/`` metadata of its frames (see `layout.StreamArray`).
While a stream writes to an array, the array's own document has a mark: see `heads.StreamMark`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, Final, Literal

from pydantic import Field, TypeAdapter

from hyperslab.arrays.lease import retried
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
)
from hyperslab.storage.base import ABSENT, Absent, VersionConflict
from hyperslab.storage.keys import STREAM
from hyperslab.streams.layout import StreamArray, StreamPlan
from hyperslab.streams.settings import StreamSettings, parse_settings
from hyperslab.streams.tail import Count

State = Literal["opening", "open", "closed", "finishing", "finished", "discarding"]

StreamId = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
"""Id of a stream, which becomes part of keys."""

Ranges = list[tuple[int, int, str]]
"""Half-open ranges of missing frames, each with its reason."""

_PLANS: Final = 64 << 20
_LARGEST: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class ArrayRecord:
    """Record of one array. ``missing``: frames that are in chunks as fill values; ``error``: why the array has failed,
    with the end that was ``stored`` by then; ``complete``: its sender has said so; ``padded``: bytes that were made
    up."""

    missing: Ranges = field(default_factory=list)
    error: str | None = None
    stored: Count = 0
    complete: bool = False
    padded: Count = 0


@dataclass(frozen=True, slots=True)
class Record:
    """Record of a stream. ``made``: paths of the nodes that it created, parents first; ``frames``: the group's document
    of frame metadata is its own; ``version``: the record's in the store."""

    id: StreamId
    state: State
    epoch: Count
    made: list[str]
    arrays: dict[str, ArrayRecord] = field(default_factory=dict)
    finished: str | None = None
    frames: bool = False
    version: str | None = None

    def array(self, key: str) -> ArrayRecord:
        return self.arrays.get(key, ArrayRecord())

    def check_epoch(self, epoch: int | None) -> None:
        """Raise `StaleEpoch` for a sender of an older epoch; None stands for any."""
        if epoch is not None and epoch < self.epoch:
            raise StaleEpoch(epoch, self.epoch)

    def with_array(self, key: str, **changes: Any) -> Record:
        return replace(self, arrays={**self.arrays, key: replace(self.array(key), **changes)})


_parse_record: Final = TypeAdapter(Record).validate_json


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream with the state of its record. ``prefix``: that of its group."""

    mount: MountedStore
    prefix: str
    record: Record
    plan: StreamPlan

    @property
    def path(self) -> str:
        return self.plan.path

    def array(self, key: str | None) -> StreamArray:
        """The array of a key; None names the only one. Raises `BadParameter`."""
        arrays = self.plan.by_key
        if not key and len(arrays) == 1:
            return self.plan.arrays[0]
        if key is None or key not in arrays:
            names = ", ".join([repr(name) for name, _ in zip(arrays, range(8), strict=False)])
            raise BadParameter("key", key, f"the key of an array of the stream, such as {names}")
        return arrays[key]


class Records:
    """Reads and changes the records of streams. ``prefix`` is that of a stream's group."""

    def __init__(self) -> None:
        self._plans = VersionedCache[StreamPlan](_PLANS)

    def get(self, mount: MountedStore, prefix: str) -> Record | None:
        """The current record; None if there is none. Raises `BadMetadata`."""
        key = f"{prefix}{STREAM}/stream.json"
        stored = mount.store.get(key, _LARGEST)
        if stored is None:
            return None
        try:
            record = _parse_record(bytes(stored.data), strict=True)
        except ValueError as error:
            raise BadMetadata(key, None, str(error)) from error
        if not all(f"{made}/".startswith(f"{mount.path(prefix)}/") for made in record.made):
            raise BadMetadata(key, "made", "some of the nodes that it names are not in its group")
        return replace(record, version=stored.version)

    def put(self, mount: MountedStore, prefix: str, record: Record) -> Record:
        """Store a record in place of the version that it was made from. Raises `VersionConflict`.

        After a lost answer it is put again unless it is there, or another one: no version of a record recurs, and the
        caller holds the stream's lock while there is none.
        """
        document = asdict(record)
        del document["version"]
        condition: str | Absent = ABSENT if record.version is None else record.version
        key, text = f"{prefix}{STREAM}/stream.json", dump_json(document)

        def attempt() -> Record:
            try:
                return replace(record, version=mount.store.put(key, text, if_version=condition))
            except InDoubt as error:
                now = self.get(mount, prefix)
                if now is not None and replace(now, version=record.version) == record:
                    return now
                if (None if now is None else now.version) != record.version:
                    raise VersionConflict(key, None) from error
                raise

        return retried(key, attempt, after=InDoubt)

    def change(self, stream: Stream, change: Callable[[Record], Record] = lambda record: record) -> Stream:
        """The stream after a ``change`` of its record, by default as it is now. Raises `StreamNotFound` if it is gone
        or replaced."""
        mount, prefix = stream.mount, stream.prefix

        def attempt() -> Stream:
            record = self.get(mount, prefix)
            if record is None or record.id != stream.record.id:
                raise StreamNotFound(stream.path)
            changed = change(record)
            return replace(stream, record=record if changed == record else self.put(mount, prefix, changed))

        return retried(stream.path, attempt)

    def put_settings(self, mount: MountedStore, prefix: str, stream: str, settings: StreamSettings) -> None:
        mount.store.put(f"{prefix}{STREAM}/{stream}.json", dump_json(settings.to_document()))

    def find(self, mount: MountedStore, prefix: str) -> Stream | None:
        """The stream of a group; None if there is none. Raises `BadMetadata`."""
        record = self.get(mount, prefix)
        plan = None if record is None else self.plan(mount, prefix, record.id)
        return None if record is None or plan is None else Stream(mount, prefix, record, plan)

    def plan(self, mount: MountedStore, prefix: str, stream: str) -> StreamPlan | None:
        """The plan of a stream, by its id; None if its settings are gone. Raises `BadMetadata`."""
        name = (mount.name, prefix, stream)
        version = self._plans.get(name, "")
        if version is not None:
            return version
        key = f"{prefix}{STREAM}/{stream}.json"
        stored = mount.store.get(key, _LARGEST)
        if stored is None:
            return None
        try:
            document = parse_json(stored.data, limit=_LARGEST)
            if isinstance(document, dict) and document.get("ack") == "memory":  # of a version that had it
                document["ack"] = "tail"
            settings = parse_settings(document)
            planned = StreamPlan.of(settings, mount.path(prefix), stream)
        except (ValueError, HyperslabError) as error:
            raise BadMetadata(key, None, str(error)) from error
        self._plans.put(name, "", planned, 8 * len(stored.data) + 1024)
        return planned
