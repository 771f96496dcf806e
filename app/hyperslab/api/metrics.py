"""Prometheus metrics: counters at the end of requests, samples of caches, sums over worker processes."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache
from itertools import count
from pathlib import Path
from typing import Final

import prometheus_client.values
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from hyperslab.arrays.service import Service
from hyperslab.cache import CacheStats

MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_log = logging.getLogger(__name__)
disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """The metrics of a service; with ``folder``, of all worker processes that share it."""

    def __init__(self, service: Service, folder: Path | None = None) -> None:
        self._files: _Files | None = None
        try:
            self._files = None if folder is None else _Files(folder)
        except OSError as error:
            _log.warning("this worker tells its own numbers only, as it has no place to put them up: %s", error)
        self._registry = CollectorRegistry()
        requests = self._counter("requests", "Requests.", "route", "method", "status")
        text = "From the request to the last byte handed to the network."
        upto = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)
        name = "hyperslab_request_seconds"
        seconds = Histogram(name, text, ("route",), buckets=upto, registry=self._registry)
        sent = self._counter("sent_bytes", "Bytes of bodies sent.", "route")
        self.abandoned = self._counter("abandoned", "Answers given up because the client had left.", "route")
        self.cut = self._counter("cut", "Answers cut short because reading failed half way.", "route")

        @cache
        def series(route: str, method: str, status: int) -> tuple[Counter, Histogram, Counter]:
            return requests.labels(route, method, status), seconds.labels(route), sent.labels(route)

        self.series = series
        """The number of requests, their times, and the bytes sent."""
        self._samples: list[Callable[[], None]] = []
        self.watch("chunk", service.cache.stats)
        held = self._gauge("in_flight_bytes", "Memory that answers hold at the moment.")
        self._samples.append(lambda: held.set(service.in_flight.held))

    def watch(self, name: str, stats: Callable[[], CacheStats]) -> None:
        """Report the statistics of an additional cache."""
        counted = {
            "hits": "Look-ups that found what they wanted",
            "misses": "Look-ups that did not",
            "evictions": "Entries that were dropped to make room",
        }
        present = {
            "nbytes": ("bytes", "Memory that the entries take"),
            "entries": ("entries", "Entries"),
            "limit": ("limit_bytes", "Memory that the entries may take"),
        }
        counters = {m: self._counter(f"{name}_cache_{m}", f"{text} ({name} cache).") for m, text in counted.items()}
        gauges = {m: self._gauge(f"{name}_cache_{k}", f"{text} ({name} cache).") for m, (k, text) in present.items()}
        before = dict.fromkeys(counters, 0)

        def sample() -> None:
            values = stats()
            for member, counter in counters.items():
                counter.inc(getattr(values, member) - before[member])
                before[member] = getattr(values, member)
            for member, gauge in gauges.items():
                gauge.set(getattr(values, member))

        self._samples.append(sample)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"hyperslab_{name}", text, labels, registry=self._registry)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"hyperslab_{name}", text, registry=self._registry, multiprocess_mode="livesum")

    def text(self) -> bytes:
        """The metrics in Prometheus' text format."""
        self._sample()
        if self._files is None:
            return generate_latest(self._registry)
        registry = CollectorRegistry()
        MultiProcessCollector(registry, self._files.forget_dead())  # type: ignore[no-untyped-call]
        return generate_latest(registry)

    @asynccontextmanager
    async def sampled(self) -> AsyncIterator[None]:
        """Context in which samples of this process are visible to other processes."""

        async def keep_sampling() -> None:
            while True:
                self._sample()
                await asyncio.sleep(1)  # maximum age of other workers' samples

        sampling = None if self._files is None else asyncio.create_task(keep_sampling())
        try:
            yield
        finally:
            if sampling is not None:
                sampling.cancel()
                self._sample()

    def _sample(self) -> None:
        if self._files is not None:
            self._files.renew()
        for sample in self._samples:
            sample()


class _Files:
    """Metric files of this process, in prometheus_client's multiprocess mode.

    The library maps them into memory, so that metrics survive the process. Other programs may empty the folder (systemd
    does at logout of a service's user): then new files are made, from zero.
    """

    def __init__(self, folder: Path) -> None:
        """Raises `OSError`."""
        self._folder = folder
        self._names = (f"{os.getpid()}-{i}" for i in count())
        self._make()
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(folder)
        value_class = prometheus_client.values.MultiProcessValue(lambda: self._name)  # type: ignore[no-untyped-call]
        prometheus_client.values.ValueClass = value_class

    def renew(self) -> None:
        """Recreate removed files."""
        if all(path.exists() for path in self._paths(self._name)):
            return
        try:
            self._make()
        except OSError as error:
            _log.warning("other workers cannot see the metrics of this one: %s", error)

    def forget_dead(self) -> str:
        """Remove gauges of processes that have ended; returns the folder."""
        for path in self._folder.glob("gauge_livesum_*.db"):
            name = path.stem.rpartition("_")[2]
            try:
                os.kill(int(name.partition("-")[0]), 0)
            except ProcessLookupError:
                mark_process_dead(name, str(self._folder))  # type: ignore[no-untyped-call]
            except PermissionError:  # a live process of another user
                pass
        return str(self._folder)

    def _make(self) -> None:
        self._folder.mkdir(exist_ok=True)
        name = next(name for name in self._names if not any(path.exists() for path in self._paths(name)))
        for path in self._paths(name):
            new = path.with_suffix(".new")
            # twice the size of all series: growth on a full disk would kill the process
            new.write_bytes(bytes(256 << 10))
            new.replace(path)  # atomic, as other processes may read it at any time
        self._name = name

    def _paths(self, name: str) -> list[Path]:
        return [self._folder / f"{kind}_{name}.db" for kind in ("counter", "histogram", "gauge_livesum")]
