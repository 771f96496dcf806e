"""`RemoteStream` against the real service: cuts, restarts of either side, waiting, errors; and the command."""

from __future__ import annotations

import contextlib
import io
import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
import urllib3
import yaozarrs
import zarr

from hyperslab import RemoteArray, RemoteStream
from hyperslab.cli import run
from hyperslab.errors import BadParameter, MismatchingUploadOffset, StaleEpoch, StreamConflict
from hyperslab.wire.streams import ArraySettings, Dimension, StreamSettings
from tests.client.conftest import Host
from tests.faults import Before, Cut, Fault, FaultProxy, LoseAnswer, Reset, Status
from tests.server import running_server
from tests.streams.support import image, plate


def settings(**members: Any) -> StreamSettings:
    """One image of frames of 6 by 8 pixels."""
    dimensions = (
        Dimension(name="t", type="time", size=None, chunk=4),
        Dimension(name="y", type="space", size=6, chunk=4),
        Dimension(name="x", type="space", size=8, chunk=4),
    )
    return StreamSettings(arrays=(ArraySettings(dtype="<u2", dimensions=dimensions, **members),))


def frames(count: int, start: int = 0) -> np.ndarray[Any, Any]:
    return np.arange(start * 48, (start + count) * 48, dtype="<u2").reshape(count, 6, 8)


def test_what_is_appended_is_stored_in_order(host: Host) -> None:
    path = f"s{next(host.names)}"
    told: list[tuple[int, int]] = []

    with RemoteStream(f"{host.url}/v1/stream/store/{path}", settings(), progress=lambda *a: told.append(a)) as stream:
        indices = [stream.append(frame) for frame in frames(9)]
        indices += [stream.append(frames(3, 9)), stream.skip(2, reason="no light"), stream.append(frames(1, 14)[0])]
        state = stream.flush()

    stored = zarr.open_array(host.folder / path, mode="r")[:]
    expected = frames(15)
    expected[12:14] = 0
    assert indices == [*range(10), 12, 14]
    assert (stream.durable, stream.array().appended, state["arrays"][""]["missing"]) == (15, 15, [[12, 14]])
    np.testing.assert_array_equal(stored, expected)
    assert told[-1] == (15 * 96, 15 * 96)


def test_a_progress_callback_that_blocks_and_reads_the_stream_stops_no_sender(host: Host) -> None:
    go, told = threading.Event(), list[tuple[int, int]]()

    def progress(stored: int, appended: int) -> None:
        assert go.wait(60)
        told.append((stored, appended))
        assert 0 <= stream.durable <= stream.array().appended == len(frames(40))

    with RemoteStream(
        f"{host.url}/v1/stream/store/s{next(host.names)}", settings(), max_pending=2, progress=progress
    ) as stream:
        stream.append(frames(40))  # which blocks until nearly all are stored
        stream.flush()
        assert (stream.durable, told) == (40, [])
        go.set()

    assert told[-1] == (40 * 96, 40 * 96)


def test_an_error_of_a_progress_callback_is_raised_by_the_next_call(host: Host) -> None:
    called = threading.Event()

    def progress(*_: int) -> None:
        called.set()
        raise OSError("no terminal")

    with pytest.raises(OSError, match="no terminal"):  # noqa: PT012, SIM117 - of any call
        with RemoteStream(f"{host.url}/v1/stream/store/s{next(host.names)}", settings(), progress=progress) as stream:
            stream.append(frames(1))
            assert called.wait(60)
            for _ in range(10_000):
                stream.append(frames(1))


def test_arrays_are_named_by_their_keys(host: Host) -> None:
    path = f"s{next(host.names)}"
    single = settings().to_document()["arrays"][0]
    document = {"arrays": [{**single, "key": "a"}, {**single, "key": "b", "dtype": "<f4"}]}

    with RemoteStream(f"{host.url}/v1/stream/store/{path}", document) as stream:
        for number in range(5):
            stream.append(frames(1, number), "a")
            stream.append(frames(1, number).astype("<f4") / 2, "b")
        with pytest.raises(BadParameter, match="'a', 'b'"):
            stream.append(frames(1))

    np.testing.assert_array_equal(zarr.open_array(host.folder / path / "a", mode="r")[:], frames(5))
    np.testing.assert_array_equal(zarr.open_array(host.folder / path / "b", mode="r")[:], frames(5) / np.float32(2))


