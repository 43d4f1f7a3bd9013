"""A net keeps the names of its graph, learns, is copied, is checkpointed, and goes back to ONNX."""

from __future__ import annotations

import copy
import weakref

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from onnxq.demo import model_path
from onnxq.errors import ConfigError, DataError, UnsupportedError
from onnxq.graph import Graph
from onnxq.plugins import run_file
from onnxq.torchnet import OPERATORS, Quantizer, TorchNet, to_torch
from onnxq.types.plan import Edge

RANDOM = np.random.default_rng(5)


def _model(nodes: list[onnx.NodeProto], constants: dict[str, np.ndarray], opset: int = 17) -> Graph:
    values = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        values,
    )
    return Graph.from_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)]))


def _two_layers() -> Graph:
    return _model(
        [
            helper.make_node("Gemm", ["x", "block.0.weight", "block.0"], ["h"], name="first"),
            helper.make_node("Clip", ["h", "low", "high"], ["c"], name="limit"),
            helper.make_node("Mul", ["c", "half"], ["m"], name="halve"),
            helper.make_node("Add", ["m", "mask"], ["n"], name="masked"),
            helper.make_node("MatMul", ["n", "training"], ["y"], name="last"),
        ],
        {
            "block.0.weight": RANDOM.normal(size=(4, 6)).astype(np.float32),
            "block.0": RANDOM.normal(size=6).astype(np.float32),
            "low": np.float32(-3.0),
            "high": np.float32(3.0),
            "half": np.float32(0.5),
            "mask": np.array([0, 0, 0, 0, 0, -1e9], np.float32),
            "training": RANDOM.normal(size=(6, 2)).astype(np.float32),
        },
    )


def test_parameters_and_buffers_have_the_names_of_the_initializers_whatever_they_are() -> None:
    net = to_torch(_two_layers())
    assert sorted(name for name, _ in net.named_parameters()) == ["block.0", "block.0.weight", "training"]
    assert sorted(name for name, _ in net.named_buffers()) == ["half", "high", "low", "mask"]
    assert net.get_parameter("block.0.weight").shape == (4, 6)
    assert net.training is True


def test_a_state_is_loaded_strictly() -> None:
    net, other = to_torch(_two_layers()), to_torch(_two_layers())
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(1.0)
    other.load_state_dict(net.state_dict())
    x = torch.randn(3, 4)
    assert torch.equal(net(x), other(x))
    with pytest.raises(RuntimeError, match=r"Unexpected key.*block\.1"):
        other.load_state_dict({**net.state_dict(), "block.1": torch.zeros(6)})
    with pytest.raises(RuntimeError, match=r"Missing key.*training"):
        other.load_state_dict({name: value for name, value in net.state_dict().items() if name != "training"})


def test_patterns_choose_what_is_trained() -> None:
    net = to_torch(_two_layers(), trainable=["block.*"])
    assert sorted(name for name, _ in net.named_parameters()) == ["block.0", "block.0.weight"]


def test_a_copy_is_independent_in_values_and_in_mode() -> None:
    net = to_torch(Graph.load(model_path()))
    twin = copy.deepcopy(net)
    with torch.no_grad():
        twin.get_parameter("stem.conv.weight").zero_()
    twin.eval()
    assert net.mode.training
    assert not twin.mode.training
    assert net.get_parameter("stem.conv.weight").abs().sum() > 0


def test_training_reaches_every_parameter_and_the_graph_gets_the_new_values() -> None:
    graph = Graph.load(model_path())
    net = to_torch(graph)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    images = torch.rand(8, 1, 8, 8)
    torch.nn.functional.cross_entropy(net(images), torch.arange(8)).backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in net.parameters())
    optimizer.step()
    written = net.to_graph()
    for name, parameter in net.named_parameters():
        np.testing.assert_array_equal(written.values(name), parameter.detach().numpy())
        assert not np.array_equal(written.values(name), graph.values(name))
    np.testing.assert_array_equal(written.values("stem.bn.running_mean"), graph.values("stem.bn.running_mean"))


