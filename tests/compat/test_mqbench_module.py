"""The torch module of a prepared model: what it holds, copies and loads."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper

from onnxq import demo
from onnxq.compat.mqbench import (
    PreparedModel,
    enable_calibration,
    enable_quantization,
    prepare_by_platform,
)

IMAGES = torch.from_numpy(demo.load_data().train_images[:16])


def small(path: Path, prefix: str = "", indices: tuple[str, str] = ("first", "second")) -> Path:
    """A matrix product whose columns two Gathers pick: 0 and 1, then 2 and 3."""
    rows = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])
    picked = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])
    weight = f"{prefix}fc.weight"
    nodes = [
        helper.make_node("MatMul", ["x", weight], ["m"], name=f"/{prefix.replace('.', '/')}fc/MatMul"),
        helper.make_node("Gather", ["m", indices[0]], ["p"], axis=1, name="left"),
        helper.make_node("Gather", ["m", indices[1]], ["q"], axis=1, name="right"),
        helper.make_node("Concat", ["p", "q"], ["y"], axis=1, name="both"),
    ]
    constants = [
        numpy_helper.from_array(np.eye(4, dtype=np.float32), weight),
        numpy_helper.from_array(np.array([0, 1]), indices[0]),
        numpy_helper.from_array(np.array([2, 3]), indices[1]),
    ]
    graph = helper.make_graph(nodes, "small", [rows], [picked], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def calibrated(model: PreparedModel, batch: torch.Tensor) -> PreparedModel:
    enable_calibration(model)
    model(batch)
    enable_quantization(model)
    return model


def test_constants_whose_names_differ_by_a_dot_stay_apart(tmp_path: Path) -> None:
    x = torch.arange(8.0).reshape(2, 4)
    for indices in (("a.b", "a_b"), ("a_b", "a.b")):
        model = prepare_by_platform(small(tmp_path / "small.onnx", indices=indices), "Tensorrt")
        model.torch().eval()
        assert torch.equal(model(x), x)
        calibrated(model, x)
        torch.testing.assert_close(model(x), x, atol=0.1, rtol=0)


def test_frozen_statistics_stay_frozen_through_calibration() -> None:
    model = prepare_by_platform(demo.model_path(), "Tensorrt", freeze_bn=False)
    model.freeze_bn_stats()
    model.eval()
    seen: list[int] = []
    name = next(name for name, _ in model.torch().fake_quantizers())
    handle = model.get_submodule(name).register_forward_hook(lambda *_: seen.append(1))
    calibrated(model, IMAGES).train()
    before = model.get_buffer("stem.bn.running_mean").clone()
    seen.clear()
    model(IMAGES)
    assert torch.equal(model.get_buffer("stem.bn.running_mean"), before)
    assert seen
    handle.remove()
    seen.clear()
    model.update_bn_stats()
    model(IMAGES)
    assert not torch.equal(model.get_buffer("stem.bn.running_mean"), before)
    assert not seen


def test_a_copy_has_attributes_and_hooks(tmp_path: Path) -> None:
    extra = {"preserve_attr": {"": {"stages": [3]}, "fc": {"tags": [7]}}}
    module = prepare_by_platform(small(tmp_path / "small.onnx"), "Tensorrt", extra).torch().eval()
    seen: list[object] = []

    def note(one: Any, *_: object) -> None:
        seen.append(one)

    module.register_forward_hook(note)
    name, quantizer = next(module.fake_quantizers())
    quantizer.register_forward_hook(note)
    module.add_module("head", torch.nn.Linear(4, 2))
    twin = copy.deepcopy(module)
    twin.stages.append(4)
    twin.fc.tags.append(8)
    assert (module.stages, twin.stages, module.fc.tags, twin.fc.tags) == ([3], [3, 4], [7], [7, 8])
    twin(torch.ones(1, 4))
    assert seen == [twin.get_submodule(name), twin]
    assert twin.head is not module.head
    assert torch.equal(twin.head.weight, module.head.weight)


def test_a_trained_state_of_a_distributed_module_is_loaded(tmp_path: Path) -> None:
    x = torch.arange(8.0).reshape(2, 4)
    for prefix in ("", "module."):  # a network may have a module of that name itself
        path = small(tmp_path / "small.onnx", prefix)
        model = calibrated(prepare_by_platform(path, "Tensorrt"), x)
        model.eval()
        with torch.no_grad():
            next(iter(model.parameters())).mul_(0.75)
        state = model.state_dict()
        other = prepare_by_platform(path, "Tensorrt")
        other.load_state_dict({f"module.{name}": value for name, value in state.items()})
        enable_quantization(other)
        other.eval()
        assert torch.equal(other(x), model(x))
        again = prepare_by_platform(path, "Tensorrt")
        weights = {name: value for name, value in state.items() if "fake_quant" not in name}
        again.load_state_dict({name.replace("weight_transposed", "weight"): value for name, value in weights.items()})
        assert torch.equal(next(iter(again.parameters())), next(iter(model.parameters())))
