"""A numpy model of the arrays of a stream, and a client that sends as instruments do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np

NDArray = np.ndarray[Any, np.dtype[Any]]


def reduced(a: NDArray, method: str, axes: Sequence[int]) -> NDArray:
    """Every block of two along some axes as one item, by another way than the service's."""
    out, count = a.astype(object), np.ones(a.shape, object)
    for axis in axes:
        starts = range(0, a.shape[axis], 2)
        if method == "decimate":
            out = out.take(starts, axis)
        elif method == "mean":
            out, count = (np.add.reduceat(each, starts, axis) for each in (out, count))
        else:
            out = {"min": np.minimum, "max": np.maximum}[method].reduceat(out, starts, axis)
    if method == "mean" and a.dtype.kind in "iu":  # half to even
        low, rest = out // count, 2 * (out % count)
        out = low + ((rest > count) | ((rest == count) & (low % 2 == 1)))
    elif method == "mean":
        out = out / count
    return out.astype(a.dtype)


@dataclass
class Model:
    """What one array of ``settings`` must hold: frames in order of arrival, None where they are missing."""

    settings: dict[str, Any]
    frames: list[NDArray | None] = field(default_factory=list)

    @property
    def dtype(self) -> np.dtype[Any]:
        found: np.dtype[Any] = np.dtype(self.settings["dtype"])
        return found

    @property
    def sizes(self) -> list[int | None]:
        return [dimension["size"] for dimension in self.settings["dimensions"]]

    @property
    def frame_shape(self) -> tuple[int, int]:
        return self.sizes[-2] or 0, self.sizes[-1] or 0

    @property
    def per_row(self) -> int:
        return int(np.prod([size or 0 for size in self.sizes[1:-2]])) if len(self.sizes) > 2 else 1

    @property
    def order(self) -> list[int]:
        names = [dimension["name"] for dimension in self.settings["dimensions"]]
        return [names.index(name) for name in self.settings.get("storage_order") or names]

    def values(self, *, final: bool) -> NDArray:
        """Level 0 as it is stored: whole rows, or when it is ``final`` all of them."""
        rows = -(-len(self.frames) // self.per_row) if final else len(self.frames) // self.per_row
        fill = np.full(self.frame_shape, self.settings.get("fill_value", 0), self.dtype)
        frames = [fill if f is None else f for f in self.frames[: rows * self.per_row]]
        frames += [fill] * (rows * self.per_row - len(frames))
        inner = [size or 0 for size in self.sizes[1:]] if len(self.sizes) > 2 else []
        shape = (rows, *inner) if inner else (rows * self.frame_shape[0], self.frame_shape[1])
        block = np.stack(frames) if frames else np.empty((0, *self.frame_shape), self.dtype)
        return block.reshape(shape).transpose(self.order)

    def levels(self, *, final: bool) -> list[NDArray]:
        """All levels; those along a halved append dimension have whole planes only until it is ``final``."""
        found = [self.values(final=final)]
        if self.settings.get("pyramid") is None:
            return found
        method, dimensions = self.settings["pyramid"]["method"], self.settings["dimensions"]
        y, x = len(dimensions) - 2, len(dimensions) - 1
        others = [axis for axis in self.order if axis < y]
        sizes = dict(enumerate(self.sizes))
        while True:
            smaller = min(sizes[y] or 0, sizes[x] or 0)
            if smaller <= max(dimensions[axis]["chunk"] for axis in (y, x) if sizes[axis] == smaller):
                return found
            z = [axis for axis in others[-1:] if dimensions[axis]["type"] == "space" and sizes[axis] != 1]
            axes = [*z, *[axis for axis in (y, x) if sizes[axis] != 1]]
            for axis in axes:
                sizes[axis] = None if (size := sizes[axis]) is None else -(-size // 2)
            above, append = found[-1], self.order.index(0)
            if 0 in axes and len(self.sizes) > 2 and not final:
                above = above[(slice(None),) * append + (slice(0, above.shape[append] // 2 * 2),)]
            found.append(reduced(above, method, [self.order.index(axis) for axis in axes]))


@dataclass
class Sender:
    """Sends to one array of a stream over HTTP."""

    client: httpx.Client
    path: str
    key: str

    def patch(self, data: bytes, offset: int | None, **headers: str) -> httpx.Response:
        said = {} if offset is None else {"Upload-Offset": str(offset)}
        kind = {"Content-Type": "application/octet-stream"}
        url = f"/v1/stream/{self.path}"
        return self.client.patch(url, params={"key": self.key}, content=data, headers={**kind, **said, **headers})

    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = self.client.get(f"/v1/stream/{self.path}").raise_for_status().json()
        return found["arrays"][self.key]  # type: ignore[no-any-return]

    def read(self, path: str) -> NDArray:
        """An array as ``/v1/slice`` has it."""
        answer = self.client.get(f"/v1/slice/{path}", params={"format": "raw"}).raise_for_status()
        dtype = np.dtype(answer.headers["array-dtype"].strip('"'))
        shape = [int(n) for n in answer.headers["array-shape"].strip("[]").split(",")]
        return np.frombuffer(answer.content, dtype).reshape(shape)
