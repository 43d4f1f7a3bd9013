"""Threads that work together end together, also when one fails or the user interrupts."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from onnxq.runtime.workers import available_cores, run_workers


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="signals of POSIX")
def test_ctrl_c_waits_for_what_is_running() -> None:
    """A process that ends while a thread is inside onnxruntime is aborted."""
    together, stopped, finished = threading.Barrier(3), threading.Event(), []

    def work() -> None:
        if together.wait() == 0:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        stopped.wait(5)
        if threading.current_thread().name == "onnxq-0":  # the one that is waited for when the signal comes
            time.sleep(0.3)
        finished.append(threading.current_thread().name)

    with pytest.raises(KeyboardInterrupt):
        run_workers(3, work, stopped.set)
    assert sorted(finished) == ["onnxq-0", "onnxq-1", "onnxq-2"]


def test_an_error_stops_the_others_and_is_raised_when_all_have_ended() -> None:
    together, stopped, finished = threading.Barrier(2), threading.Event(), []

    def work() -> None:
        if together.wait() == 0:
            raise ValueError("broken")
        assert stopped.wait(5)
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
