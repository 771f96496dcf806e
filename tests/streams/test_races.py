"""Streams beside what others do at the same moment: senders, replicas, commits, cancelled requests, lost answers."""

from __future__ import annotations

import asyncio
import json
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Literal
from unittest.mock import Mock

import httpx
import numpy as np
import pytest
import zarr

from hyperslab.arrays import documents
from hyperslab.arrays.create import Creator
from hyperslab.arrays.nodes import MountedStore
from hyperslab.asgi import create_app
from hyperslab.errors import HyperslabError, InDoubt, Overloaded, StoreError, StoreFull, WriteConflict
from hyperslab.settings import Settings, StoreSettings
from hyperslab.storage.base import Store
from hyperslab.storage.conditional import ConditionalPuts
from hyperslab.streams.commit import Committer
from hyperslab.streams.layout import StreamArray
from hyperslab.streams.record import Record, Records, Stream
from hyperslab.streams.service import Streams, Upload
from hyperslab.streams.tail import TailLog
from hyperslab.streams.tails import FolderTail, Tails
from hyperslab.streams.writer import ArrayCommits, ArrayFence
from tests.faults import Before, FaultProxy
from tests.s3 import S3Server
from tests.server import running_server, wait_until
from tests.streams.model import Model, Sender
from tests.streams.samples import (
    ARRAYS,
    BOTH,
    T,
    check_files,
    check_reads,
    folder,
    frames_of,
    opened,
)
from tests.streams.support import Lab, client_of, dimension, place_of


