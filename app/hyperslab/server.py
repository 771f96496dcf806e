"""Runs uvicorn, in this process or in several worker processes."""

from __future__ import annotations

import copy
import gc
import logging
import os
import re
import signal
import socket
import sys
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

from hyperslab.settings import Settings, own_key

log = logging.getLogger("hyperslab.server")

PROTOCOL: Final = "hyperslab.protocol:Protocol"
_LAST_SECONDS: Final = 2
"""Seconds for cancelled work to end, after ``shutdown_seconds``."""


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; raises `OSError` with address and port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise OSError(f"cannot listen on {host} port {port}: {error.strerror or error}") from error


def base_url(listener: socket.socket) -> str:
    """The URL of a listening socket on this machine."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(settings: Settings, announce: Callable[[str], None], prepare: Callable[[], None] | None = None) -> int:
    """Serve until SIGINT, SIGTERM or, with one worker, SIGHUP, and finish running requests; returns the exit code, 1
    if the service could not start.

    ``prepare`` is called first, while requests are answered by `_starting`; it ends with `KeyboardInterrupt` on a
    signal. ``announce`` is called with the base URL when the stores are served. Raises `OSError` if the port is not
    available.
    """
    _raise_file_limit()
    with listen(settings.host, settings.port) as listener:
        if prepare is not None:
            signal.signal(signal.SIGTERM, signal.default_int_handler)
            try:
                with _starting(listener):
                    prepare()
            except KeyboardInterrupt:
                return 0
        if settings.workers > 1:
            announce(base_url(listener))
            with _metrics_folder(settings) as folder:
                # links are those of all workers
                shared = {"metrics_folder": folder, "link_keys": settings.link_keys or own_key()}
                factory = partial(application, settings.model_copy(update=shared))
                _Workers(_config(settings, factory, factory=True), sockets=[listener]).run()
            return 0
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as set by nohup
            signal.signal(signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGTERM))
        try:
            announce(base_url(listener))  # from here on, signals end it well
            server = uvicorn.Server(_config(settings, application(settings)))
            server.run(sockets=[listener])
        except KeyboardInterrupt:  # uvicorn raises the signal again after a regular shutdown
            return 0
        return 0 if server.started else 1


@contextmanager
def _starting(listener: socket.socket) -> Iterator[None]:
    """Context in which another thread answers requests to a service that has no stores yet: it is alive, but not
    ready."""

    async def answer(scope: Any, _: Any, send: Any) -> None:
        status, document = 503, b'{"status":"not ready","detail":"the stores are being prepared"}'
        if scope["path"] == "/healthz":
            status, document = 200, b'{"status":"ok"}'
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(document))]
        headers += [(b"cache-control", b"no-store"), *([(b"retry-after", b"5")] if status == 503 else [])]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": document})

    config = uvicorn.Config(
        answer, lifespan="off", ws="none", log_level="error", server_header=False, interface="asgi3"
    )
    server = uvicorn.Server(config)
    thread = Thread(target=server.run, args=([listener.dup()],), name="starting", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join()


def _raise_file_limit() -> None:
    """Raise the limit of open files, up to 65,536: the usual 1,024 do not suffice for clients and requests to
    buckets."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = 65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536)
    if soft != resource.RLIM_INFINITY and soft < target:
        with suppress(ValueError, OSError):  # some systems allow fewer than their hard limit
            resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))


@contextmanager
def _metrics_folder(settings: Settings) -> Iterator[Path]:
    """A temporary folder in which workers share their metrics, by default in memory if possible."""
    parent, memory = settings.metrics_folder, Path("/dev/shm")
    if parent is not None:
        parent.mkdir(exist_ok=True)
    elif os.access(memory, os.W_OK | os.X_OK):
        parent = memory
    with TemporaryDirectory(prefix="hyperslab-", dir=parent, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


class _Deadline:
    """Ends the process some seconds after the first signal.

    After uvicorn has waited for requests, the interpreter would wait for all threads, also for those blocked by a lock
    or a store. Writes are as safe as in a process that is killed.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = _whole_seconds(seconds) + _LAST_SECONDS
        self._ending = Event()

    def begin(self) -> dict[str, Any]:
        """Wrap uvicorn's signal handlers, which must be in place; returns state with an event that is set on shutdown,
        for endless responses."""
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
    """Worker processes, which are killed if they do not end in time."""

    def join_all(self) -> None:
        deadline = time.monotonic() + self.config.timeout_graceful_shutdown + 2 * _LAST_SECONDS  # type: ignore[operator]
        for worker in self.processes:
            worker.process.join(max(0.0, deadline - time.monotonic()))
            if worker.process.is_alive():
                worker.process.kill()
        super().join_all()


def _whole_seconds(seconds: float) -> int:
    """Seconds as an integer, which uvicorn requires."""
    return max(1, round(seconds))


def application(settings: Settings) -> Any:
    """The application, with the garbage collector and the interpreter's lock tuned for a process that runs nothing
    else. Raises `BadDefinition`."""
    gc.set_threshold(20_000, 20, 50)  # imports and requests create many objects, but no cycles
    sys.setswitchinterval(0.001)  # a thread that runs Python delays each system call of a small request by this
    from hyperslab.asgi import create_app  # imported late: with several workers, only these need it

    app = create_app(settings, started=_Deadline(settings.shutdown_seconds).begin)
    gc.collect()
    gc.freeze()
    return app


class WithoutLinks(logging.Filter):
    """Keeps the text of signed links, which is as good as a token, out of the log of requests."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep the record."""
        if isinstance(record.args, tuple):
            arguments = [
                re.sub("/link/[^/? ]+", "/link/…", arg) if isinstance(arg, str) else arg for arg in record.args
            ]
            record.args = tuple(arguments)
        return True


def log_config() -> dict[str, Any]:
    """uvicorn's, and a handler for the audit log, on stderr, one line each."""
    config: dict[str, Any] = copy.deepcopy(uvicorn.config.LOGGING_CONFIG)
    config["filters"] = {"links": {"()": WithoutLinks}}
    config["handlers"]["access"]["filters"] = ["links"]
    config["formatters"]["audit"] = {"format": "%(message)s"}
    config["handlers"]["audit"] = {"class": "logging.StreamHandler", "formatter": "audit", "stream": "ext://sys.stderr"}
    config["loggers"]["hyperslab.audit"] = {"handlers": ["audit"], "level": "INFO", "propagate": False}
    return config


def _config(settings: Settings, app: Any, *, factory: bool = False) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        factory=factory,
        workers=settings.workers,
        log_config=log_config(),
        log_level=settings.log_level,
        access_log=settings.access_log,
        proxy_headers=bool(settings.trusted_proxies),  # a middleware for each request
        forwarded_allow_ips=settings.trusted_proxies,
        root_path=settings.root_path,
        timeout_worker_healthcheck=30,  # seconds; the default of 5 is too short on a busy machine
        timeout_graceful_shutdown=_whole_seconds(settings.shutdown_seconds),
        interface="asgi3",
        server_header=False,
        http=PROTOCOL,
        ws="none",
        lifespan="on",
    )
