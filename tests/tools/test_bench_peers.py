"""The scripts of the peers speak the protocol and hand over every sample, shown with stand-ins for the peers."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import onnx
import pytest

from tools.bench.calibration import PEERS
from tools.bench.child import ROOT, ChildFailed, Tool
from tools.bench.models import tiny

SAMPLES = 3

AIMET = {
    "aimet_onnx/__init__.py": f"""
int8 = object()
class QuantizationSimModel:
    def __init__(self, model, *, quant_scheme, **settings):
        assert model.doc_string == "folded" and quant_scheme in ("min_max", "tf_enhanced")
        self.model = model
    def compute_encodings(self, samples):
        assert [sorted(sample) for sample in samples] == [["input"]] * {SAMPLES}
    def to_onnx_qdq(self, **settings):
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
    "quark/onnx/__init__.py": f"""
from enum import Enum
CalibMethod = Enum("CalibMethod", ["MinMax", "Percentile"])
class Int8Spec:
    def __init__(self, calibration_method):
        assert calibration_method in CalibMethod
class QLayerConfig:
    def __init__(self, activation, weight):
        pass
class QConfig:
    def __init__(self, global_config, extra_options):
        extra_options.clear()
class ModelQuantizer:
    def __init__(self, config):
        pass
    def quantize_model(self, source, result, reader):
        open("quantized_info.csv", "w").close()
        open(source, "rb").close()
        assert len(list(iter(reader.get_next, None))) == {SAMPLES}
"""
}
STAND_INS = {"aimet": ("aimet_onnx", AIMET), "modelopt": ("nvidia_modelopt", MODELOPT), "quark": ("amd_quark", QUARK)}


@pytest.mark.parametrize("peer", STAND_INS)
def test_a_peer_lists_its_methods_and_runs_them(peer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distribution, files = STAND_INS[peer]
    packages = tmp_path / "packages"
    metadata = f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 9.8.7\n"
    for name, text in {**files, f"{distribution}-9.8.7.dist-info/METADATA": metadata}.items():
        (packages / name).parent.mkdir(parents=True, exist_ok=True)
        (packages / name).write_text(text, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(packages))
    onnx.save(tiny(), str(tmp_path / "tiny.onnx"))
    before = {path.name for path in ROOT.iterdir()}

    tool = Tool(f"tools.bench.peers.{peer}", timeout=60)
    methods, version = tool.describe()
    assert (len(methods), version) == (2, "9.8.7")
    for method, lazy in zip(methods, (False, True), strict=True):
        assert tool.run(method, tmp_path / "tiny.onnx", "tiny", SAMPLES, lazy=lazy).seconds > 0
    assert {path.name for path in ROOT.iterdir()} & {"quantized_info.csv"} <= before


@pytest.mark.parametrize("peer", STAND_INS)
def test_a_peer_that_is_not_installed_is_named(peer: str) -> None:
    package = {"aimet": "aimet_onnx"}.get(peer, peer)
    assert peer in PEERS
    if importlib.util.find_spec(package) is not None:
        pytest.skip(f"{package} is installed here")
    with pytest.raises(ChildFailed, match=f"No module named '{package}'"):
        Tool(f"tools.bench.peers.{peer}", timeout=60).describe()
