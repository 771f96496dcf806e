"""A process that is killed between two changes of a store, whichever these are: what it leaves shows nowhere, and is in
nobody's way."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np
import obstore
import pytest

from hyperslab.arrays.nodes import MountedStore
from hyperslab.arrays.service import Service, build
from hyperslab.errors import NodeExists, NodeNotFound
from hyperslab.storage import StoreConfig, objects, open_store
from tests.arrays.support import read_all
from tests.layouts import definition

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
    return found


@contextmanager
def service(name: str) -> Iterator[Service]:
    store = open_store(StoreConfig(name="data", url=f"memory://{name}", writable=True))
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
}


@pytest.mark.parametrize("follower", FOLLOWERS)
@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("state", STATES)
def test_what_is_left_shows_nowhere_and_is_in_nobodys_way(budget: Budget, state: str, act: str, follower: str) -> None:
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
            if follower != "a deletion above":
                assert (read_all(second, A) == 1).all()
                second.resizer.resize(A, [8, 8])
                assert (read_all(second, A) == 1).all()
                delete_above(second)
            left = [entry.key for entry in second.catalog.mounts["data"].store.list_prefix("")]
            assert [key for key in left if key not in DOCUMENTS] == []
        if spent:
            return


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
