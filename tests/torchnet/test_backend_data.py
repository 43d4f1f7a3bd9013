"""The models that ONNX ships with stored inputs and outputs, and its light classification networks, run on torch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx.backend.test.loader import DATA_DIR

from onnxq.errors import UnsupportedError
from onnxq.graph import Graph
from onnxq.torchnet import TorchNet, to_torch
from tests.torchnet.conformance import as_value, difference

RELATIVE, ABSOLUTE = 1e-3, 1e-7
"""The tolerances of ONNX's own runner."""

LEFT_OUT = {
    "test_gradient_of_add": "Gradient asks for training; a net of torch has autograd for that",
    "test_gradient_of_add_and_mul": "Gradient asks for training; a net of torch has autograd for that",
}

STORED = sorted(
    folder
    for kind in ("pytorch-converted", "pytorch-operator", "simple")
    for folder in (Path(DATA_DIR) / kind).glob("test_*")
    if folder.name not in LEFT_OUT
)

LIGHT = sorted((Path(DATA_DIR) / "light").glob("*.onnx"))

PARSERS = {"tensor_type": onnx.TensorProto, "sequence_type": onnx.SequenceProto, "optional_type": onnx.OptionalProto}


def net_of(path: Path) -> TorchNet:
    return to_torch(Graph.from_model(onnx.load(path))).eval()


def stored(folder: Path, side: str, declared: list[onnx.ValueInfoProto]) -> list[object]:
    """The values of the inputs or outputs in a folder, in their order."""
    values = []
    for number, info in enumerate(declared):
        value = PARSERS[info.type.WhichOneof("value")]()
        value.ParseFromString((folder / f"{side}_{number}.pb").read_bytes())
        values.append(value)
    return values


def listed(outputs: object) -> tuple[object, ...]:
    return outputs if isinstance(outputs, tuple) else (outputs,)


def test_onnx_ships_the_models_that_are_tested_here() -> None:
    assert len(STORED) >= 130
    assert len(LIGHT) == 9


@pytest.mark.parametrize("folder", STORED, ids=lambda folder: folder.name.removeprefix("test_"))
def test_a_stored_model_gives_its_stored_outputs(folder: Path) -> None:
    graph = onnx.load(folder / "model.onnx").graph
    initialized = {item.name for item in graph.initializer}
    inputs = [info for info in graph.input if info.name not in initialized]
    net = net_of(folder / "model.onnx")
    for data in sorted(folder.glob("test_data_set_*")):
        given = [as_value(_plain(value)) for value in stored(data, "input", inputs)]
        wanted = [_plain(value) for value in stored(data, "output", list(graph.output))]
        for number, (value, right) in enumerate(zip(listed(net(*given)), wanted, strict=True)):
            assert difference(value, right, RELATIVE, ABSOLUTE) is None, f"output {number}"


@pytest.mark.parametrize("name", LEFT_OUT)
def test_a_model_that_is_left_out_names_the_operator_that_is_missing(name: str) -> None:
    with pytest.raises(UnsupportedError, match="Gradient"):
        net_of(Path(DATA_DIR) / "simple" / name / "model.onnx")


def _plain(value: object) -> object:
    if isinstance(value, onnx.SequenceProto):
        return onnx.numpy_helper.to_list(value)
    return onnx.numpy_helper.to_optional(value) if isinstance(value, onnx.OptionalProto) else value


@pytest.mark.parametrize("path", LIGHT, ids=lambda path: path.stem)
def test_a_light_network_gives_its_stored_output_and_that_of_onnxruntime(path: Path) -> None:
    """The weights are made by nodes; the input is the ramp 0 .. 1 of ONNX's runner."""
    net = net_of(path)
    (name,) = net.graph.input_names
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    shape = tuple(session.get_inputs()[0].shape)
    ramp = (np.arange(np.prod(shape)).reshape(shape) / np.prod(shape)).astype(np.float32)
    with torch.no_grad():
        found = net(torch.from_numpy(ramp))
    expected = onnx.TensorProto()
    expected.ParseFromString(path.with_name(f"{path.stem}_output_0.pb").read_bytes())
    assert difference(found, expected, RELATIVE, ABSOLUTE) is None
    assert difference(found, session.run(None, {name: ramp})[0], RELATIVE, ABSOLUTE) is None
