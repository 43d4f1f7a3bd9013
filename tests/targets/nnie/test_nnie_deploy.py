"""The float model for the NNIE mapper: Upsample instead of Resize, legal ONNX where that is possible."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from onnxq.graph import Graph
from onnxq.targets.nnie.deploy import mapper_model
from onnxq.types import QParamsTable, QuantPlan
from tests.formats.written import write_golden
from tests.golden_graphs import GOLDEN
from tests.zoo_graphs.net import Net

NO_PLAN = (QuantPlan("nnie", {}), QParamsTable())


def run(model, feed):
    options = ort.SessionOptions()
    options.log_severity_level = 3
    return ort.InferenceSession(model.SerializeToString(), options).run(None, feed)


def deployed(net):
    graph = Graph.from_model(net.model())
    graph.infer_shapes()
    return mapper_model(graph, *NO_PLAN)


@pytest.mark.parametrize("name", ["detector", "concat"])
def test_the_model_runs_in_the_last_opset_with_upsample(name, tmp_path):
    write_golden(name, "nnie", tmp_path)
    model = onnx.load(tmp_path / "model_deploy_model.onnx")
    onnx.checker.check_model(model, full_check=True)
    assert model.opset_import[0].version == 9
    ops = [node.op_type for node in model.graph.node]
    assert "Upsample" in ops
    assert "Resize" not in ops
    golden = GOLDEN[name]()
    for sample in golden.samples[:3]:
        for wanted, found in zip(run(golden.model, sample), run(model, sample), strict=True):
            # Weights are clipped to their range, which is at most 2 % below the largest of them.
            assert 20 * np.log10(np.abs(wanted).max() / np.abs(found - wanted).max()) > 20


def test_without_resize_the_opset_stays(tmp_path):
    written = write_golden("residual", "nnie", tmp_path)
    model = onnx.load(tmp_path / "model_deploy_model.onnx")
    assert model.opset_import[0].version == written.graph.opset
    onnx.checker.check_model(model, full_check=True)


def every_operator():
    """Operators that opset 9 writes in another way, all of them exact."""
    net = Net("lowered")
    x = net.input("x", [1, 4, 6, 6])
    y = net.node("Clip", net.conv(x, 4, 4), net.floats(-1.0), net.floats(2.5))
    y = net.node("Pad", y, net.ints(0, 0, 1, 0, 0, 0, 1, 0), net.floats(0.5))
    y = net.node("Slice", y, net.ints(1), net.ints(7), net.ints(-2))
    y = net.node("Concat", y, x, axis=-3)
    y = net.node("BatchNormalization", y, *(net.floats(np.full(8, value)) for value in (1.5, 0.2, 0.1, 2.0)))
    y = net.node("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2], ceil_mode=0)
    scales = net.floats([1.0, 1.0, 2.0, 2.0])
    y = net.node("Resize", y, "", scales, coordinate_transformation_mode="half_pixel", mode="nearest")
    y = net.node("AveragePool", y, kernel_shape=[3, 3], strides=[3, 3])
    y = net.node("Squeeze", net.node("Unsqueeze", y, net.ints(-1)), net.ints(4))
    y = net.node("Flatten", y, axis=-3)
    y = net.node("Softmax", net.node("Gemm", y, net.weight(32, 5)), axis=-1)
    net.output(net.node("Reshape", y, net.ints(1, 5, 1)))
    return net


def test_rewritten_operators_compute_the_same():
    net = every_operator()
    graph, notes = deployed(net)
    model = graph.to_model()
    assert notes == []
    onnx.checker.check_model(model, full_check=True)
    assert model.opset_import[0].version == 9
    feed = {"x": np.random.default_rng(3).normal(size=(1, 4, 6, 6)).astype(np.float32)}
    np.testing.assert_allclose(run(model, feed)[0], run(net.model(), feed)[0], rtol=1e-6, atol=1e-7)


def doubled(net, x, **attributes):
    scales = net.floats([1.0, 1.0, 2.0, 2.0])
    return net.node("Resize", x, "", scales, **{"coordinate_transformation_mode": "asymmetric", **attributes})


def test_sizes_instead_of_scales_are_understood():
    net = Net("sizes")
    net.input("x", [1, 2, 3, 5])
    attributes = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    net.output(net.node("Resize", "x", "", "", net.ints(1, 2, 6, 10), **attributes))
    graph, notes = deployed(net)
    assert notes == []
    feed = {"x": np.arange(30, dtype=np.float32).reshape(1, 2, 3, 5)}
    assert np.array_equal(run(graph.to_model(), feed)[0], run(net.model(), feed)[0])


def test_what_opset_9_cannot_say_is_a_note_that_names_the_node():
    net = Net("ceil")
    net.input("x", [1, 2, 7, 7])
    pooled = net.node("MaxPool", "x", kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1, name="pool")
    net.output(doubled(net, pooled, nearest_mode="floor"))
    graph, (note,) = deployed(net)
    assert "MaxPool 'pool': ceil_mode = 1 came with a later opset" in note
    assert graph.opset == net.opset
    (node,) = graph.nodes("Upsample")
    assert [graph.is_constant(tensor) for tensor in node.inputs] == [False, True]


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"mode": "linear"}, "mode 'linear'"),
        ({"coordinate_transformation_mode": "align_corners"}, "take other pixels"),
        ({"nearest_mode": "ceil"}, "take other pixels"),
    ],
)
def test_a_resize_that_is_no_upsample_stays_and_is_said(attributes, reason):
    net = Net("other")
    net.input("x", [1, 2, 4, 4])
    net.output(doubled(net, "x", **attributes))
    graph, (note,) = deployed(net)
    assert reason in note
    assert [node.op for node in graph.nodes()] == ["Resize"]
