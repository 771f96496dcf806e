"""One task per chunk, on a pool whose width belongs to the store."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from itertools import islice
from queue import Empty, SimpleQueue
from threading import Lock, get_native_id
from typing import Any, Generic, TypeVar

from hyperslab.arrays.cost import Cancel
from hyperslab.arrays.placement import run_anywhere, side_by_side

T = TypeVar("T")
R = TypeVar("R")


_LARGEST_BATCH = 8
_AHEAD = 3
"""Items that wait for each thread, so that none runs out of work while the next one is made."""
_PATIENCE = 0.5
"""Seconds to let other relays finish, each of which takes some 10 milliseconds for a slab: one that has to wait for a
disk ends at once (see `BatchReader.read_in_turn`)."""

_PAUSE = 0.001
"""Seconds in which something is fetched from a store that takes no time to answer; `_MORE` threads are asked to help
each time that nothing was."""
_MORE = 16

_IN_HAND = 256 << 20
"""Bytes that helpers of all reads of a store may have in hand, of which one read takes a `_SHARE`th; or `_LEAST` items,
where these are larger."""
_SHARE = 4
_LEAST = 3
_LEFT = 8
"""One of so many requests to a store that is far is left to others: who looks up a version must not wait for a large
read."""


class WorkerPool:
    """Threads that all requests to one store share. The calling thread works too, so that a busy pool delays nobody.

    ``near``: the work is computing, not waiting; then each thread gets a processor for itself while there is one.
    """

    def __init__(self, width: int, name: str, *, near: bool = False) -> None:
        self.width = width
        self._near = near
        self._most_helpers = width - (1 if near else max(1, width // _LEFT))
        self._helpers: list[int] = []
        self._busy = self._in_hand = 0
        self._lock = Lock()
        self._turn = Lock()
        self._threads = ThreadPoolExecutor(
            max(1, width - 1), thread_name_prefix=f"chunks-{name}", initializer=self._introduce
        )

    def each(
        self,
        items: Iterable[T],
        count: int,
        work: Callable[[T], None],
        cancel: Cancel | None = None,
        *,
        nbytes: int = 0,
    ) -> None:
        """Call ``work`` with every item, of which there are ``count``, on as many threads as help. ``nbytes``: of
        memory that an item takes while it is worked on.

        The first exception ends all the work and is raised; so is `Cancelled` once ``cancel`` is set.
        """
        run = _Run(iter(items), work, cancel=cancel, count=count, share=4 * self.width)
        with self._helpers_for(count - 1, nbytes) as most:
            helpers = [self._threads.submit(run.drain) for _ in range(most)]
            with self._placed():
                run.drain()
            for helper in helpers:
                if not helper.cancel():  # it has started, perhaps ended
                    helper.result()
        run.let_go()
        _raise_first(run.errors)
        if cancel is not None:
            cancel.check()

    def relay(
        self, items: Iterable[T], work: Callable[[T], None], cancel: Cancel | None = None, *, brief: bool = False
    ) -> None:
        """Make items one after the other on this thread, and let the others work on them; while those have enough to
        do, this one works too. Raises as `each` does, and when nobody works on an item any more.

        Another relay on the same threads is let finish first, unless it takes long. ``brief``: it is not worth waiting
        for; the others are only asked for help while they have nothing else to do.
        """
        with self._in_turn(0 if brief else _PATIENCE) as first:
            if brief and (self._busy or not first):
                one_by_one(items, work, cancel)
            else:
                self._relay(items, work, cancel)

    def gather(
        self,
        items: Iterable[T],
        count: int,
        fetch: Callable[[T], R],
        use: Callable[[R], None],
        *,
        waiting: int,
        nbytes: int = 0,
        cancel: Cancel | None = None,
    ) -> None:
        """Call ``fetch`` with every item, of which there are ``count``, on other threads, and ``use`` with what comes
        of it on this one, in whichever order; about ``waiting`` results wait for it at most. ``nbytes`` as in `each`.

        Raises as `each` does, when nobody works on an item any more.

        For what waits for a network, and is little work afterwards: many threads that each need the interpreter lock
        for a moment would only hold each other up. Threads are added while nothing arrives; where none is free, this
        one fetches.
        """
        run = _Gathering(iter(items), fetch, waiting)
        helpers: list[Future[None]] = []
        with self._helpers_for(count, nbytes) as most:
            try:
                while (results := self._next_results(run, helpers, most)) is not None:
                    if cancel is not None:
                        cancel.check()
                    for result in results:
                        use(result)
            finally:
                run.let_go()
                wait([helper for helper in helpers if not helper.cancel()])
                errors, run.errors = run.errors, []
        _raise_first(errors)

    def _next_results(self, run: _Gathering[T, R], helpers: list[Future[None]], most: int) -> Sequence[R] | None:
        """What was fetched, by one of at most so many ``helpers`` or, where all of them are busy, by this thread; None
        where nothing comes any more."""
        while not (run.ended or run.errors):
            idle = most - run.helpers
            if results := run.results(_PAUSE if helpers and idle else 0):
                return results
            if idle:
                helpers[:] = [helper for helper in helpers if not helper.done()]
                helpers += [self._threads.submit(run.drain) for _ in range(run.call(min(_MORE, idle)))]
            else:
                run.fetch_one()
        return run.results(None) if run.expects_more() and not run.errors else None

    def most_helpers(self, count: int, nbytes: int) -> int:
        """How many threads may help one caller with ``count`` items of ``nbytes`` each."""
        most = max(0, min(self._most_helpers, count))
        return min(most, max(_IN_HAND // _SHARE, _LEAST * nbytes) // nbytes) if nbytes else most

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)

    def _relay(self, items: Iterable[T], work: Callable[[T], None], cancel: Cancel | None) -> None:
        run = _Relay(work)
        under_way: deque[Future[None]] = deque()
        most = _AHEAD * (self.width - 1)
        try:
            with self._placed():
                for item in items:
                    if cancel is not None:
                        cancel.check()
                    while under_way and under_way[0].done():
                        under_way.popleft().result()
                    if len(under_way) < most:
                        run.waiting.append(item)
                        under_way.append(self._threads.submit(run.work_on_first))
                    else:
                        work(item)
                run.work_on_rest()
            _raise_first([future.exception() for future in under_way if not future.cancel()])
        finally:
            run.let_go()
            wait([future for future in under_way if not future.cancel()])
            under_way.clear()

    @contextmanager
    def _helpers_for(self, count: int, nbytes: int) -> Iterator[int]:
        """How many threads may help with ``count`` items of ``nbytes`` each, so that all in hand fit into memory."""
        with self._lock:
            most = self.most_helpers(count, nbytes)
            if nbytes:
                most = max(0, min(most, (_IN_HAND - self._in_hand) // nbytes))
            self._in_hand += most * nbytes
        try:
            yield most
        finally:
            with self._lock:
                self._in_hand -= most * nbytes

    @contextmanager
    def _in_turn(self, patience: float) -> Iterator[bool]:
        """Whether no other relay goes on when it is this one's turn, which it is after ``patience`` seconds at most."""
        taken = self._turn.acquire(timeout=patience)
        try:
            yield taken
        finally:
            if taken:
                self._turn.release()

    @contextmanager
    def _placed(self) -> Iterator[None]:
        """Nobody is placed where several runs go on at once: they keep the processors busy without that."""
        with self._lock:
            alone, self._busy = not self._busy, self._busy + 1
        try:
            if alone and self._near:
                with side_by_side(self._helpers):
                    yield
            else:
                yield
        finally:
            with self._lock:
                self._busy -= 1

    def _introduce(self) -> None:
        run_anywhere()
        self._helpers.append(get_native_id())


