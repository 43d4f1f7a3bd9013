"""Steps that are worth something known, registered for a test, and the demo's model calibrated."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from onnxq.demo import load_data, model_path
from onnxq.ptq.method import IMPROVEMENTS, improvement
from onnxq.session.session import Calibrated, open_session
from tests.ptq.search.known_steps import STEPS


@pytest.fixture
def steps() -> Iterator[None]:
    for name, function in STEPS.items():
        improvement(name, "a step of a test", "none")(function)
    yield
    for name in STEPS:
        IMPROVEMENTS.forget(name)


@pytest.fixture(scope="session")
def ready() -> Calibrated:
    return open_session(model_path(), backend="tensorrt", data={"image": load_data().calibration[:16]}).calibrated()
