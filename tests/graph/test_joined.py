"""Outputs that are joined of several results: where their parts lie."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser

from onnxq.graph import Graph
from onnxq.graph.join_search import DEEPEST, may_have_parts
from onnxq.graph.joined import Join, evaluated_parts, joins


def of(body: str, signature: str = "(float[1,4,6] a, float[1,2,6] b) => (float[n,m,k] y)") -> list[Join]:
    text = f'<ir_version: 8, opset_import: ["" : 17]> g {signature} {{ {body} }}'
    return joins(Graph.from_model(parser.parse_model(text)))["y"]


@pytest.mark.parametrize(
    ("body", "axis"),
    [
        ("y = Concat<axis=1>(a, b)", 1),
        ("y = Concat<axis=-2>(a, b)", 1),
        ("c = Concat<axis=1>(a, b) y = Identity(c)", 1),
        ("c = Concat<axis=1>(a, b) y = Transpose<perm=[0, 2, 1]>(c)", 2),
        ("c = Concat<axis=1>(a, b) y = Transpose(c)", 1),
        ("c = Concat<axis=1>(a, b) s = Constant<value_ints=[1, 6, -1]>() r = Reshape(c, s) y = Identity(r)", 1),
    ],
)
def test_parts_are_found_through_what_only_moves_them(body: str, axis: int) -> None:
    assert of(body) == [Join(axis, (4, 6))]


@pytest.mark.parametrize("deep", [DEEPEST - 3, DEEPEST, DEEPEST + 1, DEEPEST + 9])
def test_parts_do_not_depend_on_the_order_of_outputs(deep: int) -> None:
    """One output is behind many nodes that map each value alone, which begin with the other one."""
    chain = " ".join(f"t{number + 1} = Neg(t{number})" for number in range(deep))
    body = f"t0 = Concat<axis=1>(a, b) near = Neg(t0) {chain} far = Neg(t{deep})"
    found = []
    for names in (("near", "far"), ("far", "near")):
        outputs = ", ".join(f"float[1,6,6] {name}" for name in names)
        text = f"g (float[1,4,6] a, float[1,2,6] b) => ({outputs}) {{ {body} }}"
        graph = Graph.from_model(parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}'))
        found.append(joins(graph))
    assert found[0] == found[1]
    assert found[0]["near"] == [Join(1, (4, 6))]
    assert bool(found[0]["far"]) == (deep < DEEPEST)


def test_a_concat_near_one_output_is_noticed_behind_another_that_is_far() -> None:
    """The walk from the far output comes by the tensor in front of the Concat first."""
    chain = " ".join(f"t{number + 1} = Neg(t{number})" for number in range(DEEPEST - 1))
    body = f"c = Concat<axis=1>(a, b) d = Neg(c) t0 = Neg(d) near = Neg(t0) {chain} far = Neg(t{DEEPEST - 1})"
    for outputs in ("float[1,6,6] near, float[1,6,6] far", "float[1,6,6] far, float[1,6,6] near"):
        text = f"g (float[1,4,6] a, float[1,2,6] b) => ({outputs}) {{ {body} }}"
        assert may_have_parts(Graph.from_model(parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')))


@pytest.mark.parametrize(
    "body",
    [
        "y = Add(a, a)",
        "c = Concat<axis=1>(a, b) y = CumSum(c, a)",
        "c = Concat<axis=1>(a, b) s = Constant<value_ints=[1, 2, 3, 6]>() y = Reshape(c, s)",
        "y = Concat<axis=1>(a)",
    ],
)
def test_other_outputs_are_whole(body: str) -> None:
    assert of(body) == []


def test_levels_of_a_detector_have_the_parts_of_each_level() -> None:
    body = """
    first = Concat<axis=1>(boxes, scores)
    second = Concat<axis=1>(boxes, scores)
    s = Constant<value_ints=[1, 6, 9]>()
    flat = Reshape(first, s)
    other = Reshape(second, s)
    levels = Concat<axis=2>(flat, other)
    y = Transpose<perm=[0, 2, 1]>(levels)"""
    found = of(body, "(float[1,4,3,3] boxes, float[1,2,3,3] scores) => (float[n,m,k] y)")
    assert found == [Join(1, (9, 18)), Join(2, (4, 6))]


def test_lengths_that_are_open_give_no_parts() -> None:
    assert of("y = Concat<axis=1>(a, b)", "(float[1,n,6] a, float[1,2,6] b) => (float[k,m,6] y)") == []


@pytest.mark.parametrize(
    ("axes", "expected"), [("[0]", [Join(0, (1, 2))]), ("[-3]", [Join(0, (1, 2))]), ("[1]", [])], ids=str
)
def test_an_axis_that_unsqueeze_makes_has_a_length_whatever_is_in_front(axes: str, expected: list[Join]) -> None:
    """Operators of other makers, say, whose shapes nobody infers."""
    text = f"""<ir_version: 8, opset_import: ["" : 17, "other" : 1]>
        g (float[n,m] a, float[n,m] b) => (float[l,n,m] y) {{
            at = Constant<value_ints={axes}>()
            c = other.Gate(a)
            d = other.Gate(b)
            e = Unsqueeze(c, at)
            f = Unsqueeze(d, at)
            y = Concat<axis=0>(e, f)
        }}"""
    assert joins(Graph.from_model(parser.parse_model(text)))["y"] == expected


@pytest.mark.parametrize(
    ("other", "expected"),
    [("Concat<axis=1>(a, b)", [Join(1, (4, 6))]), ("Concat<axis=1>(b, a)", [])],
    ids=["alike", "unlike"],
)
def test_parts_behind_an_if_are_those_that_both_branches_have(other: str, expected: list[Join]) -> None:
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
        g (float[1,4,6] a, float[1,2,6] b, bool c) => (float[n,m,k] y) {{
            y = If (c) <
                then_branch = then () => (float[1,6,6] t) {{ t = Concat<axis=1>(a, b) }},
                else_branch = otherwise () => (float[1,6,6] e) {{ e = {other} }}
            >
        }}"""
    assert joins(Graph.from_model(parser.parse_model(text)))["y"] == expected


