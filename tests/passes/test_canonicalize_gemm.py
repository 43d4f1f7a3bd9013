"""canonicalize_gemm: alpha, beta, transA and every shape of C, checked by number."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.passes.equivalence import assert_pass_keeps_outputs, build_model

RNG = np.random.default_rng(11)
M, K, N = 3, 4, 5


def random(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return np.asarray(RNG.standard_normal(shape)).astype(dtype)


def ops(graph) -> list[str]:
    return sorted(node.op for node in graph.nodes())


@pytest.mark.parametrize("trans_a", [0, 1])
@pytest.mark.parametrize("trans_b", [0, 1])
@pytest.mark.parametrize("c_shape", [None, (), (1,), (N,), (1, N), (1, 1), (M, 1), (M, N)])
def test_constant_operands_take_alpha_and_beta(trans_a, trans_b, c_shape):
    constants = {"B": random(*((N, K) if trans_b else (K, N)))}
    if c_shape is not None:
        constants["C"] = random(*c_shape)
    names = ["A", "B", *(["C"] if c_shape is not None else [])]
    node = helper.make_node("Gemm", names, ["Y"], name="gemm", alpha=0.25, beta=3.0, transA=trans_a, transB=trans_b)
    a_shape = (K, M) if trans_a else (M, K)
    model = build_model([node], {"A": a_shape}, {"Y": [M, N]}, constants)
    graph, report = assert_pass_keeps_outputs(model, "canonicalize_gemm", {"A": random(*a_shape)})
    gemm = graph.node("gemm")
    assert {key: value for key, value in gemm.attrs.items() if value} == ({"transB": 1} if trans_b else {})
    assert report.declined == ()
    if c_shape in ((M, 1), (M, N)):
        assert "Add" in ops(graph)
        assert len(gemm.inputs) == 2
    elif c_shape is not None:
        assert graph.shape(gemm.inputs[2]) == (N,)
    assert ("Transpose" in ops(graph)) == bool(trans_a)
    assert any("alpha=0.25 multiplied into B" in line for line in report.changed)


@pytest.mark.parametrize("opset", [7, 9, 10, 11, 13, 20, 24])
@pytest.mark.parametrize("c_shape", [(1,), (1, N), (M, N)])
def test_every_opset(opset, c_shape):
    constants = {"B": random(K, N), "C": random(*c_shape)}
    node = helper.make_node("Gemm", ["A", "B", "C"], ["Y"], beta=0.5, transA=1)
    model = build_model([node], {"A": [K, M]}, {"Y": [M, N]}, constants, opset=opset)
    assert_pass_keeps_outputs(model, "canonicalize_gemm", {"A": random(K, M)})


@pytest.mark.parametrize("opset", [9, 17])
@pytest.mark.parametrize("beta", [1.0, 0.0, -2.0])
def test_a_computed_c_is_added_behind_the_gemm(beta, opset):
    node = helper.make_node("Gemm", ["A", "B", "C"], ["Y"], name="gemm", beta=beta)
    model = build_model([node], {"A": [M, K], "C": [1, N]}, {"Y": [M, N]}, {"B": random(K, N)}, opset=opset)
    feeds = {"A": random(M, K), "C": random(1, N)}
    graph, report = assert_pass_keeps_outputs(model, "canonicalize_gemm", feeds)
    assert ops(graph) == {1.0: ["Add", "Gemm"], 0.0: ["Gemm"], -2.0: ["Add", "Gemm", "Mul"]}[beta]
    assert report.changed
    assert graph.origins.copies == {}


def test_alpha_goes_into_a_constant_a_when_b_is_computed():
    node = helper.make_node("Gemm", ["A", "B"], ["Y"], alpha=2.0, transA=1)
    model = build_model([node], {"B": [K, N]}, {"Y": [M, N]}, {"A": random(K, M)})
    graph, report = assert_pass_keeps_outputs(model, "canonicalize_gemm", {"B": random(K, N)})
    assert ops(graph) == ["Gemm"]
    assert any("alpha=2 multiplied into A" in line for line in report.changed)


def test_alpha_of_two_computed_matrices_is_declined_and_the_rest_is_done():
    node = helper.make_node("Gemm", ["A", "B"], ["Y"], name="gemm", alpha=2.0, transA=1)
    model = build_model([node], {"A": [K, M], "B": [K, N]}, {"Y": [M, N]})
    graph, report = assert_pass_keeps_outputs(model, "canonicalize_gemm", {"A": random(K, M), "B": random(K, N)})
    assert report.declined == ("node 'gemm' (Gemm): alpha=2 stays, neither A nor B is a constant that could hold it",)
    assert ops(graph) == ["Gemm", "Transpose"]


def test_a_c_of_one_value_stays_while_the_number_of_channels_is_unknown():
    node = helper.make_node("Gemm", ["A", "B", "C"], ["Y"], name="gemm")
    model = build_model([node], {"A": [M, K], "B": [K, "n"]}, {"Y": [M, "n"]}, {"C": random(1)})
    feeds = {"A": random(M, K), "B": random(K, N)}
    _, report = assert_pass_keeps_outputs(model, "canonicalize_gemm", feeds)
    assert "number of output channels is not known" in report.declined[0]


def test_shared_operands_are_copied_for_the_gemm_alone():
    nodes = [
        helper.make_node("Gemm", ["A", "B", "C"], ["Y"], name="one", alpha=2.0, beta=2.0),
        helper.make_node("Gemm", ["A", "B", "C"], ["Z"], name="two"),
    ]
    model = build_model(nodes, {"A": [M, K]}, ["Y", "Z"], {"B": random(K, N), "C": random(N)})
    graph, _ = assert_pass_keeps_outputs(model, "canonicalize_gemm", {"A": random(M, K)})
    assert [t.name for t in graph.node("two").inputs] == ["A", "B", "C"]
    assert set(graph.origins.copies.values()) == {"B", "C"}


@pytest.mark.parametrize(("dtype", "rtol"), [(np.float16, 5e-3), (np.float64, 1e-12)])  # float16 has 11 bits
def test_other_element_types(dtype, rtol):
    constants = {"B": random(K, N, dtype=dtype), "C": random(1, N, dtype=dtype)}
    node = helper.make_node("Gemm", ["A", "B", "C"], ["Y"], name="gemm", alpha=0.5, beta=2.0)
    element_type = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    model = build_model([node], {"A": [M, K]}, {"Y": [M, N]}, constants, element_type=element_type)
    graph, _ = assert_pass_keeps_outputs(model, "canonicalize_gemm", {"A": random(M, K, dtype=dtype)}, rtol)
    assert [graph.values(t).dtype for t in graph.node("gemm").inputs[1:]] == [dtype, dtype]


def test_inside_a_branch():
    def branch(name: str):
        value = numpy_helper.from_array(random(M, N))
        nodes = [
            helper.make_node("Constant", [], [f"{name}_c"], value=value),
            helper.make_node("Gemm", ["A", "B", f"{name}_c"], [f"{name}_y"], transA=1, beta=2.0),
        ]
        return helper.make_graph(
            nodes, name, [], [helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, [M, N])]
        )

    nodes = [
        helper.make_node("ReduceMax", ["A"], ["m"], keepdims=0),
        helper.make_node("Cast", ["m"], ["condition"], to=TensorProto.BOOL),
        helper.make_node("If", ["condition"], ["Y"], then_branch=branch("t"), else_branch=branch("e")),
    ]
    model = build_model(nodes, {"A": [K, M]}, {"Y": [M, N]}, {"B": random(K, N)})
    graph, _ = assert_pass_keeps_outputs(model, "canonicalize_gemm", {"A": random(K, M)})
    assert ops(graph).count("Transpose") == 2
    assert ops(graph).count("Add") == 2
