"""Reading by hand: files, numcodecs, one thread a processor and a socket, with nothing between them.

What is where is worked out before the clock starts, nothing is checked, and there is neither HTTP nor a server. So no
server that decodes with these libraries, in Python, will be much faster; where even this is too slow for a target, the
target is out of reach. What it does not do: decode less than a chunk.

``python -m tests.benchmarks.by_hand ROOT`` sends what is asked for over a socket, and prints its port.
"""

from __future__ import annotations

import ast
import itertools
import json
import os
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any, Final, NamedTuple

import numcodecs
import numpy as np
from numcodecs import blosc

from tests.benchmarks.cases import Selection

NDArray = np.ndarray[Any, np.dtype[Any]]

_WORTH_THREADS: Final = 1 << 20
_PIECE: Final = 8 << 20
_END: Final = b"\n"


class Part(NamedTuple):
    """A file, the cells of its chunk that are wanted and where they go; ``span``: the bytes to read, None for all."""

    path: str
    cells: tuple[int | slice, ...]
    place: tuple[slice, ...]
    span: tuple[int, int] | None


class Plan(NamedTuple):
    shape: tuple[int, ...]
    parts: list[Part]


class Room(threading.local):
    """Memory of one thread, for a stored chunk and for a decoded one."""

    def __init__(self, nbytes: int) -> None:
        self.stored = memoryview(bytearray(2 * nbytes + 1024))
        self.decoded = np.zeros(nbytes, np.uint8)