def test_the_given_graph_is_not_changed() -> None:
    body = "{ c = Concat<axis=1>(a, a) y = Identity(c) }"
    text = f'<ir_version: 8, opset_import: ["" : 17]> g (float[1,4,6] a) => (float[n,m,k] y) {body}'
    graph = Graph.from_model(parser.parse_model(text))
    assert joins(graph)["y"] == [Join(1, (4, 8))]
    assert graph.shape("c") is None


def test_a_tensor_is_cut_and_its_parts_are_named() -> None:
    join = Join(1, (4, 6))
    values = np.arange(12).reshape(2, 6)
    first, second = join.cut(values) or ()
    np.testing.assert_array_equal(first, values[:, 0:4])
    np.testing.assert_array_equal(second, values[:, 4:6])
    assert join.labels("y") == ["y[:, 0:4]", "y[:, 4:6]"]
    assert join.cut(values[:, :5]) is None
    assert join.cut(values[0]) is None


@pytest.mark.parametrize(
    ("powers", "shown"),
    [
        ([1.0, 11.0], [0, 1]),
        ([1.0, 9.0], []),
        ([0.0, 1.0], []),
        ([0.0, 1.0, 200.0], [1, 2]),
        ([1.0, 0.0, 200.0], [0, 2]),
        ([1e5, 1e-9], [0, 1]),
        ([np.inf, 1.0], []),
        ([1.0, np.inf, 200.0], [0, 1, 2]),
        ([], []),
    ],
)
def test_parts_are_unlike_where_the_smaller_one_would_not_count(powers: list[float], shown: list[int]) -> None:
    join = Join(1, tuple(range(1, len(powers) + 1)) or (1,))
    found = evaluated_parts([join], lambda _: powers)
    assert found == ((join, shown) if shown else None)


