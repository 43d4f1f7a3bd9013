"""A fake-quantizer that is switched off is off in the file, and the check compares with the net as it was left."""

from __future__ import annotations

import copy
import warnings
from pathlib import Path

import pytest
import torch

from onnxq.graph import Graph
from onnxq.qat import QatNet, deliver
from tests.qat.digits_qat import DATA, prepared

IMAGES = torch.from_numpy(DATA.test_images[:8])


def second(net: QatNet, role: str) -> str:
    """The second fake-quantizer of a role, which stands inside of the network."""
    return [name for name, module in net.fake_quantizers.items() if module.role == role][1]


@pytest.mark.parametrize("role", ["weight", "activation"])
@pytest.mark.parametrize("backend", ["tensorrt", "vitis", "snpe", "onnx_qnn"])
def test_what_is_off_is_off_in_the_file(backend: str, role: str, tmp_path: Path) -> None:
    net = prepared(backend)
    name = second(net, role)
    net.eval()
    with torch.no_grad():
        before = net(IMAGES)
        net.fake_quantizers[name].disable_fake_quant()
        after = net(IMAGES)
    assert not torch.equal(before, after)
    result = deliver(net, tmp_path)
    assert result.plan[name].observe_only
    assert dict(result.plan[name].set_by)["observe_only"] == "the switch of its fake-quantizer"
    assert not net.fake_quantizers[name].quantizing  # as the user left it
    (logits,) = result.report["file_against_net"]
    assert logits["within"] == 1.0
    assert any(name in note for note in result.report["notes"])
    written = Graph.load(result.model)
    if written.has_tensor(name):
        assert not any(use.node.op == "QuantizeLinear" for use in written.consumers(name))


def test_a_bias_stays_float_where_what_its_scale_derives_from_is_off(tmp_path: Path) -> None:
    net = prepared("onnxruntime")
    bias = next(name for name, placement in net.carried_out.placements.items() if placement.derive is not None)
    weight = net.carried_out[bias].derive
    assert weight is not None
    module = net.fake_quantizers[bias]
    values = net.value(bias)
    assert not torch.equal(module(values), values)
    net.fake_quantizer(weight.weight).disable_fake_quant()
    assert torch.equal(module(values), values)
    (logits,) = deliver(net, tmp_path).report["file_against_net"]
    assert logits["within"] == 1.0


def test_a_copy_of_a_net_has_its_switches() -> None:
    net = prepared("tensorrt")
    name = second(net, "weight")
    net.fake_quantizers[name].disable_fake_quant()
    net.fake_quantizers[name].enable_observer()
    twin = copy.deepcopy(net).fake_quantizers[name]
    assert (twin.quantizing, twin.observing, twin.observing_in_eval) == (False, True, True)


def test_an_observer_that_is_switched_on_follows_in_eval_too_and_others_say_that_they_do_not() -> None:
    net = prepared("tensorrt").eval()
    module = net.fake_quantizers[second(net, "activation")]
    before = module.to_qparams()
    with torch.no_grad():
        net(3 * IMAGES)
        assert module.to_qparams() == before
        module.enable_observer()
        net(3 * IMAGES)
    assert module.to_qparams() != before
    module.disable_observer()
    assert not module.observing
    other = prepared("tensorrt", {"activation": {"observer": "mse"}})
    module = other.fake_quantizers[second(other, "activation")]
    with pytest.warns(UserWarning, match="training follows no other observer"):
        module.enable_observer()
    assert not module.observing
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        module.disable_observer()
