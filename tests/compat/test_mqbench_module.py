"""The torch module of a prepared model: what it holds, copies and loads."""

from __future__ import annotations

import copy
import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from onnxq import demo
from onnxq.compat.mqbench import (
    PreparedModel,
    convert_deploy,
    disable_all,
    enable_calibration,
    enable_quantization,
    prepare_by_platform,
)
from onnxq.errors import DataError

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


def test_train_and_eval_of_one_module_hold_for_its_batch_norms() -> None:
    prepared = prepare_by_platform(demo.model_path(), "Tensorrt", freeze_bn=False)
    model = prepared.torch()
    norms = [name.removesuffix(".running_mean") for name, _ in model.named_buffers() if name.endswith("running_mean")]

    def learnt() -> set[str]:
        before = {name: model.get_buffer(f"{name}.running_mean").clone() for name in norms}
        model(IMAGES)
        return {name for name in norms if not torch.equal(before[name], model.get_buffer(f"{name}.running_mean"))}

    assert len(norms) > 2
    model.train()
    model.get_submodule("stem.bn").eval()
    rest = set(norms) - {"stem.bn"}
    assert learnt() == rest
    calibrated(prepared, IMAGES)  # other fake-quantizers, the same modules
    assert not model.stem.bn.training
    assert learnt() == rest
    model.stem.train()
    assert learnt() == set(norms)
    model.eval()
    assert learnt() == set()
    model.stem.train()
    twin = copy.deepcopy(model)
    assert learnt() == {"stem.bn"}
    model = twin
    assert learnt() == {"stem.bn"}
    model.train()
    assert learnt() == set(norms)


