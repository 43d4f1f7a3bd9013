"""onnxq opens no network connection: Python reports every socket and every look-up of a name while it runs."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import onnxq
from onnxq.demo import load_data, model_path

_tried: list[str] = []
_watching = False


def _watch(event: str, arguments: tuple[object, ...]) -> None:
    if _watching and (event.startswith("socket.") or event == "urllib.Request"):
        _tried.append(f"{event}{arguments}")
        raise ConnectionRefusedError(f"{event} is forbidden here")


@pytest.fixture
def no_network() -> Iterator[list[str]]:
    """Sockets and look-ups raise an error, and are listed; also those of libraries that swallow it."""
    global _watching
    if _watch not in _installed:
        sys.addaudithook(_watch)  # stays until the process ends, and does nothing outside of these tests
        _installed.append(_watch)
    _tried.clear()
    _watching = True
    yield _tried
    _watching = False


_installed: list[Callable[..., None]] = []


def open_sockets() -> set[str]:
    """Sockets of this process as Linux lists them, whichever library opened them."""
    folder = Path("/proc/self/fd")
    if not folder.is_dir():
        return set()
    links = set()
    for number in os.listdir(folder):
        try:
            links.add(os.readlink(folder / number))
        except FileNotFoundError:
            continue  # the one that listed the folder
    return {link for link in links if link.startswith("socket:")}


def test_the_guard_notices_a_connection(no_network: list[str]) -> None:
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", 9), timeout=1)
    assert len(no_network) == 1


def test_quantizing_opens_no_connection(no_network: list[str], tmp_path: Path) -> None:
    before = open_sockets()
    data = load_data().calibration[:16]
    result = onnxq.quantize(model_path(), backend="qnn", data=data, out=tmp_path / "out")
    assert result.model.is_file()
    assert (tmp_path / "out" / "report.html").is_file()
    assert no_network == []
    assert open_sockets() <= before


@pytest.mark.slow
def test_training_opens_no_connection(no_network: list[str], tmp_path: Path) -> None:
    from onnxq.qat import TrainSettings, qat

    data = load_data()
    before = open_sockets()
    trained = qat(
        model_path(),
        backend="academic",
        train_on={"image": data.train_images[:32], "labels": data.train_labels[:32]},
        settings=TrainSettings(steps=2, batch_size=8),
        out=tmp_path / "out",
    )
    assert trained is not None
    assert trained.result.model.is_file()
    assert no_network == []
    assert open_sockets() <= before
