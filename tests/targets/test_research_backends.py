"""The targets of research papers and of TensorRT's transformers: which tensors are quantized, and with what."""

import numpy as np
import pytest
from onnx import numpy_helper, parser

import onnxq
from onnxq.errors import ConfigError
from onnxq.place import place
from onnxq.session.prepare import prepare
from onnxq.targets import get_backend
from onnxq.types import PerChannel, PerTensor
from tests.golden_graphs import GOLDEN
from tests.zoo_graphs.net import Net


def plan_of(model, backend):
    prepared = prepare(model, backend)
    return prepared.graph, place(prepared.graph, prepared.backend)


def formats(plan, role):
    return {placement.tensor: placement.spec.dtype for placement in plan if placement.role == role}


def plain_net():
    net = Net("plain")
    x = net.relu(net.conv(net.input("x", [1, 3, 8, 8]), 3, 4))
    x = net.relu(net.batch_norm(net.conv(x, 4, 4), 4))
    x = net.relu(net.conv(x, 4, 8))
    net.output(net.classifier(x, 8))
    return net


def test_academic_gives_eight_bits_to_what_enters_and_to_the_weights_of_both_ends():
    graph, plan = plan_of(plain_net().model(), "academic:w_bits=3,a_bits=4")
    first, second, third = graph.nodes("Conv")
    (last,) = graph.nodes("Gemm")
    by_node = {
        node.name: (plan[node.inputs[0].name].spec.dtype, plan[node.inputs[1].name].spec.dtype)
        for node in (first, second, third, last)
    }
    assert by_node == {
        first.name: ("int8", "int8"),
        second.name: ("int4", "int3"),
        third.name: ("int4", "int3"),
        last.name: ("int8", "int8"),
    }


def test_both_ends_of_a_model_in_float16_have_eight_bits_too():
    """It computes in float32 inside, with a Cast at each end."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float16[1,8] x) => (float16[1,8] y) { a = MatMul(x, w1) b = MatMul(a, w2) y = MatMul(b, w3) }"""
    model = parser.parse_model(text)
    for name in ("w1", "w2", "w3"):
        model.graph.initializer.append(numpy_helper.from_array(np.eye(8, dtype=np.float16), name))
    _, plan = plan_of(model, "academic:w_bits=3,a_bits=4")
    assert [plan[name].spec.dtype for name in ("w1", "w2", "w3")] == ["int8", "int3", "int8"]


def test_academic_leaves_batch_norms_apart_and_everything_else_float():
    graph, plan = plan_of(plain_net().model(), "academic")
    assert len(graph.nodes("BatchNormalization")) == 1
    assert {graph.node(name).op for name in plan.quantized} == {"Conv", "Gemm"}
    assert formats(plan, "bias") == {}


def test_academic_options_say_the_formats():
    scheme = get_backend("academic:w_bits=5,a_bits=6,w_symmetric=no,a_symmetric=no,w_per_channel=no").scheme
    assert (scheme.weight.dtype, scheme.weight.symmetric, scheme.weight.granularity) == ("uint5", False, PerTensor())
    assert (scheme.activation.dtype, scheme.activation.symmetric) == ("uint6", False)
    assert [spec.dtype for spec in scheme.ends] == ["uint8", "uint8"]
    default = get_backend("academic").scheme
    assert (default.weight.dtype, default.weight.granularity) == ("int8", PerChannel(0))
    for wrong in ("academic:w_bits=17", "academic:bits=4", "academic:w_symmetric=maybe"):
        with pytest.raises(ConfigError):
            get_backend(wrong)


@pytest.mark.parametrize("backend", ["academic:w_bits=2,a_bits=4", "academic:w_bits=16,a_bits=16,w_symmetric=no"])
def test_academic_models_of_unusual_widths_run(backend, tmp_path):
    golden = GOLDEN["residual"]()
    result = onnxq.quantize(
        golden.model, backend=backend, data=golden.samples, out=tmp_path, config={"minimum_sqnr_db": -10, "effort": 0}
    )
    assert (tmp_path / "model.onnx").exists()
    ends = {"image": "int8"}
    assert {name: dtype for name, dtype in formats(result.plan, "activation").items() if name in ends} == ends


@pytest.mark.parametrize("backend", ["academic_nlp", "tensorrt_nlp"])
@pytest.mark.parametrize("name", ["transformer"])
def test_transformer_targets_keep_the_signal(backend, name, tmp_path):
    golden = GOLDEN[name]()
    result = onnxq.quantize(golden.model, backend=backend, data=golden.samples, out=tmp_path, config={"effort": 0})
    assert min(result.report["sqnr_db"].values()) > 25


def embedded():
    """Embeddings of words and positions, a linear layer, scaled scores with a mask, a residual."""
    net = Net("embedded")
    ids = net.input("ids", [1, 6], np.int64)
    words = net.node("Gather", net.floats(net.normal(20, 8), "words"), ids, name="look_up")
    positions = net.node("Gather", net.floats(net.normal(6, 8), "positions"), net.ints(0, 1, 2, 3, 4, 5))
    x = net.node("Add", words, positions, name="add_positions")
    hidden = net.linear(x, 8, 8)
    scores = net.node("MatMul", hidden, net.node("Transpose", hidden, perm=[0, 2, 1]), name="scores")
    scaled = net.node("Div", scores, net.floats(np.sqrt(8.0)))
    mixed = net.node("MatMul", net.node("Softmax", scaled, axis=-1), hidden, name="mixed")
    net.output(net.linear(net.node("Add", mixed, x, name="residual"), 8, 4))
    return net.model()


def test_tensorrt_nlp_quantizes_matmuls_and_both_inputs_of_residuals_but_no_biases():
    graph, plan = plan_of(embedded(), "tensorrt_nlp")
    quantized = {name for name in plan.quantized if graph.node(name).op == "Add"}
    residual = graph.node("residual")
    assert "residual" in quantized
    assert all(tensor.name in plan for tensor in residual.inputs)
    biases = [node for node in graph.nodes("Add") if any(graph.is_constant(tensor) for tensor in node.inputs)]
    assert biases
    assert not {node.name for node in biases} & quantized
    for name in ("scores", "mixed"):
        assert all(tensor.name in plan for tensor in graph.node(name).inputs)
    assert all(spec == "int8" for role in ("activation", "weight") for spec in formats(plan, role).values())


def test_sums_of_embeddings_are_read_as_they_are():
    graph, plan = plan_of(embedded(), "tensorrt_nlp")
    (words,) = [tensor for tensor in graph.node("add_positions").inputs if graph.producer(tensor) is not None][:1]
    assert words.name not in plan


@pytest.mark.parametrize("backend", ["tensorrt_nlp", "academic_nlp"])
def test_tables_of_embeddings_are_quantized_along_their_width(backend):
    _, plan = plan_of(embedded(), backend)
    assert plan["words"].spec.granularity == PerChannel(1)
    assert "look_up" in plan.quantized


def test_other_gathers_stay_float():
    net = Net("gathers")
    x = net.linear(net.input("x", [1, 6, 8]), 8, 8)
    net.output(net.node("Gather", x, net.ints(0, 2), axis=1, name="rows"))
    _, plan = plan_of(net.model(), "tensorrt_nlp")
    assert "constant table" in plan.left_float["rows"]
