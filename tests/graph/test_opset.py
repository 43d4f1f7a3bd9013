"""A raised model computes what it computed before, and what cannot be raised is refused by name."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxq.errors import UnsupportedError
from onnxq.graph import Graph
from onnxq.graph.opset import ir_version_for

LATEST = 25  # the newest opset that all onnxruntime versions in use know
RANDOM = np.random.default_rng(7)


def normal(*shape, dtype=np.float32):
    return RANDOM.standard_normal(shape).astype(dtype)


IMAGE = {"x": normal(1, 2, 6, 8)}


def model(nodes, opset, feeds, constants=None, outputs=("y",), shapes=True):
    """Inputs as in `feeds` (of unknown shape without `shapes`), initializers from `constants`."""
    nodes = nodes if isinstance(nodes, list) else [nodes]
    infos = []
    for name, value in feeds.items():
        shape = value.shape if shapes is True else shapes.get(name) if shapes else None
        infos.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), shape))
    graph = helper.make_graph(
        nodes,
        "g",
        infos,
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in (constants or {}).items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    for output, inferred in zip(graph.output, onnx.shape_inference.infer_shapes(proto).graph.output, strict=True):
        kind = inferred.type.tensor_type.elem_type or infos[0].type.tensor_type.elem_type
        output.CopyFrom(helper.make_tensor_value_info(output.name, kind, None))
    return helper.make_model(graph, opset_imports=proto.opset_import, ir_version=8)


def run(proto, feeds):
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def raised(proto, target):
    graph = Graph.from_model(proto)
    graph.raise_opset(target)
    result = graph.to_model()
    assert_valid(result.graph.node, target)
    return result


def assert_valid(nodes, opset):
    """Each node by itself: the shapes of outputs that check_model asks for are left open here."""
    context = onnx.checker.DEFAULT_CONTEXT
    context.opset_imports = {"": opset}
    for item in nodes:
        inner = [attribute.g for attribute in item.attribute if attribute.type == onnx.AttributeProto.GRAPH]
        for body in inner:
            assert_valid(body.node, opset)
        if not inner:
            onnx.checker.check_node(item, context)


def assert_same_outputs(proto, feeds, *targets):
    expected = run(proto, feeds)
    for target in targets:
        for before, after in zip(expected, run(raised(proto, target), feeds), strict=True):
            assert before.dtype == after.dtype
            np.testing.assert_array_equal(after, before, err_msg=f"opset {target}")


def node(op, inputs, outputs="y", **attrs):
    return helper.make_node(op, inputs.split(), outputs.split(), name=f"my_{op}", **attrs)


CASES = {
    "clip_both": (6 + 1, 11, node("Clip", "x", min=-0.5, max=0.25), IMAGE),
    "clip_max": (10, 11, node("Clip", "x", max=0.25), IMAGE),
    "clip_nothing": (10, 11, node("Clip", "x"), IMAGE),
    "pad_constant": (7, 11, node("Pad", "x", pads=[0, 0, 1, 2, 0, 0, 0, 3], value=1.5), IMAGE),
    "pad_zero": (7, 11, node("Pad", "x", pads=[0, 0, 1, -2, 0, 0, 0, 3]), IMAGE),
    "pad_reflect": (7, 11, node("Pad", "x", pads=[0, 0, 1, 2, 0, 0, 0, 3], mode="reflect", value=3.0), IMAGE),
    "pad_float64": (7, 11, node("Pad", "x", pads=[1, 1], value=0.1), {"x": normal(3, dtype=np.float64)}),
    "slice": (7, 10, node("Slice", "x", starts=[1, -4], ends=[5, 100], axes=[2, 3]), IMAGE),
    "slice_without_axes": (9, 10, node("Slice", "x", starts=[0, 1], ends=[1, 2]), IMAGE),
    "topk": (7, 10, node("TopK", "x", "y i", k=3, axis=3), IMAGE),
    "dropout": (7, 12, node("Dropout", "x", ratio=0.3), IMAGE),
    "dropout_unread_mask": (7, 10, node("Dropout", "x", "y mask"), IMAGE),
    "squeeze": (7, 13, node("Squeeze", "x", axes=[0]), IMAGE),
    "squeeze_all": (11, 13, node("Squeeze", "x"), IMAGE),
    "unsqueeze": (11, 13, node("Unsqueeze", "x", axes=[0, -1]), IMAGE),
    "split_sizes": (7, 13, node("Split", "x", "y z", axis=3, split=[3, 5]), IMAGE),
    "split_equal": (13, 18, node("Split", "x", "y z w", axis=2), IMAGE),
    "reduce_sum": (11, 13, node("ReduceSum", "x", axes=[1, -1], keepdims=0), IMAGE),
    "reduce_sum_all": (11, 13, node("ReduceSum", "x"), IMAGE),
    "softmax_last": (7, 13, node("Softmax", "x", axis=3), IMAGE),
    "softmax_default_on_matrix": (7, 13, node("Softmax", "x"), {"x": normal(3, 5)}),
    "softmax_default_on_image": (7, 13, node("Softmax", "x"), IMAGE),
    "softmax_on_pooled_image": (7, 13, node("Softmax", "x"), {"x": normal(2, 5, 1, 1)}),
    "softmax_negative_axis": (11, 13, node("Softmax", "x", axis=-2), IMAGE),
    "logsoftmax": (11, 13, node("LogSoftmax", "x", axis=2), IMAGE),
    "hardmax": (7, 13, node("Hardmax", "x", axis=1), IMAGE),
    "upsample_7_nearest": (7, 10, node("Upsample", "x", scales=[1.0, 1.0, 1.5, 2.0]), IMAGE),
    "upsample_7_linear": (7, 9, node("Upsample", "x", scales=[1.0, 1.0, 2.0, 3.0], mode="linear"), IMAGE),
    "scatter": (
        9,
        11,
        node("Scatter", "d i u", axis=1),
        {"d": normal(1, 5), "i": np.array([[1, 3]]), "u": normal(1, 2)},
    ),
    "gemm": (7, 11, node("Gemm", "a b c", alpha=0.5), {"a": normal(2, 3), "b": normal(3, 4), "c": normal(4)}),
    "depth_to_space": (7, 11, node("DepthToSpace", "x", blocksize=2), {"x": normal(1, 8, 2, 3)}),
    "cast": (7, 9, node("Cast", "x", to=TensorProto.INT32), IMAGE),
    "max_pool_with_ceil": (10, 22, node("MaxPool", "x", kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1), IMAGE),
    "conv_transpose_same": (
        7,
        11,
        node("ConvTranspose", "x w", strides=[2, 2], auto_pad="SAME_LOWER"),
        {**IMAGE, "w": normal(2, 1, 3, 3)},
    ),
    "erf": (9, 13, node("Erf", "x"), IMAGE),
    "one_hot": (
        9,
        11,
        node("OneHot", "i d v"),
        {"i": np.array([0, 2, 5]), "d": np.array([3]), "v": np.array([0, 1], np.float32)},
    ),
    "grid_sample_default": (16, 20, node("GridSample", "x g"), {**IMAGE, "g": normal(1, 3, 4, 2)}),
    "grid_sample_bilinear": (16, 20, node("GridSample", "x g", mode="bilinear"), {**IMAGE, "g": normal(1, 3, 4, 2)}),
    "grid_sample_bicubic": (16, 20, node("GridSample", "x g", mode="bicubic"), {**IMAGE, "g": normal(1, 3, 4, 2)}),
    "dft_default_axis": (17, 20, node("DFT", "x"), {"x": normal(1, 4, 6, 1)}),
    "dft_axis": (17, 20, node("DFT", "x n", axis=2), {"x": normal(1, 4, 6, 1), "n": np.array(8)}),
    "roi_align": (
        10,
        16,
        node("RoiAlign", "x r b", output_height=3, output_width=3, sampling_ratio=2),
        {**IMAGE, "r": np.array([[0.4, 0.2, 6, 5]], np.float32), "b": np.array([0])},
    ),
    "quantize": (
        10,
        13,
        [node("QuantizeLinear", "x s z", "q"), node("DequantizeLinear", "q s z")],
        {**IMAGE, "s": np.array(0.1, np.float32), "z": np.array(3, np.uint8)},
    ),
}
for _op in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "SumSquare"):
    _positive = {"x": np.abs(IMAGE["x"])}
    CASES[f"reduce_{_op}"] = (11, 18, node(f"Reduce{_op}", "x", axes=[-1, 1], keepdims=0), _positive)
    CASES[f"reduce_{_op}_all"] = (13, 18, node(f"Reduce{_op}", "x"), _positive)


NOT_RUN_BEYOND_21 = {"roi_align"}  # onnxruntime has no kernel for RoiAlign 22


@pytest.mark.parametrize("case", CASES)
def test_raised_node_computes_the_same(case):
    opset, step, nodes, feeds = CASES[case]
    outputs = [name for name in (nodes[-1] if isinstance(nodes, list) else nodes).output if name != "mask"]
    last = 21 if case in NOT_RUN_BEYOND_21 else LATEST
    assert_same_outputs(model(nodes, opset, feeds, outputs=outputs), feeds, step, last)


@pytest.mark.parametrize("include_pad", [0, 1])
@pytest.mark.parametrize("padding", [{"pads": [1, 1, 1, 1], "ceil_mode": 1}, {"auto_pad": "SAME_LOWER"}])
def test_average_pool_keeps_its_windows(padding, include_pad):
    pool = node("AveragePool", "x", kernel_shape=[3, 3], strides=[2, 2], count_include_pad=include_pad, **padding)
    proto = model(pool, 10, IMAGE)
    for target in (11, 19, 22):
        # onnxruntime adds up a window of AveragePool 19 in another order
        np.testing.assert_allclose(run(raised(proto, target), IMAGE)[0], run(proto, IMAGE)[0], rtol=1e-6, atol=1e-6)


def test_clip_of_half_precision_gets_no_infinite_bound():
    x = np.array([1, 60000, -7], np.float16)
    proto = model(node("Clip", "x", min=0.0, max=3.4028234663852886e38), 10, {"x": x})
    result = Graph.from_model(raised(proto, 11))
    assert [tensor.name for tensor in result.node("my_Clip").inputs] == ["x", "my_Clip_min"]
    assert result.dtype("my_Clip_min") == np.float16


def test_nodes_that_did_not_change_stay_as_they_are():
    proto = model([node("Relu", "x", "a"), node("Add", "a x", "y")], 7, IMAGE)
    graph = Graph.from_model(proto)
    assert graph.raise_opset(LATEST) == []
    assert graph.to_model().graph == Graph.from_model(proto).to_model().graph


def test_a_line_for_each_rewritten_node():
    graph = Graph.from_model(model([node("Clip", "x", "a", min=0.0), node("Softmax", "a")], 7, IMAGE))
    assert graph.raise_opset(13) == [
        "my_Clip: Clip 6 -> Clip 11: min became inputs",
        "my_Softmax: Softmax 11 -> Softmax 13: computed on the input flattened at axis 1",
    ]


@pytest.mark.parametrize("version", [7, 12, 13])
def test_raising_twice_or_to_an_older_opset_changes_nothing(version):
    graph = Graph.from_model(model([node("Clip", "x", "a", min=0.0), node("Softmax", "a")], 7, IMAGE))
    graph.raise_opset(13)
    before = graph.to_model()
    assert graph.raise_opset(version) == []
    assert graph.to_model() == before


def test_raising_in_steps_gives_what_raising_at_once_gives():
    proto = model([node("Upsample", "x", "a", scales=[1.0, 1.0, 2.0, 2.0]), node("Softmax", "a")], 7, IMAGE)
    graph = Graph.from_model(proto)
    for version in (9, 10, 11, 12, 13, 18, 21):
        graph.raise_opset(version)
    for before, after in zip(run(raised(proto, 21), IMAGE), run(graph.to_model(), IMAGE), strict=True):
        np.testing.assert_array_equal(before, after)
    assert [n.op for n in graph.nodes()] == [n.op_type for n in raised(proto, 21).graph.node]


@pytest.mark.parametrize("shapes", [False, {"x": ["batch", 2, 6, 8]}, {"x": ["batch", 2, "height", "width"]}])
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
def test_softmax_over_several_axes_with_unknown_dimensions(op, shapes):
    feeds = {"x": normal(3, 2, 6, 8)}
    assert_same_outputs(model(node(op, "x", axis=2), 11, feeds, shapes=shapes), feeds, 13, LATEST)


def test_softmax_over_the_last_axis_stays_one_node():
    graph = Graph.from_model(model(node("Softmax", "x", axis=3), 9, IMAGE))
    graph.raise_opset(13)
    assert [n.op for n in graph.nodes()] == ["Softmax"]


SCALES = {"grow": [1, 1, 2, 1.3], "shrink": [1, 1, 0.4, 0.75], "both": [1, 1, 1.7, 0.6], "same": [1, 1, 1, 1]}


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("scales", SCALES)
def test_resize_keeps_its_pixels(scales, mode, constant):
    values = {"s": np.array(SCALES[scales], np.float32)}
    feeds = IMAGE if constant else {**IMAGE, **values}
    proto = model(node("Resize", "x s", mode=mode), 10, feeds, values if constant else None)
    assert_same_outputs(proto, feeds, 11, 13, LATEST)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_upsample_with_scales_as_input(mode):
    proto = model(node("Upsample", "x s", mode=mode), 9, IMAGE, {"s": np.array([1, 1, 2, 1.5], np.float32)})
    assert_same_outputs(proto, IMAGE, 10, 11, LATEST)
    result = raised(proto, 13).graph
    assert [n.op_type for n in result.node] == ["Resize"]
    assert [t.name for t in result.initializer] == ["s"]


def test_resize_by_size_loses_its_empty_inputs():
    constants = {"roi": np.zeros(0, np.float32), "none": np.zeros(0, np.float32), "size": np.array([1, 2, 9, 5])}
    proto = model(node("Resize", "x roi none size"), 11, IMAGE, constants)
    assert_same_outputs(proto, IMAGE, 13, LATEST)
    result = raised(proto, 13).graph
    assert list(result.node[0].input) == ["x", "", "", "size"]
    assert [t.name for t in result.initializer] == ["size"]


@pytest.mark.parametrize("scale", [1, 2, 3, 7])
def test_resize_with_half_pixels_of_tensorflow(scale):
    attrs = {"coordinate_transformation_mode": "tf_half_pixel_for_nn", "mode": "nearest", "nearest_mode": "floor"}
    constants = {"roi": np.zeros(0, np.float32), "s": np.array([1, 1, scale, scale], np.float32)}
    feeds = {"x": normal(1, 2, 31, 40)}
    assert_same_outputs(model(node("Resize", "x roi s", **attrs), 11, feeds, constants), feeds, 13, LATEST)


@pytest.mark.parametrize("shape", [(4,), (4, 3, 5)])
def test_batch_normalization_of_whole_samples(shape):
    constants = {name: np.abs(normal(*shape)) + 0.1 for name in "sbmv"}
    feeds = {"x": normal(2, *shape)}
    proto = model(node("BatchNormalization", "x s b m v", spatial=0), 7, feeds, constants)
    assert_same_outputs(proto, feeds, 9, 15, LATEST)


def test_batch_normalization_of_channels_stays_one_node():
    constants = {name: np.abs(normal(2)) + 0.1 for name in "sbmv"}
    proto = model(node("BatchNormalization", "x s b m v", spatial=1), 7, IMAGE, constants)
    assert_same_outputs(proto, IMAGE, 9, LATEST)
    assert [n.op_type for n in raised(proto, 15).graph.node] == ["BatchNormalization"]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_group_normalization_gets_scales_for_each_channel(dtype):
    feeds = {"x": normal(2, 6, 4, 4, dtype=dtype)}
    constants = {"s": normal(3, dtype=dtype), "b": normal(3, dtype=dtype)}
    proto = model(node("GroupNormalization", "x s b", num_groups=3), 18, feeds, constants)
    graph = Graph.from_model(proto)
    graph.raise_opset(21)
    np.testing.assert_array_equal(graph.values("my_GroupNormalization_scale"), np.repeat(constants["s"], 2))
    # onnxruntime composes both versions from other operators, in a different order of additions
    tolerance = 1e-5 if dtype == np.float32 else 1e-12
    np.testing.assert_allclose(run(graph.to_model(), feeds)[0], run(proto, feeds)[0], rtol=tolerance, atol=tolerance)


def test_nodes_in_branches_and_loops_are_raised_in_place():
    inner = helper.make_graph([node("Clip", "x", "c", min=-0.5), node("Softmax", "c", "t")], "then", [], [_info("t")])
    other = helper.make_graph(
        [node("Squeeze", "x", "q", axes=[0]), node("Unsqueeze", "q", "e", axes=[0])], "else", [], [_info("e")]
    )
    branch = helper.make_node("If", ["flag"], ["b"], name="branch", then_branch=inner, else_branch=other)
    loop_inputs = [
        helper.make_tensor_value_info("i", TensorProto.INT64, []),
        helper.make_tensor_value_info("go", TensorProto.BOOL, []),
        helper.make_tensor_value_info("state", TensorProto.FLOAT, [1, 2, 6, 8]),
    ]
    steps = [
        node("Identity", "go", "go_on"),
        node("Upsample", "state", "large", scales=[1.0, 1.0, 2.0, 2.0]),
        node("Slice", "large", "next", starts=[0, 0], ends=[6, 8], axes=[2, 3]),
    ]
    body = helper.make_graph(steps, "body", loop_inputs, [_info("go_on", TensorProto.BOOL), _info("next")])
    loop = helper.make_node("Loop", ["count", "", "b"], ["y"], name="loop", body=body)
    for flag in (True, False):
        feeds = {**IMAGE, "flag": np.array(flag)}
        proto = model([branch, loop], 8, feeds, {"count": np.array(2)})
        assert_same_outputs(proto, feeds, 13, LATEST)
    names = {n.name: n for n in Graph.from_model(raised(proto, 13)).nodes()}
    assert {"my_Clip", "my_Softmax", "my_Softmax_flatten", "my_Squeeze", "my_Upsample", "my_Slice"} <= names.keys()


def _info(name, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, None)


def test_custom_operators_are_left_alone():
    custom = [
        helper.make_node("Softmax", ["x"], ["a"], domain="my.domain", axis=1),
        node("EfficientNMS_TRT", "a", "y"),  # plugins of TensorRT stand in the default domain
    ]
    proto = helper.make_model(helper.make_graph(custom, "g", [_info("x")], [_info("y")]))
    del proto.opset_import[:]
    proto.opset_import.extend([helper.make_opsetid("", 11), helper.make_opsetid("my.domain", 1)])
    graph = Graph.from_model(proto)
    assert graph.raise_opset(LATEST) == []
    assert [n.op for n in graph.nodes()] == ["Softmax", "EfficientNMS_TRT"]


def refusals():
    def scan_body():
        state = helper.make_tensor_value_info("s", TensorProto.FLOAT, [3])
        steps = [helper.make_node("Add", ["s", "e"], ["t"]), helper.make_node("Identity", ["t"], ["o"])]
        element = helper.make_tensor_value_info("e", TensorProto.FLOAT, [3])
        return helper.make_graph(steps, "body", [state, element], [_info("t"), _info("o")])

    four = {name: np.ones(2, np.float32) for name in "sbmv"}
    scanned = {"h": normal(2, 3), "x": normal(2, 5, 3)}
    resize = {"r": np.zeros(0, np.float32), "s": np.array([1, 1, 2, 2], np.float32)}
    return {
        "scan": (8, 9, node("Scan", "h x", "f y", body=scan_body(), num_scan_inputs=1), scanned, {}, "batch axis"),
        "mask": (7, 10, node("Dropout", "x", "a y"), IMAGE, {}, "mask 'y' is used"),
        "mask_12": (10, 12, node("Dropout", "x", "a y"), IMAGE, {}, "mask 'y' is used"),
        "training": (9, 14, node("BatchNormalization", "x s b m v", "y p q r t"), IMAGE, four, "evaluation mode"),
        "spatial": (7, 9, node("BatchNormalization", "x s b m v", spatial=0), IMAGE, four, "one sample"),
        "groups": (
            18,
            21,
            node("GroupNormalization", "x s b", num_groups=1),
            {**IMAGE, "s": normal(1), "b": normal(1)},
            {},
            "constants",
        ),
        "erf": (9, 13, node("Erf", "x"), {"x": np.array([1, 2])}, {}, "integers"),
        "axis": (11, 13, node("Softmax", "x"), {"x": normal(3)}, {}, "axis 1 is outside"),
        "resize": (
            11,
            13,
            node("Resize", "x r s", mode="linear", coordinate_transformation_mode="tf_half_pixel_for_nn"),
            IMAGE,
            resize,
            "tf_half_pixel_for_nn is gone",
        ),
        "resize_fraction": (
            11,
            13,
            node("Resize", "x r s", coordinate_transformation_mode="tf_half_pixel_for_nn", nearest_mode="floor"),
            IMAGE,
            {**resize, "s": np.array([1, 1, 0.3, 2], np.float32)},
            "whole constants",
        ),
        "taken": (13, 20, node("Gelu", "x"), IMAGE, {}, "domain of its own"),
        "old": (6, 7, node("Add", "x x", broadcast=1), IMAGE, {}, "up to opset 7"),
    }


@pytest.mark.parametrize("case", refusals())
def test_refusal_names_node_and_remedy_and_leaves_the_graph_alone(case):
    opset, target, refused, feeds, constants, reason = refusals()[case]
    first = (
        helper.make_node("ReduceSum", [refused.output[-1]], ["z"], name="sum", axes=[0])
        if target >= 13 > opset
        else None
    )
    proto = model([refused] + ([first] if first else []), opset, feeds, constants)
    graph = Graph.from_model(proto)
    graph.infer_shapes()
    before = graph.to_model()
    with pytest.raises(UnsupportedError) as error:
        graph.raise_opset(target)
    message = str(error.value)
    assert f"node 'my_{refused.op_type}'" in message
    assert f"from opset {opset} to {target}" in message
    assert reason in message
    assert "onnx.version_converter" in message
    assert graph.to_model() == before
    assert graph.opset == opset


def test_unknown_opset_is_refused_with_the_newest_known():
    graph = Graph.from_model(model(node("Relu", "x"), 13, IMAGE))
    with pytest.raises(UnsupportedError, match=f"opset 99 is not known.*up to {onnx.defs.onnx_opset_version()}"):
        graph.raise_opset(99)


@pytest.mark.parametrize(
    ("opset", "ir"), [(1, 3), (2, 3), (8, 3), (9, 4), (13, 7), (15, 8), (19, 9), (21, 10), (24, 12)]
)
def test_lowest_ir_version_of_an_opset(opset, ir):
    assert ir_version_for(opset) == ir


def test_ir_version_is_raised_with_the_opset_and_never_lowered():
    proto = model(node("Relu", "x"), 7, IMAGE)
    proto.ir_version = 3
    assert raised(proto, 9).ir_version == 4
    proto.ir_version = 10
    assert raised(proto, 9).ir_version == 10
