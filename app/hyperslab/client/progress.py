"""How far a transfer has come."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

Progress = bool | Callable[[int, int], None]
"""True: a bar on stderr. A function is called with the bytes done and in all, from whatever thread."""

Report = AbstractContextManager[Callable[[int], None]]
"""Gives what is told how many more bytes are done; a negative number of them has to be done again."""


_QUIET: Report = nullcontext(lambda _: None)


def report(progress: Progress, total: int, title: str) -> Report:
    """Watch one transfer of ``total`` bytes; raises `ImportError` where a bar is asked for and tqdm is not there."""
    if progress is False or not total:
        return _QUIET
    return _bar(total, title) if progress is True else nullcontext(_counter(progress, total))


def _counter(told: Callable[[int, int], None], total: int) -> Callable[[int], None]:
    lock = threading.Lock()
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        with lock:
            done += count
            told(done, total)

    return advance


@contextmanager
def _bar(total: int, title: str) -> Iterator[Callable[[int], None]]:
    try:
        from tqdm import tqdm
    except ImportError as error:
        raise ImportError(
            "a progress bar needs tqdm: pip install 'hyperslab[cli]', or pass a function as progress="
        ) from error
    lock = threading.Lock()
    with tqdm(total=total, desc=title, unit="B", unit_scale=True, unit_divisor=1024, leave=False) as bar:

        def advance(count: int) -> None:
            with lock:
                bar.update(count)

        yield advance
