"""On the digits of the demo: QDrop and BRECQ beside each other, above AdaRound; AdaRound above the nearest number."""

from __future__ import annotations

import pytest

from onnxq import demo
from onnxq.improve.judge import Judge
from onnxq.improvement import read_improvement
from tests.reconstruct.small_models import METHODS, case

BESIDE_DB = 1.0
"""QDrop may be below BRECQ by this: on small networks now the one is ahead, now the other (docs/reconstruct.md)."""


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["academic:w_bits=3,a_bits=3", "academic:w_bits=4,a_bits=4"])
def test_blocks_come_out_above_layers_and_layers_above_the_nearest_number(backend: str) -> None:
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
    assert found["qdrop"] > found["brecq"] - BESIDE_DB
    assert found["adaquant"] > found["adaround"]
