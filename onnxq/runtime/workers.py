"""The same work on many items by several threads; onnxruntime and numpy let them run at the same time."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")

AHEAD = 2
"""For each thread, how many items may be done before an earlier one that takes long."""


def available_cores(quota: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """Cores that this process may use: those it may run on, or as many as a container's share of time comes to."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        share, period = quota.read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return max(1, cores)
    return max(1, min(cores, -(-int(share) // int(period)))) if share.isdigit() else max(1, cores)


class SampleQueue(Generic[T]):
    """Items that threads take one after the other, numbered from `number`, until none is left or `until` has passed.

    One item is handed out even when it is late. `empty` tells that none is left. The items are made by the thread that
    takes them, one thread at a time.
    """

    def __init__(self, items: Iterator[T], number: int = 0, until: float | None = None) -> None:
        self.number = number
        self.empty = False
        self._first = number
        self._items = items
        self._until = until
        self._lock = threading.Lock()
        self._closed = False

    def take(self) -> tuple[int, T] | None:
        """The next item with its number, or None."""
        with self._lock:
            late = self._until is not None and time.monotonic() >= self._until and self.number > self._first
            if self._closed or self.empty or late:
                return None
            item = next(self._items, None)
            if item is None:
                self.empty = True
                return None
            self.number += 1
            return self.number - 1, item

    def close(self) -> None:
        self._closed = True


def run_workers(count: int, work: Callable[[], None], stop: Callable[[], None]) -> None:
    """Run `work` in `count` threads until all return; on the first error call `stop` and raise it when all are done."""
    if count == 1:
        work()
        return
    errors: list[BaseException] = []
    # Waited for before `Thread.join`: in Python 3.11, a join that Ctrl-C interrupts takes the thread for finished,
    # and a process that ends while onnxruntime still runs in a thread is aborted.
    ended = [threading.Event() for _ in range(count)]

    def guarded(end: threading.Event) -> None:
        try:
            work()
        except BaseException as error:  # handed over to the calling thread
            errors.append(error)
            stop()
        finally:
            end.set()

    threads = [
        threading.Thread(target=guarded, args=(end,), name=f"onnxq-{i}", daemon=True) for i, end in enumerate(ended)
    ]
    try:
        for thread in threads:
            thread.start()
        for end in ended:
            while not end.wait(0.5):  # a signal that arrives just before a wait begins is noticed when it ends
                pass
    except BaseException:  # Ctrl-C in the calling thread: the others finish their item first
        stop()
        for thread, end in zip(threads, ended, strict=True):
            if thread.ident is not None:
                end.wait()
        raise
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def run_in_order(
    items: Iterable[T], work: Callable[[int, T], R], add: Callable[[int, T, R], bool], threads: int
) -> None:
    """Hand what `work` makes of each numbered item to `add`, in the order of the items, until that returns False.

    `work` runs in several threads, `add` in one at a time. Of several errors in `work`, the one of the first item is
    raised, after everything in front of it was added.
    """
    line = SampleQueue(iter(items))
    changed = threading.Condition()
    done: dict[int, tuple[T, R | Exception]] = {}
    first, stopped = 0, False

    def stop() -> None:
        nonlocal stopped
        line.close()
        with changed:
            stopped = True
            changed.notify_all()

    def near(number: int) -> bool:
        return number - first < AHEAD * threads or stopped

    def one_thread() -> None:
        nonlocal first
        while (taken := line.take()) is not None:
            number, item = taken
            try:
                made: R | Exception = work(number, item)
            except Exception as error:  # raised when its turn has come
                made = error
            with changed:
                done[number] = item, made
                while first in done and not stopped:
                    item, made = done.pop(first)
                    if isinstance(made, Exception):
                        raise made
                    first += 1
                    if not add(first - 1, item, made):
                        stop()
                changed.notify_all()
                changed.wait_for(partial(near, number))

    run_workers(threads, one_thread, stop)


def in_threads(work: Callable[[T], R], items: Iterable[T], threads: int | None = None) -> Iterator[R]:
    """`work` of each item, in the order of the items, by as many threads as there are cores (or `threads`).

    Unlike `run_in_order` it is pulled: as many items as threads are held at a time, and what follows need not be done.
    """
    count = available_cores() if threads is None else threads
    waiting = iter(items)
    while chunk := list(islice(waiting, count)):
        found: dict[int, R] = {}
        queue = SampleQueue(iter(chunk))

        def take(queue: SampleQueue[T] = queue, found: dict[int, R] = found) -> None:
            while (taken := queue.take()) is not None:
                found[taken[0]] = work(taken[1])

        run_workers(len(chunk), take, queue.close)
        yield from (found[number] for number in range(len(chunk)))
