"""A process that is killed between two changes of a store, whichever these are: what it leaves shows nowhere, and is in
nobody's way."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import obstore
import pytest

from hyperslab.arrays.nodes import MountedStore
from hyperslab.arrays.service import Service, build
from hyperslab.errors import MismatchingUploadOffset, NodeExists, NodeNotFound, StreamConflict, StreamNotFound
from hyperslab.storage import StoreConfig, files, local, objects, open_store, scan
from hyperslab.streams.commit import Committer
from hyperslab.streams.heads import Rows
from hyperslab.streams.layout import StreamArray
from hyperslab.streams.service import Streams
from hyperslab.streams.settings import parse_settings
from tests.arrays.support import read_all
from tests.layouts import definition
from tests.streams.support import image

A = "data/g/a"
DOCUMENTS = (".zgroup", "zarr.json")
Act = Callable[[Service], object]


class Killed(BaseException):
    """Nothing handles it, and nothing that comes after it reaches the store."""


class Budget:
    """Changes of the store that are left until the process is killed."""

    def __init__(self) -> None:
        self.left = float("inf")

    def spend(self, change: Callable[..., Any]) -> Callable[..., Any]:
        def limited(*args: Any, **options: Any) -> Any:
            if self.left <= 0:
                raise Killed
            self.left -= 1
            return change(*args, **options)

        return limited


@pytest.fixture
def budget(monkeypatch: pytest.MonkeyPatch) -> Budget:
    found = Budget()
    changes = {"put": found.spend(obstore.put), "delete": found.spend(obstore.delete)}
    monkeypatch.setattr(objects, "obstore", SimpleNamespace(**{**vars(obstore), **changes}))
    in_folder = {name: found.spend(getattr(os, name)) for name in ("unlink", "rename", "link", "rmdir", "mkdir")}
    for module in (files, local, scan):
        monkeypatch.setattr(module, "os", SimpleNamespace(**{**vars(os), **in_folder}))
    return found


@contextmanager
def service(url: str) -> Iterator[Service]:
    url = url if url.startswith("/") else f"memory://{url}"
    store = open_store(StoreConfig(name="data", url=url, writable=True))
    found = build([MountedStore("data", store, writable=True)])
    try:
        yield found
    finally:
        found.close()


def create(layout: str, mode: Any = "create", path: str = A) -> Act:
    members = definition(layout, [4, 4], [2, 2], fill_value=1)
    return lambda service: service.creator.create_array(path, members, mode=mode)


def group(service: Service) -> None:
    service.creator.create_group(A, {}, mode="open")


def delete(service: Service) -> None:
    service.creator.delete(A, recursive=True)


def delete_above(service: Service) -> None:
    service.creator.delete("data/g", recursive=True)


STATES: dict[str, dict[str, str]] = {"an array": {A: "v2"}, "a group": {f"{A}/x": "v2", f"{A}/y": "shards"}}
ACTS: dict[str, Act] = {"delete": delete, "replace": create("v3", "replace")}
FOLLOWERS: dict[str, tuple[Act, ...]] = {
    "an array": (create("v2", "replace"),),
    "an array in place of a group": (group, create("v2", "replace")),
    "a deletion above": (delete_above,),
    "the deletion again": (delete,),
}


@pytest.mark.parametrize("follower", FOLLOWERS)
@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("state", STATES)
def test_leftovers_of_a_killed_step_are_listed_nowhere_and_stop_no_later_request(
    budget: Budget, state: str, act: str, follower: str
) -> None:
    """And is gone when what lies above it has been deleted."""
    for kill_after in count():
        budget.left = float("inf")
        with service(f"{state}-{act}-{follower}-{kill_after}") as first:
            for path, layout in STATES[state].items():
                create(layout, path=path)(first)
                first.writer.write(path, (), np.array(8, "<i4"))
            budget.left = kill_after
            with suppress(Killed):
                ACTS[act](first)
            spent = budget.left
        budget.left = float("inf")

        with service(f"{state}-{act}-{follower}-{kill_after}") as second:
            for step in FOLLOWERS[follower]:
                with suppress(NodeExists if step is group else NodeNotFound):  # as far as the killed one has come
                    step(second)
            if "deletion" not in follower:
                assert (read_all(second, A) == 1).all()
                second.resizer.resize(A, [8, 8])
                assert (read_all(second, A) == 1).all()
                delete_above(second)
            left = {entry.key for entry in second.catalog.mounts["data"].store.list_prefix("")}
            above = {"g/.zgroup"} if follower == "the deletion again" else set()
            assert left - {*DOCUMENTS} == above
        if spent:
            return


SETTINGS = parse_settings({"arrays": [image("a")]})


@contextmanager
def streams(url: str) -> Iterator[tuple[Service, Streams]]:
    with service(url) as found, closing(Streams(found.catalog, found.reader, found.creator, found.in_flight)) as ours:
        yield found, ours


STEP = 1 if "TEST_KILLS" in os.environ else 3
UNHURT = 1_000_000
STREAMED: dict[str, Callable[[Service, Streams], object]] = {
    "open": lambda _, ours: ours.open("data/run", SETTINGS, "error"),
    "replace": lambda _, ours: ours.open("data/run", SETTINGS, "replace"),
    "finish": lambda _, ours: ours.finish("data/run"),
    "discard": lambda _, ours: ours.discard("data/run"),
    "delete": lambda service, _: service.creator.delete("data/run", recursive=True),
}


@pytest.mark.parametrize(
    ("act", "kind"), [*[(act, "bucket") for act in STREAMED], ("discard", "folder"), ("delete", "folder")]
)
def test_a_stream_whose_process_is_killed_goes_on_and_leaves_nothing_when_it_is_discarded(
    budget: Budget, tmp_path: Path, act: str, kind: str
) -> None:
    kills, step = [UNHURT], STEP if kind == "bucket" else 6 * STEP
    for kill_after in kills:
        budget.left, url = float("inf"), f"stream-{act}-{kill_after}"
        if kind == "folder":
            (tmp_path / url).mkdir()
            url = str(tmp_path / url)
        with streams(url) as (first, ours):
            if act != "open":
                STREAMED["open"](first, ours)
                with ours.upload("data/run", "a", 0) as upload:
                    upload.append(np.full(90, 5, "<u2").tobytes(), b"1")
                    upload.append(np.full(5 * 90, 5, "<u2").tobytes())
            budget.left = kill_after
            with suppress(Killed):
                STREAMED[act](first, ours)
            if kill_after == UNHURT:
                steps = UNHURT - int(budget.left)
                kills += sorted({*range(0, steps, step), *range(steps - 10, steps)})
        budget.left = float("inf")

        with streams(url) as (second, ours):
            # as far as the killed one has come
            with suppress(StreamConflict if act == "open" else StreamNotFound, NodeNotFound):
                STREAMED[act](second, ours)
            if act not in ("discard", "delete"):
                assert read_all(second, "data/run/a/0").shape[0] == (3 if act == "finish" else 0)
                ours.discard("data/run")
            left = [entry.key for entry in second.catalog.mounts["data"].store.list_with_streams("")]
            assert [key for key in left if key not in DOCUMENTS] == []


def test_a_skip_that_was_killed_is_not_taken_for_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole groups of missing rows are noted before they are stored."""
    commit = Committer.commit

    def killed(committer: Committer, array: StreamArray, rows: int, source: Rows | None, **options: bool) -> None:
        if source is None:
            raise Killed
        commit(committer, array, rows, source, **options)

    with streams(str(tmp_path)) as (service, ours), monkeypatch.context() as patch:
        STREAMED["open"](service, ours)
        ours.array("data/run", "a", writing=True).skip(1, "late", 0)
        patch.setattr(Committer, "commit", killed)
        with pytest.raises(Killed):
            ours.array("data/run", "a", writing=True).skip(11, "late", 1)
    with streams(str(tmp_path)) as (_, ours):
        with pytest.raises(MismatchingUploadOffset):
            ours.array("data/run", "a", writing=True).skip(11, "late", 1)
        ours.array("data/run", "a", writing=True).skip(8, "late", 4)
        state = ours.state("data/run")["arrays"]["a"]
        assert (state["accepted"], state["missing"]) == (12, [(0, 12)])


