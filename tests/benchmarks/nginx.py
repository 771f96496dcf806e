"""nginx with one worker over a folder, the ceiling for whoever serves files; and wrk, which loads servers."""

from __future__ import annotations

import getpass
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.benchmarks.processes import cpu_seconds
from tests.server import stop

_CONFIGURATION: Final = """
daemon off;
worker_processes 1;
pid {state}/pid;
error_log {state}/error.log;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {state}/body;
    proxy_temp_path {state}/proxy;
    fastcgi_temp_path {state}/fastcgi;
    uwsgi_temp_path {state}/uwsgi;
    scgi_temp_path {state}/scgi;
    {inside}
}}
"""
_FILES: Final = """
    sendfile on;
    tcp_nopush off;
    keepalive_requests 100000000;
    open_file_cache max=4096 inactive=60s;
    open_file_cache_valid 60s;
    etag on;
    types {{ image/png png; }}
    default_type application/octet-stream;
    server {{
        listen 127.0.0.1:{port} backlog=1024;
        root {root};
        location / {{ try_files $uri =404; }}
    }}
"""


class Missing(Exception):
    """A program of the system is not installed; says how to get it."""


@dataclass(frozen=True, slots=True)
class Nginx:
    """A running nginx."""

    url: str
    pid: int

    def processes(self) -> Sequence[int]:
        """Of nginx's processes, the one that answers; it is there some milliseconds after the port."""
        children: list[str] = []
        while not children:
            children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text(encoding="utf-8").split()
            time.sleep(0.01)
        return [int(pid) for pid in children]


def program(name: str) -> str:
    """Where a program is; raises `Missing`."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
    if found is None:
        raise Missing(f"{name} is not installed: `apt-get install {name}` or the like brings it")
    return found


@contextmanager
def nginx(root: Path) -> Iterator[Nginx]:
    """Serve ``root`` from a free port of 127.0.0.1. Raises `Missing`."""
    port = free_port()
    with started(_FILES.format(port=port, root=root.resolve()), port) as process:
        yield Nginx(f"http://127.0.0.1:{port}", process.pid)


@contextmanager
def started(inside: str, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run nginx with what stands ``inside`` its ``http`` block, and listens on ``port``. Raises `Missing`."""
    path = program("nginx")
    with tempfile.TemporaryDirectory(prefix="hyperslab-nginx-") as state:
        configuration = Path(state) / "nginx.conf"
        configuration.write_text(_CONFIGURATION.format(state=state, inside=inside), encoding="utf-8")
        Path(state).chmod(0o755)
        command = [path, "-p", state, "-c", str(configuration), "-e", f"{state}/error.log", *_as_this_user()]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        try:
            _wait(port, process)
            yield process
        finally:
            stop(process)


def _as_this_user() -> list[str]:
    """As root, nginx would answer as a user who may not be able to read the data."""
    return ["-g", f"user {getpass.getuser()};"] if os.getuid() == 0 else []


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _wait(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as connection:
            if connection.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise RuntimeError("nginx did not start")


# --- requests per second, as wrk counts them -------------------------------------------------------------------------

_UNITS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}
_LATENCY: Final = r"(50%|99%)\s+([0-9.]+)(us|ms|s|m)\b"


@dataclass(frozen=True, slots=True)
class Load:
    """What wrk has found: seconds for latencies, CPU seconds of the server for one request, answers that were none."""

    rate: float
    median: float
    p99: float
    cpu: float
    failed: int


def load(
    url: str,
    *,
    seconds: float,
    connections: int = 16,
    headers: Mapping[str, str] | None = None,
    pids: Sequence[int] = (),
) -> Load:
    """Ask for ``url`` as fast as it is answered, from one thread over some connections. Raises `nginx.Missing`."""
    asked = [f"--header={name}: {value}" for name, value in (headers or {}).items()]
    command = [program("wrk"), "--latency", "-t1", f"-c{connections}", f"-d{seconds}s", *asked, url]
    before = sum(map(cpu_seconds, pids))
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 60, check=True)
    spent = sum(map(cpu_seconds, pids)) - before
    return parse_wrk(done.stdout, spent)


def parse_wrk(text: str, cpu: float = 0.0) -> Load:
    """wrk's report; ``cpu`` is what the server has spent on all of it."""
    latencies = {name: float(number) * _UNITS[unit] for name, number, unit in re.findall(_LATENCY, text)}
    count = int(_found(r"([0-9]+) requests in", text))
    bad = re.search(r"Non-2xx or 3xx responses: ([0-9]+)", text)
    errors = re.search(r"Socket errors: connect ([0-9]+), read ([0-9]+), write ([0-9]+), timeout ([0-9]+)", text)
    failed = (int(bad[1]) if bad else 0) + (sum(map(int, errors.groups())) if errors else 0)
    rate = float(_found(r"Requests/sec:\s+([0-9.]+)", text))
    return Load(rate, latencies["50%"], latencies["99%"], cpu / max(1, count), failed)


def _found(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    if match is None:
        raise ValueError(f"wrk did not say {pattern!r}:\n{text}")
    return match[1]
