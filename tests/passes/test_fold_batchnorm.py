"""fold_batchnorm: exact where it folds, silent nowhere."""

from __future__ import annotations

import time

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxq.graph import Graph
from onnxq.passes import run_passes
from tests.passes.equivalence import assert_pass_keeps_outputs, build_model

RNG = np.random.default_rng(7)


def random(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def statistics(channels: int, dtype: type = np.float32, shift: bool = True) -> dict[str, np.ndarray]:
    zeros = np.zeros(channels, dtype)
    return {
        "gamma": (RNG.uniform(0.5, 2, channels) * RNG.choice([-1, 1], channels)).astype(dtype),
        "beta": random(channels, dtype=dtype) if shift else zeros,
        "mean": random(channels, dtype=dtype) if shift else zeros,
        "var": RNG.uniform(0.2, 3, channels).astype(dtype),
    }


def batchnorm(source: str, target: str, **attributes):
    return helper.make_node(
        "BatchNormalization", [source, "gamma", "beta", "mean", "var"], [target], name="bn", **attributes
    )


def ops(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes()]


@pytest.mark.parametrize("opset", [7, 8, 9, 11, 13, 14, 15, 17, 20, 22, 24])
@pytest.mark.parametrize("bias", [True, False])
def test_batchnorm_after_conv_goes_into_weight_and_bias(opset, bias):
    constants = {"w": random(6, 4, 3, 3), **({"b": random(6)} if bias else {}), **statistics(6)}
    conv = helper.make_node("Conv", ["x", "w", *(["b"] if bias else [])], ["c"], name="conv", pads=[1, 1, 1, 1])
    model = build_model(
        [conv, batchnorm("c", "y", epsilon=1e-3)], {"x": [2, 4, 5, 5]}, {"y": [2, 6, 5, 5]}, constants, opset=opset
    )
    graph, report = assert_pass_keeps_outputs(model, "fold_batchnorm", {"x": random(2, 4, 5, 5)})
    assert ops(graph) == ["Conv"]
    assert report.changed == ("node 'bn' (BatchNormalization): folded into node 'conv' (Conv) before it",)
    assert graph.origins.current_node("bn") == "conv"
    assert graph.origins.current_tensor("c") == "y"
    assert sorted(c.name for c in graph.constants()) == ["b" if bias else "conv_bias", "w"]


@pytest.mark.parametrize("group", [1, 2, 4])
def test_batchnorm_after_grouped_conv_transpose(group):
    constants = {"w": random(4, 3, 3, 3), "b": random(3 * group), **statistics(3 * group)}
    conv = helper.make_node("ConvTranspose", ["x", "w", "b"], ["c"], name="up", group=group, strides=[2, 2])
    model = build_model([conv, batchnorm("c", "y")], {"x": [1, 4, 4, 4]}, ["y"], constants)
    graph, _ = assert_pass_keeps_outputs(model, "fold_batchnorm", {"x": random(1, 4, 4, 4)})
    assert ops(graph) == ["ConvTranspose"]


@pytest.mark.parametrize(("group", "rank"), [(1, 1), (2, 2), (4, 3)])
def test_batchnorm_after_grouped_conv_of_any_rank(group, rank):
    constants = {"w": random(8, 4 // group, *[2] * rank), **statistics(8)}
    conv = helper.make_node("Conv", ["x", "w"], ["c"], group=group)
    shape = [1, 4, *[4] * rank]
    model = build_model([conv, batchnorm("c", "y")], {"x": shape}, ["y"], constants)
    graph, _ = assert_pass_keeps_outputs(model, "fold_batchnorm", {"x": random(*shape)})
    assert ops(graph) == ["Conv"]


@pytest.mark.parametrize("trans_b", [0, 1])
@pytest.mark.parametrize("c_shape", [None, (), (1,), (5,), (1, 5), (3, 1), (3, 5)])
def test_batchnorm_after_gemm_keeps_alpha_and_beta_right(trans_b, c_shape):
    constants = {"w": random(*((5, 4) if trans_b else (4, 5))), **statistics(5)}
    if c_shape is not None:
        constants["b"] = random(*c_shape)
    inputs = ["x", "w", *(["b"] if c_shape is not None else [])]
    gemm = helper.make_node("Gemm", inputs, ["g"], transB=trans_b, alpha=0.5, beta=3.0)
    model = build_model([gemm, batchnorm("g", "y")], {"x": [3, 4]}, ["y"], constants)
    graph, _ = assert_pass_keeps_outputs(model, "fold_batchnorm", {"x": random(3, 4)})
    assert ops(graph) == ["Gemm"]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("with_add", [True, False])
def test_batchnorm_after_matmul_leaves_matmul_and_add(with_add, dtype):
    constants = {"w": random(4, 5, dtype=dtype), **statistics(5, dtype)}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"], name="mm")]
    if with_add:
        constants["b"] = random(5, dtype=dtype)
        nodes.append(helper.make_node("Add", ["b", "m"], ["a"], name="add"))
    nodes.append(batchnorm("a" if with_add else "m", "y"))
    element_type = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    model = build_model(nodes, {"x": [3, 4]}, ["y"], constants, element_type=element_type)
    graph, _ = assert_pass_keeps_outputs(model, "fold_batchnorm", {"x": random(3, 4, dtype=dtype)})
    assert sorted(ops(graph)) == ["Add", "MatMul"]
    assert graph.values(graph.node("mm").inputs[1]).dtype == dtype


def test_matmul_of_three_dimensions_is_declined_because_channels_are_on_another_axis():
    constants = {"w": random(4, 5), **statistics(5)}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), batchnorm("m", "y")]
    model = build_model(nodes, {"x": [2, 5, 4]}, ["y"], constants)
    graph, report = assert_pass_keeps_outputs(model, "fold_batchnorm", {"x": random(2, 5, 4)})
    assert ops(graph) == ["MatMul", "BatchNormalization"]
    assert "axis 1 of 3 axes" in report.declined[0]


@pytest.mark.parametrize("group", [1, 2, 4])
def test_batchnorm_before_unpadded_conv(group):
    constants = {"w": random(8, 4 // group, 3, 3), **statistics(4)}
    conv = helper.make_node("Conv", ["n", "w"], ["y"], group=group, name="conv")
    model = build_model([batchnorm("x", "n"), conv], {"x": [1, 4, 6, 6]}, ["y"], constants)
    graph, report = assert_pass_keeps_outputs(model, "fold_batchnorm", {"x": random(1, 4, 6, 6)})
    assert ops(graph) == ["Conv"]
    assert "after it" in report.changed[0]


@pytest.mark.parametrize("padding", [{"pads": [1, 1, 1, 1]}, {"auto_pad": "SAME_UPPER"}])
@pytest.mark.parametrize("shift", [True, False])
def test_batchnorm_before_padded_conv_folds_only_without_shift(shift, padding):
    constants = {"w": random(8, 4, 3, 3), **statistics(4, shift=shift)}
    conv = helper.make_node("Conv", ["n", "w"], ["y"], name="conv", **padding)
    model = build_model([batchnorm("x", "n"), conv], {"x": [1, 4, 6, 6]}, ["y"], constants)
    graph, report = assert_pass_keeps_outputs(model, "fold_batchnorm", {"x": random(1, 4, 6, 6)})
    assert ops(graph) == (["BatchNormalization", "Conv"] if shift else ["Conv"])
    if shift:
        assert report.declined[0].startswith("node 'bn' (BatchNormalization): node 'conv' (Conv) after it pads")


@pytest.mark.parametrize("trans_b", [0, 1])
@pytest.mark.parametrize("bias", [True, False])
def test_batchnorm_before_gemm(trans_b, bias):
    constants = {"w": random(*((5, 4) if trans_b else (4, 5))), **statistics(4), **({"b": random(5)} if bias else {})}
    inputs = ["n", "w", *(["b"] if bias else [])]
    gemm = helper.make_node("Gemm", inputs, ["y"], transB=trans_b, alpha=2.0, beta=0.5)
    model = build_model([batchnorm("x", "n"), gemm], {"x": [3, 4]}, ["y"], constants)
    graph, _ = assert_pass_keeps_outputs(model, "fold_batchnorm", {"x": random(3, 4)})
    assert ops(graph) == ["Gemm"]


@pytest.mark.parametrize("with_add", [True, False])
def test_batchnorm_before_matmul_needs_one_add(with_add):
    constants = {"w": random(4, 5), **statistics(4), **({"b": random(1, 5)} if with_add else {})}
    nodes = [batchnorm("x", "n"), helper.make_node("MatMul", ["n", "w"], ["m" if with_add else "y"])]
    if with_add:
        nodes.append(helper.make_node("Add", ["m", "b"], ["y"]))
    model = build_model(nodes, {"x": [3, 4]}, ["y"], constants)
    graph, _ = assert_pass_keeps_outputs(model, "fold_batchnorm", {"x": random(3, 4)})
    assert sorted(ops(graph)) == ["Add", "MatMul"]


def test_two_batchnorms_in_a_row_and_one_between_two_convs():
    constants = {"w": random(4, 4, 1, 1), "v": random(3, 4, 3, 3), **statistics(4)}
    second = helper.make_node("BatchNormalization", ["n", "gamma", "beta", "mean", "var"], ["o"], name="bn2")
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv"),
        batchnorm("c", "n"),
        second,
        helper.make_node("Conv", ["o", "v"], ["y"], name="conv2", pads=[1, 1, 1, 1]),
    ]
    model = build_model(nodes, {"x": [1, 4, 5, 5]}, ["y"], constants)
    graph, report = assert_pass_keeps_outputs(model, "fold_batchnorm", {"x": random(1, 4, 5, 5)})
    assert ops(graph) == ["Conv", "Conv"]
    assert len(report.changed) == 2


def test_a_shared_weight_is_copied_and_the_other_reader_keeps_the_original():
    constants = {"w": random(4, 4, 1, 1), **statistics(4)}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv"),
        batchnorm("c", "y"),
        helper.make_node("Conv", ["x", "w"], ["z"], name="other"),
    ]
    model = build_model(nodes, {"x": [1, 4, 3, 3]}, ["y", "z"], constants)
    graph, report = assert_pass_keeps_outputs(model, "fold_batchnorm", {"x": random(1, 4, 3, 3)})
    assert graph.node("other").inputs[1].name == "w"
    copy = graph.node("conv").inputs[1].name
    assert graph.origins.copies == {copy: "w"}
    assert f"reads its own '{copy}'" in report.changed[0]


def test_weights_and_statistics_in_constant_nodes():
    values = {"w": random(4, 3, 1, 1), **statistics(4)}
    nodes = [helper.make_node("Constant", [], [k], value=numpy_helper.from_array(v)) for k, v in values.items()]
    nodes += [helper.make_node("Conv", ["x", "w"], ["c"], name="conv"), batchnorm("c", "y")]
    model = build_model(nodes, {"x": [1, 3, 3, 3]}, ["y"])
    graph, _ = assert_pass_keeps_outputs(model, "fold_batchnorm", {"x": random(1, 3, 3, 3)})
    assert ops(graph) == ["Conv"]
    assert graph.node("conv").inputs[1].dtype == np.float32


def test_float16_weights_stay_float16():
    constants = {"w": random(4, 3, 1, 1, dtype=np.float16), **statistics(4, np.float16)}
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], name="conv"), batchnorm("c", "y")]
    model = build_model(nodes, {"x": [1, 3, 3, 3]}, ["y"], constants, element_type=TensorProto.FLOAT16)
    feeds = {"x": random(1, 3, 3, 3, dtype=np.float16)}
    graph, _ = assert_pass_keeps_outputs(model, "fold_batchnorm", feeds, rtol=5e-3)  # float16 has 11 bits
    assert graph.values("w").dtype == np.float16


