"""The scripts of the peers speak the protocol and hand over every sample, shown with stand-ins for the peers."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import onnx
import pytest

from tools.bench.calibration import PEERS
from tools.bench.child import ROOT, ChildFailed, Tool
from tools.bench.models import tiny
from tools.bench.peers.formats import W4A4, W8A8
from tools.bench.samples import samples_for, save_feeds

SAMPLES = 3

AIMET = {
    "aimet_onnx/__init__.py": f"""
int4, int8 = 4, 8
class Quantizer:
    bits = 4
    def set_bitwidth(self, bits):
        self.bits = bits
class QuantizationSimModel:
    def __init__(self, model, *, quant_scheme, param_type, **settings):
        assert model.doc_string == "folded" and quant_scheme in ("min_max", "tf_enhanced")
        self.model = model
        self.narrow = param_type == int4
        names = [node.input[1] for node in model.graph.node if node.op_type in ("Conv", "Gemm")]
        self.qc_quantize_op_dict = {{name: Quantizer() for name in names}}
    def compute_encodings(self, samples):
        assert [sorted(sample) for sample in samples] == [["input"]] * {SAMPLES}
    def to_onnx_qdq(self, **settings):
        if self.narrow:
            bits = [quantizer.bits for quantizer in self.qc_quantize_op_dict.values()]
            assert bits[0] == bits[-1] == 8 and set(bits[1:-1]) <= {{4}}
        return self.model
""",
    "aimet_onnx/batch_norm_fold.py": """
def fold_all_batch_norms_to_weight(model):
    model.doc_string = "folded"
""",
}
MODELOPT = {
    "modelopt/onnx/quantization/__init__.py": f"""
def quantize(path, *, calibration_data_reader, calibration_method, output_path, **settings):
    assert calibration_method in ("max", "entropy")
    first = calibration_data_reader.get_first()["input"]
    for _ in range(2):
        feeds = list(iter(calibration_data_reader.get_next, None))
        assert len(feeds) == {SAMPLES} and (feeds[0]["input"] == first).all()
        calibration_data_reader.rewind()
"""
}
QUARK = {
    "quark/onnx/quantization/config/algorithm.py": "AlgoConfig = object",
    "quark/onnx/__init__.py": f"""
import shutil
from enum import Enum
QuantGranularity = Enum("QuantGranularity", ["Tensor", "Channel"])
class CLEConfig:
    pass
class AdaRoundConfig:
    def __init__(self, learning_rate, data_size, batch_size, early_stop):
        pass
CalibMethod = Enum("CalibMethod", ["MinMax", "Percentile"])
class Int8Spec:
    def __init__(self, calibration_method=CalibMethod.Percentile, quant_granularity=QuantGranularity.Tensor):
        assert calibration_method in CalibMethod and quant_granularity in QuantGranularity
class QLayerConfig:
    def __init__(self, activation, weight):
        pass
class QConfig:
    def __init__(self, global_config, extra_options, algo_config=()):
        extra_options.clear()
class ModelQuantizer:
    def __init__(self, config):
        pass
    def quantize_model(self, source, result, reader):
        open("quantized_info.csv", "w").close()
        shutil.copy(source, result)
        assert len(list(iter(reader.get_next, None))) == {SAMPLES}
""",
}
STAND_INS = {"aimet": ("aimet_onnx", AIMET), "modelopt": ("nvidia_modelopt", MODELOPT), "quark": ("amd_quark", QUARK)}


def _install(peer: str, packages: Path, monkeypatch: pytest.MonkeyPatch) -> Tool:
    distribution, files = STAND_INS[peer]
    metadata = f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 9.8.7\n"
    for name, text in {**files, f"{distribution}-9.8.7.dist-info/METADATA": metadata}.items():
        (packages / name).parent.mkdir(parents=True, exist_ok=True)
        (packages / name).write_text(text, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(packages))
    return Tool(f"tools.bench.peers.{peer}", timeout=600)


@pytest.mark.parametrize("peer", STAND_INS)
def test_a_peer_lists_its_methods_and_runs_them(peer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = _install(peer, tmp_path / "packages", monkeypatch)
    onnx.save(tiny(), str(tmp_path / "tiny.onnx"))
    before = {path.name for path in ROOT.iterdir()}

    methods, version = tool.describe()
    assert (len(methods), version) == (2, "9.8.7")
    for method, lazy in zip(methods, (False, True), strict=True):
        assert tool.run(method, tmp_path / "tiny.onnx", "tiny", SAMPLES, lazy=lazy).seconds > 0
    assert {path.name for path in ROOT.iterdir()} & {"quantized_info.csv"} <= before


@pytest.mark.parametrize(("peer", "form"), [("quark", W8A8), ("aimet", W8A8), ("aimet", W4A4)])
def test_a_peer_writes_a_file_from_given_samples(
    peer: str, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = _install(peer, tmp_path / "packages", monkeypatch)
    model, feeds = tmp_path / "tiny.onnx", tmp_path / "feeds.npz"
    onnx.save(tiny(), str(model))
    save_feeds(feeds, samples_for("tiny", SAMPLES))
    settings, version = tool.settings()
    assert version == "9.8.7"
    assert settings[form][0] == "default"
    (tmp_path / "result").mkdir()
    result = tmp_path / "result" / "quantized.onnx"
    assert tool.write(form, "default", model, feeds, result).seconds > 0
    assert onnx.load(str(result)).graph.node


@pytest.mark.parametrize("peer", STAND_INS)
def test_a_peer_that_is_not_installed_is_named(peer: str) -> None:
    package = {"aimet": "aimet_onnx"}.get(peer, peer)
    assert peer in PEERS
    if importlib.util.find_spec(package) is not None:
        pytest.skip(f"{package} is installed here")
    with pytest.raises(ChildFailed, match=f"No module named '{package}'"):
        Tool(f"tools.bench.peers.{peer}", timeout=600).describe()
