"""The fault proxy between a client and the real application, with what the client's tests ask of both."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import numpy as np

from hyperslab import RemoteArray, RemoteGroup, errors, wire
from tests.faults import Fault, FaultProxy, Seen, Status

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Call:
    """A request as it came."""

    method: str
    route: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes

    @classmethod
    def of(cls, seen: Seen) -> Call:
        parts = urlsplit(seen.path)
        _, _, route, *tail = parts.path.split("/")
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        return cls(seen.method, route, unquote("/".join(tail)).strip("/"), query, seen.headers, seen.body)


def problem(status: int, error: errors.HyperslabError, headers: Mapping[str, str] | None = None) -> Status:
    """An answer with a problem document as the server writes it."""
    facts = {"code": error.code, "title": error.title, "detail": str(error), "status": status, **error.facts()}
    return Status(status, json.dumps(facts).encode(), {"Content-Type": wire.PROBLEM, **(headers or {})})


class Proxy(FaultProxy):
    """A fault proxy; ``root`` and the methods that read and write go past it, as another client would."""

    def __init__(self, upstream: str) -> None:
        super().__init__(upstream)
        self.threads: set[int] = set()
        self.root = RemoteGroup(f"{upstream}/v1/metadata")

    def add(self, path: str, values: Array, chunks: tuple[int, ...], **members: Any) -> str:
        """An array with these values, in place of what is there; the URL of its node document."""
        self.root.create_array(path, data=values, chunks=chunks, mode="replace", **members)
        return f"{self.url}/v1/metadata/{path}"

    def node(self, path: str) -> RemoteArray:
        return self.root.open_array(path)

    def values(self, path: str) -> Array:
        """What is stored now."""
        return np.asarray(self.node(path).get())

    def increment(self, path: str = "store/a") -> None:
        """Another client adds 1 to all values."""
        self.node(path)[...] = self.values(path) + 1

    def fail(self, *faults: Fault, route: str = "slice", method: str = "GET", times: int = 1) -> None:
        """Let these faults happen to the next requests of a route, one after the other, all of them so many times."""
        for fault in faults * times:
            self.inject(fault, method=method, path=f"/v1/{route}/")

    @property
    def calls(self) -> list[Call]:
        return [Call.of(seen) for seen in self.seen]

    def calls_of(self, route: str, method: str = "GET") -> list[Call]:
        return [call for call in self.calls if (call.route, call.method) == (route, method)]

    def take(self, seen: Seen) -> Fault | None:
        self.threads.add(threading.get_ident())  # one for each connection
        return super().take(seen)