def test_constants_that_are_nodes_are_trained_and_written_back() -> None:
    weight = helper.make_node("Constant", [], ["w"], value=numpy_helper.from_array(np.eye(4, dtype=np.float32)))
    net = to_torch(_model([weight, helper.make_node("MatMul", ["x", "w"], ["y"])], {}))
    with torch.no_grad():
        net.get_parameter("w").mul_(2.0)
    again = to_torch(net.to_graph())
    assert torch.equal(again(torch.ones(1, 4)), torch.full((1, 4), 2.0))


@pytest.mark.parametrize("segments", [2, 3, 100])
def test_recomputed_segments_give_the_same_gradients(segments: int) -> None:
    graph = Graph.load(model_path())
    images, labels = torch.rand(4, 1, 8, 8), torch.arange(4)
    gradients = []
    for count in (1, segments):
        net = to_torch(graph)
        net.checkpoint_segments = count
        net.mode.live_statistics = True
        torch.nn.functional.cross_entropy(net(images), labels).backward()
        statistics = net.get_buffer("head.bn.running_mean").clone()
        gradients.append([*(p.grad for p in net.parameters()), statistics])
    for one, other in zip(*gradients, strict=True):
        assert torch.equal(one, other)


def test_a_quantizer_is_seen_only_by_the_uses_that_it_is_for() -> None:
    graph = _model(
        [
            helper.make_node("Relu", ["x"], ["h"], name="make"),
            helper.make_node("Neg", ["h"], ["a"], name="quantized"),
            helper.make_node("Abs", ["h"], ["b"], name="plain"),
            helper.make_node("Concat", ["a", "b"], ["y"], name="join", axis=1),
        ],
        {},
    )
    net = TorchNet(graph, quantizers={"h": Quantizer(torch.ceil, frozenset({Edge("quantized", 0)}))})
    assert net(torch.full((1, 4), 0.25)).tolist() == [[-1.0] * 4 + [0.25] * 4]
    everywhere = TorchNet(graph, quantizers={"h": Quantizer(torch.ceil, None)})
    assert everywhere(torch.full((1, 4), 0.25)).tolist() == [[-1.0] * 4 + [1.0] * 4]


def test_a_weight_of_a_loop_is_quantized_once_and_read_inside() -> None:
    body = helper.make_graph(
        [
            helper.make_node("Add", ["state", "w"], ["next"], name="add"),
            helper.make_node("Identity", ["condition"], ["go"], name="same"),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("condition", TensorProto.BOOL, []),
            helper.make_tensor_value_info("state", TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", TensorProto.FLOAT, None),
        ],
    )
    graph = _model(
        [helper.make_node("Loop", ["count", "", "x"], ["y"], name="loop", body=body)],
        {"count": np.int64(3), "w": np.array([0.25, 1.5, 2.0, -0.5], np.float32)},
    )
    calls = []

    def quantizer(value: torch.Tensor) -> torch.Tensor:
        calls.append(value)
        return torch.ceil(value)

    net = TorchNet(graph, quantizers={"w": Quantizer(quantizer, frozenset({Edge("add", 1)}))})
    assert net(torch.zeros(1, 4)).tolist() == [[3.0, 6.0, 6.0, 0.0]]
    assert len(calls) == 1


def test_inputs_are_given_by_place_or_by_name_and_mistakes_are_named() -> None:
    net = to_torch(_two_layers()).eval()
    x = np.ones((5, 4), np.float32)
    assert torch.equal(net.run({"x": x})["y"], net(torch.from_numpy(x)))
    with pytest.raises(DataError, match=r"no input 'X'\. Did you mean 'x'"):
        net.run({"X": x})
    with pytest.raises(DataError, match="has 1 inputs"):
        net()


def test_the_value_of_a_tensor_inside_can_be_kept() -> None:
    net = to_torch(_two_layers(), keep=["h"])
    net(torch.ones(2, 4))
    assert net.kept["h"].shape == (2, 6)


def test_an_error_inside_names_the_node() -> None:
    net = to_torch(
        _model([helper.make_node("Reshape", ["x", "shape"], ["y"], name="odd")], {"shape": np.array([3, 3])})
    )
    with pytest.raises(RuntimeError) as raised:
        net(torch.ones(2, 4))
    assert any("node 'odd' (Reshape, opset 17)" in note for note in raised.value.__notes__)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (torch.ones(2, 5), r"input 'x' has the shape \(2, 5\); the model wants \(batch, 4\)"),
        (torch.ones(2, 4, dtype=torch.float64), "input 'x' is float64; the model wants float32"),
        (np.ones((2, 4), np.float32), "input 'x' is a numpy array; .* call `run`"),
        ([[1.0] * 4], "input 'x' is a list"),
    ],
)
def test_a_wrong_input_is_named_with_the_node_that_failed_on_it(given: object, said: str) -> None:
    with pytest.raises(DataError, match=said + r".*node 'first' \(Gemm, opset 17\)"):
        to_torch(_two_layers())(given)