def test_a_weight_that_would_overflow_float16_is_declined():
    constants = {"w": np.full((1, 1, 1, 1), 6e4, np.float16), **statistics(1, np.float16)}
    constants["gamma"] = np.array([100], np.float16)
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"]), batchnorm("c", "y")]
    model = build_model(nodes, {"x": [1, 1, 3, 3]}, ["y"], constants, element_type=TensorProto.FLOAT16)
    feeds = {"x": np.full((1, 1, 3, 3), 1e-4, np.float16)}
    graph, report = assert_pass_keeps_outputs(model, "fold_batchnorm", feeds)
    assert ops(graph) == ["Conv", "BatchNormalization"]
    assert "would not be finite in float16" in report.declined[0]


def test_inside_a_branch_with_weights_of_the_outer_graph():
    def branch(scale: float):
        nodes = [
            helper.make_node("Constant", [], ["f"], value=numpy_helper.from_array(np.float32(scale))),
            helper.make_node("Mul", ["x", "f"], ["s"]),
            helper.make_node("Conv", ["s", "w"], ["c"], name="conv"),
            batchnorm("c", "r"),
        ]
        return helper.make_graph(
            nodes, "branch", [], [helper.make_tensor_value_info("r", TensorProto.FLOAT, [1, 4, 3, 3])]
        )

    nodes = [
        helper.make_node("ReduceMax", ["x"], ["m"], keepdims=0),
        helper.make_node("Cast", ["m"], ["condition"], to=TensorProto.BOOL),
        helper.make_node("If", ["condition"], ["y"], then_branch=branch(1.0), else_branch=branch(2.0)),
    ]
    constants = {"w": random(4, 3, 1, 1), **statistics(4)}
    model = build_model(nodes, {"x": [1, 3, 3, 3]}, ["y"], constants)
    graph, report = assert_pass_keeps_outputs(model, "fold_batchnorm", {"x": random(1, 3, 3, 3)})
    assert "BatchNormalization" not in ops(graph)
    assert len(report.changed) == 2