CONSOLIDATED: dict[str, tuple[str, dict[str, Any]]] = {
    "v2": (".zmetadata", {"zarr_consolidated_format": 1, "metadata": {}}),
    "v3": (
        "zarr.json",
        {
            "zarr_format": 3,
            "node_type": "group",
            "consolidated_metadata": {"kind": "inline", "must_understand": False, "metadata": {}},
        },
    ),
}


def names_in(service: Service, layout: str) -> tuple[set[str], set[str]]:
    """The documents in the consolidated metadata of the root, and those below it in the store."""
    store, (key, _) = service.catalog.mounts["data"].store, CONSOLIDATED[layout]
    stored = store.get(key)
    assert stored is not None
    whole = json.loads(bytes(stored.data))
    known = whole.get("consolidated_metadata", whole)["metadata"]
    names = {name if layout == "v2" else f"{name}/zarr.json" for name in known}
    ours = (".zarray", ".zattrs", *DOCUMENTS)
    found = {entry.key for entry in store.list_prefix("") if entry.key.rpartition("/")[2] in ours}
    return names, found - {key}


@pytest.mark.parametrize("act", ["create", "delete"])
@pytest.mark.parametrize("layout", CONSOLIDATED)
def test_consolidated_metadata_names_no_array_that_is_gone_and_all_when_the_request_is_repeated(
    budget: Budget, layout: str, act: str
) -> None:
    for kill_after in count():
        budget.left = float("inf")
        with service(f"{layout}-{act}-{kill_after}") as first:
            key, document = CONSOLIDATED[layout]
            first.key_writer.put(f"data/{key}", json.dumps(document).encode())
            if act == "delete":
                create(layout)(first)
            budget.left = kill_after
            with suppress(Killed):
                (create(layout) if act == "create" else delete)(first)
            spent = budget.left
        budget.left = float("inf")

        with service(f"{layout}-{act}-{kill_after}") as second:
            known, found = names_in(second, layout)
            assert known <= found
            with suppress(NodeNotFound):
                (create(layout, "open") if act == "create" else delete)(second)
            known, found = names_in(second, layout)
            assert known == found
        if spent:
            return
