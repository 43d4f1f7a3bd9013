"""prepare starts where post-training quantization ends; batch norms, copies, ties; convert gives everything back."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch

import onnxq
from onnxq import demo
from onnxq.errors import ConfigError
from onnxq.qat import convert, deliver, prepare, train
from onnxq.qat.roundings import undecided
from tests.qat.digits_qat import DATA, accuracy, prepared, samples, trained

IMAGES = torch.from_numpy(DATA.test_images[:64])
LABELS = torch.from_numpy(DATA.test_labels[:64])


@pytest.mark.parametrize("backend", ["tensorrt", "onnxruntime", "vitis", "nnie", "academic:w_bits=4,a_bits=4"])
def test_an_untrained_net_gives_the_parameters_and_weights_of_post_training_quantization(
    backend: str, tmp_path: Path
) -> None:
    config = {"portable": backend == "onnxruntime", "effort": 0}  # training starts from calibration as it is
    wanted = onnxq.quantize(demo.model_path(), backend=backend, data=samples(), config=config, out=tmp_path / "ptq")
    net = prepared(backend, config)
    result = deliver(net, tmp_path / "qat")
    assert result.plan.to_json() == wanted.plan.to_json()
    assert {name: result.qparams[name].to_json() for name in result.qparams} == {
        name: wanted.qparams[name].to_json() for name in wanted.qparams
    }
    assert result.model.read_bytes() == wanted.model.read_bytes()


@pytest.mark.parametrize("batch_norms", ["frozen", "live"])
def test_batch_norms_apart_start_at_the_same_numbers_and_keep_their_names(batch_norms: str) -> None:
    folded, apart = prepared("tensorrt"), prepared("tensorrt", batch_norms=batch_norms)
    folded.eval(), apart.eval()
    with torch.no_grad():
        difference = (folded(IMAGES) - apart(IMAGES)).abs().max()
    assert difference < 1.1 * 0.05  # a step of the last quantizer at most, where a weight falls to the other side
    names = {name for name, _ in apart.named_parameters()}
    assert {"stem.conv.weight", "stem.bn.weight", "stem.bn.bias"} <= names
    assert {"stem.bn.running_mean", "stem.bn.running_var"} <= {name for name, _ in apart.named_buffers()}
    assert apart.notes == []


def test_live_statistics_move_and_are_folded_in_the_end(tmp_path: Path) -> None:
    net = prepared("tensorrt", batch_norms="live")
    before = net.get_buffer("head.bn.running_mean").clone()
    trained(net, 20)
    assert not torch.equal(net.get_buffer("head.bn.running_mean"), before)
    result = deliver(net, tmp_path)
    assert result.report["file_against_net"][0]["within"] == 1.0
    assert accuracy(net) > 0.95


def test_frozen_statistics_stay_and_the_file_has_no_batch_norm(tmp_path: Path) -> None:
    net = prepared("tensorrt", batch_norms="frozen")
    before = net.get_buffer("head.bn.running_mean").clone()
    trained(net, 20)
    assert torch.equal(net.get_buffer("head.bn.running_mean"), before)
    result = deliver(net, tmp_path)
    assert result.report["file_against_net"][0]["within"] == 1.0
    assert not onnxq.load(result.model).nodes("BatchNormalization")


@pytest.mark.parametrize("batch_norms", ["folded", "frozen", "live"])
def test_recomputed_segments_train_to_the_same_numbers(batch_norms: str) -> None:
    states = []
    for segments in (1, 4):
        net = prepared("onnxruntime", batch_norms=batch_norms)
        net.checkpoint_segments = segments
        states.append(trained(net, 3).state_dict())
    for name, value in states[0].items():
        torch.testing.assert_close(states[1][name], value, rtol=1e-5, atol=1e-7, msg=name)


def test_a_copy_trains_on_its_own() -> None:
    net = trained(prepared("onnxruntime", {"activation": {"fake_quantizer": "lsq"}}), 3)
    twin = copy.deepcopy(net)
    net.eval(), twin.eval()
    wanted = net(IMAGES)
    assert torch.equal(twin(IMAGES), wanted)
    trained(twin.train(), 3)
    assert torch.equal(net(IMAGES), wanted)
    assert not torch.equal(twin.eval()(IMAGES), wanted)


def test_a_state_goes_into_a_fresh_net_bit_for_bit() -> None:
    config = {"activation": {"fake_quantizer": "lsq_plus"}, "weight": {"fake_quantizer": "lsq"}}
    net = trained(prepared("academic:w_bits=4,a_bits=4,a_symmetric=no", config), 5)
    other = prepared("academic:w_bits=4,a_bits=4,a_symmetric=no", config)
    other.load_state_dict(net.state_dict())
    net.eval(), other.eval()
    with torch.no_grad():
        assert torch.equal(net(IMAGES), other(IMAGES))


def test_tied_tensors_have_one_scale_while_it_moves() -> None:
    net = prepared("onnxruntime")
    ties = [placement for placement in net.carried_out if placement.tie]
    assert ties
    trained(net, 5)
    _, _, qparams = convert(net)
    for placement in ties:
        assert qparams[placement.tensor] == qparams[placement.tie]


def test_quantizers_can_be_switched_off() -> None:
    net = prepared("academic:w_bits=2,a_bits=2")
    net.eval()
    with torch.no_grad():
        rough = net(IMAGES)
        net.quantize(False)
        plain = net(IMAGES)
    assert (plain.argmax(1) == LABELS).float().mean() > 0.95
    assert not torch.allclose(rough, plain, atol=0.1)


def test_training_brings_back_what_four_bits_cost() -> None:
    config = {"activation": {"fake_quantizer": "lsq"}, "weight": {"fake_quantizer": "lsq"}}
    net = prepared("academic:w_bits=2,a_bits=4", config)
    before = accuracy(net)
    after = accuracy(trained(net, 150, batch=64, lr=1e-3))
    assert before < 0.9
    assert after > 0.95


def test_bits_of_single_layers_are_trained_and_written(tmp_path: Path) -> None:
    config = {
        "activation": {"fake_quantizer": "lsq"},
        "weight": {"fake_quantizer": "lsq"},
        "node": {"head.conv": {"weight": {"dtype": "int3"}}, "pointwise.conv": {"weight": {"dtype": "int2"}}},
    }
    net = trained(prepared("academic:w_bits=4,a_bits=4", config), 5)
    assert net.plan["head.conv.weight"].spec.bits == 3
    result = deliver(net, tmp_path)
    assert result.report["file_against_net"][0]["within"] == 1.0
    assert result.plan["pointwise.conv.weight"].spec.bits == 2


def test_an_unknown_way_with_batch_norms_is_an_error() -> None:
    with pytest.raises(ConfigError, match="folded, frozen, live"):
        prepare(demo.model_path(), "tensorrt", samples(), batch_norms="melted")  # type: ignore[arg-type]


def test_a_weight_that_cannot_hold_latent_values_is_noted() -> None:
    net = prepared("tensorrt", {"weight": {"fake_quantizer": "dorefa"}}, batch_norms="frozen")
    assert any("'stem.conv.weight' is trained as 'fixed', not as 'dorefa'" in note for note in net.notes)


def test_roundings_that_are_learnt_decide_and_win_back_accuracy() -> None:
    net = prepared("academic:w_bits=3,a_bits=8", {"weight": {"fake_quantizer": "adaround"}})
    before = accuracy(net)
    open_before = undecided(net, 1.0)
    data = {"image": DATA.train_images[:640], "labels": DATA.train_labels[:640]}
    train(net, data, {"epochs": 6, "batch_size": 64, "lr": 2e-3})
    open_after = undecided(net, 1.0)
    assert open_before is not None
    assert open_after is not None
    assert open_after.item() < 0.97 * open_before.item()
    assert accuracy(net) > before + 0.01


def test_a_part_of_the_model_is_trained_and_the_whole_is_written(tmp_path: Path) -> None:
    net = prepare(demo.model_path(), "tensorrt", samples(), outputs=["pointwise.relu.out"])
    assert [name for name, _ in net.named_parameters() if name.startswith(("head", "classifier"))] == []
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    net(IMAGES).square().mean().backward()
    optimizer.step()
    result = deliver(net, tmp_path)
    before = net.prepared.graph
    after = convert(net).graph
    np.testing.assert_array_equal(after.values("head.conv.weight"), before.values("head.conv.weight"))
    assert not np.array_equal(after.values("stem.conv.weight"), before.values("stem.conv.weight"))
    assert onnxq.load(result.model).output_names == ["logits"]


@pytest.mark.parametrize("batch_norms", ["folded", "live"])
def test_the_graph_of_a_trained_net_is_the_one_that_is_converted(batch_norms: str) -> None:
    net = trained(prepared("tensorrt", {"weight": {"fake_quantizer": "dorefa"}}, batch_norms=batch_norms), 2)
    graph, converted = net.to_graph(), convert(net).graph
    assert {node.domain for node in graph.nodes()} == {""}
    for constant in converted.constants():
        np.testing.assert_array_equal(graph.values(constant.name), converted.values(constant.name))


def test_overrides_of_quantizers_for_improvements_are_not_silently_dropped() -> None:
    data = {"image": demo.load_data().calibration[:4]}
    asked = prepare(demo.model_path(), "tensorrt", data, {"effort": 2})
    assert any("training starts from plain calibration" in note for note in asked.notes)
    assert not any("plain calibration" in note for note in prepare(demo.model_path(), "tensorrt", data).notes)
