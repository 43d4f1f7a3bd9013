"""A small network, and the plans that configurations make of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
from onnx import numpy_helper

from onnxq.graph import Graph
from onnxq.session.prepare import make_plan, prepare
from onnxq.types import QuantPlan

NETWORK = """
    [conv1] a = Conv <pads = [1,1,1,1]> (x, w1, b1)
    [relu1] r = Relu (a)
    [conv2] c = Conv <pads = [1,1,1,1]> (r, w2, b2)
    [add1] s = Add (c, r)
    [gate] g = Sigmoid (s)
    [mul1] m = Mul (s, g)
    [pool] p = GlobalAveragePool (m)
    [flat] f = Flatten (p)
    [fc] o = Gemm (f, w3, b3)
"""
WEIGHTS = {"w1": (8, 4, 3, 3), "b1": (8,), "w2": (8, 8, 3, 3), "b2": (8,), "w3": (8, 10), "b3": (10,)}


def network() -> onnx.ModelProto:
    text = f'<ir_version: 9, opset_import: ["" : 17]> g (float[n,4,8,8] x) => (float[n,10] o) {{ {NETWORK} }}'
    model = onnx.parser.parse_model(text)
    random = np.random.default_rng(0)
    for name, shape in WEIGHTS.items():
        model.graph.initializer.append(numpy_helper.from_array(random.normal(size=shape).astype(np.float32), name))
    return model


def plan_of(config: dict[str, Any], backend: str = "qnn") -> QuantPlan:
    return make_plan(prepare(Graph.from_model(network()), backend, config))