class _Run(Generic[T]):
    """Items that several threads take turns to fetch."""

    def __init__(
        self, items: Iterable[T], work: Callable[[T], None], *, cancel: Cancel | None, count: int, share: int
    ) -> None:
        self._items = iter(items)
        self._left = count
        self._share = share
        self._work = work
        self._cancel = cancel
        self._lock = Lock()
        self.errors: list[BaseException | None] = []

    def let_go(self) -> None:
        """Drop all references: helpers that were called off stay in the pool's queue, and keep this run alive, until a
        thread takes them; the buffers of an answer must not live that long."""
        self._items, self._work = iter(()), _nothing

    def drain(self) -> None:
        """Work until the items end, something fails or the client leaves."""
        try:
            while batch := self._next_batch():
                for item in batch:
                    if self.errors or (self._cancel is not None and self._cancel.is_set()):
                        return
                    self._work(item)
        except BaseException as error:  # handed to the calling thread, which raises it
            self.errors.append(error)

    def _next_batch(self) -> list[T]:
        """Some items that follow each other: taking turns for each of them costs more than a small chunk. Towards the
        end they are fewer, so that all threads end together."""
        with self._lock:
            batch = list(islice(self._items, max(1, min(_LARGEST_BATCH, self._left // self._share))))
            self._left -= len(batch)
            return batch


class _Gathering(Generic[T, R]):
    """Items that threads fetch, and what came of them, which another one takes: about ``waiting`` wait for it.

    ``ended``: no item is left to be fetched. ``helpers``: how many threads are at it, or will be.
    """

    def __init__(self, items: Iterator[T], fetch: Callable[[T], R], waiting: int) -> None:
        self._items = items
        self._fetch: Callable[[T], Any] = fetch
        self._waiting = waiting
        self._lock = Lock()
        self._begun = self._taken = 0
        self.ended = False
        self.helpers = 0
        self._results: SimpleQueue[Sequence[R]] = SimpleQueue()
        self.errors: list[BaseException | None] = []

    def results(self, patience: float | None) -> Sequence[R]:
        """What was fetched first of what waits, or would be in ``patience`` seconds (None: whenever it is); else
        nothing."""
        try:
            results = self._results.get(timeout=patience)
        except Empty:
            return ()
        self._taken += 1
        return results

    def expects_more(self) -> bool:
        """Whether somebody is still at work, or results are waiting."""
        return self._taken < self._begun

    def call(self, helpers: int) -> int:
        """Expect so many more threads to `drain`."""
        with self._lock:
            self.helpers += helpers
        return helpers

    def drain(self) -> None:
        """Fetch until the items end, or enough results wait."""
        while self._results.qsize() < self._waiting and self.fetch_one():
            pass
        self.call(-1)

    def fetch_one(self) -> bool:
        """Fetch the next item; False where there is none."""
        with self._lock:
            items, fetch = list(islice(self._items, 1)), self._fetch
            self._begun += len(items)
            self.ended = not items
        for item in items:
            try:
                self._results.put((fetch(item),))
            except BaseException as error:  # handed to the thread that takes the results, which raises it
                self.errors.append(error)
                self._results.put(())
        return bool(items)

    def let_go(self) -> None:
        """As `_Run.let_go`."""
        with self._lock:
            self._items, self._fetch = iter(()), _nothing


class _Relay(Generic[T]):
    """Items that wait for a thread to work on them; helpers begin at one end, the caller at the other."""

    def __init__(self, work: Callable[[T], None]) -> None:
        self.waiting: deque[T] = deque()
        self._work = work

    def work_on_first(self) -> None:
        """Work on the item that has waited longest, if there is one left."""
        self._work_on(self.waiting.popleft)

    def work_on_rest(self) -> None:
        """Work on items until none waits."""
        while self._work_on(self.waiting.pop):
            pass

    def _work_on(self, take: Callable[[], T]) -> bool:
        try:
            item = take()
        except IndexError:
            return False
        self._work(item)
        return True

    def let_go(self) -> None:
        """As `_Run.let_go`."""
        self.waiting.clear()
        self._work = _nothing


def one_by_one(items: Iterable[T], work: Callable[[T], None], cancel: Cancel | None) -> None:
    """Call ``work`` with every item on this thread; raises `Cancelled` too."""
    for item in items:
        if cancel is not None:
            cancel.check()
        work(item)


def _raise_first(errors: list[BaseException | None]) -> None:
    """Raise the first of them, if there is one, and hold on to none: an error holds the frames that it came through,
    and all that was read in them."""
    first = next(filter(None, errors), None)
    errors.clear()
    try:
        if first is not None:
            raise first
    finally:
        del first


def _nothing(_: object) -> None:
    """What is done with the items of a run that is over, of which there are none."""
