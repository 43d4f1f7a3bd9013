"""A checkpoint is known as the exported one, whatever its folded batch norms hold; advice for others is right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from onnxq import demo
from onnxq.compat.mqbench import prepare_by_platform
from onnxq.errors import ModelError
from onnxq.graph import Graph
from onnxq.passes import run_passes

FRESH = {"weight": 1.0, "bias": 0.0, "running_mean": 0.0, "running_var": 1.0}


def test_the_exported_checkpoint_is_known_though_its_batch_norms_were_never_trained(tmp_path: Path) -> None:
    graph = Graph.load(demo.model_path())
    names = [c.name for c in graph.constants() if c.name.count(".") and "clip" not in c.name]
    for name in names:
        layer, _, part = name.rpartition(".")
        if f"{layer}.running_var" in names:
            graph.set_values(name, np.full_like(graph.values(name), FRESH[part]))
    state = {name: torch.from_numpy(np.array(graph.values(name))) for name in names}
    run_passes(graph, ["fold_batchnorm"])
    graph.save(tmp_path / "folded.onnx")
    model = prepare_by_platform(tmp_path / "folded.onnx", "Tensorrt")
    before = model.get_parameter("stem.conv.weight").clone()
    found = model.load_state_dict(state)
    assert (found.missing_keys, found.unexpected_keys) == ([], [])
    assert torch.equal(model.get_parameter("stem.conv.weight"), before)
    other = {**state, "stem.conv.weight": 2 * state["stem.conv.weight"]}
    with pytest.raises(ModelError, match=r"batch norms kept .* of a model in eval\(\)"):
        model.load_state_dict(other)
