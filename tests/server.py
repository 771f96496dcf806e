"""Real servers on free ports of 127.0.0.1: as a process of their own, or in a thread where a test looks inside.

with running_server({"data": folder}, cache_bytes=0) as server:      # ``hyperslab serve``, settings by environment
    httpx.get(f"{server.url}/v1/metadata/data")

with served(create_app(service)) as url:                             # uvicorn in a thread of this process
    ...
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Protocol

import pytest
import uvicorn
from starlette.types import ASGIApp

from hyperslab.server import PROTOCOL
from tests.demos import demo_parent
from tests.forked import HEAPS, PRELOADED, command_line

Stores = Mapping[str, str | Path | Mapping[str, Any]]
"""By name: a folder or URL, or the members of a store's settings."""

_PATIENCE = 120.0
FORKED = multiprocessing.get_context("forkserver")
"""Processes that have imported the server when they begin: to import it takes longer than many a test."""
FORKED.set_forkserver_preload(PRELOADED)


def wait_until(condition: Callable[[], bool]) -> None:
    """Until it is true, or too much time has passed for a busy machine."""
    deadline = time.monotonic() + _PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.01)


@dataclass(frozen=True, slots=True)
class Server:
    """A server process and its address; ``log`` is all that it has printed."""

    url: str
    process: Process
    _output: Path

    @property
    def log(self) -> str:
        return self._output.read_text(encoding="utf-8", errors="replace")

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])


@contextmanager
def running_server(
    stores: Stores, *, environment: Mapping[str, str] | None = None, executed: bool = False, **settings: Any
) -> Iterator[Server]:
    """``hyperslab serve`` in a process of its own; ``settings`` are those of the settings model.

    ``executed``: with workers that are its children. Its log is printed when it ends, for pytest to show where the test
    has failed.
    """
    start = _executed if executed or (environment or {}).keys() - {HEAPS} else _forked
    with _started(start, (), _environment(stores, settings, environment), show=True) as server:
        yield server


@contextmanager
def serving(*arguments: str, executed: bool = False) -> Iterator[Server]:
    """``hyperslab serve`` with these arguments, in the present folder and environment; ``executed``: with all else that
    a process inherits."""
    with _started(_executed if executed else _forked, arguments, os.environ) as server:
        yield server


@contextmanager
def _started(
    start: Callable[[Sequence[str], Mapping[str, str], Path], Process],
    arguments: Sequence[str],
    environment: Mapping[str, str],
    *,
    show: bool = False,
) -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="hyperslab-server-") as folder:
        output = Path(folder) / "log"
        output.touch()
        process = start(["serve", "--port", "0", *arguments], {**environment, "PYTHONUNBUFFERED": "1"}, output)
        try:
            yield Server(_wait_for_address(process, output), process, output)
        finally:
            stop(process)
            if show:
                print(output.read_text(encoding="utf-8", errors="replace"))


class Process(Protocol):
    """As much of a process as tests need."""

    @property
    def pid(self) -> int: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, number: int, /) -> None: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...


class _Forked:
    """A process of multiprocessing, with the methods of one of subprocess."""

    def __init__(self, process: BaseProcess) -> None:
        self._process = process
        self.pid = process.pid or 0

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired("hyperslab", timeout or 0.0)
        return code

    def send_signal(self, number: int, /) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has ended, and we have not heard of it yet
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _forked(arguments: Sequence[str], environment: Mapping[str, str], output: Path) -> Process:
    """A child of a process that has imported the server and done nothing else."""
    process = FORKED.Process(target=command_line, args=(arguments, dict(environment), str(output), str(Path.cwd())))
    process.start()
    return _Forked(process)


def _executed(arguments: Sequence[str], environment: Mapping[str, str], output: Path) -> Process:
    """As it is started in earnest: with its own environment from the beginning."""
    with output.open("wb") as sink:
        command = [sys.executable, "-m", "hyperslab", *arguments]
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT, env=environment
        )


def stop(process: Process) -> None:
    """Ask a process to end, and end it where it does not."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _environment(stores: Stores, settings: Mapping[str, Any], extra: Mapping[str, str] | None) -> dict[str, str]:
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("HYPERSLAB_")}
    named = {
        name: {"url": str(store)} if isinstance(store, str | Path) else dict(store) for name, store in stores.items()
    }
    chosen = {"stores": named, **settings}
    ours = {f"HYPERSLAB_{key.upper()}": _as_text(value) for key, value in chosen.items()}
    return {**inherited, **ours, **(extra or {})}


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _wait_for_address(process: Process, output: Path) -> str:
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        log = output.read_text(encoding="utf-8", errors="replace")
        if found := re.search(r"^Look +(http\S+)/\n(.|\n)*Stop with Ctrl-C", log, re.MULTILINE):
            return found[1]
        if process.poll() is not None:
            break
        time.sleep(0.02)
    raise RuntimeError(f"the server did not start:\n{output.read_text(encoding='utf-8', errors='replace')}")


@contextmanager
def served(app: ASGIApp, **options: Any) -> Iterator[str]:
    """An application behind uvicorn on a real socket, in a thread of this process; yields its URL."""
    listener = socket.create_server(("127.0.0.1", 0))
    options = {"http": PROTOCOL, "timeout_graceful_shutdown": 5, **options}
    config = uvicorn.Config(app, log_level="warning", lifespan="on", access_log=False, **options)
    server = _Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="uvicorn", daemon=True)
    thread.start()
    try:
        while not server.started and thread.is_alive():
            time.sleep(0.005)
        if not server.started:
            raise RuntimeError("the application did not start")
        yield f"{'https' if config.is_ssl else 'http'}://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        if thread.is_alive():
            server.stop()
        thread.join()
        listener.close()


class _Server(uvicorn.Server):
    """Uvicorn that ends as soon as it is told to and nothing is under way, where its own loops sleep twice for 0.1 s:
    hundreds of tests have a server of their own."""

    _told: asyncio.Event
    _loop: asyncio.AbstractEventLoop

    def stop(self) -> None:
        """To be called from another thread, of a server that has started."""
        self.should_exit = True
        self._loop.call_soon_threadsafe(self._told.set)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._told, self._loop = asyncio.Event(), asyncio.get_running_loop()
        await super().startup(sockets)

    async def main_loop(self) -> None:
        ticks = 0
        while not await self.on_tick(ticks):
            ticks += 1
            with suppress(TimeoutError):
                await asyncio.wait_for(self._told.wait(), 0.1)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        for _ in range(20):  # in which connections without a request close
            if not self.server_state.connections and not self.server_state.tasks:
                await self.lifespan.shutdown()
                return
            await asyncio.sleep(0.005)
        await super().shutdown(sockets)


ServerFactory = Callable[..., Server]


@pytest.fixture
def server() -> Iterator[ServerFactory]:
    """Makes servers (arguments as of `running_server`) that end with the test."""
    with ExitStack() as stack:
        yield lambda stores, **settings: stack.enter_context(running_server(stores, **settings))


@pytest.fixture(scope="module")
def demo_url() -> Iterator[str]:
    """The URL of the demo, served as the command does."""
    with serving("--demo-dir", str(demo_parent())) as server:
        yield server.url
