"""Runs uvicorn: in this process, or in several worker processes."""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread
from types import FrameType
from typing import Any, Final

import uvicorn
from uvicorn.supervisors import Multiprocess

from hyperslab.settings import Settings

log = logging.getLogger("hyperslab.server")

PROTOCOL: Final = "hyperslab.protocol:Protocol"
_LAST_SECONDS: Final = 2
"""For how long what was called off may take to end, after the requests have had their time."""


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; raises `OSError` that says what could not be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise OSError(f"cannot listen on {host} port {port}: {error.strerror or error}") from error


def base_url(listener: socket.socket) -> str:
    """The URL that reaches a listening socket from this machine."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(settings: Settings, announce: Callable[[str], None]) -> bool:
    """Serve until SIGINT, SIGTERM or, with one worker, SIGHUP, then let running requests end; False where the service
    could not start.

    Raises `OSError` where the port cannot be had.

    ``announce`` is told the base URL as soon as connections are taken.
    """
    _allow_open_files()
    with listen(settings.host, settings.port) as listener:
        announce(base_url(listener))
        if settings.workers > 1:
            with _metrics_folder(settings) as folder:
                factory = partial(application, settings.model_copy(update={"metrics_folder": folder}))
                _Workers(_config(settings, factory, factory=True), sockets=[listener]).run()
            return True
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # which is what nohup asks for
            signal.signal(signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGTERM))
        try:
            server = uvicorn.Server(_config(settings, application(settings)))
            server.run(sockets=[listener])
        except KeyboardInterrupt:  # uvicorn repeats the signal when it has shut down, and this is a good end
            return True
        return server.started


def _allow_open_files() -> None:
    """As many open files and connections as this user may have: a shell often allows 1,024, which clients and requests
    to some buckets use up."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):  # some systems allow fewer than they say, and then it stays as it was
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


@contextmanager
def _metrics_folder(settings: Settings) -> Iterator[Path]:
    """A folder of their own in which workers share their metrics, for as long as they run: in memory, where the system
    has a folder for that."""
    parent, memory = settings.metrics_folder, Path("/dev/shm")
    if parent is not None:
        parent.mkdir(exist_ok=True)
    elif os.access(memory, os.W_OK | os.X_OK):
        parent = memory
    with TemporaryDirectory(prefix="hyperslab-", dir=parent, ignore_cleanup_errors=True) as made:
        yield Path(made)


class _Deadline:
    """Ends the process some seconds after the first signal to end, whatever is still running.

    uvicorn waits for requests, for as long as it is told to. The interpreter then waits for all threads, and one that
    waits for a lock, or for a store that does not answer, may have to for ever. What is cut off by the end of the
    process is as safe as in one that is killed.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = _whole_seconds(seconds) + _LAST_SECONDS
        self._ending = Event()

    def begin(self) -> dict[str, Any]:
        """To be called when uvicorn has put its handlers of signals in place; the state of the application tells
        responses that have no end of their own when to end."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, partial(self._handle, signal.getsignal(number)))
        return {"hyperslab.ending": self._ending}

    def _handle(self, handler: Any, number: int, frame: FrameType | None) -> None:
        self._ending.set()
        Thread(target=self._end, name="deadline", daemon=True).start()
        if callable(handler):
            handler(number, frame)

    def _end(self) -> None:
        time.sleep(self._seconds)
        log.warning("work that did not end in %d s is cut off", self._seconds)
        logging.shutdown()
        os._exit(0)


class _Workers(Multiprocess):
    """Worker processes, which are killed where they do not end in time."""

    def join_all(self) -> None:
        deadline = time.monotonic() + self.config.timeout_graceful_shutdown + 2 * _LAST_SECONDS  # type: ignore[operator]
        for worker in self.processes:
            worker.process.join(max(0.0, deadline - time.monotonic()))
            if worker.process.is_alive():
                worker.process.kill()
        super().join_all()


def _whole_seconds(seconds: float) -> int:
    """As uvicorn takes them."""
    return max(1, round(seconds))


def application(settings: Settings) -> Any:
    """What a process of `serve` runs: the application, in a process that does nothing else. Raises `BadDefinition`."""
    from hyperslab.asgi import create_app  # the server's whole code, which worker processes load for themselves

    app = create_app(settings, started=_Deadline(settings.shutdown_seconds).begin)
    gc.collect()
    gc.freeze()  # what is there now stays
    gc.set_threshold(20_000, 20, 50)  # a request makes hundreds of objects and no cycles: to look often is in vain
    return app


def _config(settings: Settings, app: Any, *, factory: bool = False) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        factory=factory,
        workers=settings.workers,
        log_level=settings.log_level,
        access_log=settings.access_log,
        proxy_headers=bool(settings.trusted_proxies),  # a layer that every request pays for
        forwarded_allow_ips=settings.trusted_proxies,
        root_path=settings.root_path,
        timeout_worker_healthcheck=30,  # seconds; a busy machine can keep a good worker from running for longer than 5
        timeout_graceful_shutdown=_whole_seconds(settings.shutdown_seconds),
        interface="asgi3",
        server_header=False,
        http=PROTOCOL,
        ws="none",
        lifespan="on",
    )
