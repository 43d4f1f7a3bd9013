"""fuse_conv_bias, fuse_conv_scale and batchnorm_to_conv: what joins a convolution, and what must not."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxq.graph import Graph
from onnxq.passes import run_passes
from tests.passes.equivalence import assert_pass_keeps_outputs, build_model

RNG = np.random.default_rng(5)
PASS_OF = {"Add": "fuse_conv_bias", "Mul": "fuse_conv_scale"}


def random(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return np.asarray(RNG.standard_normal(shape)).astype(dtype)


def ops(graph) -> list[str]:
    return [node.op for node in graph.nodes()]


def conv_model(op: str, operand: np.ndarray, *, bias: bool = True, layer: str = "Conv", first: bool = False, **attrs):
    group = attrs.get("group", 1)
    weight = random(6, 4 // group, 3, 3) if layer == "Conv" else random(4, 6 // group, 3, 3)
    constants = {"w": weight, "k": operand, **({"b": random(6)} if bias else {})}
    nodes = [
        helper.make_node(layer, ["x", "w", *(["b"] if bias else [])], ["c"], name="conv", **attrs),
        helper.make_node(op, ["k", "c"] if first else ["c", "k"], ["y"], name="after"),
    ]
    return build_model(nodes, {"x": [1, 4, 5, 5]}, ["y"], constants)


@pytest.mark.parametrize("op", ["Add", "Mul"])
@pytest.mark.parametrize("shape", [(6, 1, 1), (1, 6, 1, 1), (), (1,), (1, 1, 1, 1)])
@pytest.mark.parametrize("bias", [True, False])
def test_one_value_per_channel_joins_the_conv(op, shape, bias):
    model = conv_model(op, random(*shape), bias=bias, first=bias)
    graph, report = assert_pass_keeps_outputs(model, PASS_OF[op], {"x": random(1, 4, 5, 5)})
    assert ops(graph) == ["Conv"]
    assert len(report.changed) == 1
    assert graph.origins.current_node("after") == "conv"


@pytest.mark.parametrize("op", ["Add", "Mul"])
@pytest.mark.parametrize(("layer", "group"), [("Conv", 2), ("ConvTranspose", 1), ("ConvTranspose", 2)])
def test_groups_and_transposed_convolutions(op, layer, group):
    model = conv_model(op, random(6, 1, 1), layer=layer, group=group)
    graph, _ = assert_pass_keeps_outputs(model, PASS_OF[op], {"x": random(1, 4, 5, 5)})
    assert ops(graph) == [layer]


@pytest.mark.parametrize("op", ["Add", "Mul"])
@pytest.mark.parametrize("shape", [(3,), (6, 3, 3), (2, 6, 1, 1), (1, 1, 6, 1, 1)])
def test_other_shapes_stay(op, shape):
    model = conv_model(op, random(*shape))
    graph, report = assert_pass_keeps_outputs(model, PASS_OF[op], {"x": random(1, 4, 5, 5)})
    assert ops(graph) == ["Conv", op]
    assert report.declined == (
        f"node 'after' ({op}): its constant of shape {list(shape)} is not one value for each of 6 channels",
    )


@pytest.mark.parametrize("op", ["Add", "Mul"])
def test_a_conv_output_with_another_reader_stays(op):
    constants = {"w": random(6, 4, 3, 3), "k": random(6, 1, 1)}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv"),
        helper.make_node(op, ["c", "k"], ["y"], name="after"),
        helper.make_node("Relu", ["c"], ["z"], name="relu"),
    ]
    model = build_model(nodes, {"x": [1, 4, 5, 5]}, ["y", "z"], constants)
    _, report = assert_pass_keeps_outputs(model, PASS_OF[op], {"x": random(1, 4, 5, 5)})
    assert "also read by node 'relu'" in report.declined[0]


def test_a_residual_addition_is_not_even_mentioned():
    constants = {"w": random(4, 4, 1, 1)}
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"]), helper.make_node("Add", ["c", "x"], ["y"])]
    model = build_model(nodes, {"x": [1, 4, 5, 5]}, ["y"], constants)
    _, report = assert_pass_keeps_outputs(model, "fuse_conv_bias", {"x": random(1, 4, 5, 5)})
    assert (report.changed, report.declined) == ((), ())


def test_a_bias_joins_a_conv_whose_weight_is_computed_but_a_factor_does_not():
    for op in ("Add", "Mul"):
        nodes = [
            helper.make_node("Conv", ["x", "w"], ["c"], name="conv"),
            helper.make_node(op, ["c", "k"], ["y"], name="after"),
        ]
        model = build_model(nodes, {"x": [1, 4, 5, 5], "w": [6, 4, 1, 1]}, ["y"], {"k": random(6, 1, 1)})
        feeds = {"x": random(1, 4, 5, 5), "w": random(6, 4, 1, 1)}
        if op == "Add":
            graph, _ = assert_pass_keeps_outputs(model, PASS_OF[op], feeds)
            assert ops(graph) == ["Conv"]
        else:
            _, report = assert_pass_keeps_outputs(model, PASS_OF[op], feeds)
            assert "weight 'w' of node 'conv' (Conv) is not a constant" in report.declined[0]


@pytest.mark.parametrize("op", ["Add", "Mul"])
def test_float16_inside_a_branch_with_constant_nodes(op):
    def branch(name: str):
        value = numpy_helper.from_array(random(6, 1, 1, dtype=np.float16))
        nodes = [
            helper.make_node("Constant", [], [f"{name}_k"], value=value),
            helper.make_node("Conv", ["x", "w"], [f"{name}_c"], name=f"{name}_conv"),
            helper.make_node(op, [f"{name}_c", f"{name}_k"], [f"{name}_y"]),
        ]
        return helper.make_graph(
            nodes, name, [], [helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT16, [1, 6, 3, 3])]
        )

    nodes = [
        helper.make_node("ReduceMax", ["x"], ["m"], keepdims=0),
        helper.make_node("Cast", ["m"], ["condition"], to=TensorProto.BOOL),
        helper.make_node("If", ["condition"], ["y"], then_branch=branch("t"), else_branch=branch("e")),
    ]
    model = build_model(
        nodes,
        {"x": [1, 4, 3, 3]},
        ["y"],
        {"w": random(6, 4, 1, 1, dtype=np.float16)},
        element_type=TensorProto.FLOAT16,
    )
    feeds = {"x": random(1, 4, 3, 3, dtype=np.float16)}
    graph, _ = assert_pass_keeps_outputs(model, PASS_OF[op], feeds, rtol=5e-3)  # float16 has 11 bits
    assert op not in ops(graph)
    assert "Constant" not in ops(graph)


def batchnorm_model(shape: list[int], dtype: type = np.float32, opset: int = 17):
    channels = shape[1]
    constants = {
        "gamma": random(channels, dtype=dtype),
        "beta": random(channels, dtype=dtype),
        "mean": random(channels, dtype=dtype),
        "var": RNG.uniform(0.5, 2, channels).astype(dtype),
    }
    node = helper.make_node("BatchNormalization", ["x", "gamma", "beta", "mean", "var"], ["y"], name="bn")
    element_type = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return build_model([node], {"x": shape}, ["y"], constants, opset=opset, element_type=element_type)


@pytest.mark.parametrize("opset", [8, 13, 17])
@pytest.mark.parametrize("shape", [[2, 3, 5], [2, 3, 4, 4], [1, 2, 3, 3, 3]])
def test_batchnorm_becomes_a_depthwise_conv(shape, opset):
    model = batchnorm_model(shape, opset=opset)
    graph, report = assert_pass_keeps_outputs(model, "batchnorm_to_conv", {"x": random(*shape)})
    node = graph.node("bn")
    assert (node.op, node.attrs["group"], len(report.changed)) == ("Conv", shape[1], 1)
    assert graph.shape(node.inputs[1]) == (shape[1], *[1] * (len(shape) - 1))


def test_batchnorm_becomes_a_float16_conv():
    feeds = {"x": random(2, 3, 4, 4, dtype=np.float16)}
    graph, _ = assert_pass_keeps_outputs(
        batchnorm_model([2, 3, 4, 4], np.float16), "batchnorm_to_conv", feeds, rtol=5e-3
    )
    assert graph.dtype(graph.node("bn").inputs[1]) == np.float16


def test_batchnorm_of_a_matrix_stays():
    _, report = assert_pass_keeps_outputs(batchnorm_model([2, 3]), "batchnorm_to_conv", {"x": random(2, 3)})
    assert report.declined == ("node 'bn' (BatchNormalization): a Conv needs a spatial axis, and 'x' has only 2 axes",)


def test_batchnorm_of_float64_stays():
    model = batchnorm_model([2, 3, 4, 4], np.float64)
    _, report = assert_pass_keeps_outputs(model, "batchnorm_to_conv", {"x": random(2, 3, 4, 4, dtype=np.float64)})
    assert "no Conv for float64" in report.declined[0]


def test_batchnorm_of_unknown_rank_stays():
    model = batchnorm_model([2, 3, 4, 4])
    for info in (model.graph.input[0], model.graph.output[0]):
        info.type.tensor_type.ClearField("shape")
    graph = Graph.from_model(model)
    report = run_passes(graph, ["batchnorm_to_conv"])[0]
    assert report.declined == ("node 'bn' (BatchNormalization): the rank of 'x' is not known",)
    assert ops(graph) == ["BatchNormalization"]


def test_the_new_bias_has_the_type_of_the_constant_when_no_other_is_known():
    nodes = [
        helper.make_node("Identity", ["v"], ["w"]),
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv"),
        helper.make_node("Add", ["c", "k"], ["y"], name="after"),
    ]
    model = build_model(nodes, {"x": [1, 4, 5, 5], "v": [6, 4, 1, 1]}, ["y"], {"k": random(6, 1, 1)})
    graph = Graph.from_model(model)
    graph.tensor("w").shape = [6, 4, 1, 1]
    run_passes(graph, ["fuse_conv_bias"])
    assert graph.dtype("conv_bias") == np.float32