@pytest.mark.parametrize("version", [2, 3])
def test_a_plate_is_valid_ome_zarr(version: int, host: Host) -> None:
    path = f"s{next(host.names)}"
    document = {"zarr_format": version, "arrays": [image("cells")], "plates": [plate("plate")]}
    zarr.create_group(host.folder / path, zarr_format=2)  # a plain group is shared, whatever its format

    with RemoteStream(f"{host.url}/v1/stream/store/{path}", document) as stream:
        for key, array in stream.arrays.items():
            stream.append(np.ones((2, *array.frame_shape), array.dtype)[: 2 if key == "cells" else 1], key)

    for group in ("cells", "plate"):
        yaozarrs.validate_zarr_store(str(host.folder / path / group))
    assert np.all(zarr.open_array(host.folder / path / "plate" / "B" / "2" / "0" / "0", mode="r")[:])


def test_values_that_do_not_fit_are_refused_before_they_are_sent(host: Host) -> None:
    url = f"{host.url}/v1/stream/store/s{next(host.names)}"
    with pytest.raises(ValueError, match="max_pending=0"):
        RemoteStream(url, settings(), max_pending=0)
    with RemoteStream(url, settings()) as stream:
        with pytest.raises(TypeError, match="float64"):
            stream.append(np.zeros((6, 8)))
        with pytest.raises(ValueError, match=r"shape \(6, 8\)"):
            stream.append(np.zeros((8, 6), "u2"))
        assert stream.append(frames(1)) == 0


def test_a_stream_is_left_open_where_its_block_raises_and_resumed_where_it_was(host: Host) -> None:
    url = f"{host.url}/v1/stream/store/s{next(host.names)}"

    with pytest.raises(ValueError, match="shape"), RemoteStream(url, settings()) as stream:
        [stream.append(frame) for frame in (*frames(5), np.zeros((2, 2), "u2"))]
    with pytest.raises(StreamConflict):
        RemoteStream(url, settings())
    with RemoteStream(url, settings(), if_exists="resume") as again:
        assert again.array().appended == 5
        again.append(frames(2, 5))

    np.testing.assert_array_equal(RemoteArray(url)[:], frames(7))


@pytest.mark.parametrize("fault", [Cut(150), Cut(96), LoseAnswer(), Reset(), Status(503)], ids=repr)
def test_what_a_broken_connection_has_brought_is_neither_lost_nor_stored_twice(host: Host, fault: Fault) -> None:
    """The server keeps what came, also a part of a frame, and the client goes on there."""
    path = f"s{next(host.names)}"
    with FaultProxy(host.url) as proxy:
        proxy.inject(fault, method="PATCH")
        with RemoteStream(f"{proxy.url}/v1/stream/store/{path}", settings()) as stream:
            stream.append(frames(7))

    np.testing.assert_array_equal(zarr.open_array(host.folder / path, mode="r")[:], frames(7))


def test_a_part_of_a_frame_that_an_earlier_sender_left_has_to_be_of_the_same_frame(host: Host) -> None:
    url = f"{host.url}/v1/stream/store/s{next(host.names)}"
    with contextlib.closing(RemoteStream(url, settings())):
        part = frames(2).tobytes()[:150]
        urllib3.request("PATCH", url, body=part, headers={"Upload-Offset": "0"})

    with RemoteStream(url, settings(), if_exists="resume") as stream:
        assert stream.array().appended == 1
        stream.append(frames(1, 1))
    with contextlib.closing(RemoteStream(url + "b", settings())):
        urllib3.request("PATCH", url + "b", body=part, headers={"Upload-Offset": "0"})
    with pytest.raises(MismatchingUploadOffset), RemoteStream(url + "b", if_exists="resume") as stream:
        stream.append(frames(1, 5))

    np.testing.assert_array_equal(RemoteArray(url)[:], frames(2))


