"""The copy for Netron: scales and reasons on the nodes, and the same numbers out of onnxruntime."""

import numpy as np
import onnx
import onnxruntime
import pytest

import onnxq
from onnxq.demo import load_data, model_path
from onnxq.errors import ConfigError
from onnxq.integrations.netron import annotate


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    data = {"image": load_data().calibration[:16]}
    config = {"effort": 0, "skip": ["op:Gemm"]}
    folder = tmp_path_factory.mktemp("run")
    return onnxq.quantize(model_path(), backend="onnxruntime", data=data, config=config, out=folder)


def entries(node):
    return {entry.key: entry.value for entry in node.metadata_props}


def test_quantizers_have_their_tensor_scale_and_format(run):
    nodes = [node for node in onnx.load(annotate(run.folder)).graph.node if node.op_type.endswith("QuantizeLinear")]
    assert nodes
    for node in nodes:
        found = entries(node)
        assert node.name == f"{found['onnxq.tensor']}_{node.op_type}"
        qparams = run.qparams[run.plan.leader(found["onnxq.tensor"])]
        low, high = float(qparams.scale.min()), float(qparams.scale.max())
        wanted = f"{low:.6g}" if qparams.scale.size == 1 else f"{low:.6g} to {high:.6g} ({qparams.scale.size} values)"
        assert found["onnxq.scale"] == wanted
        assert found["onnxq.format"] == run.plan[found["onnxq.tensor"]].spec.dtype


def test_nodes_of_the_model_say_why_they_are_float_or_not(run):
    found = {node.name: entries(node) for node in onnx.load(annotate(run.folder)).graph.node}
    states = {name: made["onnxq.state"] for name, made in found.items() if "onnxq.state" in made}
    assert set(states.values()) >= {"quantized", "float"}
    for name, reason in run.plan.left_float.items():
        if name in found:
            assert found[name] == {"onnxq.state": "float", "onnxq.reason": str(reason)}
    assert any("excluded" in made.get("onnxq.reason", "") for made in found.values())


def test_the_copy_computes_the_same_and_the_delivered_file_stays_as_it_was(run):
    before = run.model.read_bytes()
    copy = annotate(run.folder)
    assert run.model.read_bytes() == before
    assert not any(node.metadata_props for node in onnx.load(run.model).graph.node)
    onnx.checker.check_model(onnx.load(copy), full_check=True)
    feed = {"image": load_data().test_images[:8]}
    results = [onnxruntime.InferenceSession(path).run(None, feed) for path in (run.model, copy)]
    assert all(np.array_equal(one, other) for one, other in zip(*results, strict=True))


def test_a_folder_without_the_model_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"has no model\.onnx: give the folder of a run"):
        annotate(tmp_path)
