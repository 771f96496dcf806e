"""What a process runs that was forked from one which has imported the server: see `tests.server`.

Nothing is imported here that the process would have to load for itself.
"""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

HEAPS = "MALLOC_ARENA_MAX"
_M_ARENA_MAX = -8
PRELOADED = [
    *("tests.forked", "hyperslab.__main__", "hyperslab.cli", "hyperslab.asgi", "hyperslab.server", "hyperslab.welcome"),
    *("hyperslab.protocol", "hyperslab.storage.local", "uvicorn.loops.uvloop", "uvicorn.lifespan.on"),
]


def command_line(arguments: Sequence[str], environment: Mapping[str, str], output: str, folder: str) -> None:
    """``python -m hyperslab`` in a folder, with its output in a file. Its workers are forked, too."""
    from uvicorn import _subprocess

    from hyperslab.__main__ import main

    gc.freeze()  # pages of what is shared with the process above stay shared
    os.chdir(folder)
    heaps = environment.get(HEAPS)
    if heaps is not None:  # which glibc reads when a process begins
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, int(heaps))
    os.environ.clear()
    os.environ.update(environment)
    with Path(os.devnull).open("rb") as nothing, Path(output).open("ab") as sink:
        os.dup2(nothing.fileno(), 0)
        os.dup2(sink.fileno(), 1)
        os.dup2(sink.fileno(), 2)
    sys.stdout.reconfigure(line_buffering=True, write_through=True)  # type: ignore[union-attr]
    sys.argv = ["hyperslab", *arguments]
    os.register_at_fork(after_in_child=_forget_handlers)
    _subprocess.spawn = multiprocessing.get_context("fork")  # type: ignore[assignment]
    sys.exit(main())


def _forget_handlers() -> None:
    """Of the process that a worker is forked from: until it has its own, a signal ends it."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
