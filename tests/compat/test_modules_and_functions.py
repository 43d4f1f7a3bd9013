"""F.relu and torch.nn.ReLU are told apart where the file allows it, and FloatFunctional's methods have their names."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxq.compat.modules import nodes_of_fx_name
from onnxq.compat.mqbench import translate
from onnxq.compat.structure import Structure
from onnxq.compat.torch_names import nodes_of_type, torch_name, type_note
from onnxq.errors import ConfigError
from onnxq.graph import Graph
from onnxq.session.prepare import make_plan, prepare
from tests.compat.mqbench_plans import RESNET, RESNET_DYNAMO, TRANSFORMER, became, translated
from tests.networks.exported import exported

WHERE = "extra_quantizer_dict"
RELU, SIGMOID = "torch.nn.functional.relu", "torch.nn.functional.sigmoid"
NETWORKS = [RESNET, RESNET_DYNAMO]


def lists(**values: Any) -> dict[str, Any]:
    return {WHERE: values}


@pytest.mark.parametrize("network", NETWORKS)
def test_a_function_does_not_mean_the_modules_that_compute_the_same(network: str) -> None:
    translation = translated(lists(exclude_function_type=[RELU]), "SNPE", network)
    assert "skip" not in translation.config
    text = became(translation, f"{WHERE}.exclude_function_type")
    assert text.startswith("no effect")
    assert "modules, which are named by their paths or by their class" in text


@pytest.mark.parametrize("network", NETWORKS)
def test_a_class_does_not_mean_the_functions_that_compute_the_same(network: str) -> None:
    graph = Graph.load(exported(network))
    assert nodes_of_type(graph, "torch.nn.ReLU", "key")
    assert nodes_of_type(graph, "torch.nn.Sigmoid", "key") == []
    assert "calls of functions" in type_note(graph, "torch.nn.Sigmoid", "key")
    assert len(nodes_of_type(graph, SIGMOID, "key")) == 1
    assert type_note(graph, SIGMOID, "key") == ""


def test_functions_inside_of_a_users_module_are_functions() -> None:
    graph = Graph.load(exported(TRANSFORMER))
    assert nodes_of_type(graph, "torch.softmax", "key") == [
        "/encoder.0/attention/Softmax",
        "/encoder.1/attention/Softmax",
    ]
    assert nodes_of_type(graph, "torch.nn.Softmax", "key") == []
    assert nodes_of_type(graph, "torch.nn.functional.gelu", "key") == []
    assert nodes_of_type(graph, "torch.nn.functional.layer_norm", "key") == []


def script_model(*, plain: bool = False) -> onnx.ModelProto:
    """What the TorchScript exporter writes for relu(conv(x)) as a module and F.relu(conv(...)) as a function."""
    names = ["/conv/Conv", "/act/Relu", "/conv2/Conv", "/Relu"]
    operators = ["Conv", "Relu", "Conv", "Relu"]
    parameters = ["conv.weight", "", "conv2.weight", ""]
    nodes, last = [], "x"
    for number, (name, op, weight) in enumerate(zip(names, operators, parameters, strict=True)):
        made = f"t{number}"
        read = [last, (f"w{number}" if plain else weight)] if weight else [last]
        nodes.append(helper.make_node(op, read, [made], name=f"n{number}" if plain else name))
        last = made
    weight = np.eye(3, dtype=np.float32).reshape(3, 3, 1, 1)
    held = ["w0", "w2"] if plain else ["conv.weight", "conv2.weight"]
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 3, 4, 4]) for name in ("x", last)]
    graph = helper.make_graph(nodes, "g", info[:1], info[1:], [numpy_helper.from_array(weight, name) for name in held])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize(("thing", "wanted"), [(RELU, ["/Relu"]), ("torch.nn.ReLU", ["/act/Relu"])])
def test_one_of_two_is_excluded_and_the_row_names_the_other(thing: str, wanted: list[str]) -> None:
    graph = Graph.from_model(script_model())
    assert nodes_of_type(graph, thing, "key") == wanted
    note = type_note(graph, thing, "key")
    assert ("/act/Relu" if wanted == ["/Relu"] else "/Relu") in note


def test_a_file_that_does_not_tell_takes_both_and_the_row_says_so() -> None:
    graph = Graph.from_model(script_model(plain=True))
    translation = translate(lists(exclude_function_type=[RELU]), graph, "SNPE")
    assert translation.config["skip"] == ["n1", "n3"]
    assert "does not tell modules from functions" in became(translation, f"{WHERE}.exclude_function_type")
    assert nodes_of_type(graph, "torch.nn.ReLU", "key") == ["n1", "n3"]


def test_the_classes_of_the_newer_exporter_decide() -> None:
    structure = Structure(Graph.load(exported(RESNET_DYNAMO)))
    told = {node.op: structure.called_as(node) for node in structure.graph.nodes() if node.op in ("Relu", "Sigmoid")}
    assert told == {"Relu": "module", "Sigmoid": "function"}


# ---- FloatFunctional ---------------------------------------------------------------------------------------------

METHODS = {
    "add": ["sum"],
    "cat": ["joined"],
    "mul": ["product"],
    "add_relu": ["add_of_relu", "relu"],
    "add_scalar": ["shift"],
    "mul_scalar": ["scale"],
}


def functional_model() -> onnx.ModelProto:
    """add_relu, add_scalar, mul_scalar, mul, cat and add of a FloatFunctional, as an exporter writes them."""
    nodes = [
        helper.make_node("Conv", ["x", "conv.weight"], ["c"], name="/conv/Conv"),
        helper.make_node("Add", ["x", "c"], ["a"], name="add_of_relu"),
        helper.make_node("Relu", ["a"], ["r"], name="relu"),
        helper.make_node("Add", ["r", "one"], ["s"], name="shift"),
        helper.make_node("Mul", ["s", "one"], ["m"], name="scale"),
        helper.make_node("Mul", ["m", "r"], ["p"], name="product"),
        helper.make_node("Concat", ["p", "s"], ["j"], name="joined", axis=1),
        helper.make_node("Concat", ["s", "p"], ["k"], name="joined_too", axis=1),
        helper.make_node("Add", ["j", "k"], ["y"], name="sum"),
    ]
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 4, 4])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 6, 4, 4])
    held = {"conv.weight": np.eye(3, dtype=np.float32).reshape(3, 3, 1, 1), "one": np.float32(1.5)}
    constants = [numpy_helper.from_array(np.asarray(values), name) for name, values in held.items()]
    graph = helper.make_graph(nodes, "g", [info], [result], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def found(method: str) -> list[str]:
    nodes = nodes_of_type(Graph.from_model(functional_model()), f"torch.nn.quantized.FloatFunctional.{method}", "key")
    return [name for name in nodes if name not in ("joined_too",)]


@pytest.mark.parametrize(("method", "nodes"), METHODS.items())
def test_each_method_finds_its_nodes(method: str, nodes: list[str]) -> None:
    assert found(method) == (["add_of_relu", "sum"] if method == "add" else nodes)


@pytest.mark.parametrize(
    "spelling",
    [
        "FloatFunctional.{}",
        "FXFloatFunctional.{}",
        "nnq.FloatFunctional.{}",
        "nn.quantized.FloatFunctional.{}",
        "torch.nn.quantized.FXFloatFunctional.{}",
        "torch.ao.nn.quantized.FloatFunctional.{}",
        "torch.ao.nn.quantized.modules.functional_modules.FloatFunctional.{}",
    ],
)
def test_every_spelling_is_the_same(spelling: str) -> None:
    assert torch_name(spelling.format("add_relu")) == "torch.nn.quantized.FloatFunctional.add_relu"


def test_methods_of_torch_are_taken_as_they_are() -> None:
    quantized = pytest.importorskip("torch").ao.nn.quantized
    for method in METHODS:
        name = f"torch.nn.quantized.FloatFunctional.{method}"
        assert torch_name(getattr(quantized.FloatFunctional, method)) == name
        assert torch_name(getattr(quantized.FloatFunctional(), method)) == name
        assert torch_name(getattr(quantized.FXFloatFunctional, method)) == name
    assert torch_name(quantized.FloatFunctional) == "torch.nn.quantized.FloatFunctional"


@pytest.mark.parametrize("method", METHODS)
def test_each_method_is_excluded_by_its_name(method: str) -> None:
    graph = Graph.from_model(functional_model())
    wanted = nodes_of_type(graph, f"FloatFunctional.{method}", "key")
    translation = translate(lists(exclude_function_type=[f"FloatFunctional.{method}"]), graph, "ONNX_QNN")
    assert translation.config["skip"] == wanted
    plan = make_plan(prepare(functional_model(), translation.backend, translation))
    assert set(wanted) <= set(plan.left_float)


@pytest.mark.parametrize(("method", "nodes"), METHODS.items())
def test_each_method_is_quantized_by_its_name(method: str, nodes: list[str]) -> None:
    graph = Graph.from_model(functional_model())
    extra = {**lists(additional_function_type=[f"torch.nn.quantized.FloatFunctional.{method}"])}
    translation = translate(extra, graph, "Tensorrt")
    assert nodes[0] in translation.config["force"]
    assert "relu" not in translation.config["force"]
    assert nodes[0] in make_plan(prepare(functional_model(), translation.backend, translation)).quantized


def test_the_class_means_all_that_it_computes() -> None:
    translation = translate(
        lists(additional_module_type=("torch.nn.quantized.FloatFunctional",)),
        Graph.from_model(functional_model()),
        "SNPE",
    )
    assert {"shift", "scale", "product", "sum", "add_of_relu"} <= set(translation.config["force"])
    assert "/conv/Conv" not in translation.config["force"]


def test_calls_are_numbered_under_the_names_of_the_methods() -> None:
    graph = Graph.from_model(functional_model())
    assert nodes_of_fx_name(graph, "add_relu", "key") == ["add_of_relu", "relu"]
    assert nodes_of_fx_name(graph, "add_scalar", "key") == ["shift"]
    assert nodes_of_fx_name(graph, "cat_1", "key") == ["joined_too"]
    with pytest.raises(ConfigError, match="no fx node 'mul_scalar_1': the model has 1 of that name"):
        nodes_of_fx_name(graph, "mul_scalar_1", "key")


def test_an_unknown_method_is_an_error_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"FloatFunctional\.add_relu"):
        nodes_of_type(Graph.from_model(functional_model()), "FloatFunctional.add_rellu", "key")