def test_neighbours_of_one_size_are_one_part() -> None:
    """The coordinates of a box come one by one, and are one kind of thing."""
    join = Join(1, (1, 2, 3, 4, 5, 84))
    found = evaluated_parts([join], lambda _: [3e4, 2e4, 1e4, 1e4, 1e-3, 5e-3])
    assert found == (Join(1, (4, 84)), [0, 1])


def test_what_was_joined_in_two_steps_has_all_parts() -> None:
    body = "first = Concat<axis=1>(a, b) same = Identity(first) y = Concat<axis=1>(same, b)"
    assert of(body) == [Join(1, (4, 6, 8))]


def test_many_parts_are_of_one_kind() -> None:
    assert of(f"y = Concat<axis=1>({', '.join(['b'] * 9)})") == []
    assert of(f"y = Concat<axis=1>({', '.join(['b'] * 8)})") != []


def test_tensors_that_are_joined_again_and_again_are_looked_at_once() -> None:
    lines = [f"c{i + 1} = Concat<axis=0>({', '.join([f'c{i}'] * 6)})" for i in range(7)]
    assert [len(join.ends) for join in of(f"c0 = Identity(a) {' '.join(lines)} y = Identity(c7)")] == [6]


@pytest.mark.parametrize("declared", ["float", "float[2]", "float[1,2,3,4]"])
def test_a_concat_whose_declared_shape_is_not_true_has_no_parts(declared: str) -> None:
    shapes = f"(float[1,4,6] a, float[1,2,6] b) => ({declared} y)"
    if declared == "float":
        model = parser.parse_model(
            f'<ir_version: 8, opset_import: ["" : 17]> g {shapes} {{ y = Concat<axis=1>(a, b) }}'
        )
        model.graph.output[0].type.tensor_type.shape.SetInParent()  # rank 0, not an unknown one
        assert joins(Graph.from_model(model)) == {"y": []}
    else:
        assert of("y = Concat<axis=1>(a, b)", shapes) == []


DECODED = "(float[1,4,6] a, float[1,2,6] b, float[1,6,6] c) => (float y)"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("c1 = Concat<axis=1>(a, b) y = Sigmoid(c1)", [Join(1, (4, 6))]),
        ("c1 = Concat<axis=1>(a, b) y = Mul(c1, c)", [Join(1, (4, 6))]),
        ("k = Constant<value_float=8.0>() c1 = Concat<axis=1>(a, b) y = Mul(c1, k)", [Join(1, (4, 6))]),
        ("s = Sigmoid(b) d = Mul(a, a) y = Concat<axis=1>(d, s)", [Join(1, (4, 6))]),
        ("d1 = Sub(a, a) d2 = Add(a, a) d = Concat<axis=1>(d1, d2) y = Concat<axis=1>(d, b)", [Join(1, (4, 8, 10))]),
        ("c1 = Concat<axis=1>(a, b) c2 = Concat<axis=1>(b, a) y = Add(c1, c2)", [Join(1, (2, 4, 6))]),
        ("c1 = Concat<axis=1>(a, b) y = Softmax<axis=2>(c1)", [Join(1, (4, 6))]),
        ("c1 = Concat<axis=1>(a, b) y = Softmax<axis=1>(c1)", []),
        ("n = Constant<value_ints=[4, 2]>() p, q = Split<axis=1>(c, n) r = Relu(q) y = Concat<axis=1>(p, r)",
         [Join(1, (4, 6))]),
        ("i = Constant<value_ints=[3]>() j = Constant<value_ints=[6]>() x = Constant<value_ints=[1]>() "
         "c1 = Concat<axis=1>(a, b) y = Slice(c1, i, j, x)", [Join(1, (1, 3))]),
        ("n = Constant<value_ints=[2, 4]>() c1 = Concat<axis=1>(a, b) p, y = Split<axis=1>(c1, n)", [Join(1, (2, 4))]),
        ("x = Constant<value_ints=[0]>() c1 = Concat<axis=1>(a, b) y = Squeeze(c1, x)", [Join(0, (4, 6))]),
        ("x = Constant<value_ints=[1]>() c1 = Concat<axis=1>(a, b) y = Unsqueeze(c1, x)", [Join(2, (4, 6))]),
        ("s = Constant<value_ints=[1, 36]>() c1 = Concat<axis=1>(a, b) y = Reshape(c1, s)", [Join(1, (24, 36))]),
        ("s = Constant<value_ints=[1, 3, 12]>() c1 = Concat<axis=1>(a, b) y = Reshape(c1, s)", [Join(1, (2, 3))]),
        ("c1 = Concat<axis=1>(a, b) d = Cast<to=10>(c1) y = Cast<to=1>(d)", [Join(1, (4, 6))]),
    ],
)  # fmt: skip
def test_parts_are_found_behind_what_decodes_them(body: str, expected: list[Join]) -> None:
    assert of(f"{body} y = Identity(z)".replace("y = ", "z = ", 1).replace("p, y", "p, z"), DECODED) == expected


