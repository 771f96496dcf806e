"""Numbers for the operator: counted on the event loop, and written in Prometheus's format when asked for."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from time import perf_counter
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hyperslab.arrays.service import Service
from hyperslab.cache import CacheStats

ROUTE: Final = "hyperslab.route"
"""The key under which a route puts its name into the scope."""
BEGAN: Final = "hyperslab.began"
"""In the scope of a request on which somebody has worked before: since when (`time.perf_counter`)."""
MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_NOBODY_THERE = 499
_METHODS = frozenset(("GET", "HEAD", "PUT", "POST", "PATCH", "DELETE", "OPTIONS"))
_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)
_BOUNDS = [*map(str, _SECONDS), "+Inf"]

Labels = tuple[str, str, int]
"""Route, method and status."""
Total = Callable[[Iterable[Metric]], list[Metric]]
"""Makes the numbers of a service of those of one of its processes."""


@dataclass(slots=True)
class _Answered:
    """Answers with the same labels: how many, their seconds (all, and by bucket) and the bytes of their bodies."""

    count: int = 0
    seconds: float = 0.0
    nbytes: int = 0
    buckets: list[int] = field(default_factory=lambda: [0] * (len(_SECONDS) + 1))


class Metrics:
    """What was answered, given up because the client had left, and cut because reading failed half way."""

    def __init__(self, service: Service) -> None:
        self._answered: dict[Labels, _Answered] = {}
        self._abandoned: Counter[str] = Counter()
        self._cut: Counter[str] = Counter()
        self._caches: dict[str, Callable[[], CacheStats]] = {"chunk": service.cache.stats}
        self._numbers = _Numbers(service, self._caches, self._answered, self._abandoned, self._cut)
        self._total: Total | None = None

    def watch(self, name: str, stats: Callable[[], CacheStats]) -> None:
        """Tell the numbers of another cache too."""
        self._caches[name] = stats

    def count(self, labels: Labels, *, seconds: float, nbytes: int) -> None:
        """Count one request that is over."""
        answered = self._answered.get(labels)
        if answered is None:
            answered = self._answered[labels] = _Answered()
        answered.count += 1
        answered.seconds += seconds
        answered.nbytes += nbytes
        answered.buckets[bisect_left(_SECONDS, seconds)] += 1

    def count_abandoned(self, route: str) -> None:
        self._abandoned[route] += 1

    def count_cut(self, route: str) -> None:
        self._cut[route] += 1

    def share(self, total: Total) -> None:
        """From now on, report what ``total`` makes of this process's numbers."""
        self._total = total

    def own(self) -> list[Metric]:
        """The numbers of this process."""
        return list(self._numbers.collect())

    def text(self) -> bytes:
        """The text format that Prometheus reads. Raises `OSError` where the numbers of others cannot be read."""
        registry = CollectorRegistry()
        registry.register(_Found(self.own() if self._total is None else self._total(self.own())))
        return generate_latest(registry)


class Observed:
    """Counts every request once it is answered, cut or abandoned."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = scope.get(BEGAN) or perf_counter()
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


class _Found(Collector):
    """Numbers that are there already."""

    def __init__(self, found: list[Metric]) -> None:
        self._found = found

    def collect(self) -> list[Metric]:
        return self._found


class _Numbers(Collector):
    """All numbers as they are when Prometheus asks."""

    def __init__(
        self,
        service: Service,
        caches: Mapping[str, Callable[[], CacheStats]],
        answered: Mapping[Labels, _Answered],
        abandoned: Counter[str],
        cut: Counter[str],
    ) -> None:
        self._service = service
        self._caches = caches
        self._answered = answered
        self._abandoned = abandoned
        self._cut = cut

    def collect(self) -> Iterator[Metric]:
        yield self._requests()
        yield self._durations()
        yield _by_route("hyperslab_sent_bytes", "Bytes of bodies sent.", self._sent())
        yield _by_route("hyperslab_abandoned", "Answers given up because the client had left.", self._abandoned)
        yield _by_route("hyperslab_cut", "Answers cut short because reading failed half way.", self._cut)
        for name, stats in self._caches.items():
            yield from _cache_numbers(name, stats())
        held = self._service.in_flight.held
        yield GaugeMetricFamily("hyperslab_in_flight_bytes", "Memory that answers hold at the moment.", held)

    def _requests(self) -> Metric:
        family = CounterMetricFamily("hyperslab_requests", "Requests.", labels=("route", "method", "status"))
        for (route, method, status), answered in self._answered.items():
            family.add_metric((route, method, str(status)), answered.count)
        return family

    def _durations(self) -> Metric:
        text = "From the request to the last byte handed to the network."
        family = HistogramMetricFamily("hyperslab_request_seconds", text, labels=("route",))
        for route, parts in self._routes().items():
            counts = [sum(each) for each in zip(*[part.buckets for part in parts], strict=True)]
            buckets = list(zip(_BOUNDS, accumulate(counts), strict=True))
            family.add_metric((route,), buckets, sum(part.seconds for part in parts))
        return family

    def _sent(self) -> Mapping[str, int]:
        return {route: sum(part.nbytes for part in parts) for route, parts in self._routes().items()}

    def _routes(self) -> Mapping[str, list[_Answered]]:
        routes: dict[str, list[_Answered]] = {}
        for (route, _, _), answered in self._answered.items():
            routes.setdefault(route, []).append(answered)
        return routes


def _by_route(name: str, text: str, values: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(name, text, labels=("route",))
    for route, value in values.items():
        family.add_metric((route,), value)
    return family


def _cache_numbers(name: str, stats: CacheStats) -> Iterable[Metric]:
    counted = {
        "hits": ("Look-ups that found what they wanted", stats.hits),
        "misses": ("Look-ups that did not", stats.misses),
        "evictions": ("Entries that were dropped to make room", stats.evictions),
    }
    present = {
        "bytes": ("Memory that the entries take", stats.nbytes),
        "entries": ("Entries", stats.entries),
        "limit_bytes": ("Memory that the entries may take", stats.limit),
    }
    for member, (text, value) in counted.items():
        yield CounterMetricFamily(f"hyperslab_{name}_cache_{member}", f"{text} ({name} cache).", value)
    for member, (text, value) in present.items():
        yield GaugeMetricFamily(f"hyperslab_{name}_cache_{member}", f"{text} ({name} cache).", value)
