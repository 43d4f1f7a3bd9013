"""Many entries for a large model: what is known of a graph is worked out once, not for every entry."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import onnxq
from onnxq.compat import Translation, mqbench, structure
from onnxq.graph import Graph
from onnxq.targets.amd import dialect as vitis
from onnxq.targets.amd.dialect import layers
from onnxq.targets.sophgo import dialect as sophgo
from tests.networks.exported import exported

CONVOLUTIONS = ["layer1.0.conv1", "layer1.0.conv2", "layer1.1.conv1", "layer1.1.conv2", "layer2.0.conv1"]


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> Iterator[list[str]]:
    calls: list[str] = []
    real = getattr(module, name)

    def noted(*given: Any) -> Any:
        calls.append(name)
        return real(*given)

    with monkeypatch.context() as patched:
        patched.setattr(module, name, noted)
        yield calls


def excluded(names: list[str], graph: Graph) -> Translation:
    fx = [name.replace(".", "_") for name in names]
    lists = {"exclude_module_name": names, "exclude_node_name": [*fx, "add", "add_1"], "additional_node_name": ["mul"]}
    return mqbench.translate({"extra_quantizer_dict": lists}, graph, "Tensorrt")


def modules(names: list[str], graph: Graph) -> Translation:
    entries = {name: {"mode": "weight", "bit": 8} for name in names}
    observed = [f"{name}.weight_fake_quant" for name in names]
    given = {
        "quant_dict": {"chip": "BM1690", "quantmode": "weight_activation", "strategy": "CNN"},
        "extra_qconfig_dict": {"module_name": entries},
        "extra_quantizer_dict": {"module_only_enable_observer": observed},
    }
    return sophgo.translate(given, graph)


@pytest.mark.parametrize("translate", [excluded, modules])
def test_modules_are_found_in_the_graph_once_for_all_entries(translate: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = onnxq.load(exported("resnet_torchscript"))
    with counted(monkeypatch, structure, "module_paths") as calls:
        assert len(translate(CONVOLUTIONS, graph).rows) >= len(CONVOLUTIONS)
    assert len(calls) == 1


def test_units_are_recognised_once_for_all_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = onnxq.load(exported("transformer_torchscript"))
    types = ["torch.nn.GELU", "torch.nn.LayerNorm", "operator.add", "torch.nn.Linear"]
    with counted(monkeypatch, structure, "run_passes") as calls:
        mqbench.translate({"extra_quantizer_dict": {"exclude_function_type": types}}, graph, "Tensorrt_NLP")
    assert len(calls) == 1


def test_nodes_of_a_type_of_layer_are_found_once_for_all_patterns(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = onnxq.load(exported("resnet_torchscript"))
    quantizer = {"type": "Pof2SQuantizer", "params": {"bit_width": 6}}
    entry = {"target_name": "kernel", "target_type": "weight", "quantizer_config": quantizer}
    entries = [
        {"layer_type": "Conv2D", "layer_name": name.replace(".", "\\."), "quant_config": [entry]}
        for name in CONVOLUTIONS
    ]
    convolutions = len(graph.nodes("Conv"))
    with counted(monkeypatch, layers, "is_depthwise") as calls:
        translation = vitis.translate({"quantize_registry_config": {"layer_quantize_config": entries}}, graph)
    assert len(translation.config["node"]) == len(CONVOLUTIONS)
    assert 0 < len(calls) < convolutions * len(CONVOLUTIONS)
