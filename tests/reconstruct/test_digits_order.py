"""On the digits of the demo, as in the papers: QDrop and BRECQ above AdaRound, AdaRound above the nearest number."""

from __future__ import annotations

import pytest

from onnxq import demo
from onnxq.improve.judge import Judge
from onnxq.improvement import read_improvement
from tests.reconstruct.small_models import METHODS, case

NOISE_DB = 0.5
"""By how much two runs of one method differ with their seeds."""


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["academic:w_bits=3,a_bits=3", "academic:w_bits=4,a_bits=4"])
def test_methods_come_out_in_the_order_of_the_papers(backend: str) -> None:
    data = demo.load_data()
    made = case(demo.model_path(), [{"image": image[None]} for image in data.train_images[:128]], backend)
    judge = Judge(made.task.reference, made.task.backend, [{"image": data.test_images}])
    nearest = judge(made.state).value
    found = {
        name: judge(read_improvement(f"{name}:iterations=500").run(made.state, made.task).state).value
        for name in METHODS
    }
    assert found["adaround"] > nearest + 1
    assert found["brecq"] > found["adaround"] + 1
    assert found["qdrop"] > found["brecq"] - NOISE_DB
    assert found["adaquant"] > found["adaround"]
