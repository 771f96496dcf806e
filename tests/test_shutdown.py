"""The end of the service comes in time, whatever waits for what; and work ends when nobody wants it any more."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from hyperslab.storage import StoreConfig, open_store
from tests.documents import zarray
from tests.server import Server, running_server

PATIENCE = 45
"""Far more than the settings allow, for a machine that is busy; without a deadline the end never comes."""


def write_document(folder: Path, **members: Any) -> None:
    folder.mkdir()
    (folder / ".zarray").write_text(json.dumps(zarray(dtype="|u1", **members)))


def begin(server: Server, method: str, target: str, body: bytes | None = None) -> http.client.HTTPConnection:
    """Send a request, and wait for nothing."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    connection.request(method, target, body, {"Content-Type": "application/octet-stream"} if body else {})
    return connection


@pytest.mark.parametrize("workers", [1, 2])
def test_a_lock_that_nobody_lets_go_of_does_not_keep_it(tmp_path: Path, workers: int) -> None:
    write_document(tmp_path / "a", shape=[4], chunks=[4])
    store = open_store(StoreConfig("held", str(tmp_path), writable=True))
    settings: dict[str, Any] = {"workers": workers} if workers > 1 else {}
    with (
        store.lock("a/0"),
        running_server({"data": {"url": str(tmp_path), "writable": True}}, shutdown_seconds=1, **settings) as server,
    ):
        writes = [begin(server, "PUT", "/v1/slice/data/a?select=0", b"1") for _ in range(4)]
        _metrics(server)  # the writes have arrived before
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(PATIENCE) == 0
        for write in writes:
            write.close()


def test_a_bucket_that_does_not_answer_does_not_keep_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        options = {"endpoint": endpoint, "region": "x", "access_key_id": "k", "secret_access_key": "s"}
        bucket = {"url": "s3://bucket", "options": options}
        with running_server({"data": bucket}, shutdown_seconds=1) as server:
            read = begin(server, "GET", "/v1/metadata/data/a")
            asked, _ = silent.accept()
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(PATIENCE) == 0
            asked.close()
            read.close()


@pytest.mark.parametrize("told", [True, False], ids=["the service is told to end", "the client leaves"])
def test_a_write_of_very_many_chunks_ends_between_two_of_them(tmp_path: Path, told: bool) -> None:
    write_document(tmp_path / "a", shape=[1 << 16], chunks=[1])
    with running_server({"data": {"url": str(tmp_path), "writable": True}}, shutdown_seconds=1) as server:
        write = begin(server, "PUT", "/v1/slice/data/a", bytes([1]) * (1 << 16))
        begun = threading.Event()
        while not list(tmp_path.glob("a/[0-9]*")):
            begun.wait(0.01)
        if told:
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(PATIENCE) == 0
        write.close()
        while not told and _abandoned(server) == 0:
            begun.wait(0.05)
        stored = list(tmp_path.glob("a/[0-9]*"))

    assert 0 < len(stored) < 1 << 16
    assert all(path.read_bytes() == b"\1" for path in stored)


def _abandoned(server: Server) -> float:
    return sum(float(line.split()[-1]) for line in _metrics(server) if line.startswith("hyperslab_abandoned"))


def _metrics(server: Server) -> list[str]:
    with closing(begin(server, "GET", "/metrics")) as connection:
        return connection.getresponse().read().decode().splitlines()


SLOW_DEMO = """
import sys, time
from hyperslab import cli, demo

def write(root):
    (root / "half").write_text("made")
    print("making", flush=True)
    time.sleep(600)

demo.write_demo = write
sys.exit(cli.run(["serve", *sys.argv[1:]]))
"""


@pytest.mark.parametrize("workers", ["1", "2"])
def test_it_listens_before_the_demo_is_made_and_leaves_no_half_of_it(tmp_path: Path, workers: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    arguments = ["--demo-dir", str(tmp_path), "--port", str(port), "--workers", workers]
    process = subprocess.Popen([sys.executable, "-c", SLOW_DEMO, *arguments], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"making\n"
        with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
            assert client.get("/healthz").json() == {"status": "ok"}
            ready = client.get("/readyz")
            assert (ready.status_code, ready.json()["status"]) == (503, "not ready")
            assert (client.get("/v1/metadata/demo").status_code, client.head("/").status_code) == (503, 503)
        assert [path.name for path in tmp_path.glob("*/*")] == ["half"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
        assert [*tmp_path.iterdir()] == []
    finally:
        process.kill()
        process.communicate()


def test_requests_while_the_demo_is_made_do_not_end_the_service(tmp_path: Path) -> None:
    script = SLOW_DEMO.replace("time.sleep(600)", "input()")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    arguments = ["--demo-dir", str(tmp_path), "--port", str(port)]
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", script, *arguments], stdin=pipe, stdout=pipe)
    try:
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdout.readline()
        with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:  # one connection, which is kept
            assert client.get("/readyz").status_code == 503
            process.stdin.write(b"\n")
            process.stdin.flush()
            while not process.stdout.readline().startswith(b"Stop with"):
                pass
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            assert client.get("/readyz").status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.communicate()