def test_train_and_eval_of_one_module_hold_for_its_dropout() -> None:
    class Dropping(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = torch.nn.Linear(4, 64)
            self.first, self.second = torch.nn.Dropout(0.5), torch.nn.Dropout(0.5)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            y = self.fc(x)
            return self.first(y), self.second(y)

    file = io.BytesIO()
    x = torch.ones(2, 4)
    options = {"training": torch.onnx.TrainingMode.PRESERVE, "do_constant_folding": False, "dynamo": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(Dropping().train(), (x,), file, input_names=["x"], **options)  # type: ignore[arg-type]
    model = prepare_by_platform(onnx.load_from_string(file.getvalue()), "Tensorrt").torch()
    model.train()
    assert [int((one == 0).sum() > 0) for one in model(x)] == [1, 1]
    model.second.eval()
    assert [int((one == 0).sum() > 0) for one in model(x)] == [1, 0]


AWKWARD = ("model", "net", "module", "names", "session", "prepared", "run", "settled", "deploy", "fake_quantizers")
"""Names that the classes of onnxq have, or had, themselves."""


def awkward(path: Path, names: tuple[str, ...] = AWKWARD) -> Path:
    """For each name a layer in a module that is called so, and one in a module inside; then a parameter called bias."""
    rng = np.random.default_rng(0)
    nodes, constants, value = [], [], "x"
    for name in names:
        for held in (f"{name}.fc", f"inner.{name}"):
            matrix = rng.normal(0, 0.3, (4, 4)).astype(np.float32) + np.eye(4, dtype=np.float32)
            constants.append(numpy_helper.from_array(matrix, f"{held}.weight"))
            scope = f"/{held.replace('.', '/')}/MatMul"
            nodes.append(helper.make_node("MatMul", [value, f"{held}.weight"], [f"{held}_y"], name=scope))
            value = f"{held}_y"
    nodes.append(helper.make_node("Add", [value, "bias"], ["y"], name="/Add"))
    constants.append(numpy_helper.from_array(np.ones(4, np.float32), "bias"))
    ends = [helper.make_tensor_value_info(end, TensorProto.FLOAT, ["n", 4]) for end in ("x", "y")]
    graph = helper.make_graph(nodes, "awkward", ends[:1], ends[1:], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_a_network_may_call_its_modules_as_it_likes(tmp_path: Path) -> None:
    model = prepare_by_platform(awkward(tmp_path / "awkward.onnx"), "Tensorrt")
    module = model.torch()
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
    enable_calibration(module)  # type: ignore[arg-type]
    module(x)
    wrapped = torch.nn.Module()
    wrapped.module = module
    enable_quantization(wrapped)  # type: ignore[arg-type]
    assert model.mode == "quantize"
    module(x).square().sum().backward()
    for name in AWKWARD:
        weight = module.get_parameter(f"{name}.fc.weight")
        assert getattr(module, name).fc.weight is weight
        assert getattr(module.inner, name).weight is module.get_parameter(f"inner.{name}.weight")
        with torch.no_grad():
            weight.sub_(weight.grad * 1e-4)
    twin = copy.deepcopy(module).eval()
    state = {f"module.{key}": value for key, value in module.eval().state_dict().items()}
    for name in AWKWARD:
        assert isinstance(getattr(twin, name), torch.nn.Module)
        twin.get_parameter(f"{name}.fc.weight").data.zero_()
    assert not torch.equal(twin(x), module(x))
    twin.load_state_dict(state)
    assert torch.equal(twin(x), module(x))
    result = convert_deploy(module, "Tensorrt", output_path=tmp_path / "out", minimum_sqnr_db=0)  # type: ignore[arg-type]
    assert result.report["file_against_net"][0]["within"] == 1.0


@pytest.mark.parametrize("name", ["net", "names", "run"])
def test_a_parameter_may_have_any_name(name: str, tmp_path: Path) -> None:
    file = onnx.load(awkward(tmp_path / "awkward.onnx", ("first",)))
    file.graph.initializer[-1].name = file.graph.node[-1].input[1] = name
    model = prepare_by_platform(file, "Tensorrt")
    x = torch.ones(2, 4)
    before = model(x)
    assert getattr(model.torch(), name) is model.get_parameter(name)
    with torch.no_grad():
        model.get_parameter(name).add_(1)
    torch.testing.assert_close(model(x), before + 1)


def as_numpy(value: Any) -> np.ndarray:
    return value.detach().numpy() if torch.is_tensor(value) else np.asarray(value)


def test_types_of_inputs_are_the_same_before_and_after_the_module(tmp_path: Path) -> None:
    x = torch.arange(8.0).reshape(2, 4)
    for with_module in (False, True):
        model = prepare_by_platform(small(tmp_path / "small.onnx"), "Tensorrt")
        if with_module:
            model.torch().eval()
        enable_calibration(model)
        for given in (x.double(), x.half(), x.double().numpy()):
            found = model(given)
            assert isinstance(found, type(given))
            np.testing.assert_allclose(as_numpy(found), x)
        assert model.samples == 3
        for wrong in (x.long(), x[:, :2].double()):
            with pytest.raises(DataError, match="the model wants float32"):
                model(wrong)
        assert model.samples == 3
    module = model.torch()
    one = x.double().requires_grad_()
    module(one).sum().backward()
    assert one.grad is not None
    enable_quantization(model)
    module.double()
    assert module(x.double()).dtype == torch.float64
    assert module(x).dtype == torch.float64


@pytest.mark.parametrize("with_module", [False, True])
def test_files_after_disable_all_say_that_they_are_quantized(with_module: bool, tmp_path: Path) -> None:
    model = prepare_by_platform(small(tmp_path / "small.onnx"), "Tensorrt")
    if with_module:
        model.torch()
    calibrated(model, torch.arange(8.0).reshape(2, 4))
    for folder, wanted in (("on", False), ("off", True)):
        result = convert_deploy(model, "Tensorrt", output_path=tmp_path / folder)
        assert any("since disable_all" in warning for warning in result.report["warnings"]) == wanted
        assert "DequantizeLinear" in {node.op_type for node in onnx.load(result.model).graph.node}
        disable_all(model)
