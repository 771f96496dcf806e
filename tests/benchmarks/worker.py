"""``python -m tests.benchmarks.worker PROGRAM ROOT``: reads or writes when told to, and says how long it took.

One JSON document a line comes in and one goes out. A process of its own for each program keeps their thread pools and
allocators apart. Runs in every environment that is measured: at import only the standard library.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from typing import Any

from tests.benchmarks.readers import PROGRAMS, WRITERS, ArrayReader, Write


class Worker:
    """Arrays of one root, opened by one program, and kept open."""

    def __init__(self, program: str, root: str) -> None:
        self._program = program
        self._root = root
        self._arrays: dict[str, ArrayReader] = {}
        self._writes: dict[str, Write] = {}
        self._values: dict[str, Any] = {}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["job"] == "write":
            return self._write(request)
        array = self._array(request["array"])
        selection = _selection(request["selection"])
        if request["job"] == "digest":
            array.prepare()
            return {"digest": hashlib.sha256(array.read(selection).tobytes()).hexdigest()}
        return timed(array, selection, request["number"])

    def _array(self, name: str) -> ArrayReader:
        if name not in self._arrays:
            self._arrays[name] = PROGRAMS[self._program](self._root, name)
        return self._arrays[name]

    def _write(self, request: dict[str, Any]) -> dict[str, float]:
        """Write boxes of the values that lie in a npy file, one after the other."""
        name, path = request["array"], request["values"]
        if name not in self._writes:
            self._writes[name] = WRITERS[self._program](self._root, name)
        if path not in self._values:
            import numpy as np

            self._values[path] = np.load(path)
        write, values = self._writes[name], self._values[path]
        boxes = [(box, values[box].copy()) for box in map(_selection, request["boxes"])]
        cpu_began, began = time.process_time(), time.perf_counter()
        for box, part in boxes:
            write(box, part)
        return {"wall": time.perf_counter() - began, "cpu": time.process_time() - cpu_began}


def _selection(items: list[Any]) -> tuple[Any, ...]:
    return tuple(slice(*item) if isinstance(item, list) else item for item in items)


def timed(array: ArrayReader, selection: tuple[Any, ...], number: int) -> dict[str, float]:
    """Wall and CPU seconds of one read, as the mean of ``number`` reads; CPU of all threads. ``reads``: how many there
    were.

    A read that is timed alone comes after one that is not: while the others took their turns, a virtual machine may
    have given free memory back to its host. To use it again costs ten times as much, and is not what is compared.
    """
    alone = number == 1
    if alone:
        array.prepare()
        array.read(selection)
    wall = cpu = 0.0
    for _ in range(number):
        array.prepare()
        cpu_began, began = time.process_time(), time.perf_counter()
        array.read(selection)
        wall += time.perf_counter() - began
        cpu += time.process_time() - cpu_began
    return {"wall": wall / number, "cpu": cpu / number, "reads": number + alone}


def main() -> None:
    channel, sys.stdout = sys.stdout, sys.stderr  # what libraries print must not get between the answers
    worker = Worker(*sys.argv[1:])
    print(json.dumps({"ready": True}), file=channel, flush=True)
    for line in sys.stdin:
        try:
            answer = worker.answer(json.loads(line))
        except Exception as error:  # whatever a library raises is told to whoever asked
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=channel, flush=True)


if __name__ == "__main__":
    main()
