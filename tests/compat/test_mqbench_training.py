"""The flow with training in it: prepare, calibrate, train in torch, deploy what was trained."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
import torch
from torch.nn.functional import cross_entropy

from onnxq import demo
from onnxq.compat.mqbench import (
    BackendType,
    PreparedModel,
    convert_deploy,
    disable_all,
    enable_calibration,
    enable_calibration_quantization,
    enable_quantization,
    prepare_by_platform,
)
from onnxq.errors import ConfigError, DataError, ModelError, UnsupportedError
from onnxq.graph import Graph
from onnxq.passes import run_passes
from onnxq.qat import loop as qat_loop
from onnxq.targets.sophgo import dialect as sophgo
from tests.compat.mqbench_plans import RESNET, TRANSFORMER
from tests.networks.exported import exported, samples

DATA = demo.load_data()
IMAGES, LABELS = torch.from_numpy(DATA.train_images), torch.from_numpy(DATA.train_labels)
TEST = torch.from_numpy(DATA.test_images)
LEARNT = {"w_fakequantize": "LearnableFakeQuantize", "a_fakequantize": "LearnableFakeQuantize"}
ASYMMETRIC = {"bit": 4, "symmetry": False, "per_channel": False, "pot_scale": False}
SYMMETRIC = {"bit": 4, "symmetry": True, "per_channel": True, "pot_scale": False}


def prepared(backend: object = BackendType.Tensorrt, qconfig: dict[str, Any] | None = None) -> PreparedModel:
    extra = {} if qconfig is None else {"extra_qconfig_dict": qconfig}
    return prepare_by_platform(demo.model_path(), backend, extra)


def calibrate(model: Any, batches: int = 2) -> None:
    enable_calibration(model)
    for number in range(batches):
        model(IMAGES[16 * number : 16 * number + 16])
    enable_quantization(model)


def train(model: Any, optimizer: Any = None, steps: int = 8) -> list[float]:
    torch.manual_seed(0)
    optimizer = optimizer or torch.optim.Adam(model.parameters(), lr=1e-3)
    model.train()
    losses = []
    for step in range(steps):
        rows = slice(16 * step, 16 * step + 16)
        loss = cross_entropy(model(IMAGES[rows]), LABELS[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    model.eval()
    return losses


def run_file(path: Path, images: np.ndarray) -> np.ndarray:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(path, options)
    found: np.ndarray = session.run(None, {session.get_inputs()[0].name: images})[0]
    return found


QCONFIGS: dict[str, dict[str, Any] | None] = {
    "Tensorrt": None,
    "Vitis": {"w_fakequantize": "TqtFakeQuantize", "a_fakequantize": "TqtFakeQuantize"},
    "NNIE": None,
    "SNPE": LEARNT,
    "Academic": {**LEARNT, "w_qscheme": SYMMETRIC, "a_qscheme": ASYMMETRIC},
}


@pytest.mark.parametrize("backend", QCONFIGS)
def test_the_file_is_what_was_trained(backend: str, tmp_path: Path) -> None:
    model = prepared(backend, QCONFIGS[backend])
    calibrate(model)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    train(model)
    after = model.state_dict()
    assert not torch.equal(before["stem.conv.weight"], after["stem.conv.weight"])
    assert not torch.equal(before["stem.bn.weight"], after["stem.bn.weight"])
    assert torch.equal(before["stem.bn.running_mean"], after["stem.bn.running_mean"])  # frozen
    result = convert_deploy(model, backend, output_path=tmp_path)
    (logits,) = result.report["file_against_net"]
    assert logits["within"] == 1.0
    assert result.qparams.provenance["stem.conv.weight"].startswith("trained")
    assert result.model.name == "mqbench_qmodel.onnx"
    assert {"key": "backend", "value": f"'{backend}'"}.items() <= result.report["translated"]["keys"][0].items()
    with torch.no_grad():
        wanted = model(TEST[:32]).argmax(1).numpy()
    if backend != "Vitis":  # whose chip rounds halves in another way than a file can
        assert (run_file(result.model, DATA.test_images[:32]).argmax(1) == wanted).mean() > 0.95


def test_sophgos_flow_trains_too(tmp_path: Path) -> None:
    config = {"quant_dict": {"chip": "BM1688", "quantmode": "weight_activation", "strategy": "CNN"}}
    model = sophgo.prepare_by_platform(demo.model_path(), config)
    calibrate(model)
    train(model)
    result = sophgo.convert_deploy(model, output_path=tmp_path)
    assert result.report["file_against_net"][0]["within"] == 1.0
    assert result.qparams.provenance["stem.conv.weight"].startswith("trained")
    assert any("cali_table" in Path(path).name for path in result.report["files"])


def test_modules_have_their_exported_names() -> None:
    model = prepare_by_platform(exported(RESNET), "Tensorrt").torch()
    assert isinstance(model, torch.nn.Module)
    modules = dict(model.named_modules())
    for path in ("layer1.0.conv1", "layer1.0.bn1", "fc", "layer2.0.downsample.0"):
        assert path in modules
    assert modules["layer1.0.conv1"].weight is dict(model.named_parameters())["layer1.0.conv1.weight"]
    assert modules["layer1.0.conv1.weight_fake_quant"].role == "weight"
    assert modules["layer1_0_conv1_post_act_fake_quantizer"].tensor == "/layer1/layer1.0/relu/Relu_output_0"
    assert modules["image_post_act_fake_quantizer"].tensor == "image"
    assert "layer1.0.bn1.running_mean" in model.state_dict()
    assert not any("/" in name for name in model.state_dict())
    with pytest.raises(UnsupportedError, match="cannot be called by itself"):
        modules["layer1"](IMAGES)
    with pytest.raises(UnsupportedError, match="a hook on one would never run"):
        modules["layer1"].register_forward_hook(print)


def test_an_optimizer_may_be_made_before_calibration() -> None:
    model = prepared("Academic", QCONFIGS["Academic"])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    known = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    scale = model.get_parameter("stem.conv.weight_fake_quant.scale").clone()
    range_before = model.get_submodule("stem_conv_post_act_fake_quantizer").to_qparams()
    calibrate(model)
    assert {id(parameter) for parameter in model.parameters()} == known
    assert model.get_submodule("stem_conv_post_act_fake_quantizer").to_qparams() != range_before
    train(model, optimizer, steps=2)
    assert not torch.equal(model.get_parameter("stem.conv.weight_fake_quant.scale"), scale)


def test_calls_are_float_until_quantization_is_enabled_and_tensors_come_for_tensors() -> None:
    model = prepared()
    plain = model(DATA.test_images[:4])
    assert isinstance(plain, np.ndarray)
    given = model(TEST[:4])
    assert isinstance(given, torch.Tensor)
    np.testing.assert_array_equal(given.numpy(), plain)
    module = model.torch().eval()
    np.testing.assert_allclose(module(TEST[:4]).detach(), plain, atol=1e-4)
    assert isinstance(model(DATA.test_images[:4]), np.ndarray)
    with pytest.raises(DataError, match="no samples to calibrate on"):
        enable_quantization(module)
    assert model.mode == "float"
    calibrate(module)
    assert model.samples == 2
    quantized = module(TEST[:4]).detach()
    assert np.abs(quantized.numpy() - plain).max() > 1e-4
    disable_all(module)
    np.testing.assert_allclose(module(TEST[:4]).detach(), plain, atol=1e-4)
    enable_calibration_quantization(model)
    again = module(TEST[:4]).detach()
    assert model.samples == 3
    assert np.abs(again.numpy() - plain).max() > 1e-4
    with pytest.raises(DataError):
        module(TEST[:4, :, :3])
    assert model.samples == 3


def test_more_samples_calibrate_the_trained_weights_anew() -> None:
    model = prepared()
    calibrate(model)
    with torch.no_grad():
        model.get_parameter("stem.conv.weight").mul_(3)
    before = model.get_submodule("stem.conv.weight_fake_quant").to_qparams().scale
    enable_calibration(model)
    model(IMAGES[:4])
    enable_quantization(model)
    after = model.get_submodule("stem.conv.weight_fake_quant").to_qparams().scale
    np.testing.assert_allclose(after, 3 * before, rtol=1e-5)


def test_switches_of_single_quantizers_and_of_all_reach_the_file(tmp_path: Path) -> None:
    model = prepared()
    calibrate(model)
    module = model.torch().eval()
    assert not any(quantizer.observing for _, quantizer in module.fake_quantizers())  # as MQBench leaves it
    module.apply(torch.ao.quantization.disable_fake_quant)
    assert not any(quantizer.quantizing for _, quantizer in module.fake_quantizers())
    with pytest.raises(ConfigError, match="every fake-quantizer of the net is switched off"):
        convert_deploy(model, "Tensorrt", output_path=tmp_path)
    module.enable_fake_quant()
    module.residual1.conv.weight_fake_quant.disable_fake_quant()
    result = convert_deploy(module, "Tensorrt", output_path=tmp_path)
    assert result.plan["residual1.conv.weight"].observe_only
    assert result.report["file_against_net"][0]["within"] == 1.0
    module.enable_observer()
    assert any(quantizer.observing for _, quantizer in module.fake_quantizers())
    enable_quantization(model)
    assert module.residual1.conv.weight_fake_quant.quantizing  # MQBench switches all of them on


def test_zero_points_are_learnt_where_the_scheme_has_them(tmp_path: Path) -> None:
    scheme = {**ASYMMETRIC, "bit": 8}
    model = prepared("SNPE", {**LEARNT, "w_qscheme": scheme, "a_qscheme": scheme})
    calibrate(model)
    zero_points = {name: p for name, p in model.named_parameters() if name.endswith("zero_point")}
    assert "stem.conv.weight_fake_quant.zero_point" in zero_points
    before = model.get_submodule("stem.conv.weight_fake_quant").to_qparams().zero_point
    optimizer = torch.optim.Adam(
        [
            {"params": list(zero_points.values()), "lr": 1.0},
            {"params": [p for name, p in model.named_parameters() if name not in zero_points], "lr": 1e-4},
        ]
    )
    train(model, optimizer)
    result = convert_deploy(model, "SNPE", output_path=tmp_path, minimum_sqnr_db=-100.0)
    written = result.qparams["stem.conv.weight"].zero_point
    assert not np.array_equal(written, before)
    assert np.array_equal(written, np.round(written))
    assert result.report["file_against_net"][0]["within"] == 1.0
    symmetric = prepared("Academic", {**LEARNT, "w_qscheme": SYMMETRIC, "a_qscheme": SYMMETRIC})
    assert not any(name.endswith("zero_point") for name, _ in symmetric.named_parameters())


def test_states_are_saved_and_loaded_with_scales_and_all(tmp_path: Path) -> None:
    model = prepared("Academic", QCONFIGS["Academic"])
    calibrate(model)
    train(model, steps=3)
    torch.save(model.state_dict(), tmp_path / "state.pt")
    other = prepared("Academic", QCONFIGS["Academic"])
    other.load_state_dict(torch.load(tmp_path / "state.pt"))
    enable_quantization(other)  # the state has the scales: no samples are needed
    other.eval()
    with torch.no_grad():
        assert torch.equal(other(TEST[:8]), model(TEST[:8]))
    result = convert_deploy(other, "Academic", output_path=tmp_path / "out")
    np.testing.assert_allclose(run_file(result.model, DATA.test_images[:8]), model(TEST[:8]).detach(), atol=0.05)


def test_a_copy_of_the_module_is_deployed_as_it_is(tmp_path: Path) -> None:
    model = prepared()
    calibrate(model)
    twin = copy.deepcopy(model.torch().eval())
    with torch.no_grad():
        twin.classifier.bias.add_(1.0)
    assert not torch.equal(model.get_parameter("classifier.bias"), twin.classifier.bias)
    own = run_file(convert_deploy(model, "Tensorrt", output_path=tmp_path / "own").model, DATA.test_images[:2])
    other = run_file(convert_deploy(twin, "Tensorrt", output_path=tmp_path / "other").model, DATA.test_images[:2])
    np.testing.assert_allclose(other, own + 1, atol=1e-5)


def float_state(path: Path) -> dict[str, torch.Tensor]:
    """What torch.save of the network that was exported would hold, from a file that has kept all names."""
    graph = Graph.load(path)
    names = [
        constant.name for constant in graph.constants() if constant.name.count(".") and "clip" not in constant.name
    ]
    state = {name: torch.from_numpy(np.array(graph.values(name))) for name in names}
    counters = {name.replace("running_var", "num_batches_tracked") for name in names if name.endswith("running_var")}
    return {**state, **{name: torch.tensor(7) for name in counters}}


def test_a_checkpoint_of_the_original_network_is_loaded_by_its_names() -> None:
    state = float_state(demo.model_path())
    changed = {name: 2 * value if name == "classifier.weight" else value for name, value in state.items()}
    model = prepared()
    model.load_state_dict({f"module.{name}": value for name, value in changed.items()})
    assert torch.equal(model.get_parameter("classifier.weight"), 2 * state["classifier.weight"])
    calibrate(model)  # for the weights that were loaded
    assert torch.equal(model.get_parameter("classifier.weight"), 2 * state["classifier.weight"])
    rest = {name: value for name, value in changed.items() if name != "classifier.bias"}
    with pytest.raises(ModelError, match=r"nothing for 'classifier.bias'.*nothing for 'other'"):
        model.load_state_dict({**rest, "other": torch.zeros(1)})
    found = model.load_state_dict({**rest, "other": torch.zeros(1)}, strict=False)
    assert (found.missing_keys, found.unexpected_keys) == (["classifier.bias"], ["other"])
    with pytest.raises(ModelError, match="a checkpoint of another network"):
        model.load_state_dict({**state, "classifier.weight": torch.zeros(3, 3)})


def test_batch_norms_that_the_file_has_folded_are_recognised_by_their_numbers(tmp_path: Path) -> None:
    state = float_state(demo.model_path())
    graph = Graph.load(demo.model_path())
    run_passes(graph, ["fold_batchnorm"])
    graph.save(tmp_path / "folded.onnx")
    model = prepare_by_platform(tmp_path / "folded.onnx", "Tensorrt")
    before = model.get_parameter("stem.conv.weight").clone()
    assert not torch.equal(before, state["stem.conv.weight"])
    model.load_state_dict(state)  # the file was exported from this: everything is explained
    assert torch.equal(model.get_parameter("stem.conv.weight"), before)
    other = {name: value * 1.5 if name == "stem.conv.weight" else value for name, value in state.items()}
    with pytest.raises(ModelError, match=r"'stem\.conv\.weight': a batch norm of the checkpoint is folded into"):
        model.load_state_dict(other)
    found = model.load_state_dict(other, strict=False)
    assert "stem.conv.weight" in found.missing_keys
    assert "stem.bn.weight" in found.unexpected_keys
    assert torch.equal(model.get_parameter("stem.conv.weight"), before)
    with pytest.raises(ModelError, match="folded"):
        model.load_state_dict({**state, "head.bn.bias": state["head.bn.bias"] + 1})


def test_what_passes_have_changed_is_loaded_only_as_the_file_has_it() -> None:
    state = float_state(demo.model_path())
    model = prepare_by_platform(demo.model_path(), "Tensorrt", is_qat=False)  # batch norms are folded for good
    assert "stem.bn.weight" not in model.state_dict()
    before = model.get_parameter("stem.conv.weight").clone()
    model.load_state_dict(state)
    assert torch.equal(model.get_parameter("stem.conv.weight"), before)
    for name in ("stem.conv.weight", "stem.bn.bias"):
        with pytest.raises(ModelError, match=name):
            model.load_state_dict({**state, name: state[name] + 1})


def test_weights_that_the_exporter_turned_over_are_turned_back() -> None:
    model = prepare_by_platform(exported(TRANSFORMER), "Tensorrt_NLP").torch()
    turned = [name for name in model.state_dict() if name.endswith("weight_transposed")]
    assert turned
    state = {
        name.replace("weight_transposed", "weight"): value.t() if name in turned else value
        for name, value in model.state_dict().items()
        if "fake_quant" not in name
    }
    own = turned[0].replace("weight_transposed", "weight")
    state[own] = 2 * state[own]
    model.load_state_dict(state)
    assert torch.equal(model.state_dict()[turned[0]], state[own].t())
    sentences = {name: torch.from_numpy(array) for name, array in samples(TRANSFORMER, 2).items()}
    enable_calibration(model)
    assert model(sentences["tokens"], mask=sentences["mask"]).requires_grad


def test_statistics_of_batch_norms_are_learnt_where_they_are_not_frozen(tmp_path: Path) -> None:
    model = prepare_by_platform(demo.model_path(), "Tensorrt", freeze_bn=False)
    calibrate(model)
    before = model.get_buffer("stem.bn.running_mean").clone()
    train(model, steps=2)
    learnt = model.get_buffer("stem.bn.running_mean").clone()
    assert not torch.equal(learnt, before)
    model.freeze_bn_stats()
    train(model, steps=1)
    assert torch.equal(model.get_buffer("stem.bn.running_mean"), learnt)
    assert convert_deploy(model, "Tensorrt", output_path=tmp_path).report["file_against_net"][0]["within"] == 1.0
    with pytest.raises(ConfigError, match="freeze_bn=False"):
        prepared().update_bn_stats()


def test_the_loop_of_onnxq_trains_the_module_too() -> None:
    model = prepared()
    calibrate(model)
    before = model.get_parameter("stem.conv.weight").clone()
    data = DATA.train_images[:64], DATA.train_labels[:64]
    qat_loop.train(model.torch().settled(), data, {"epochs": 1, "batch_size": 16, "lr": 1e-3})
    assert not torch.equal(model.get_parameter("stem.conv.weight"), before)


def test_attributes_that_are_given_as_objects_are_those_of_the_torch_module() -> None:
    def loss_of(model: Any) -> str:
        return "mine"

    extra = {"preserve_attr": {"": [loss_of, "layer1"], "layer3": {"width": 16}}}
    model = prepare_by_platform(exported(RESNET), "Tensorrt", extra)
    rows = {(row.key, row.value): row.became for row in model.rows}
    assert "not part of a file" in rows["preserve_attr['']", "loss_of"]
    assert "further output" in rows["preserve_attr['']", "'layer1'"]
    module = model.torch()
    assert module.loss_of(module) == "mine"
    assert module.layer3.width == 16


def test_what_replaces_a_parameter_counts_and_what_hides_one_is_an_error() -> None:
    module = prepared().torch().eval()
    before = module(TEST[:2]).detach()
    module.classifier.weight = torch.nn.Parameter(torch.zeros_like(module.classifier.weight))
    assert not torch.equal(module(TEST[:2]).detach(), before)
    torch.nn.utils.parametrize.register_parametrization(module.classifier, "weight", torch.nn.Identity())
    with pytest.raises(ConfigError, match=r"'classifier\.weight' is no parameter of its module any more"):
        module(TEST[:2])


def test_effort_is_refused_for_a_module() -> None:
    model = prepared()
    model.torch()
    with pytest.raises(ConfigError, match="effort 1 would change weights"):
        convert_deploy(model, "Tensorrt", effort=1)


def test_shapes_are_fixed_when_the_trained_model_is_deployed(tmp_path: Path) -> None:
    model = prepared()
    calibrate(model)
    train(model, steps=1)
    result = convert_deploy(model, "Tensorrt", {"image": [2, 1, 8, 8]}, output_path=tmp_path, model_name="fixed")
    assert list(Graph.load(result.model).shape("image")) == [2, 1, 8, 8]
    assert result.model.name == "fixed.onnx"
    open_again = convert_deploy(
        model, "Tensorrt", {"image": [1, 1, 8, 8]}, output_path=tmp_path / "o", dynamic_axes={"image": {0: "n"}}
    )
    assert list(Graph.load(open_again.model).shape("image")) == ["n", 1, 8, 8]


def test_torch_is_not_imported_before_it_is_asked_for() -> None:
    code = (
        "import sys; from onnxq.compat.mqbench import prepare_by_platform; from onnxq import demo;"
        "m = prepare_by_platform(demo.model_path(), 'Tensorrt'); assert 'torch' not in sys.modules;"
        "m.eval(); assert not hasattr(m, 'something') and 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
