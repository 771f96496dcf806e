"""People who look: a few connections that each ask for a tile, look at it for a moment, and ask for the next."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.benchmarks.sockets import connected

PAUSE: Final = 0.02


@dataclass(slots=True)
class Look:
    """Seconds that each answer took."""

    seconds: list[float] = field(default_factory=list)
    failed: int = 0

    def quantile(self, share: float) -> float:
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def look(url: str, paths: Sequence[str], *, viewers: int, seconds: float) -> Look:
    """Let ``viewers`` ask for ``paths`` in turn until time is up."""
    found, lock, until = Look(), threading.Lock(), time.monotonic() + seconds

    def one(first: int) -> None:
        with connected(url) as connection:
            for path in itertools.islice(itertools.cycle(paths), first, None):
                if time.monotonic() > until:
                    return
                reply = connection.get(path)
                with lock:
                    found.seconds.append(reply.last)
                    found.failed += reply.status != 200
                time.sleep(PAUSE)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(viewers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found
