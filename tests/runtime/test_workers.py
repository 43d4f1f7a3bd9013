"""Threads that work together end together, also when one fails or the user interrupts."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator

import pytest

from onnxq.runtime.workers import AHEAD, available_cores, run_in_order, run_workers


@pytest.fixture
def interruptible() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt, also where the tests run in the background with the signal ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="signals of POSIX")
@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_waits_for_what_is_running() -> None:
    """A process that ends while a thread is inside onnxruntime is aborted."""
    together, stopped, finished = threading.Barrier(3), threading.Event(), []
    gone_on = threading.Event()

    def work() -> None:
        if together.wait() == 0:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        stopped.wait()
        if threading.current_thread().name == "onnxq-0":  # the one that is waited for when the signal comes
            gone_on.wait(0.3)  # the time in which a main thread that does not wait would go on
        finished.append(threading.current_thread().name)

    try:
        with pytest.raises(KeyboardInterrupt):
            run_workers(3, work, stopped.set)
        assert sorted(finished) == ["onnxq-0", "onnxq-1", "onnxq-2"]
    finally:
        gone_on.set()


def test_an_error_stops_the_others_and_is_raised_when_all_have_ended() -> None:
    together, stopped, finished = threading.Barrier(2), threading.Event(), []

    def work() -> None:
        if together.wait() == 0:
            raise ValueError("broken")
        stopped.wait()
        finished.append(True)

    with pytest.raises(ValueError, match="broken"):
        run_workers(2, work, stopped.set)
    assert finished == [True]


@pytest.mark.parametrize(("quota", "cores"), [("max 100000", 8), ("150000 100000", 2), ("10000 100000", 1), ("odd", 8)])
def test_a_container_may_have_less_time_than_cores(tmp_path, monkeypatch, quota, cores):
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(8)), raising=False)
    (tmp_path / "cpu.max").write_text(quota + "\n")
    assert available_cores(tmp_path / "cpu.max") == cores
    assert available_cores(tmp_path / "missing") == 8


@pytest.mark.parametrize("threads", [1, 3])
def test_what_threads_make_comes_in_the_order_of_the_items(threads: int) -> None:
    def work(number: int, item: str) -> str:
        time.sleep(0.002 * (7 * number % 5))
        return item * 2

    added: list[tuple[int, str, str]] = []
    run_in_order("abcdefgh", work, lambda *one: added.append(one) is None, threads)
    assert added == [(number, item, item * 2) for number, item in enumerate("abcdefgh")]


@pytest.mark.parametrize("threads", [1, 4])
def test_the_first_error_in_order_is_raised_after_what_is_before_it(threads: int) -> None:
    def work(number: int, item: int) -> int:
        time.sleep(0.01 if number == 2 else 0)
        if number >= 2:
            raise ValueError(f"item {number}")
        return item

    added: list[int] = []
    with pytest.raises(ValueError, match="item 2"):
        run_in_order(range(1, 20), work, lambda number, item, made: added.append(made) is None, threads)
    assert added == [1, 2]


@pytest.mark.parametrize("threads", [1, 3])
def test_no_item_is_added_after_a_stop(threads: int) -> None:
    added: list[int] = []

    def add(number: int, item: int, made: int) -> bool:
        added.append(made)
        return made < 3

    run_in_order(range(1, 100), lambda number, item: item, add, threads)
    assert added == [1, 2, 3]


def test_items_do_not_pile_up_behind_a_slow_one() -> None:
    """What is done waits in memory."""
    begun: list[int] = []

    def work(number: int, item: int) -> int:
        begun.append(number)
        if number == 0:
            time.sleep(0.2)
        return item

    run: list[int] = []

    def add(number: int, item: int, made: int) -> bool:
        run.append(len(begun))
        return True

    run_in_order(range(1, 200), work, add, 3)
    assert run[0] <= AHEAD * 3 + 3
    assert len(run) == 199