class ByHand:
    """An array of the benchmark: numbers in C order, at most one compressor, no chunk missing."""

    def __init__(self, root: str, name: str) -> None:
        blosc.use_threads = False
        self._folder = f"{root}/{name}"
        metadata = json.loads(Path(self._folder, ".zarray").read_text(encoding="utf-8"))
        self._shape: tuple[int, ...] = tuple(metadata["shape"])
        self._chunks: tuple[int, ...] = tuple(metadata["chunks"])
        self.dtype = np.dtype(metadata["dtype"])
        codec = metadata["compressor"]
        self._codec = None if codec is None else numcodecs.get_codec(codec)
        self._room = Room(prod(self._chunks) * self.dtype.itemsize)
        self._plans: dict[str, Plan] = {}

    def read(self, selection: Selection) -> NDArray:
        plan = self.plan(selection)
        out = np.empty(plan.shape, self.dtype)
        self.fill(plan, out)
        return out

    def plan(self, selection: Selection) -> Plan:
        key = repr(selection)
        if key not in self._plans:
            shape = tuple(item.stop - item.start for item in selection if isinstance(item, slice))
            self._plans[key] = Plan(shape, list(self._parts(selection)))
        return self._plans[key]

    def fill(self, plan: Plan, out: NDArray) -> None:
        parts, share = plan.parts, len(plan.parts) // (os.cpu_count() or 1)
        if not share or len(parts) * self._room.decoded.nbytes < _WORTH_THREADS:
            self._fill(parts, out)
            return
        others = [self._threads.submit(self._fill, parts[i : i + share], out) for i in range(share, len(parts), share)]
        self._fill(parts[:share], out)
        for other in others:
            other.result()

    def pieces(self, selection: Selection) -> Iterator[Selection]:
        """Selections one after the other along the first axis that make some megabytes each, of whole chunks."""
        first, rest = selection[0], selection[1:]
        row = prod(item.stop - item.start for item in rest if isinstance(item, slice)) * self.dtype.itemsize
        if isinstance(first, int) or row * (first.stop - first.start) <= _PIECE:
            yield selection
            return
        step = max(1, _PIECE // (row * self._chunks[0])) * self._chunks[0]
        edges = [first.start, *range(first.start // step * step + step, first.stop, step), first.stop]
        yield from ((slice(start, stop), *rest) for start, stop in itertools.pairwise(edges))

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(os.cpu_count())

    def _fill(self, parts: Sequence[Part], out: NDArray) -> None:
        stored, decoded = self._room.stored, self._room.decoded
        chunk = decoded.view(self.dtype).reshape(self._chunks)
        for path, cells, place, span in parts:
            descriptor = os.open(path, os.O_RDONLY)
            if self._codec is None:
                first, last = span or (0, decoded.nbytes)
                os.preadv(descriptor, (decoded.data[first:last],), first)
            else:
                self._codec.decode(stored[: os.readv(descriptor, (stored,))], decoded)
            os.close(descriptor)
            out[place] = chunk[cells]

    def _parts(self, selection: Selection) -> Iterator[Part]:
        axes = [list(_cut(item, size)) for item, size in zip(selection, self._chunks, strict=True)]
        for pieces in itertools.product(*axes):
            cells = tuple(piece[1] for piece in pieces)
            place = tuple(piece[2] for piece in pieces if piece[2] is not None)
            name = ".".join(str(piece[0]) for piece in pieces)
            yield Part(f"{self._folder}/{name}", cells, place, self._span(cells))

    def _span(self, cells: tuple[int | slice, ...]) -> tuple[int, int]:
        """The bytes of an uncompressed chunk from the first cell to the last."""
        first = [cell.start if isinstance(cell, slice) else cell for cell in cells]
        last = [cell.stop - 1 if isinstance(cell, slice) else cell for cell in cells]
        start, end = (int(np.ravel_multi_index(corner, self._chunks)) for corner in (first, last))
        return start * self.dtype.itemsize, (end + 1) * self.dtype.itemsize


class OverSocket:
    """A `ByHand` in another process, at ``127.0.0.1:port``."""

    def __init__(self, port: str, name: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", int(port)))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._name = name
        self._dtype = np.dtype(self._ask(None).makefile("rb").readline().decode().strip())

    def close(self) -> None:
        self._socket.close()

    def read(self, selection: Selection) -> NDArray:
        shape = tuple(item.stop - item.start for item in selection if isinstance(item, slice))
        out = np.empty(shape, self._dtype)
        rest = out.reshape(-1).view(np.uint8).data
        self._ask([(item.start, item.stop) if isinstance(item, slice) else item for item in selection])
        while rest:
            count = self._socket.recv_into(rest)
            if not count:
                raise ConnectionError("the sender has ended")
            rest = rest[count:]
        return out

    def _ask(self, items: list[Any] | None) -> socket.socket:
        self._socket.sendall(repr((self._name, items)).encode() + _END)
        return self._socket


def _cut(item: int | slice, size: int) -> Iterator[tuple[int, int | slice, slice | None]]:
    """For each chunk along an axis: its index, what is wanted of it, and where that goes."""
    if isinstance(item, int):
        yield item // size, item % size, None
        return
    for chunk in range(item.start // size, -(-item.stop // size)):
        start, stop = max(item.start, chunk * size), min(item.stop, (chunk + 1) * size)
        yield chunk, slice(start - chunk * size, stop - chunk * size), slice(start - item.start, stop - item.start)


class _Sender:
    """Answers one connection; requests that come again are not parsed again."""

    def __init__(self, root: str, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._root = root
        self._connection = connection
        self._ahead = ThreadPoolExecutor(1)
        self._arrays: dict[str, ByHand] = {}
        self._known: dict[bytes, tuple[ByHand, list[Selection]]] = {}

    def run(self) -> None:
        for line in self._connection.makefile("rb"):
            if line not in self._known:
                name, items = ast.literal_eval(line.decode())
                array = self._arrays.setdefault(name, ByHand(self._root, name))
                if items is None:
                    self._connection.sendall(array.dtype.str.encode() + _END)
                    continue
                selection = tuple(slice(*item) if isinstance(item, tuple) else item for item in items)
                self._known[line] = array, list(array.pieces(selection))
            self._send(*self._known[line])

    def _send(self, array: ByHand, pieces: Sequence[Selection]) -> None:
        """Each piece is read while the one before it is sent."""
        values = array.read(pieces[0])
        for piece in pieces[1:]:
            following = self._ahead.submit(array.read, piece)
            self._connection.sendall(values.reshape(-1).view(np.uint8).data)
            values = following.result()
        self._connection.sendall(values.reshape(-1).view(np.uint8).data)


def main() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        print(json.dumps({"port": server.getsockname()[1]}), flush=True)
        while True:
            connection, _ = server.accept()
            threading.Thread(target=_Sender(sys.argv[1], connection).run, daemon=True).start()


if __name__ == "__main__":
    main()
