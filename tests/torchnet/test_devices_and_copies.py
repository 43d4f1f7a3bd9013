"""Nets on another device, in several threads, copied: nothing of one net or device may stay in another."""

from __future__ import annotations

import copy
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper

from onnxq.errors import DataError
from onnxq.graph import Graph
from onnxq.torchnet import TorchNet, to_torch


def net_of(text: str, **constants: np.ndarray) -> TorchNet:
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')
    for name, values in constants.items():
        model.graph.initializer.append(numpy_helper.from_array(values, name))
    return to_torch(Graph.from_model(model))


MADE = {
    "a shape": "g (float[n, c] x) => (int64[m] y) { s = Shape(x) y = Concat<axis = 0>(s, extra) }",
    "a size": "g (float[n, c] x) => (int64[m] y) { s = Size(x) y = Mul(s, extra) }",
    "packed weights": "g (float[n, c] x) => (float[n, c] y) { w = DequantizeLinear(packed, scale) y = Add(x, w) }",
}


@pytest.mark.parametrize("what", sorted(MADE))
def test_what_a_node_makes_is_where_its_inputs_are(what: str) -> None:
    constants = {
        "extra": np.array([2], np.int64),
        "scale": np.array(0.5, np.float32),
        "packed": np.array([[1, 2, 3]]).astype(ml_dtypes.uint4),
    }
    net = net_of(MADE[what], **{name: values for name, values in constants.items() if name in MADE[what]})
    assert net.to("meta")(torch.zeros(2, 3, device="meta")).device.type == "meta"


def test_run_takes_inputs_to_the_device_of_the_net() -> None:
    net = net_of("g (float[n, 3] x) => (float[n, 2] y) { y = MatMul(x, w) }", w=np.ones((3, 2), np.float32))
    assert net.to("meta").run({"x": np.ones((4, 3), np.float32)})["y"].device.type == "meta"
    assert net.run({"x": torch.ones(4, 3)})["y"].shape == (4, 2)


def test_threads_that_share_a_net_do_not_share_what_its_branches_read() -> None:
    net = net_of(
        """g (float[n] x, bool c) => (float[n] y) {
             z = Mul(x, x)
             y = If(c)<then_branch = yes () => (float[n] a) { a = Add(z, x) },
                       else_branch = no () => (float[n] b) { b = Sub(z, x) }>
           }"""
    ).eval()
    inputs = [torch.full((500,), float(number)) for number in range(400)]
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda x: net(x, torch.tensor(True)), inputs))
    finally:
        sys.setswitchinterval(usual)
    for x, y in zip(inputs, found, strict=True):
        assert torch.equal(y, x * x + x)


def test_pickle_says_what_to_save_instead() -> None:
    net = net_of("g (float[n, 3] x) => (float[n, 2] y) { y = MatMul(x, w) }", w=np.ones((3, 2), np.float32))
    with pytest.raises(TypeError, match="save its `state_dict"):
        pickle.dumps(net)


def test_a_copy_keeps_what_is_trained_and_where() -> None:
    net = net_of("g (float[n, 3] x) => (float[n, 2] y) { y = MatMul(x, w) }", w=np.ones((3, 2), np.float32))
    net.get_parameter("w").requires_grad_(False)
    twin = copy.deepcopy(net.to("meta"))
    assert twin.get_parameter("w").device.type == "meta"
    assert not twin.get_parameter("w").requires_grad


def test_a_sequence_is_not_called_wrong_when_something_else_is() -> None:
    net = net_of(
        "g (seq(float[n]) s, float[n, 2] x) => (float[m] y, float[n, 2] z) "
        "{ y = ConcatFromSequence<axis = 0>(s) z = Relu(x) }"
    )
    with pytest.raises(DataError, match="input 'x' has the shape"):
        net([torch.ones(2), torch.ones(2, 2)], torch.ones(3, 5))
