"""Threads that work together end together, also when one fails or the user interrupts."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from onnxq.runtime.workers import available_cores, run_workers


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