@pytest.mark.parametrize("room", [0, 1 << 20])
def test_arrays_of_a_bucket_are_committed_at_the_same_time_if_there_is_memory(
    tmp_path: Path, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    """Memory of a stream is reserved for one commit."""
    commit, active, both = Committer.commit, list[str](), threading.Event()
    most = 0

    def counted(committer: Committer, array: StreamArray, *arguments: Any, **options: Any) -> None:
        nonlocal most
        active.append(array.key)
        most = max(most, len(active))
        if len(active) > 1:
            both.set()
        both.wait(60 if room else 1)  # for another one to come
        commit(committer, array, *arguments, **options)
        active.remove(array.key)

    monkeypatch.setattr(Committer, "commit", counted)
    arrays = [{"key": key, **ARRAYS["frames"]} for key in "ab"]
    place = place_of("bucket", tmp_path, s3_server)
    data = b"".join(frame.tobytes() for frame in frames_of(Model(arrays[0]), 3))
    with client_of(place.store) as client:
        bound = client.put("/v1/stream/lab/run?dry_run=true", json={"arrays": arrays}).json()["memory"]["bound"]
    with client_of(place.store, bytes_in_flight=2 * (bound + room)) as client:
        opened(client, "lab/run", *arrays)
        for key in "ab":
            assert Sender(client, "lab/run", key).patch(data, 0).status_code == 204
        client.delete("/v1/stream/lab/run?finish=true").raise_for_status()
    assert most == (2 if room else 1)


@BOTH
def test_a_stream_without_requests_is_flushed_and_closed_and_goes_on(lab: Lab) -> None:
    client = lab.client
    model = Model({"key": "a", **ARRAYS["frames"]})
    opened(client, "lab/expired", model.settings, expires_in=1)
    sender, frames = Sender(client, "lab/expired", "a"), frames_of(model, 5)
    sender.patch(b"".join(frame.tobytes() for frame in frames[:4]), None)
    if lab.place.bucket is None:  # another process seems to have sent after this one
        os.utime(lab.place.folder / "expired" / ".hyperslab.stream" / "stream.json", (time.time() + 2,) * 2)
    wait_until(lambda: b'"closed"' in lab.place.read("expired/.hyperslab.stream/stream.json"))
    model.frames = [*frames[:4]]
    check_files(lab, sender, model, final=False)
    assert client.get("/v1/stream/lab/expired").json()["state"] == "closed"
    assert sender.patch(frames[4].tobytes(), 4 * frames[4].nbytes).status_code == 204
    model.frames = [*frames]
    check_reads(sender, model)
    assert client.get("/v1/stream/lab/expired").json()["state"] == "open"


def test_a_part_of_a_frame_that_comes_while_a_stream_is_finished_keeps_it_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, url = Records.put, "/v1/stream/lab/run"

    with client_of({"url": str(tmp_path), "writable": True, "durability": "rename"}) as client:

        def late(self: Records, mount: MountedStore, prefix: str, record: Record) -> Record:
            if record.state == "finishing" and not sent:
                sent.append(client.patch(url, content=frame[:7]).status_code)
            return put(self, mount, prefix, record)

        array, sent = {"key": "a", **ARRAYS["frames"]}, list[int]()
        frame = frames_of(Model(array), 1)[0].tobytes()
        opened(client, "lab/run", array)
        monkeypatch.setattr(Records, "put", late)
        refused = client.delete(f"{url}?finish=true")
        rest = client.patch(url, content=frame[7:], headers={"Upload-Offset": "7"})

        assert (sent, refused.status_code, refused.json()["code"]) == ([204], 422, "partial-frame")
        assert (rest.status_code, client.delete(f"{url}?finish=true").status_code) == (204, 200)


def test_a_stream_expires_though_a_request_was_cancelled_as_it_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, go, send = threading.Event(), threading.Event(), Streams.upload

    def waiting(*arguments: Any) -> Upload:
        began.set()
        assert go.wait(60)
        return send(*arguments)

    async def run() -> None:
        store = StoreSettings(url=str(tmp_path), writable=True, durability="rename")
        app, url = create_app(Settings(stores={"lab": store})), "/v1/stream/lab/run"
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
            array = {"key": "a", **ARRAYS["frames"]}
            answer = await client.put(url, json={"arrays": [array], "expires_in": 1})
            assert answer.status_code == 201, answer.text
            monkeypatch.setattr(Streams, "upload", waiting)
            patched = asyncio.create_task(client.patch(url, content=b"x"))
            assert await asyncio.to_thread(began.wait, 60)
            patched.cancel()
            await asyncio.wait([patched])
            go.set()
            record = tmp_path / "run" / ".hyperslab.stream" / "stream.json"
            await asyncio.to_thread(wait_until, lambda: b'"closed"' in record.read_bytes())

    asyncio.run(run())


def test_an_offset_that_is_looked_up_beside_a_commit_is_no_lower(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows move to chunks, and their tails go, between two looks at the store."""
    model = Model({"key": "a", **ARRAYS["frames"]})
    data, look = b"".join(frame.tobytes() for frame in frames_of(model, 4)), Tails.open
    size = len(data) // 4
    with client_of(folder(tmp_path)) as client:
        opened(client, "lab/run", model.settings)
        sender = Sender(client, "lab/run", "a")
        for number in (0, 1):
            assert sender.patch(data[number * size : (number + 1) * size], number * size).status_code == 204

        def late(*arguments: Any, **options: Any) -> Any:
            monkeypatch.setattr(Tails, "open", look)
            with httpx.Client(base_url=client.base_url, timeout=60) as other:
                rest = data[2 * size : 3 * size]
                assert Sender(other, "lab/run", "a").patch(rest, 2 * size).status_code == 204
                wait_until(lambda: not [*tmp_path.glob("run/.hyperslab.stream/*/0/0")])
            return look(*arguments, **options)

        monkeypatch.setattr(Tails, "open", late)
        assert sender.state()["offset"] == 3 * size
        assert sender.patch(data[3 * size :], 3 * size).status_code == 204


def test_an_offset_is_no_lower_when_rows_move_to_chunks_at_the_second_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of two looks are the same, and the tail of the second has gone."""
    model, look, commits = Model({"key": "a", **ARRAYS["frames"]}), Tails.open, list[Callable[[], None]]()
    data = b"".join(frame.tobytes() for frame in frames_of(model, 3))
    monkeypatch.setattr(ArrayCommits, "commit_later", lambda one, _: commits.append(partial(one.commit, whole=True)))
    with client_of(folder(tmp_path)) as client:
        opened(client, "lab/run", model.settings)
        sender = Sender(client, "lab/run", "a")
        for start in range(0, len(data), len(data) // 3):  # a whole group of rows, frame by frame
            assert sender.patch(data[start : start + len(data) // 3], start).status_code == 204
        looks = list[int]()

        def late(*arguments: Any, **options: Any) -> Any:
            looks.append(1)
            if len(looks) == 2:
                monkeypatch.setattr(Tails, "open", look)
                commits[-1]()
            return look(*arguments, **options)

        monkeypatch.setattr(Tails, "open", late)
        assert sender.state()["offset"] == len(data)
        monkeypatch.setattr(Tails, "open", look)
        commits[-1]()
        assert sender.state()["offset"] == len(data)
        assert not [*tmp_path.glob("run/.hyperslab.stream/*/0/0")]


@pytest.mark.parametrize("stored", [True, False], ids=["stored", "not stored"])
def test_lost_answers_never_fail_a_stream(
    tmp_path: Path, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, stored: bool
) -> None:
    """The first conditional put of each kind of key, and every seventh, of which it is not known if it was stored."""
    put, puts = ConditionalPuts.put, Counter[str]()

    def doubtful(this: ConditionalPuts, key: str, *others: Any) -> str:
        kind = re.sub("[0-9a-f]{16,}", "*", key)
        puts[kind] += "/lease/" not in key
        if puts[kind] % 7 != 1:
            return put(this, key, *others)
        if stored:
            put(this, key, *others)
        raise InDoubt(this.store, key, "an answer was lost")

    monkeypatch.setattr(ConditionalPuts, "put", doubtful)
    sizes = [T, dimension("y", 8, 4), dimension("x", 5, 5)]
    model = Model({"key": "a", "dtype": "<u2", "dimensions": sizes, "pyramid": {"method": "mean"}})
    place = place_of("bucket", tmp_path, s3_server)
    frames = [*frames_of(model, 7)]
    model.frames = [*frames]
    data, size = b"".join(frame.tobytes() for frame in frames), frames[0].nbytes
    with client_of(place.store) as client:
        opened(client, "lab/run", model.settings)
        sender = Sender(client, "lab/run", "a")
        for start in range(0, len(data), 2 * size):
            assert sender.patch(data[start : start + 2 * size], start).status_code == 204
        assert client.delete("/v1/stream/lab/run?finish=true").raise_for_status().json()["arrays"]["a"]["error"] is None
        check_reads(sender, model, final=True)
    assert {key.rpartition("/")[2] for key in puts} >= {".zarray", "stream.json", "head"}


def test_a_finish_that_the_store_fails_keeps_what_was_acknowledged_and_is_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Frames that are in no chunk yet, of one array of two."""
    arrays = [{"key": key, **ARRAYS["frames"]} for key in "ab"]
    models = {array["key"]: Model(array) for array in arrays}
    commit, url = Committer.commit, "/v1/stream/lab/run?finish=true"

    def failing(committer: Committer, array: StreamArray, *others: Any, **options: Any) -> None:
        if array.key == "a":
            raise StoreError("lab", "a", "it failed")
        commit(committer, array, *others, **options)

    with client_of(folder(tmp_path)) as client:
        opened(client, "lab/run", *arrays)
        senders = {key: Sender(client, "lab/run", key) for key in models}
        for key, model in models.items():
            frames = frames_of(model, 1)
            model.frames = [*frames]
            assert senders[key].patch(frames[0].tobytes(), 0).status_code == 204
        with monkeypatch.context() as patched:
            patched.setattr(Committer, "commit", failing)
            cut = client.delete(url).raise_for_status().json()
        again = client.delete(url).raise_for_status().json()

        assert [(state["state"], bool(state["arrays"]["a"]["error"])) for state in (cut, again)] == [
            ("open", True),
            ("finished", False),
        ]
        for key, model in models.items():
            check_reads(senders[key], model, final=True)


@pytest.mark.parametrize("failing", [1, 2])
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_a_finish_that_leaves_consolidated_metadata_behind_is_gone_on_with_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int, zarr_format: Literal[2, 3]
) -> None:
    """Of each level, the last of which is that of the frames."""
    sizes, url = [T, dimension("y", 8, 4), dimension("x", 8, 4)], "/v1/stream/lab/run?finish=true"
    model = Model({"key": "a", "dtype": "<u2", "dimensions": sizes, "pyramid": {"method": "mean"}})
    frames = frames_of(model, 4)
    put, puts = documents.put_document, list[str]()

    def fail(mount: MountedStore, key: str, *others: Any) -> str:
        puts.extend([key] if key in ("run/.zmetadata", "run/zarr.json") else [])
        if puts and key == puts[-1] and len(puts) == failing:
            raise StoreFull("lab", key, "no space")
        return put(mount, key, *others)

    def shapes() -> list[list[int]]:
        group = dict(zarr.open_consolidated(str(tmp_path / "run"), zarr_format=zarr_format)["a"].arrays())  # type: ignore[union-attr]
        return [list(group[f"{level}"].shape) for level in range(2)]

    with client_of(folder(tmp_path)) as client:
        opened(client, "lab/run", model.settings, zarr_format=zarr_format)
        with pytest.warns(UserWarning, match=r"hyperslab\.stream|Consolidated"):
            zarr.consolidate_metadata(str(tmp_path / "run"), zarr_format=zarr_format)
        data = b"".join(frame.tobytes() for frame in frames)
        assert Sender(client, "lab/run", "a").patch(data, 0).status_code == 204
        with monkeypatch.context() as full:
            full.setattr(documents, "put_document", fail)
            states = [client.delete(url).json()]
        assert len(puts) >= failing
        states += [client.delete(url).json() for _ in range(2)]

        assert [(state["state"], bool(state["arrays"]["a"]["error"])) for state in states] == [
            ("failed", True),
            ("finished", False),
            ("finished", False),
        ]
        assert shapes() == [client.get(f"/v1/metadata/lab/run/a/{level}").json()["shape"] for level in range(2)]


@pytest.mark.parametrize("then", ["resume", "finish", "finish again"])
def test_an_array_whose_document_another_program_has_written_loses_no_frame(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    """As zarr-python does to change attributes of Zarr v2, while frames are in no chunk."""
    sizes, url = [T, dimension("y", 8, 4), dimension("x", 8, 4)], "/v1/stream/lab/run"
    model = Model({"key": "a", "dtype": "<u2", "dimensions": sizes, "pyramid": {"method": "mean"}})
    frames = frames_of(model, 7)
    data, size = b"".join(frame.tobytes() for frame in frames), frames[0].nbytes
    with client_of(folder(tmp_path)) as client:
        opened(client, "lab/run", model.settings)
        sender = Sender(client, "lab/run", "a")
        assert sender.patch(data[: 5 * size], 0).status_code == 204
        if then == "finish again":
            with monkeypatch.context() as patched:
                patched.setattr(Committer, "commit", Mock(side_effect=StoreError("lab", "a", "it failed")))
                assert client.delete(f"{url}?finish=true").json()["state"] == "failed"
        for level in (0, 1):
            zarr.open_array(str(tmp_path / "run" / "a" / f"{level}")).attrs["unit"] = "m"
        if then == "resume":
            assert sender.patch(data[5 * size :], 5 * size).json()["code"] == "array-failed"
            client.put(f"{url}?if_exists=resume", json={"arrays": [model.settings]}).raise_for_status()
            assert sender.patch(data[5 * size :], 5 * size).status_code == 204
        model.frames = [*frames[: 7 if then == "resume" else 5]]
        finished = client.delete(f"{url}?finish=true").json()

        assert (finished["state"], finished["arrays"]["a"]["error"]) == ("finished", None)
        check_reads(sender, model, final=True)
        assert client.get("/v1/metadata/lab/run/a/1").json()["attributes"]["unit"] == "m"


def test_a_finish_keeps_frames_that_are_in_no_chunk_while_another_program_has_changed_the_shape(tmp_path: Path) -> None:
    model, url = Model({"key": "a", **ARRAYS["frames"]}), "/v1/stream/lab/run?finish=true"
    frames, document = frames_of(model, 5), tmp_path / "run" / "a" / ".zarray"
    model.frames = [*frames]
    with client_of(folder(tmp_path)) as client:
        opened(client, "lab/run", model.settings)
        sender = Sender(client, "lab/run", "a")
        assert sender.patch(b"".join(frame.tobytes() for frame in frames), 0).status_code == 204
        wait_until(lambda: json.loads(document.read_bytes())["shape"][0] == 3)
        text = document.read_text()
        document.write_text(json.dumps({**json.loads(text), "shape": [2, 11, 13]}))
        states = [client.delete(url).json()]
        document.write_text(text)
        states.append(client.delete(url).json())

        assert [state["state"] for state in states] == ["failed", "finished"]
        assert "another writer has changed its shape" in states[0]["arrays"]["a"]["error"]
        check_reads(sender, model, final=True)


def test_another_array_in_the_place_of_one_of_a_stream_is_not_taken_for_it(tmp_path: Path) -> None:
    array, url = {"key": "a", **ARRAYS["frames"]}, "/v1/stream/lab/run"
    data = b"".join(frame.tobytes() for frame in frames_of(Model(array), 5))
    with client_of(folder(tmp_path)) as client:
        opened(client, "lab/run", array)
        sender = Sender(client, "lab/run", "a")
        assert sender.patch(data, 0).status_code == 204
        client.delete("/v1/metadata/lab/run/a").raise_for_status()
        definition = {"shape": [0, 11, 13], "chunks": [3, 4, 5], "dtype": "<f4", "fill_value": 1.5}
        client.put("/v1/metadata/lab/run/a", json={**definition, "dimension_separator": "/"}).raise_for_status()

        state = client.put(f"{url}?if_exists=resume", json={"arrays": [array]}).raise_for_status().json()

        assert state["arrays"]["a"]["error"]
        assert client.get("/v1/metadata/lab/run/a").json()["shape"] == [0, 11, 13]


def test_a_removal_that_was_cut_off_is_gone_on_with_by_the_same_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = "/v1/stream/lab/run?discard=true"
    with client_of(folder(tmp_path)) as client:
        opened(client, "lab/run", {"key": "a", **ARRAYS["frames"]})
        with monkeypatch.context() as cut:
            cut.setattr(Creator, "delete", Mock(side_effect=StoreError("lab", "run", "it failed")))
            assert client.delete(url).status_code == 502
        assert [client.delete(url).status_code for _ in range(2)] == [204, 404]
        assert client.get("/v1/metadata/lab/run").status_code == 404


def test_an_opening_that_was_cut_off_is_gone_on_with_by_the_same_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, settings = "/v1/stream/lab/run", {"arrays": [{"key": "a", **ARRAYS["frames"]}]}
    with client_of(folder(tmp_path)) as client:
        with monkeypatch.context() as killed:
            killed.setattr(Streams, "_create_nodes", Mock(side_effect=Overloaded("killed", 1)))
            killed.setattr(Streams, "_remove", Mock())
            assert client.put(url, json=settings).status_code == 503
        others = client.put(url, json={"arrays": [{"key": "a", **ARRAYS["frames"], "fill_value": 1}]})
        again = client.put(url, json=settings)

        assert (others.status_code, others.json()["member"]) == (409, "arrays.0.fill_value")
        assert (again.status_code, again.json()["arrays"]["a"]["error"]) == (201, None)
        assert client.put(url, json=settings).status_code == 409


def test_a_deletion_that_finds_no_group_where_a_stream_is_opened_does_not_fail_the_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, create = Model({"key": "a", **ARRAYS["frames"]}), Streams._create_nodes
    frames = frames_of(model, 1)
    model.frames = [*frames]
    deleted = list[int]()
    with client_of(folder(tmp_path)) as client:

        def delete_first(streams: Streams, stream: Stream) -> None:
            monkeypatch.setattr(Streams, "_create_nodes", create)
            deleted.append(client.delete("/v1/metadata/lab/run", params={"recursive": "true"}).status_code)
            create(streams, stream)

        monkeypatch.setattr(Streams, "_create_nodes", delete_first)
        opened(client, "lab/run", model.settings)
        sender = Sender(client, "lab/run", "a")

        assert deleted == [404]
        assert sender.patch(frames[0].tobytes(), 0).status_code == 204
        check_reads(sender, model)


def test_a_store_that_fails_after_the_last_shape_fails_no_finish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Model({"key": "a", **ARRAYS["frames"]})
    model.frames = [*frames_of(model, 3)]
    with client_of(folder(tmp_path)) as client:
        opened(client, "lab/run", model.settings)
        sender = Sender(client, "lab/run", "a")
        assert sender.patch(b"".join(frame.tobytes() for frame in frames_of(model, 3)), 0).status_code == 204
        monkeypatch.setattr(FolderTail, "drop", Mock(side_effect=StoreError("lab", "run", "no")))

        finished = client.delete("/v1/stream/lab/run?finish=true").json()

        assert (finished["state"], finished["arrays"]["a"]["error"]) == ("finished", None)
        check_reads(sender, model, final=True)


def test_an_array_that_is_opened_beside_a_commit_of_two_groups_has_all_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, open_log = Model({"key": "a", **ARRAYS["frames"]}), Tails.log
    model.frames = [*frames_of(model, 8)]
    data = b"".join(frame.tobytes() for frame in frames_of(model, 8))
    size = len(data) // 8
    commits = list[Callable[[], None]]()  # held back
    monkeypatch.setattr(ArrayCommits, "commit_later", lambda one, _: commits.append(partial(one.commit, whole=False)))
    with client_of(folder(tmp_path)) as client:
        opened(client, "lab/run", model.settings)
        sender = Sender(client, "lab/run", "a")
        for start in range(0, 8 * size, size):
            assert sender.patch(data[start : start + size], start).status_code == 204

        def late(tails: Tails, store: Store, prefix: str, group: int, *others: Any, **options: Any) -> TailLog | None:
            if group == 1 and not options:
                monkeypatch.setattr(Tails, "log", open_log)
                commits[-1]()
            return open_log(tails, store, prefix, group, *others, **options)

        monkeypatch.setattr(Tails, "log", late)
        np.testing.assert_array_equal(sender.read("lab/run/a"), model.values(final=False))
        assert Tails.log is open_log


@pytest.mark.parametrize("kind", ["folder", "bucket"])
def test_of_two_replicas_that_append_at_one_offset_one_is_refused(
    tmp_path: Path, s3_server: S3Server, kind: str
) -> None:
    model, won, count = Model({"key": "a", **ARRAYS["channels"]}), dict[int, bytes](), 16 if kind == "folder" else 6
    size = 11 * 13 * 2

    def send(seed: int, client: httpx.Client) -> None:
        sender, rng = Sender(client, "lab/run", "a"), np.random.default_rng(seed)
        while (offset := sender.state()["offset"]) < count * size:
            data = rng.bytes(min(int(rng.integers(1, 4 * size)), count * size - offset))
            answer = sender.patch(data, offset)
            if answer.status_code == 204:
                assert won.setdefault(offset, data) is data
            else:
                assert answer.json()["code"] == "mismatching-upload-offset"
            if rng.random() < 0.2:
                client.post("/v1/stream/lab/run/flush").raise_for_status()

    with ExitStack() as stack:
        place = place_of(kind, tmp_path, s3_server)
        servers = [stack.enter_context(running_server({"lab": place.store})) for _ in range(2)]
        clients = [stack.enter_context(httpx.Client(base_url=server.url, timeout=60)) for server in servers]
        opened(clients[0], "lab/run", model.settings)
        with ThreadPoolExecutor() as pool:
            for _ in pool.map(send, range(2), clients):
                pass
        raw = b"".join(won[offset] for offset in sorted(won))
        model.frames = [*np.frombuffer(raw, model.dtype).reshape(count, *model.frame_shape)]
        for client in clients:
            check_reads(Sender(client, "lab/run", "a"), model)
        lab = Lab(place, clients[1])
        assert lab.client.delete("/v1/stream/lab/run?finish=true").json()["arrays"]["a"]["error"] is None
        check_reads(Sender(clients[0], "lab/run", "a"), model, final=True)
        check_files(lab, Sender(clients[0], "lab/run", "a"), model, final=True)


@pytest.mark.parametrize("late", ["chunk", "segment"])
def test_a_discard_beside_what_another_replica_stores_leaves_nothing(
    tmp_path: Path, s3_server: S3Server, late: str
) -> None:
    model, place = Model({"key": "a", **ARRAYS["channels"]}), place_of("bucket", tmp_path, s3_server)
    assert place.bucket is not None
    data = b"".join(frame.tobytes() for frame in frames_of(model, 6))
    with ExitStack() as stack:
        proxy = stack.enter_context(FaultProxy(s3_server.url))
        slow = {**place.store, "options": dict(place.bucket.at(proxy.url).options)}
        servers = [stack.enter_context(running_server({"lab": store})) for store in (place.store, slow)]
        one, other = (stack.enter_context(httpx.Client(base_url=server.url, timeout=60)) for server in servers)
        opened(one, "lab/run", model.settings)
        assert Sender(one, "lab/run", "a").patch(data[:-1], 0).status_code == 204

        def discard() -> None:
            assert one.delete("/v1/stream/lab/run?discard=true").status_code == 204

        name = json.loads(place.read("run/.hyperslab.stream/stream.json"))["id"]
        proxy.inject(Before(discard), method="PUT", path="/run/a/0/" if late == "chunk" else f"/{name}/0/")
        if late == "chunk":
            answer = other.post("/v1/stream/lab/run/flush")
        else:  # what no head has room for
            answer = Sender(other, "lab/run", "a").patch(bytes(300 << 10), len(data) - 1)
        assert answer.status_code in {404, 409}, answer.text
        assert one.get("/v1/metadata/lab/run").status_code == 404
    assert not [path for path in (place.files() / "run").rglob("*") if path.is_file()]


def test_no_request_of_a_discard_that_takes_effect_late_removes_the_next_stream(
    tmp_path: Path, s3_server: S3Server
) -> None:
    model, place = Model({"key": "a", **ARRAYS["channels"]}), place_of("bucket", tmp_path, s3_server)
    assert place.bucket is not None
    data = b"".join(frame.tobytes() for frame in frames_of(model, 3))
    with FaultProxy(s3_server.url) as proxy:
        store = {**place.store, "options": dict(place.bucket.at(proxy.url).options)}
        with client_of(store) as client:
            client.put("/v1/metadata/lab/run", json={"kind": "group"}).raise_for_status()  # which stays
            opened(client, "lab/run", model.settings)
            assert Sender(client, "lab/run", "a").patch(data, 0).status_code == 204
            proxy.heal()
            client.delete("/v1/stream/lab/run?discard=true").raise_for_status()
            removals = [request for request in proxy.seen if request.method in ("DELETE", "POST")]
            assert any("stream.json" in f"{request.path}{request.body!r}" for request in removals)

            opened(client, "lab/run", model.settings)
            assert Sender(client, "lab/run", "a").patch(data, 0).status_code == 204
            for request in removals:
                httpx.request(
                    request.method, f"{s3_server.url}{request.path}", headers=request.headers, content=request.body
                )
            assert Sender(client, "lab/run", "a").state()["offset"] == len(data)


@pytest.mark.parametrize("error", [StoreError("lab", "run", "it failed"), WriteConflict("run", "others came first")])
def test_a_finish_that_fails_before_it_can_say_so_loses_no_frame(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: HyperslabError
) -> None:
    """Where the record of the stream cannot be read, say, or others come first at each attempt."""
    model, url = Model({"key": "a", **ARRAYS["frames"]}), "/v1/stream/lab/run"
    frames = frames_of(model, 2)
    model.frames = [*frames]
    with client_of(folder(tmp_path)) as client:
        opened(client, "lab/run", model.settings)
        sender = Sender(client, "lab/run", "a")
        assert sender.patch(b"".join(frame.tobytes() for frame in frames), 0).status_code == 204
        with monkeypatch.context() as failing:
            failing.setattr(ArrayFence, "change_tail", Mock(side_effect=error))
            answers = [client.post(f"{url}/flush"), client.delete(f"{url}?finish=true")]
        finished = client.delete(f"{url}?finish=true").json()

        assert [answer.json().get("code") for answer in answers] == [error.code] * 2
        assert (finished["state"], finished["arrays"]["a"]["error"]) == ("finished", None)
        check_reads(sender, model, final=True)


@pytest.mark.parametrize("dtype", ["<f4", "<u2"])
def test_an_opening_beside_which_an_array_is_made_at_one_of_its_paths_is_refused_and_spares_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    arrays, create = [{"key": key, **ARRAYS["frames"]} for key in "abc"], Creator.create_array
    node, values = "/v1/metadata/lab/run/b", np.ones((2, 11, 13), dtype)
    definition = {"shape": [0, 11, 13], "chunks": [3, 4, 5], "dtype": dtype, "fill_value": 1.5 if dtype == "<f4" else 1}
    with client_of(folder(tmp_path)) as client:

        def late(creator: Creator, path: str, *others: Any, **options: Any) -> Any:
            if path == "lab/run/b" and options:
                monkeypatch.setattr(Creator, "create_array", create)
                client.put(node, json={**definition, "dimension_separator": "/"}).raise_for_status()
                client.post("/v1/append/lab/run/b", content=values.tobytes()).raise_for_status()
            return create(creator, path, *others, **options)

        monkeypatch.setattr(Creator, "create_array", late)
        opening = client.put("/v1/stream/lab/run", json={"arrays": arrays})

        assert (opening.status_code, opening.json()["path"]) == (409, "lab/run/b")
        np.testing.assert_array_equal(Sender(client, "lab/run", "b").read("lab/run/b"), values)
        assert [client.get(f"/v1/metadata/lab/run/{key}").status_code for key in "ac"] == [404, 404]
        assert client.get("/v1/stream/lab/run").status_code == 404