def test_a_conv_outside_the_branch_that_holds_the_batchnorm_is_declined():
    body = helper.make_graph(
        [batchnorm("c", "r")], "branch", [], [helper.make_tensor_value_info("r", TensorProto.FLOAT, [1, 4, 3, 3])]
    )
    same = helper.make_graph(
        [helper.make_node("Relu", ["x2"], ["q"])],
        "e",
        [],
        [helper.make_tensor_value_info("q", TensorProto.FLOAT, [1, 4, 3, 3])],
    )
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv"),
        helper.make_node("Relu", ["x"], ["x2"]),
        helper.make_node("ReduceMax", ["x"], ["m"], keepdims=0),
        helper.make_node("Cast", ["m"], ["condition"], to=TensorProto.BOOL),
        helper.make_node("If", ["condition"], ["y"], then_branch=body, else_branch=same),
    ]
    model = build_model(nodes, {"x": [1, 4, 3, 3]}, ["y"], {"w": random(4, 4, 1, 1), **statistics(4)})
    graph, report = assert_pass_keeps_outputs(model, "fold_batchnorm", {"x": random(1, 4, 3, 3)})
    assert "BatchNormalization" in ops(graph)
    assert "outside the body" in report.declined[0]


def declined_reason(nodes, outputs=("y",), inputs=None, **changes) -> str:
    constants = {"w": random(4, 3, 1, 1), **statistics(4), **changes}
    model = build_model(nodes, {"x": [1, 3, 3, 3], **(inputs or {})}, list(outputs), constants)
    feeds = {"x": random(1, 3, 3, 3), **{name: random(*shape) for name, shape in (inputs or {}).items()}}
    graph, report = assert_pass_keeps_outputs(model, "fold_batchnorm", feeds)
    assert "BatchNormalization" in ops(graph)
    assert len(report.declined) == 1
    assert report.declined[0].startswith("node 'bn' (BatchNormalization): ")
    return report.declined[0]


