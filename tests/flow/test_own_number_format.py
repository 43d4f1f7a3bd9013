"""A number format from one file of the user's own goes through everything: examples/16-own-number-format/apot6.py."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch

from onnxq import demo, quantize
from onnxq.emit import EMITTERS, READ_BACKS
from onnxq.emit.qdq import to_qdq
from onnxq.emit.simulate import simulate
from onnxq.errors import ConfigError, SpecError, UnsupportedError
from onnxq.graph import Graph
from onnxq.numerics import dequantize, fake_quantize, qparams_from_range
from onnxq.numerics import quantize as codes_of
from onnxq.qat import deliver
from onnxq.qat import prepare as qat_prepare
from onnxq.targets import BACKENDS, get_backend
from onnxq.torchnet.fake_quantize import FAKE_QUANTIZERS, FakeQuantize
from onnxq.torchnet.fake_quantize.grids import grid_values
from onnxq.types import Backend, PerChannel, Placement, QParams, QParamsTable, QuantPlan, QuantSpec
from onnxq.types.fake_quantizers import Kind, add_kind, forget_kind
from onnxq.types.number_format import NumberFormat, add_format, forget_format, number_format, number_formats
from tests.emit.test_bfp16_model import LEVELS, assert_same_bits, relu_model
from tests.qat.digits_qat import prepared, samples, trained

PLUGIN = Path(__file__).parents[2] / "examples" / "16-own-number-format" / "apot6.py"


@pytest.fixture
def chip(monkeypatch: pytest.MonkeyPatch) -> Iterator[Backend]:
    """The toy target of the plugin, which is not there any more after the test."""
    for registry in (BACKENDS, EMITTERS, READ_BACKS):
        monkeypatch.setattr(registry, "_items", dict(registry.items()))
    yield get_backend(str(PLUGIN))
    forget_format("apot6")


def awkward(spec: QuantSpec, scale: np.ndarray) -> np.ndarray:
    """Levels, the middles between them and their neighbours, far too large values, zeros; shape (3, 2, n)."""
    above, _ = spec.format.sides(spec)
    edges = np.concatenate([above.levels, above.boundaries]).astype(np.float32)
    around = np.concatenate([edges, np.nextafter(edges, np.float32(0)), np.nextafter(edges, np.float32(9))])
    unit = np.concatenate([around, -around, np.float32([0.0, -0.0, np.inf, -np.inf, 1e-30, -1e30])])
    noise = np.random.default_rng(0).normal(size=(3, 1, unit.size)).astype(np.float32)
    exact = unit * np.broadcast_to(scale, (3,))[:, None, None]
    return np.concatenate([exact, noise], axis=1, dtype=np.float32)


@pytest.fixture(params=["per tensor", "per channel"])
def parameters(request: pytest.FixtureRequest, chip: Backend) -> QParams:
    if request.param == "per tensor":
        return qparams_from_range(-0.7, 1.1, QuantSpec("apot6"))
    return qparams_from_range([-0.3, -1, 0], [0.5, 0.2, 7], QuantSpec("apot6", granularity=PerChannel(0)))


def test_every_number_is_a_sum_of_two_powers_of_two(chip: Backend) -> None:
    spec = QuantSpec("apot6")
    above, below = spec.format.sides(spec)
    assert len(above.levels) == len(below.levels) == 31
    whole = np.rint(above.levels * 2**9).astype(int)
    assert all(bin(value).count("1") <= 2 for value in whole)
    codes = np.arange(64, dtype=np.uint8)
    real = dequantize(codes, QParams(spec, np.float32(1), np.int32(0)))
    assert len(np.unique(real)) == 63
    assert set(np.abs(real)) == {0.0, *above.levels.astype(np.float32)}


def test_a_range_gets_the_scale_that_just_covers_it(chip: Backend) -> None:
    found = qparams_from_range(-3.0, 2.0, QuantSpec("apot6"))
    assert found.scale == np.float32(2.0)  # the largest number is 1.5
    assert QParams.from_json(found.to_json()) == found


@pytest.mark.parametrize("level", sorted(LEVELS))
@pytest.mark.parametrize("write", [to_qdq, simulate])
def test_file_and_net_have_the_bits_of_numpy(chip: Backend, parameters: QParams, write: Any, level: str) -> None:
    x = awkward(parameters.spec, parameters.scale)
    wanted = fake_quantize(x, parameters)
    np.testing.assert_array_equal(wanted, dequantize(codes_of(x, parameters), parameters))
    plan, table = QuantPlan(chip.name), QParamsTable()
    plan.placements["y"] = Placement("y", parameters.spec, "activation", "test")
    table.put("y", parameters, "test")
    written = write(relu_model(x.shape, 17), plan, table, chip)[0].to_model()
    onnx.checker.check_model(written, full_check=True)
    options = ort.SessionOptions()
    options.graph_optimization_level = LEVELS[level]
    (found,) = ort.InferenceSession(written.SerializeToString(), options).run(None, {"x": x})
    assert_same_bits(found, wanted)


@pytest.mark.parametrize("own", [True, False], ids=["own torch", "through numpy"])
def test_training_has_the_bits_of_numpy(
    chip: Backend, parameters: QParams, own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not own:
        monkeypatch.setattr(type(number_format("apot6")), "torch_values", NumberFormat.torch_values)
    x = awkward(parameters.spec, parameters.scale)
    scale = torch.from_numpy(parameters.scale.copy())
    scale = scale if scale.ndim == 0 else scale.view(3, 1, 1)
    found = grid_values(torch.from_numpy(x), scale, torch.zeros_like(scale, dtype=torch.int32), parameters.spec)
    assert_same_bits(found.numpy(), fake_quantize(x, parameters))
    lost = grid_values(torch.tensor([np.nan, 1.0]), torch.tensor(1.0), torch.tensor(0), QuantSpec("apot6"))
    assert lost.isnan().tolist() == [True, False]


@pytest.mark.slow
def test_every_improvement_takes_it(chip: Backend, tmp_path: Path) -> None:
    result = quantize(demo.model_path(), backend=chip, data=samples(64), config={"effort": 3}, out=tmp_path)
    assert result.report["sqnr_db"]["logits"] > 14


def test_post_training_quantization_writes_the_model_and_the_table(chip: Backend, tmp_path: Path) -> None:
    result = quantize(demo.model_path(), backend=chip, data=samples(), config={"effort": 0}, out=tmp_path)
    assert {placement.spec.dtype for placement in result.plan} == {"apot6"}
    assert result.report["sqnr_db"]["logits"] > 10
    table = json.loads((tmp_path / "model_apot.json").read_text())
    assert set(table) == set(result.plan.placements)
    graph = Graph.load(tmp_path / "model.onnx")
    weight = "stem.conv.weight"
    codes = np.frombuffer(bytes.fromhex(table[weight]["codes"]), np.uint8)
    held = graph.values(f"{weight}_quantized")
    np.testing.assert_array_equal(dequantize(codes.reshape(held.shape), result.qparams[weight]), held)
    assert QuantPlan.from_json(result.plan.to_json()).placements == result.plan.placements


def test_training_ends_in_a_file_that_is_the_net(chip: Backend, tmp_path: Path) -> None:
    net = trained(prepared(chip), 5)
    result = deliver(net, tmp_path / "out")
    (found,) = result.report["file_against_net"]
    assert found["within"] == 1.0
    for name, quantizer in net.fake_quantizers.items():
        if quantizer.role == "weight":
            trained_now = quantizer(net.get_parameter(name)).detach().numpy()
            held = Graph.load(result.model).values(f"{name}_quantized")
            np.testing.assert_array_equal(trained_now, held)
    assert (tmp_path / "out" / "model_apot.json").is_file()


@pytest.fixture
def ties_go_up(chip: Backend, monkeypatch: pytest.MonkeyPatch) -> Backend:
    """numpy rounds what lies just below a middle up, operators and torch down; no value of the demo's lies there."""
    kind = type(number_format("apot6"))
    encode = kind.encode
    monkeypatch.setattr(
        kind, "encode", lambda self, x, *others: encode(self, np.nextafter(x, np.copysign(np.float32(9e9), x)), *others)
    )
    return chip