def test_a_graph_does_not_follow_what_the_net_learns_afterwards() -> None:
    net = to_torch(_two_layers())
    written = net.to_graph()
    before = written.values("training").copy()
    with torch.no_grad():
        net.get_parameter("training").mul_(2.0)
    np.testing.assert_array_equal(written.values("training"), before)


def test_a_net_in_another_precision_goes_back_to_the_types_of_the_graph() -> None:
    net = to_torch(_two_layers()).double()
    assert net(torch.ones(1, 4, dtype=torch.float64)).dtype == torch.float64
    assert net.to_graph().values("training").dtype == np.float32


def test_half_precision_of_a_constant_node_goes_back_as_it_was() -> None:
    half = numpy_helper.from_array(np.eye(4, dtype=np.float16))
    nodes = [
        helper.make_node("Constant", [], ["w"], value=half),
        helper.make_node("Cast", ["x"], ["h"], to=TensorProto.FLOAT16),
        helper.make_node("MatMul", ["h", "w"], ["m"]),
        helper.make_node("Cast", ["m"], ["y"], to=TensorProto.FLOAT),
    ]
    assert to_torch(_model(nodes, {})).to_graph().values("w").dtype == np.float16


def test_a_copy_has_the_parameters_that_the_net_has_now() -> None:
    net = to_torch(_two_layers())
    net.keep_fixed("block.0")
    twin = copy.deepcopy(net)
    assert [name for name, _ in twin.named_parameters()] == [name for name, _ in net.named_parameters()]
    assert sorted(twin.state_dict()) == sorted(net.state_dict())


def test_a_state_can_be_assigned_whatever_the_names_are() -> None:
    net, other = to_torch(_two_layers()), to_torch(_two_layers())
    state = {name: value + 1.0 if value.numel() > 1 else value for name, value in net.state_dict().items()}
    other.load_state_dict(state, assign=True)
    assert other.training is True
    assert all(torch.equal(value, state[name]) for name, value in other.state_dict().items())
    assert sorted(name for name, _ in other.named_parameters()) == ["block.0", "block.0.weight", "training"]


def test_a_number_that_is_also_a_setting_is_not_trained() -> None:
    nodes = [helper.make_node("Clip", ["x", "number"], ["c"]), helper.make_node("Mul", ["c", "number"], ["y"])]
    graph = _model(nodes, {"number": np.float32(0.5)})
    assert [name for name, _ in to_torch(graph, trainable=["*"]).named_parameters()] == []
    graph = _model(nodes[1:], {"number": np.float32(0.5), "c": np.ones(4, np.float32)})
    assert [name for name, _ in to_torch(graph, trainable=["number"]).named_parameters()] == ["number"]