def test_heads_that_are_decoded_level_by_level_have_the_parts_of_a_box() -> None:
    """Split, each piece decoded, Concat, Reshape, and one Concat over all levels."""
    sizes = "n = Constant<value_ints=[2, 2, 3]>() s = Constant<value_ints=[1, -1, 7]>() g = Constant<value_float=8.0>()"
    levels = [
        f"s{i} = Sigmoid({name}) xy{i}, wh{i}, c{i} = Split<axis=4>(s{i}, n) a{i} = Mul(xy{i}, g) "
        f"b{i} = Mul(wh{i}, wh{i}) j{i} = Concat<axis=4>(a{i}, b{i}, c{i}) y{i} = Reshape(j{i}, s)"
        for i, name in enumerate(("p", "q"))
    ]
    signature = "(float[1,3,4,4,7] p, float[1,3,2,2,7] q) => (float[n,m,k] y)"
    found = of(f"{sizes} {' '.join(levels)} y = Concat<axis=1>(y0, y1)", signature)
    assert Join(2, (2, 4, 7)) in found
    assert Join(1, (48, 60)) in found


def test_levels_may_be_joined_before_kinds() -> None:
    signature = "(float[1,4,6] a, float[1,4,3] b, float[1,2,6] c, float[1,2,3] d) => (float[n,m,k] y)"
    body = "boxes = Concat<axis=2>(a, b) t = Concat<axis=2>(c, d) s = Sigmoid(t) y = Concat<axis=1>(boxes, s)"
    assert of(body, signature) == [Join(1, (4, 6)), Join(2, (6, 9))]


def test_what_another_branch_takes_apart_are_parts() -> None:
    signature = "(float[1,6,8] x) => (float[n,m,k] y, float[n,o,k] best)"
    body = (
        "y = Relu(x) i = Constant<value_ints=[4]>() j = Constant<value_ints=[6]>() a = Constant<value_ints=[1]>() "
        "scores = Slice(y, i, j, a) best = Sigmoid(scores)"
    )
    assert of(body, signature) == [Join(1, (4, 6))]


def test_what_is_joined_of_too_many_parts_in_two_steps_has_those_of_the_last() -> None:
    body = f"many = Concat<axis=1>({', '.join(['b'] * 8)}) y = Concat<axis=1>(a, many)"
    assert of(body) == [Join(1, (4, 20))]


def test_of_levels_and_kinds_the_less_alike_are_evaluated() -> None:
    levels, kinds = Join(1, (2, 4)), Join(2, (4, 6))
    powers = {levels: [100.0, 1.0], kinds: [1e5, 1e-4]}
    assert evaluated_parts([levels, kinds], powers.__getitem__) == (kinds, [0, 1])
    assert evaluated_parts([levels], powers.__getitem__) == (levels, [0, 1])
    assert evaluated_parts([levels], {levels: [2.0, 1.0]}.__getitem__) is None
    assert evaluated_parts([], powers.__getitem__) is None
