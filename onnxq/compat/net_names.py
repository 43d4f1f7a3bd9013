"""The names that torch's users know for the constants and quantizers of a net that is made from an exported file.

Constants keep the names of their initializers where these are those of parameters (layer1.0.conv1.weight). Others are
called after the module of the node that reads them, and what they are to it: `onnx::Conv_45` of layer1.0.conv1 is
layer1.0.conv1.weight. Without any module the name of the initializer is all there is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from onnxq.compat.modules import Exported, result_names
from onnxq.graph import Graph, Node
from onnxq.qat.module_names import TRANSPOSED, ModuleNames
from onnxq.qat.net import QatNet

_PARAMETER = re.compile(r"\w+(\.\w+)+", re.ASCII)
_PORTS: Mapping[str, tuple[str, ...]] = {
    "Conv": ("", "weight", "bias"),
    "ConvTranspose": ("", "weight", "bias"),
    "Gemm": ("", "weight", "bias"),
    "ConvBatchNorm": ("", "weight", "bias"),
    "MatMul": ("", TRANSPOSED),
    "PRelu": ("", "weight"),
    "Gather": ("weight",),
    "BatchNormalization": ("", "weight", "bias", "running_mean", "running_var"),
    "LayerNormalization": ("", "weight", "bias"),
    "GroupNormalization": ("", "weight", "bias"),
    "InstanceNormalization": ("", "weight", "bias"),
}
"""Operator -> what torch calls its inputs."""

_OF_MODULES = (".weight", ".bias", ".running_mean", ".running_var")
"""What torch keeps of a module, also where it is not trained."""

_STATISTICS = {"BatchNormalization": 3, "ConvBatchNorm": 5}
"""Operator -> the input that is its running mean."""

_RANDOM = (
    "Dropout",
    "Bernoulli",
    "Multinomial",
    "RandomNormal",
    "RandomUniform",
    "RandomNormalLike",
    "RandomUniformLike",
)
"""Operators that drop or draw, which differs in training."""

_CHANNELS = {"Conv": 0, "ConvTranspose": 1, "Gemm": 0, "MatMul": 1}
"""Operator -> the axis of output channels in a weight of torch's layout."""


def net_names(model: Exported, net: QatNet) -> ModuleNames:
    """Names for everything that a net holds; `model` is the file as it was given."""
    constants: dict[str, str] = {}
    shared: dict[str, str] = {}
    held = [name for name in net.constant_names() if name in net._parameters or name in net._buffers]
    for constant in held:
        readers = [name for name in _by_readers(model, net.graph, constant) if name not in constants.values()]
        trained = constant in net._parameters
        if not model.graph.has_tensor(constant) and readers:
            constants[constant] = readers[0]  # a pass has made it, such as the bias of a folded batch norm
        elif (trained or constant.endswith(_OF_MODULES)) and _is_free(constant, constants):
            constants[constant] = constant
        elif readers:
            constants[constant] = readers[0]
        elif trained:
            constants[constant] = _unused(_word(constant), constants.values())
        else:
            continue
        own = constants[constant]
        shared.update((name, constant) for name in readers if name != own and not name.endswith(TRANSPOSED))
    channels, biases = _layers(net, constants)
    nodes = _told_by_modules(model, net, constants)
    return ModuleNames(constants, _quantizers(model, net, constants), shared, channels, biases, nodes)


def _is_free(name: str, constants: Mapping[str, str]) -> bool:
    """Whether it is the name of a parameter that nothing else has yet."""
    return _PARAMETER.fullmatch(name) is not None and name not in constants.values()


def _by_readers(model: Exported, trained: Graph, constant: str) -> list[str]:
    """What the modules that read a constant would call it."""
    graph = model.graph if model.graph.has_tensor(constant) else trained
    found = []
    for use in graph.consumers(constant):
        origins = model.origins.get(use.node.name, ())
        parts = _PORTS.get(use.node.op, ())
        part = parts[use.port] if use.port < len(parts) else ""
        if not part and model.graph.has_node(use.node.name) and model.adds_bias(model.graph.node(use.node.name)):
            part = "bias"
        if part == "weight" and _is_turned_over(use.node):
            part = TRANSPOSED
        found += [f"{origin.path}.{part}" for origin in origins if part and origin.path]
    return list(dict.fromkeys(found))


def _is_turned_over(node: Node) -> bool:
    return node.op == "Gemm" and not node.attrs.get("transB", 0)


def _layers(net: QatNet, constants: Mapping[str, str]) -> tuple[dict[str, int], dict[str, str]]:
    """Weights of layers with the axis of their output channels, and their biases."""
    channels: dict[str, int] = {}
    biases: dict[str, str] = {}
    for node in net.graph.nodes():
        if node.op not in _CHANNELS or len(node.inputs) < 2 or node.inputs[1].name not in constants:
            continue
        weight = node.inputs[1].name
        channels[weight] = 1 - _CHANNELS[node.op] if _is_turned_over(node) else _CHANNELS[node.op]
        if len(node.inputs) > 2 and node.inputs[2].name in constants:
            biases[weight] = node.inputs[2].name
    return channels, biases


def _told_by_modules(model: Exported, net: QatNet, constants: Mapping[str, str]) -> dict[str, str]:
    """Nodes that differ in training, with the module whose train() and eval() they follow.

    A batch norm follows the module that has its statistics: its node may be that of the layer in front.
    """
    found = {}
    for node in net.graph.nodes():
        port = _STATISTICS.get(node.op)
        statistics = None if port is None or port >= len(node.inputs) else constants.get(node.inputs[port].name)
        if statistics is not None:
            found[node.name] = statistics.rpartition(".")[0]
        elif node.op in _RANDOM:
            found.update((node.name, origin.path) for origin in model.origins.get(node.name, ())[:1])
    return found


def _quantizers(model: Exported, net: QatNet, constants: Mapping[str, str]) -> dict[str, str]:
    results = result_names(model)
    found: dict[str, str] = {}
    computed = {folded: constant for constant, folded in net.unfolded.renamed.items()}
    for tensor, module in net.fake_quantizers.items():
        constant = computed.get(tensor, tensor)
        if module.role in ("weight", "bias"):
            own = constants.get(constant) or _of_role(model, net, constant, module.role) or _word(constant)
            name = f"{own.removesuffix('_transposed')}_fake_quant"
        else:
            name = f"{results.get(tensor) or _maker(model.graph, tensor)}_post_act_fake_quantizer"
        found[tensor] = _unused(name, found.values())
    return found


def _of_role(model: Exported, net: QatNet, constant: str, role: str) -> str | None:
    """The name of a weight or bias that the net computes, by the layer that reads it in the prepared graph."""
    graph = net.prepared.graph
    for use in graph.consumers(constant) if graph.has_tensor(constant) else ():
        for origin in model.origins.get(use.node.name, ()):
            if origin.path:
                return f"{origin.path}.{role}"
    return None


def _maker(graph: Graph, tensor: str) -> str:
    """The name of the node that makes a tensor, where the file knows no modules."""
    maker = graph.producer(tensor) if graph.has_tensor(tensor) else None
    return _word(maker.name if maker is not None and maker.name else tensor)


def _word(name: str) -> str:
    """A name that torch takes for one module: no dots."""
    return re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_") or "tensor"


def _unused(name: str, taken: object) -> str:
    used = set(taken)  # type: ignore[call-overload]
    number, free = 1, name
    while free in used:
        free, number = f"{name}_{number}", number + 1
    return free
