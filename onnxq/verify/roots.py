"""Loading models with thousands of quantized weights, which onnxruntime takes quadratic time for.

Every DequantizeLinear on a stored weight is a node that waits for nothing, and the time onnxruntime needs to load a
model grows with the square of their number, at every optimization level: 0.5 s for 1,000 of them, 14 s for 5,000. Here
onnxruntime computes such nodes in portions, and the model is loaded with the results in their place. All nodes are
still run by onnxruntime, and the numbers are the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
from onnx import helper, numpy_helper

from onnxq.errors import ModelError, UnsupportedError
from onnxq.runtime.sections import MANY_NODES, SectionedSession, sectioned_session
from onnxq.runtime.session import KEEP_PAIRS, Optimize, make_session, run_session

if TYPE_CHECKING:
    import onnxruntime as ort

MANY_ROOTS = 1500
_PORTION = 250
_LARGEST_FILE = 2**30


def load_session(
    path: Path,
    *,
    threads: int | None = None,
    optimize: Optimize = "all",
    config: Mapping[str, str] | None = None,
    nodes: int | None = None,
) -> ort.InferenceSession | SectionedSession:
    """A session for a file, in sections where that is the same; else with many quantized weights see above.

    `nodes` are those of the file, where they are known: a small one need not be read to see that it is.
    """
    is_small = nodes is not None and nodes <= min(MANY_NODES, MANY_ROOTS)
    if not is_small and path.is_file() and path.stat().st_size < _LARGEST_FILE:
        model = onnx.load(str(path), load_external_data=False)
        external = any(tensor.data_location == onnx.TensorProto.EXTERNAL for tensor in model.graph.initializer)
        sections = sectioned_session(model, threads=threads, optimize=optimize, config=config, what=str(path))
        if sections is not None:
            return sections
        roots = [] if external else _roots(model.graph)
        if len(roots) > MANY_ROOTS:
            _replace(model, roots)
            return make_session(
                model.SerializeToString(), threads=threads, optimize=optimize, config=config, what=str(path)
            )
    return make_session(path, threads=threads, optimize=optimize, config=config, what=str(path))


def folded_session(
    path: Path, *, threads: int | None, nodes: int, weights: int
) -> ort.InferenceSession | SectionedSession:
    """A session that runs a file of so many nodes as it is written, with what depends on constants computed once.

    `weights` is the number of their values, in files beside it too, which are held in float32.

    Quantizers stay pairs, and no layer computes in integers. Without that, onnxruntime dequantizes every weight in
    every run: that takes twice as long as the run itself where layers have few rows.
    """
    if nodes <= MANY_ROOTS and path.is_file() and 4 * weights <= _LARGEST_FOLDED:
        try:
            return make_session(path, threads=threads, optimize="basic", config=KEEP_PAIRS, what=str(path))
        except (ModelError, UnsupportedError):
            pass  # its fusions do not take every file; without any it has the last word
    return load_session(path, threads=threads, optimize="none", nodes=nodes)


_LARGEST_FOLDED = 2**29
"""Bytes that weights may take in float."""


def _roots(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """Quantizers that depend on constants only, in order: those of stored weights, and Q/DQ pairs on float weights."""
    known = {tensor.name for tensor in graph.initializer} - {tensor.name for tensor in graph.input}
    outputs = {tensor.name for tensor in graph.output}
    found = []
    for node in graph.node:
        quantizer = node.op_type in ("QuantizeLinear", "DequantizeLinear")
        if quantizer and all(name in known for name in node.input if name) and outputs.isdisjoint(node.output):
            known.update(node.output)
            found.append(node)
    return found


def _replace(model: onnx.ModelProto, roots: list[onnx.NodeProto]) -> None:
    """Put the values of the roots that other nodes read in the place of the roots."""
    graph = model.graph
    makers = {node.output[0]: node for node in roots}
    stored = {tensor.name: tensor for tensor in graph.initializer}
    kept = [node for node in graph.node if not node.output or node.output[0] not in makers]
    used = _names_read(kept) | {tensor.name for tensor in graph.output}
    wanted = [name for name in makers if name in used]
    values = []
    for start in range(0, len(wanted), _PORTION):
        values += _computed(model, wanted[start : start + _PORTION], makers, stored)
    initializers = [tensor for tensor in graph.initializer if tensor.name in used]
    for field, content in ((graph.node, kept), (graph.initializer, [*initializers, *values])):
        copies = [type(item).FromString(item.SerializeToString()) for item in content]
        del field[:]
        field.extend(copies)


def _names_read(nodes: Iterable[onnx.NodeProto]) -> set[str]:
    """Everything that nodes read, in their bodies too."""
    names: set[str] = set()
    pending = list(nodes)
    while pending:
        node = pending.pop()
        names.update(node.input)
        for attribute in node.attribute:
            for body in [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]:
                pending.extend(body.node)
                names.update(tensor.name for tensor in body.output)
    return names


def _computed(
    model: onnx.ModelProto,
    wanted: list[str],
    makers: Mapping[str, onnx.NodeProto],
    stored: Mapping[str, onnx.TensorProto],
) -> list[onnx.TensorProto]:
    nodes: dict[str, onnx.NodeProto] = {}
    constants: dict[str, onnx.TensorProto] = {}
    pending = list(wanted)
    while pending:
        name = pending.pop()
        if name in stored:
            constants[name] = stored[name]
        elif name and name not in nodes:
            nodes[name] = makers[name]
            pending.extend(makers[name].input)
    ordered = [node for name, node in makers.items() if name in nodes]
    outputs = [onnx.ValueInfoProto(name=name) for name in wanted]
    part = helper.make_model(
        helper.make_graph(ordered, "weights", [], outputs, list(constants.values())),
        opset_imports=list(model.opset_import),
        ir_version=model.ir_version,
    )
    session = make_session(part.SerializeToString(), threads=1, optimize="none", what="the quantized weights")
    results = run_session(session, wanted, {}, "its weights")
    return [numpy_helper.from_array(values, name) for name, values in zip(wanted, results, strict=True)]