def test_frames_are_kept_while_the_server_is_away(tmp_path: Path) -> None:
    """It is killed and started again: every frame is there once."""
    stores = {"store": {"url": str(tmp_path), "writable": True}}
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(running_server(stores))
        proxy = stack.enter_context(FaultProxy(server.url))
        stream = RemoteStream(f"{proxy.url}/v1/stream/store/run", settings(), max_pending=4)
        stream.append(frames(3))
        server.process.kill()
        server.process.wait()
        feeder = threading.Thread(target=stream.append, args=(frames(20, 3),))
        feeder.start()
        again = stack.enter_context(running_server(stores))
        proxy.upstream = ("127.0.0.1", again.port)
        feeder.join()
        stream.finish()

    np.testing.assert_array_equal(zarr.open_array(tmp_path / "run", mode="r")[:], frames(23))


def test_append_waits_while_too_much_is_not_stored(host: Host) -> None:
    held, goes_on = threading.Event(), threading.Event()

    def hold() -> None:
        held.set()
        goes_on.wait(30)

    with FaultProxy(host.url) as proxy:
        proxy.inject(Before(hold), method="PATCH")
        url = f"{proxy.url}/v1/stream/store/s{next(host.names)}"
        with RemoteStream(url, settings(), max_pending=3) as stream:
            feeder = threading.Thread(target=stream.append, args=(frames(4),))
            feeder.start()
            assert held.wait(30)
            while stream.array().appended < 3:
                feeder.join(0.01)
            feeder.join(0.05)
            waiting = feeder.is_alive(), stream.array().appended, stream.durable
            goes_on.set()
            feeder.join()

    assert waiting == (True, 3, 0)
    assert stream.durable == 4


def test_what_fails_in_the_background_is_raised_by_the_next_call(host: Host) -> None:
    url = f"{host.url}/v1/stream/store/s{next(host.names)}"
    stream = RemoteStream(url, settings())
    other = RemoteStream(url, if_exists="resume", settings=settings())

    stream.append(frames(1))
    with pytest.raises(StaleEpoch):
        stream.flush()
    with pytest.raises(StaleEpoch):
        stream.append(frames(1))
    other.discard()


@pytest.mark.parametrize("kind", ["npy", "tiff", "pipe"])
def test_the_command_sends_what_a_folder_or_a_pipe_holds(
    kind: str, host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, source, options = f"s{next(host.names)}", tmp_path / "frames", []
    source.mkdir()
    for number in range(12):
        if kind == "npy":
            np.save(source / f"f{number}.npy", frames(1, number)[0])
        else:
            tifffile.imwrite(source / f"f{number}.tif", frames(1, number)[0])
    if kind == "pipe":
        described = tmp_path / "settings.json"
        described.write_text(json.dumps(settings().to_document()))
        options, source = ["--settings", str(described)], Path("-")
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(frames(12).tobytes())))

    assert run(["stream", f"{host.url}/v1/stream/store/{path}", str(source), *options]) == 0

    stored = host.folder / path / ("" if kind == "pipe" else "0")
    assert capsys.readouterr().out == f"store/{path}: 12 frames\n"
    np.testing.assert_array_equal(zarr.open_array(stored, mode="r")[:], frames(12))


def test_the_command_goes_on_where_it_was(host: Host, tmp_path: Path) -> None:
    url = f"{host.url}/v1/stream/store/s{next(host.names)}"
    np.save(tmp_path / "frames.npy", frames(9))
    with contextlib.closing(RemoteStream(url, settings())) as stream:
        stream.append(frames(5))

    assert run(["stream", url, str(tmp_path / "frames.npy"), "--resume"]) == 0
    np.testing.assert_array_equal(RemoteArray(url)[:], frames(9))