def test_an_operator_that_is_known_in_other_versions_says_which() -> None:
    graph = _model([helper.make_node("Gelu", ["x"], ["y"], name="odd")], {})
    with pytest.raises(
        UnsupportedError, match=r"opset 17 has no torch implementation: there is one for versions 20\.\."
    ):
        to_torch(graph)


def test_a_body_keeps_nothing_of_a_run() -> None:
    branches = {
        name: helper.make_graph(
            [helper.make_node(op, ["h"], [f"{op}_out"])],
            name,
            [],
            [helper.make_tensor_value_info(f"{op}_out", TensorProto.FLOAT, None)],
        )
        for name, op in (("then_branch", "Relu"), ("else_branch", "Neg"))
    }
    net = to_torch(
        _model(
            [
                helper.make_node("MatMul", ["x", "w"], ["h"]),
                helper.make_node("If", ["yes"], ["y"], name="choice", **branches),
            ],
            {"w": np.eye(4, dtype=np.float32), "yes": np.array(True)},
        ),
        keep=["h"],
    )
    net(torch.ones(1, 4))
    inside = weakref.ref(net.kept["h"])
    net.kept = {}
    assert inside() is None


def test_an_operator_without_an_implementation_is_named_with_the_way_out() -> None:
    graph = _model([helper.make_node("Relux", ["x"], ["y"], name="odd", domain="my.ops")], {})
    with pytest.raises(UnsupportedError) as raised:
        to_torch(graph)
    text = str(raised.value)
    assert all(part in text for part in ("node 'odd'", "my.ops::Relux", "opset 1", 'op("Relux", since=1', "--plugin"))


def test_an_operator_in_a_file_of_the_users_is_used(tmp_path) -> None:
    file = tmp_path / "relux.py"
    file.write_text(
        "import torch\n"
        "from onnxq.torchnet import op\n\n"
        "@op('Relux', since=1, domain='my.ops')\n"
        "def relux(call):\n"
        "    limit = call.attribute('limit', 2.0)\n"
        "    return lambda x: torch.clamp(x, 0.0, limit)\n"
    )
    run_file(file, "plugin")
    run_file(file, "plugin")  # the same file again takes its own place
    graph = _model([helper.make_node("Relux", ["x"], ["y"], domain="my.ops", limit=1.5)], {})
    assert to_torch(graph)(torch.tensor([[-1.0, 0.5, 1.0, 9.0]])).tolist() == [[0.0, 0.5, 1.0, 1.5]]
    other = tmp_path / "other.py"
    other.write_text(file.read_text().replace("relux(call)", "another(call)"))
    with pytest.raises(ConfigError, match="registered twice"):
        run_file(other, "plugin")


def test_every_operator_of_the_registry_has_versions_that_do_not_overlap_by_accident() -> None:
    for definition in OPERATORS.definitions():
        assert definition.until is None or definition.since <= definition.until


def test_what_comes_before_an_unknown_operator_can_be_trained() -> None:
    graph = _model(
        [
            helper.make_node("MatMul", ["x", "w"], ["h"], name="known"),
            helper.make_node("Relux", ["h"], ["r"], name="odd", domain="nobody.knows"),
            helper.make_node("MatMul", ["r", "v"], ["y"], name="after"),
        ],
        {"w": np.eye(4, dtype=np.float32), "v": np.ones((4, 2), np.float32)},
    )
    with pytest.raises(UnsupportedError, match=r"outputs=\[\.\.\.\]"):
        to_torch(graph)
    net = to_torch(graph, outputs=["h"])
    assert net.output_names == ["h"]
    net(torch.ones(1, 4)).sum().backward()
    with torch.no_grad():
        net.get_parameter("w").sub_(net.get_parameter("w").grad)
    written = net.to_graph()
    assert [node.op for node in written.nodes()] == ["MatMul", "Relux", "MatMul"]
    np.testing.assert_array_equal(written.values("w"), np.eye(4) - 1)
    np.testing.assert_array_equal(written.values("v"), graph.values("v"))