CONV = helper.make_node("Conv", ["x", "w"], ["c"], name="conv")


def test_declines_a_conv_output_with_another_reader():
    nodes = [CONV, batchnorm("c", "y"), helper.make_node("Relu", ["c"], ["z"], name="relu")]
    assert "also read by node 'relu'" in declined_reason(nodes, ("y", "z"))


def test_declines_a_conv_output_that_is_a_graph_output():
    assert "'c', made by node 'conv' (Conv), is a graph output" in declined_reason(
        [CONV, batchnorm("c", "y")], ("y", "c")
    )


def test_declines_a_computed_weight():
    nodes = [helper.make_node("Conv", ["x", "v"], ["c"], name="conv"), batchnorm("c", "y")]
    assert "weight 'v' of node 'conv' (Conv) is not a constant" in declined_reason(nodes, inputs={"v": [4, 3, 1, 1]})


def test_declines_a_computed_bias():
    nodes = [helper.make_node("Conv", ["x", "w", "v"], ["c"], name="conv"), batchnorm("c", "y")]
    assert "bias 'v' of node 'conv' (Conv) is not a constant" in declined_reason(nodes, inputs={"v": [4]})


def test_declines_computed_statistics():
    node = helper.make_node("BatchNormalization", ["c", "gamma", "beta", "m", "var"], ["y"], name="bn")
    assert "mean 'm'" in declined_reason([CONV, node], inputs={"m": [4]})


