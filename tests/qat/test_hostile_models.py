"""Models and settings that are awkward to train: the file still is what the net computes, and nothing breaks late."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

import onnxq
from onnxq.errors import CheckFailed
from onnxq.numerics import fake_quantize
from onnxq.qat import QatNet, convert, deliver, prepare, qat
from onnxq.torchnet.values import from_numpy, to_numpy
from tests.qat.digits_qat import DATA, prepared, trained
from tests.zoo import ZOO

ANYTHING = {"minimum_sqnr_db": -1000.0}
IMAGES = torch.from_numpy(DATA.train_images[:16])


def _of_zoo(name: str, backend: str, config: dict[str, Any] | None = None, **options: Any) -> QatNet:
    case = ZOO[name]()
    return prepare(case.model, backend, case.feeds, {**ANYTHING, **(config or {})}, **options)


def _stepped(net: QatNet, name: str, steps: int = 3, lr: float = 1e-3) -> QatNet:
    """Adam towards outputs of twice the size."""
    optimizer = torch.optim.Adam(net.parameters(), lr=lr)
    feeds = ZOO[name]().feeds
    for step in range(steps):
        outputs = net.run({key: from_numpy(value) for key, value in feeds[step % len(feeds)].items()})
        learnt = [y for y in outputs.values() if isinstance(y, torch.Tensor) and y.requires_grad]
        loss = torch.stack([(y.float() - 2 * y.detach().float()).square().mean() for y in learnt]).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return net


def _assert_within(net: QatNet, folder: Path) -> None:
    for found in deliver(net, folder).report["file_against_net"]:
        assert found["within"] == 1.0, found


def _assert_constants_are_the_nets(net: QatNet) -> None:
    """Quantized weights and biases of the conversion against those that the net computes with, bit for bit."""
    graph, _, qparams = convert(net)
    net.eval()
    for name in net.trained_constants():
        with torch.no_grad():
            wanted = to_numpy(net.fake_quantizer(name)(net.value(name)))
        written = fake_quantize(graph.values(name).astype(np.float32), qparams[name])
        np.testing.assert_array_equal(written.astype(wanted.dtype), wanted, err_msg=name)


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        ("loop_with_matmul_body", "sophgo_bm1688"),  # the quantizer of a body sees several values in a step
        ("dynamic_height_and_width", "rknn"),  # outputs whose sizes the file leaves open
        ("non_max_suppression_tail", "rknn"),
        ("input_is_also_an_output", "sophgo_cv18x"),  # leaves as it came, though its readers see it quantized
        ("quantized_in_part", "academic:w_bits=4,a_bits=4"),
        ("weight_is_graph_output", "sophgo_bm1688"),
        ("fp16_cnn", "tensorrt"),
    ],
)
def test_awkward_models_are_trained_and_written(name: str, backend: str, tmp_path: Path) -> None:
    _assert_within(_stepped(_of_zoo(name, backend), name), tmp_path / "out")


@pytest.mark.parametrize(
    ("name", "backend", "config"),
    [
        ("constant_is_an_output", "sophgo_bm1688", {}),  # a Constant node with value_floats
        ("weight_read_from_both_sides", "stpu", {"weight": {"fake_quantizer": "adaround"}}),
        ("pad_with_zeros_before_max_pool", "ncnn", {}),  # 3x3 convolutions, which have six bits
        ("resize_to_computed_size", "ryzenai", {}),
    ],
)
def test_all_files_of_an_untrained_net_are_those_of_post_training_quantization(
    name: str, backend: str, config: dict[str, Any], tmp_path: Path
) -> None:
    case = ZOO[name]()
    config = {**ANYTHING, **config, "effort": 0}  # training starts from calibration as it is
    onnxq.quantize(case.model, backend=backend, data=case.feeds, config=config, out=tmp_path / "ptq")
    deliver(_of_zoo(name, backend, config), tmp_path / "qat")
    own = {"report.json", "report.html", "qparams.json"}  # which tell where the numbers came from
    names = {path.name for path in (tmp_path / "ptq").iterdir()} - own
    assert names == {path.name for path in (tmp_path / "qat").iterdir()} - own
    for file in names:
        assert (tmp_path / "qat" / file).read_bytes() == (tmp_path / "ptq" / file).read_bytes(), file


def test_six_bits_of_winograd_stay_through_training_and_repeated_conversion() -> None:
    net = prepared("ncnn", {"weight": {"fake_quantizer": "lsq"}})
    name = "head.conv.weight"
    before = net.calibrated.state.qparams[name].scale
    for _ in range(2):
        np.testing.assert_array_equal(convert(net).qparams[name].scale, before)
    fixed = trained(prepared("ncnn"), 2)
    np.testing.assert_array_equal(fixed.fake_quantizer(name).to_qparams().scale, before)
    graph, _, qparams = convert(fixed)
    steps = np.abs(graph.values(name)).max(axis=(1, 2, 3)) / qparams[name].scale
    assert steps.max() <= 31.5


def test_six_bits_of_winograd_keep_powers_of_two(tmp_path: Path) -> None:
    config = {"weight": {"fake_quantizer": "tqt"}, "activation": {"fake_quantizer": "tqt"}}
    net = trained(prepared("ncnn", config), 2)
    scale = net.calibrated.state.qparams["head.conv.weight"].scale
    np.testing.assert_array_equal(np.frexp(scale)[0], 0.5)
    _assert_within(net, tmp_path / "out")


def test_a_weight_that_was_widened_for_its_bias_does_not_follow_its_range() -> None:
    name = "weights_1e_9_bias_5"
    net = _of_zoo(name, "onnxruntime")
    assert {
        tensor for tensor, module in net.fake_quantizers.items() if module.role == "weight" and not module.observing
    }


@pytest.mark.parametrize("kind", ["adaround", "dorefa", "lsq"])
def test_weights_settle_on_the_scale_that_their_bias_forces_on_them(kind: str) -> None:
    net = trained(prepared("tensorrt", {"weight": {"fake_quantizer": kind}}), 2)
    with torch.no_grad():
        net.get_parameter("classifier.bias").mul_(1e8)
    _assert_constants_are_the_nets(net)
    assert any("'classifier.weight': scale enlarged" in note for note in net.notes)


@pytest.mark.parametrize("kind", ["adaround", "dorefa"])
def test_a_weight_with_a_float_reader_holds_its_own_values(kind: str, tmp_path: Path) -> None:
    config = {"weight": {"fake_quantizer": kind}, "node": {"node_Conv_4": {"skip": True}}}
    net = _of_zoo("two_inputs_siamese", "academic:w_bits=4,a_bits=4", config)
    assert any("also read as it is" in note for note in net.notes)
    _assert_within(_stepped(net, "two_inputs_siamese", lr=0.1), tmp_path / "out")


@pytest.mark.parametrize("kind", ["adaround", "dorefa"])
def test_weights_that_share_a_scale_hold_their_own_values(kind: str) -> None:
    shared = {name: {"share": "both"} for name in ("residual1.conv.weight", "residual2.conv.weight")}
    config = {"weight": {"fake_quantizer": kind, "per_channel": False}, "tensor": shared}
    net = prepared("academic:w_bits=4,a_bits=4,w_per_channel=no", config)
    assert sum("shares its scale" in note for note in net.notes) == 2
    _assert_constants_are_the_nets(trained(net, 2))


@pytest.mark.parametrize("batch_norms", ["folded", "frozen"])
def test_a_weight_that_is_only_observed_beside_a_batch_norm(batch_norms: str, tmp_path: Path) -> None:
    config = {"node": {"residual1.conv": {"observe_only": True}}}
    _assert_within(trained(prepared("onnxruntime", config, batch_norms=batch_norms), 2), tmp_path / "out")


def test_a_fake_quantizer_for_all_weights_spares_constants_whose_format_it_cannot_have() -> None:
    net = _of_zoo("lstm_between_layers", "rknn", {"weight": {"fake_quantizer": "tqt"}})
    added = [p for p in net.plan if p.role == "weight" and not p.spec.symmetric]
    assert added
    assert {p.fake_quantizer for p in added} == {"fixed"}
    assert "tqt" in {p.fake_quantizer for p in net.plan if p.role == "weight"}


def test_a_threshold_cannot_be_learnt_where_there_is_no_scale() -> None:
    net = _of_zoo("gemm_without_bias", "sophgo_sg2260:precision=F16", {"weight": {"fake_quantizer": "tqt"}})
    assert not [name for name, _ in net.named_parameters() if name.startswith("fake_quantizers.")]


def test_parameters_of_half_precision_survive_adam() -> None:
    net = _stepped(_of_zoo("fp16_cnn", "tensorrt"), "fp16_cnn")
    assert all(bool(parameter.isfinite().all()) for parameter in net.parameters())
    assert all(parameter.dtype == torch.float32 for parameter in net.parameters())
    graph = net.to_graph()
    assert {graph.dtype(name) for name in net.trained_constants()} == {np.dtype(np.float16)}
    _assert_constants_are_the_nets(net)


def test_scales_that_the_file_came_with_are_not_trained() -> None:
    net = _stepped(_of_zoo("quantized_in_part", "academic:w_bits=4,a_bits=4"), "quantized_in_part", lr=3.0)
    nodes = [*net.graph.nodes("QuantizeLinear"), *net.graph.nodes("DequantizeLinear")]
    names = {node.inputs[1].name for node in nodes}
    assert names
    assert names.isdisjoint(name for name, _ in net.named_parameters())


def test_training_that_diverged_is_called_so() -> None:
    net = prepared("tensorrt")
    with torch.no_grad():
        net.get_parameter("classifier.weight")[0, 0] = torch.nan
    with pytest.raises(CheckFailed, match=r"'classifier\.weight' has NaN .*training has diverged"):
        convert(net)


def test_gradients_of_several_calls_can_be_taken_together() -> None:
    net = prepared("onnxruntime")
    (net(IMAGES[:8]).square().mean() + net(IMAGES[8:]).square().mean()).backward()
    assert all(parameter.grad is not None for parameter in net.parameters())


def test_numbers_stay_from_the_moment_that_observing_stops() -> None:
    net = trained(prepared("onnxruntime"), 2)
    net.observe(False)
    before = {name: module.to_qparams() for name, module in net.fake_quantizers.items()}
    net(3 * IMAGES)
    net(IMAGES)
    assert {name: module.to_qparams() for name, module in net.fake_quantizers.items()} == before


def test_weights_whose_rounding_is_learnt_want_no_gradient() -> None:
    net = prepared("tensorrt", {"weight": {"fake_quantizer": "adaround"}})
    net(IMAGES).square().mean().backward()
    wanting = {name: parameter for name, parameter in net.named_parameters() if parameter.requires_grad}
    assert "classifier.weight" not in wanting
    assert all(parameter.grad is not None for parameter in wanting.values())


def test_integer_operators_are_held_against_what_they_mean(tmp_path: Path) -> None:
    """uint8 x int8 saturates in the kernels of some processors: that is no fault of the file."""
    net = prepare(ZOO["unicode_names"]().model, "onnx_qnn:weights=int8", ZOO["unicode_names"]().feeds, ANYTHING)
    _assert_within(net, tmp_path / "out")


def test_scales_stay_legal_whatever_an_optimizer_does_to_them() -> None:
    config = {"activation": {"fake_quantizer": "lsq_plus"}, "weight": {"fake_quantizer": "lsq"}}
    net = prepared("academic:w_bits=4,a_bits=4,a_symmetric=no", config)
    with torch.no_grad():
        for number, (name, parameter) in enumerate(net.named_parameters()):
            if name.startswith("fake_quantizers."):
                parameter.fill_((0.0, -1.0, 1e-45, 1e30)[number % 4])
    for name, parameters in convert(net).qparams.entries.items():
        assert np.isfinite(parameters.scale).all(), name
        assert (parameters.scale > 0).all(), name


def _resized_by_half(opset: int) -> onnx.ModelProto:
    """A convolution of an image whose corners are aligned with those of 4.5 pixels in opset 19, of 4 before."""
    model = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : {opset}]>
        small (float[N, 2, 9, 9] x) => (float[N, 2, 4, 4] y)
        <float[4] scales = {{1, 1, 0.5, 0.5}}, float[2, 2, 1, 1] w = {{0.5, -1, 0.25, 2}}>
        {{
            half = Resize <mode = "linear", coordinate_transformation_mode = "align_corners"> (x, , scales)
            y = Conv (half, w)
        }}
    """)
    onnx.checker.check_model(model)
    return model


def test_what_onnxruntime_computes_in_another_way_is_refused_before_training(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(0, 1, (32, 2, 9, 9)).astype(np.float32)
    steps: list[object] = []
    options: dict[str, Any] = {"train_on": {"x": x}, "settings": {"steps": 2}, "training_progress": steps.append}
    with pytest.raises(CheckFailed, match=r"before training, output 'y' .* in another way by onnxruntime"):
        qat(_resized_by_half(19), "tensorrt", out=tmp_path / "refused", **options)
    assert not steps
    assert not (tmp_path / "refused").exists()
    assert qat(_resized_by_half(18), "tensorrt", out=tmp_path / "trained", **options) is not None
    assert steps
