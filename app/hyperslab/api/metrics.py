"""Numbers for the operator: a registry of our own, and the middleware that feeds it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from time import perf_counter
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hyperslab.arrays.service import Service

ROUTE = "hyperslab.route"
"""The key under which a route puts its name into the scope."""
MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_NOBODY_THERE = 499
_METHODS = frozenset(("GET", "HEAD", "PUT", "POST", "PATCH", "DELETE", "OPTIONS"))
_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60)


class Metrics:
    """Requests by route, method and status, their durations and bytes, and work that was given up."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        labels = ("route", "method", "status")
        self._requests = Counter("hyperslab_requests", "Requests answered.", labels, registry=self.registry)
        self._seconds = Histogram(
            "hyperslab_request_seconds",
            "From the request to the last byte handed to the network.",
            ("route",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._sent = Counter("hyperslab_sent_bytes", "Bytes of bodies sent.", ("route",), registry=self.registry)
        self.abandoned = Counter(
            "hyperslab_abandoned", "Answers given up because the client had left.", ("route",), registry=self.registry
        )
        self.cut = Counter(
            "hyperslab_cut", "Answers cut short because reading failed half way.", ("route",), registry=self.registry
        )
        self._by_labels: dict[tuple[str, str, int], tuple[Counter, Histogram, Counter]] = {}

    def watch(self, service: Service) -> None:
        """Also show the numbers that the use cases keep themselves."""
        self.registry.register(_ServiceNumbers(service))

    def count(self, labels: tuple[str, str, int], *, seconds: float, nbytes: int) -> None:
        """Count one answered request."""
        requests, durations, sent = self._by_labels.get(labels) or self._children(labels)
        requests.inc()
        durations.observe(seconds)
        sent.inc(nbytes)

    def text(self) -> bytes:
        """The text format that Prometheus reads."""
        return generate_latest(self.registry)

    def _children(self, labels: tuple[str, str, int]) -> tuple[Counter, Histogram, Counter]:
        route, method, status = labels
        found = (
            self._requests.labels(route, method, str(status)),
            self._seconds.labels(route),
            self._sent.labels(route),
        )
        return self._by_labels.setdefault(labels, found)


class Observed:
    """Counts every request once it is answered, cut or abandoned."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = perf_counter()
        status, nbytes = _NOBODY_THERE, 0

        async def send_and_count(message: Message) -> None:
            nonlocal status, nbytes
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                nbytes += len(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, receive, send_and_count)
        finally:
            method = scope["method"] if scope["method"] in _METHODS else "other"
            labels = (scope.get(ROUTE, "other"), method, status)
            self._metrics.count(labels, seconds=perf_counter() - began, nbytes=nbytes)


class _ServiceNumbers(Collector):
    """Read when asked for, not counted along."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterator[Metric]:
        yield from _cache_numbers("chunk", self._service.cache.stats())
        held = GaugeMetricFamily("hyperslab_in_flight_bytes", "Memory that answers hold at the moment.")
        held.add_metric([], self._service.in_flight.held)
        yield held


def _cache_numbers(name: str, stats: Any) -> Iterable[Metric]:
    for member in ("hits", "misses", "evictions"):
        counter = CounterMetricFamily(f"hyperslab_{name}_cache_{member}", f"{member.capitalize()} of the {name} cache.")
        counter.add_metric([], getattr(stats, member))
        yield counter
    for member, unit in (("nbytes", "bytes"), ("entries", "entries"), ("limit", "limit_bytes")):
        gauge = GaugeMetricFamily(f"hyperslab_{name}_cache_{unit}", f"What the {name} cache holds, or may: {member}.")
        gauge.add_metric([], getattr(stats, member))
        yield gauge