def test_operators_that_round_ties_in_another_way_are_refused_before_a_file_is_written(
    ties_go_up: Backend, tmp_path: Path
) -> None:
    with pytest.raises(SpecError, match=r"number format 'apot6': with a scale of 0\.125 its ONNX operators make"):
        quantize(demo.model_path(), backend=ties_go_up, data=samples(), config={"effort": 0}, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_torch_format_that_rounds_ties_in_another_way_is_refused_before_training(ties_go_up: Backend) -> None:
    with pytest.raises(SpecError, match="`torch_values` of a format of your own must compute the bits"):
        prepared(ties_go_up)


def test_a_target_that_does_not_have_the_format_refuses_it_before_calibration(chip: Backend) -> None:
    with pytest.raises(UnsupportedError, match="apot6 is stored as apot6, tensorrt takes"):
        quantize(demo.model_path(), backend="tensorrt", data=_no_data(), config={"weight": {"dtype": "apot6"}})


def _no_calibration(feeds: list[dict[str, np.ndarray]]) -> Iterator[dict[str, np.ndarray]]:
    """The first sample tells the shapes; who asks for a second one has begun."""
    yield feeds[0]
    raise AssertionError("calibration has begun")


def _no_data() -> Iterator[dict[str, np.ndarray]]:
    raise AssertionError("calibration has begun")
    yield {}


# ---- a format that is known by halves --------------------------------------------------------------------------------


class Halved(NumberFormat):
    """Numbers, and nothing that could write them."""

    def ends(self, spec: QuantSpec, *, rounded: bool = False) -> tuple[float, float]:
        return -1.0, 1.0

    def encode(self, x: np.ndarray, scale: np.ndarray, zero_point: np.ndarray, spec: QuantSpec) -> np.ndarray:
        return np.zeros(x.shape, np.uint8)

    def decode(self, q: np.ndarray, scale: np.ndarray, zero_point: np.ndarray, spec: QuantSpec) -> np.ndarray:
        return np.zeros(q.shape, np.float32)


def test_a_format_that_no_file_can_hold_is_refused_when_it_is_added() -> None:
    with pytest.raises(ConfigError, match=r"number format 'halved' can stand in no file.*`operators`"):
        add_format(Halved("halved", 4))
    assert "halved" not in number_formats()
    with pytest.raises(SpecError, match="unknown dtype 'halved'"):
        QuantSpec("halved")


@pytest.fixture
def lone_kind() -> Iterator[str]:
    """A fake-quantizer for a format that is registered nowhere."""
    add_kind(Kind("posit", "posits of 6 bits", "the number format itself", implied={"dtype": "posit6"}))
    yield "posit"
    forget_kind("posit")


@pytest.mark.parametrize("role", ["weight", "activation"])
def test_a_format_that_only_a_fake_quantizer_computes_is_refused_before_calibration(lone_kind: str, role: str) -> None:
    config = {role: {"fake_quantizer": lone_kind}}
    for run in (quantize, qat_prepare):
        with pytest.raises(ConfigError, match="'posit' computes the number format 'posit6', which nobody else knows"):
            run(demo.model_path(), backend="academic", data=_no_data(), config=config)


def test_it_is_refused_as_the_choice_of_a_backend_too(lone_kind: str) -> None:
    chip = get_backend("academic").replace(weight_fake_quantizer=lone_kind)
    for run in (quantize, qat_prepare):
        with pytest.raises(ConfigError, match="'posit' computes the number format 'posit6', which nobody else knows"):
            run(demo.model_path(), backend=chip, data=_no_data())


@pytest.fixture
def strange_kind() -> Iterator[str]:
    """A fake-quantizer with numbers of its own, which says nothing about a format."""

    class Thirds(FakeQuantize):
        def quantize(self, x: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor, layout: Any) -> torch.Tensor:
            return (x * 3).round() / 3

    add_kind(Kind("thirds", "multiples of a third", "the same numbers as fixed"))
    FAKE_QUANTIZERS.add("thirds", Thirds)
    yield "thirds"
    FAKE_QUANTIZERS.forget("thirds")
    forget_kind("thirds")


@pytest.mark.parametrize("role", ["weight", "activation"])
def test_a_fake_quantizer_with_numbers_of_its_own_is_refused_before_calibration(strange_kind: str, role: str) -> None:
    with pytest.raises(SpecError, match=r"'thirds' of '.*' computes numbers that int8 does not have"):
        qat_prepare(demo.model_path(), "tensorrt", _no_calibration(samples()), {role: {"fake_quantizer": strange_kind}})


def test_a_name_is_taken_once_and_onnxqs_own_stay(chip: Backend) -> None:
    with pytest.raises(ConfigError, match=r"number format 'int8' exists already"):
        add_format(type(number_format("apot6"))("int8", 8))
    get_backend(str(PLUGIN))  # the same file again
    forget_format("int8")
    assert QuantSpec("int8").bits == 8