def test_declines_batchnorm_without_a_linear_neighbour():
    nodes = [CONV, helper.make_node("Relu", ["c"], ["r"]), batchnorm("r", "y")]
    assert "no Conv, ConvTranspose, Gemm, MatMul before or after it" in declined_reason(nodes)


def test_declines_a_variance_that_cannot_be_divided_by():
    model = build_model([CONV, batchnorm("c", "y")], {"x": [1, 3, 3, 3]}, ["y"], {
        "w": random(4, 3, 1, 1), **statistics(4), "var": np.array([1, 1, -1, 1], np.float32)
    })  # fmt: skip
    graph = Graph.from_model(model)
    report = run_passes(graph, ["fold_batchnorm"])[0]
    assert "variance + epsilon is -0.99999" in report.declined[0]


def test_declines_training_mode():
    node = helper.make_node(
        "BatchNormalization", ["c", "gamma", "beta", "mean", "var"], ["y", "rm", "rv"], name="bn", training_mode=1
    )
    graph = Graph.from_model(
        build_model([CONV, node], {"x": [1, 3, 3, 3]}, ["y"], {"w": random(4, 3, 1, 1), **statistics(4)})
    )
    report = run_passes(graph, ["fold_batchnorm"])[0]
    assert report.declined == (
        "node 'bn' (BatchNormalization): it is in training mode: its statistics change with every batch",
    )


def test_two_thousand_nodes_take_about_linear_time():
    nodes, constants, source = [], {"w": random(2, 2, 1, 1), **statistics(2)}, "x"
    for i in range(1000):
        nodes.append(helper.make_node("Conv", [source, "w"], [f"c{i}"]))
        nodes.append(helper.make_node("BatchNormalization", [f"c{i}", "gamma", "beta", "mean", "var"], [f"n{i}"]))
        source = f"n{i}"
    graph = Graph.from_model(build_model(nodes, {"x": [1, 2, 1, 1]}, [source], constants))
    start = time.process_time()
    report = run_passes(graph, ["fold_batchnorm"])[0]
    assert len(report.changed) == 1000
    assert time.process_time() - start < 5  # about 0.2 s; a scan of all nodes for every match takes far longer
