"""Module paths, fx names and names of fake-quantizers find the nodes that they became."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxq.compat.module_paths import Origin, known_paths, module_paths
from onnxq.compat.modules import layer_nodes, nodes_of_fx_name, nodes_of_module, quantizer_target
from onnxq.compat.torch_names import operators_of
from onnxq.errors import ConfigError
from onnxq.graph import Graph, load
from tests.networks.exported import NETWORKS, exported, samples

BLOCK = ("", ".conv1", ".bn1", ".relu", ".conv2", ".bn2")
RESNET = {
    *(f"features{end}" for end in ("", ".0", ".0.0", ".0.1", ".0.2")),
    *("conv1", "bn1", "relu", "maxpool", "layer1", "layer1.conv1", "layer1.relu"),
    *(f"layer{stage}.{block}{end}" for stage in (1, 2) for block in (0, 1) for end in BLOCK),
    *(f"layer2.0.downsample{end}" for end in ("", ".0", ".1")),
    *("layer2", "layer2.conv2", "layer2.bn2"),
    *(f"layer3{end}" for end in ("", ".conv1", ".conv2", ".conv3", ".relu")),
    *("up", "gate", "avgpool", "fc"),
}
LAYER = ("", ".attention", ".norm1", ".linear1", ".activation", ".linear2", ".norm2")
ATTENTION = ("query", "key", "value", "out")
TRANSFORMER = {
    *("embedding", "norm", "encoder", "pooler", "classifier"),
    *(f"encoder.{number}{end}" for number in (0, 1) for end in LAYER),
    *(f"encoder.{number}.attention.{part}" for number in (0, 1) for part in ATTENTION),
}


def graph_of(
    nodes: list[onnx.NodeProto], constants: dict[str, np.ndarray], *, shape: tuple[int, ...] = (1, 2, 4, 4)
) -> Graph:
    info = helper.make_tensor_value_info
    made = helper.make_graph(
        nodes,
        "g",
        [info("x", TensorProto.FLOAT, shape)],
        [info(nodes[-1].output[0], TensorProto.FLOAT, None)],
        [numpy_helper.from_array(values, name) for name, values in constants.items()],
    )
    return Graph.from_model(helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)]))


def chain(*steps: tuple[str, str, str]) -> Graph:
    """A chain of (operator, node name, weight or ''); weights are those of 1x1 convolutions."""
    nodes, before = [], "x"
    for number, (op, name, weight) in enumerate(steps):
        nodes.append(helper.make_node(op, [before, weight] if weight else [before], [f"t{number}"], name=name))
        before = f"t{number}"
    return graph_of(nodes, {weight: np.ones((2, 2, 1, 1), np.float32) for _, _, weight in steps if weight})


# ---- the files ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NETWORKS)
def test_an_exported_network_runs_and_is_small(name: str) -> None:
    session = onnxruntime.InferenceSession(exported(name), providers=["CPUExecutionProvider"])
    (logits,) = session.run(None, samples(name, 3))
    assert logits.shape == (3, 10)
    assert np.isfinite(logits).all()
    assert exported(name).stat().st_size < 200_000
    assert not re.search(rb"make_exports\.py|site-packages", exported(name).read_bytes())


@pytest.mark.parametrize("network", ["resnet", "transformer"])
def test_both_exports_of_a_network_compute_the_same(network: str) -> None:
    data = samples(f"{network}_dynamo")
    results = [
        onnxruntime.InferenceSession(exported(f"{network}_{exporter}")).run(None, data)[0]
        for exporter in ("torchscript", "dynamo")
    ]
    np.testing.assert_allclose(*results, atol=1e-5)  # float32, and one has batch normalization folded


def test_an_unknown_network_is_refused() -> None:
    with pytest.raises(ValueError, match="resnet_dynamo"):
        exported("resnet")


# ---- module paths -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NETWORKS)
def test_every_module_path_of_a_network_finds_nodes(name: str) -> None:
    graph = load(exported(name))
    expected = RESNET if name.startswith("resnet") else TRANSFORMER
    assert set(known_paths(module_paths(graph))) == expected
    for path in expected:
        assert nodes_of_module(graph, path, "key"), path


@pytest.mark.parametrize("exporter", ["torchscript", "dynamo"])
def test_a_module_holds_the_operators_that_it_computes_with(exporter: str) -> None:
    resnet, transformer = load(exported(f"resnet_{exporter}")), load(exported(f"transformer_{exporter}"))
    expected = {
        "layer1.conv1": ["Conv"],
        "layer1.0.relu": ["Relu", "Relu"],
        "up": ["Resize"],
        "fc": ["Gemm"],
        "layer3": ["Conv", "Relu", "Conv", "Relu", "Conv", "Add", "Relu"],
    }
    for path, operators in expected.items():
        assert [resnet.node(name).op for name in nodes_of_module(resnet, path, "key")] == operators
    expected = {
        "encoder.0.attention.query": ["MatMul", "Add"],  # without the Transpose of the weight
        "encoder.1.activation": ["Div", "Erf", "Add", "Mul", "Mul"],
        "norm": ["LayerNormalization"],  # the only one, though others read the same stored array
        "embedding": ["Gather"],
    }
    for path, operators in expected.items():
        assert [transformer.node(name).op for name in nodes_of_module(transformer, path, "key")] == operators


def test_a_folded_convolution_is_found_by_its_own_path_and_by_that_of_the_batch_normalization() -> None:
    graph = load(exported("resnet_dynamo"))
    (conv,) = nodes_of_module(graph, "layer1.0.conv1", "key")
    assert nodes_of_module(graph, "layer1.0.bn1", "key") == [conv]
    assert "layer1.0.conv1.weight" in [tensor.name for tensor in graph.node(conv).inputs]


@pytest.mark.parametrize("exporter", ["torchscript", "dynamo"])
def test_layers_are_the_nodes_with_weights(exporter: str) -> None:
    graph = load(exported(f"transformer_{exporter}"))
    assert [graph.node(name).op for name in layer_nodes(graph, "encoder.0.attention", "key")] == ["MatMul"] * 4
    assert [graph.node(name).op for name in layer_nodes(graph, "embedding", "key")] == ["Gather"]
    assert [graph.node(name).op for name in layer_nodes(graph, "norm", "key")] == ["LayerNormalization"]


def test_initializers_tell_the_module_where_names_of_nodes_do_not() -> None:
    graph = chain(("Conv", "Conv_0", "stem.conv.weight"), ("Relu", "Relu_1", ""))
    assert nodes_of_module(graph, "stem", "key") == ["Conv_0"]
    assert nodes_of_module(graph, "stem.conv", "key") == ["Conv_0"]
    assert module_paths(graph) == {"Conv_0": (Origin("stem.conv"),)}


def test_names_of_nodes_tell_the_module_where_weights_were_renamed() -> None:
    graph = chain(("Conv", "/layer1/layer1.0/conv1/Conv", "onnx::Conv_12"), ("Relu", "/layer1/layer1.0/relu/Relu", ""))
    assert nodes_of_module(graph, "layer1.0.conv1", "key") == ["/layer1/layer1.0/conv1/Conv"]
    assert len(nodes_of_module(graph, "layer1.0", "key")) == 2


def test_a_list_inside_of_a_module_of_the_same_name_keeps_both_names() -> None:
    graph = chain(("Conv", "/layers/layers.0/conv/Conv", "layers.layers.0.conv.weight"), ("Relu", "/layers/Relu", ""))
    assert module_paths(graph)["/layers/layers.0/conv/Conv"] == (Origin("layers.layers.0.conv"),)


def test_a_dictionary_of_modules_is_restored_from_the_names_of_parameters() -> None:
    graph = chain(("Conv", "/head/conv/Conv", "heads.head.conv.weight"), ("Relu", "/head/relu/Relu", ""))
    assert nodes_of_module(graph, "heads.head", "key") == ["/head/conv/Conv", "/head/relu/Relu"]
    assert module_paths(graph)["/head/relu/Relu"] == (Origin("heads.head.relu"),)


def test_a_second_call_is_told_from_a_module_with_a_number_by_its_parameters() -> None:
    shared = chain(("Conv", "/conv/Conv", "conv.weight"), ("Conv", "/conv_1/Conv", "conv.weight"))
    assert nodes_of_module(shared, "conv", "key") == ["/conv/Conv", "/conv_1/Conv"]
    assert nodes_of_fx_name(shared, "conv_1", "key") == ["/conv_1/Conv"]
    two = chain(("Conv", "/conv/Conv", "conv.weight"), ("Conv", "/conv_1/Conv", "conv_1.weight"))
    assert nodes_of_module(two, "conv", "key") == ["/conv/Conv"]
    assert nodes_of_module(two, "conv_1", "key") == ["/conv_1/Conv"]
    without = chain(("Relu", "/relu/Relu", ""), ("Relu", "/relu_1/Relu", ""))  # nothing tells, both readings are taken
    assert nodes_of_module(without, "relu", "key") == ["/relu/Relu", "/relu_1/Relu"]
    assert nodes_of_module(without, "relu_1", "key") == ["/relu_1/Relu"]


def test_nodes_inside_of_bodies_count_too() -> None:
    info = helper.make_tensor_value_info
    bodies = [
        helper.make_graph(
            [helper.make_node("Relu", ["x"], [f"{name}_out"], name=f"/block/{name}/Relu")],
            name,
            [],
            [info(f"{name}_out", TensorProto.FLOAT, None)],
        )
        for name in ("yes", "no")
    ]
    choice = helper.make_node("If", ["flag"], ["y"], name="/block/If", then_branch=bodies[0], else_branch=bodies[1])
    graph = graph_of([choice], {"flag": np.array(True)})
    assert nodes_of_module(graph, "block.no", "key") == ["/block/no/Relu"]
    assert set(nodes_of_module(graph, "block", "key")) == {"/block/If", "/block/yes/Relu", "/block/no/Relu"}


@pytest.mark.parametrize("name", ["resnet_torchscript", "resnet_dynamo"])
def test_a_wrong_path_is_an_error_with_the_nearest(name: str) -> None:
    graph = load(exported(name))
    with pytest.raises(ConfigError, match=r"exclude_module_name: .*'layer3\.conv4'\. Did you mean .*'layer3\.conv3'"):
        nodes_of_module(graph, "layer3.conv4", "exclude_module_name")
    with pytest.raises(ConfigError, match="Outermost modules: 'features'"):
        layer_nodes(graph, "backbone", "key")


def test_a_file_without_module_paths_offers_its_nodes() -> None:
    graph = chain(("Conv", "conv_0", "w0"), ("Relu", "relu_0", ""))
    for find in (nodes_of_module, nodes_of_fx_name):
        with pytest.raises(ConfigError, match=r"key: the file tells of no modules.* nodes instead: 'conv_0', 'relu_0'"):
            find(graph, "layer1_conv1", "key")
    assert nodes_of_fx_name(graph, "conv_0", "key") == ["conv_0"]


@pytest.mark.parametrize("text", ["no list", "{'a': 1}", "[1, 2]", "["])
def test_metadata_of_another_form_is_no_module_path(text: str) -> None:
    graph = chain(("Conv", "Conv_0", "stem.weight"), ("Relu", "Relu_1", ""))
    graph.node("Conv_0").metadata["pkg.torch.onnx.name_scopes"] = text
    assert module_paths(graph) == {"Conv_0": (Origin("stem"),)}


# ---- fx names -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exporter", ["torchscript", "dynamo"])
def test_modules_and_functions_by_their_fx_names(exporter: str) -> None:
    graph = load(exported(f"resnet_{exporter}"))
    assert nodes_of_fx_name(graph, "layer1_1_conv1", "key") == nodes_of_module(graph, "layer1.1.conv1", "key")
    first, second = nodes_of_module(graph, "layer1.0.relu", "key")
    assert nodes_of_fx_name(graph, "layer1_0_relu", "key") == [first]
    assert nodes_of_fx_name(graph, "layer1_0_relu_1", "key") == [second]
    adds = [node.name for node in graph.nodes("Add")]
    found = [nodes_of_fx_name(graph, name, "key") for name in ("add", "add_1", "add_2", "add_3", "add_4")]
    assert found == [[name] for name in adds]
    assert nodes_of_fx_name(graph, adds[2], "key") == [adds[2]]  # the name of a node itself


@pytest.mark.parametrize("name", NETWORKS)
def test_fx_names_mean_what_torch_fx_traces(name: str) -> None:
    torch = pytest.importorskip("torch")
    fx = pytest.importorskip("torch.fx")
    from tests.networks import make_exports

    network = make_exports.ResNet() if name.startswith("resnet") else make_exports.Transformer()
    graph, checked = load(exported(name)), 0
    assert isinstance(network, torch.nn.Module)
    for node in fx.symbolic_trace(network).graph.nodes:
        if node.op == "call_module":
            assert set(nodes_of_fx_name(graph, node.name, "key")) <= set(nodes_of_module(graph, node.target, "key"))
        # exporters merge and drop moves of data, such as two transpositions in a row: these are not compared
        elif node.op.startswith("call_") and not re.match("transpose|getitem|reshape", node.name):
            (found,) = nodes_of_fx_name(graph, node.name, "key")
            assert graph.node(found).op in operators_of(node.target, "key")
        else:
            continue
        checked += 1
    assert checked > 20


@pytest.mark.parametrize("exporter", ["torchscript", "dynamo"])
def test_functions_are_counted_outside_of_layers(exporter: str) -> None:
    graph = load(exported(f"transformer_{exporter}"))
    (masked,) = nodes_of_fx_name(graph, "add_1", "key")  # after the embedding and its positions
    assert [use.node.op for use in graph.consumers(graph.node(masked).outputs[0])] == ["Softmax"]
    (scores,) = nodes_of_fx_name(graph, "truediv", "key")
    assert graph.producer(graph.node(scores).inputs[0]).name == nodes_of_fx_name(graph, "matmul", "key")[0]
    with pytest.raises(ConfigError, match=r"no fx node 'add_7': the model has 7 of that name, add \.\.\. add_6"):
        nodes_of_fx_name(graph, "add_7", "key")
    with pytest.raises(ConfigError, match="no fx node 'gelu'"):
        nodes_of_fx_name(graph, "gelu", "key")  # here it is a layer, encoder_0_activation


def test_a_module_and_a_function_of_one_name_are_counted_together() -> None:
    graph = chain(("Relu", "/relu/Relu", ""), ("Conv", "/conv/Conv", "conv.weight"), ("Relu", "/Relu", ""))
    assert nodes_of_fx_name(graph, "relu", "key") == ["/relu/Relu"]
    assert nodes_of_fx_name(graph, "relu_1", "key") == ["/Relu"]


@pytest.mark.parametrize(
    ("wrong", "near"), [("layer1_1_cnv1", "layer1_1_conv1"), ("sigmiod", "sigmoid"), ("adaptive_poool", "")]
)
def test_a_wrong_fx_name_is_an_error_with_the_nearest(wrong: str, near: str) -> None:
    graph = load(exported("resnet_torchscript"))
    with pytest.raises(ConfigError, match=f"additional_node_name: no fx node '{wrong}'.*{near}"):
        nodes_of_fx_name(graph, wrong, "additional_node_name")


# ---- fake-quantizers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exporter", ["torchscript", "dynamo"])
def test_a_quantizer_of_a_parameter_is_its_layers(exporter: str) -> None:
    resnet, transformer = load(exported(f"resnet_{exporter}")), load(exported(f"transformer_{exporter}"))
    nodes, kind = quantizer_target(resnet, "features.0.0.weight_fake_quant", "key")
    assert (nodes, kind) == (nodes_of_module(resnet, "features.0.0", "key"), "weight")
    nodes, kind = quantizer_target(transformer, "encoder.0.linear1.bias_fake_quant", "key")
    assert ([transformer.node(name).op for name in nodes], kind) == (["MatMul"], "bias")


@pytest.mark.parametrize("exporter", ["torchscript", "dynamo"])
def test_a_quantizer_behind_a_layer_stands_after_what_is_fused_with_it(exporter: str) -> None:
    graph = load(exported(f"resnet_{exporter}"))
    after = {
        "features_0_0": nodes_of_module(graph, "features.0.2", "key"),
        "layer1_0_conv1": nodes_of_fx_name(graph, "layer1_0_relu", "key"),
        "layer1_0_conv2": nodes_of_module(graph, "layer1.0.bn2", "key"),  # the addition comes before the next Relu
        "layer3_conv3": nodes_of_module(graph, "layer3.conv3", "key"),
        "add_1": nodes_of_fx_name(graph, "add_1", "key"),
        "maxpool": nodes_of_module(graph, "maxpool", "key"),
    }
    found = {name: quantizer_target(graph, f"{name}_post_act_fake_quantizer", "key") for name in after}
    assert found == {name: (nodes, "output") for name, nodes in after.items()}
    assert quantizer_target(graph, "image_post_act_fake_quantizer", "key") == (["image"], "input")


@pytest.mark.parametrize("exporter", ["torchscript", "dynamo"])
def test_a_quantizer_behind_a_layer_of_several_nodes_stands_after_the_last(exporter: str) -> None:
    graph = load(exported(f"transformer_{exporter}"))
    for module in ("encoder.0.activation", "encoder.0.linear1", "encoder.1.attention.query"):
        name = f"{module.replace('.', '_')}_post_act_fake_quantizer"
        assert quantizer_target(graph, name, "key") == ([nodes_of_module(graph, module, "key")[-1]], "output")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("features.0.0.weigth_fake_quant", r"Did you mean 'features\.0\.0\.weight_fake_quant'"),
        ("feature.0.0.weight_fake_quant", r"Did you mean .*'features\.0\.0'"),
        ("layer1_0_cnv1_post_act_fake_quantizer", "Did you mean .*'layer1_0_conv1'"),
        ("conv1", "There are '<module path>.weight_fake_quant'"),
    ],
)
def test_a_wrong_name_of_a_quantizer_is_an_error_with_the_nearest(wrong: str, message: str) -> None:
    graph = load(exported("resnet_torchscript"))
    with pytest.raises(ConfigError, match=f"module_only_enable_observer: .*{message}"):
        quantizer_target(graph, wrong, "module_only_enable_observer")


def test_the_graph_stays_as_it_was(tmp_path: Path) -> None:
    graph = load(exported("transformer_torchscript"))
    nodes_of_fx_name(graph, "add_1", "key")
    quantizer_target(graph, "encoder.0.linear1.weight_fake_quant", "key")
    assert graph.units.all() == []
    graph.save(tmp_path / "after.onnx")
    load(exported("transformer_torchscript")).save(tmp_path / "before.onnx")
    assert (tmp_path / "after.onnx").read_bytes() == (tmp_path / "before.onnx").read_bytes()


def test_in_a_file_without_modules_the_names_of_nodes_are_taken() -> None:
    body = "g (float[1,2] x) => (float[1,2] y) { [n0] a = Relu (x) [n1] y = Neg (a) }"
    text = f'<ir_version: 9, opset_import: ["" : 17]> {body}'
    graph = Graph.from_model(onnx.parser.parse_model(text))
    assert nodes_of_module(graph, "n0", "exclude_module_name") == ["n0"]
    assert layer_nodes(graph, "n1", "exclude_module_name") == ["n1"]
