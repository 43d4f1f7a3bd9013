"""Measures the training of the MQBench flow on the demo network; writes the table in docs/migrating-from-mqbench.md.

prepare_by_platform -> enable_calibration -> enable_quantization -> training -> convert_deploy, one row for each case:
test accuracy and test loss of the calibrated network (PTQ) and of the trained one, and the accuracy of the written file
in onnxruntime without its optimizations.

Usage: python -m tools.mqbench_training
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import torch
from torch.nn.functional import cross_entropy

from onnxq import demo
from onnxq.compat.mqbench import PreparedModel, enable_calibration, enable_quantization
from onnxq.compat.mqbench import convert_deploy as mqbench_deploy
from onnxq.compat.mqbench import prepare_by_platform as mqbench_prepare
from onnxq.pipeline.artifacts import Result
from onnxq.targets.sophgo import dialect as sophgo

PAGE = Path(__file__).resolve().parent.parent / "docs" / "migrating-from-mqbench.md"
BLOCK = re.compile(r"(<!-- made by tools/mqbench_training.py -->\n).*?(<!-- end of it -->)", re.DOTALL)
STEPS, BATCH, RATE, SCALE_RATE = 200, 32, 1e-3, 1e-4
CALIBRATION_BATCHES = 8

_LEARNABLE = {"w_fakequantize": "LearnableFakeQuantize", "a_fakequantize": "LearnableFakeQuantize"}
_TQT = {"w_fakequantize": "TqtFakeQuantize", "a_fakequantize": "TqtFakeQuantize"}
_THREE_BITS = {
    "w_qscheme": {"bit": 3, "symmetry": True, "per_channel": True, "pot_scale": False},
    "a_qscheme": {"bit": 3, "symmetry": False, "per_channel": False, "pot_scale": False},
}
_CHIP = {"chip": "BM1688", "quantmode": "weight_activation", "strategy": "CNN"}


@dataclass(frozen=True, eq=False)
class Case:
    """A backend with what its extra_qconfig_dict says, and a short word for the table."""

    backend: str
    trained: str
    qconfig: Mapping[str, Any]

    def prepare(self) -> PreparedModel:
        if self.backend == "Sophgo BM1688":
            extra = {"quant_dict": _CHIP, "extra_qconfig_dict": self.qconfig}
            return sophgo.prepare_by_platform(demo.model_path(), extra)
        return mqbench_prepare(demo.model_path(), self.backend, {"extra_qconfig_dict": self.qconfig})

    def deploy(self, model: PreparedModel, folder: Path) -> Result:
        if self.backend == "Sophgo BM1688":
            return sophgo.convert_deploy(model, output_path=folder)
        return mqbench_deploy(model, self.backend, output_path=folder)


CASES = (
    Case("Tensorrt", "FixedFakeQuantize, 8 bits", {"w_fakequantize": "FixedFakeQuantize"}),
    Case("Vitis", "TqtFakeQuantize, 8 bits", _TQT),
    Case("NNIE", "NNIEFakeQuantize, logarithmic 8 bits", {}),
    Case("SNPE", "LearnableFakeQuantize, 8 bits", _LEARNABLE),
    Case("Sophgo BM1688", "LearnableFakeQuantize, 8 bits", _LEARNABLE),
    Case("Academic", "LearnableFakeQuantize, W3A3", {**_LEARNABLE, **_THREE_BITS}),
)


@dataclass(frozen=True)
class Measured:
    """Shares of right answers on the test images, and mean losses; `within` is how much of the file is the net's."""

    ptq: float
    ptq_loss: float
    trained: float
    trained_loss: float
    file: float
    within: float


def measure(case: Case, steps: int = STEPS) -> Measured:
    """Run the flow once."""
    torch.manual_seed(0)
    digits = demo.load_data()
    images, labels = torch.from_numpy(digits.train_images), torch.from_numpy(digits.train_labels)
    model = case.prepare()
    enable_calibration(model)
    for number in range(CALIBRATION_BATCHES):
        model(images[BATCH * number : BATCH * number + BATCH])
    model.eval()
    enable_quantization(model)
    module = model.torch()
    ptq, ptq_loss = _of(module.eval(), digits)
    scales = [p for name, p in module.named_parameters() if "fake_quant" in name]
    weights = [p for name, p in module.named_parameters() if "fake_quant" not in name]
    groups = [{"params": weights, "lr": RATE}, {"params": scales, "lr": SCALE_RATE}]
    optimizer = torch.optim.Adam([group for group in groups if group["params"]])
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    model.train()
    for _ in range(steps):
        rows = torch.randint(0, len(images), (BATCH,))
        loss = cross_entropy(model(images[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    trained, trained_loss = _of(module.eval(), digits)
    with tempfile.TemporaryDirectory() as folder:
        result = case.deploy(model, Path(folder) / "out")
        answers = _run(result.model, digits.test_images).argmax(1)
    within = float(result.report["file_against_net"][0]["within"])
    return Measured(ptq, ptq_loss, trained, trained_loss, float((answers == digits.test_labels).mean()), within)


def _of(module: Any, digits: demo.DemoData) -> tuple[float, float]:
    labels = torch.from_numpy(digits.test_labels)
    with torch.no_grad():
        found = module(torch.from_numpy(digits.test_images))
    return float((found.argmax(1) == labels).float().mean()), float(cross_entropy(found, labels))


def _run(path: Path, images: np.ndarray) -> np.ndarray:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    found: np.ndarray = ort.InferenceSession(path, options).run(None, {"image": images})[0]
    return found


def table(measured: Mapping[Case, Measured]) -> str:
    lines = [
        "| backend | fake-quantizer | PTQ % | trained % | file % | loss, PTQ | loss, trained | file = net |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for case, one in measured.items():
        shares = " | ".join(f"{100 * share:.1f}" for share in (one.ptq, one.trained, one.file))
        lines.append(
            f"| `{case.backend}` | {case.trained} | {shares} | {one.ptq_loss:.4f} | {one.trained_loss:.4f} | "
            f"{100 * one.within:.2f} % within a step |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    torch.set_num_threads(1)
    measured = {case: measure(case) for case in CASES}
    text = PAGE.read_text(encoding="utf-8")
    if BLOCK.search(text) is None:
        raise SystemExit(f"{PAGE} has no place for the table: {BLOCK.pattern}")
    PAGE.write_text(BLOCK.sub(lambda found: found[1] + table(measured) + found[2], text), encoding="utf-8")
    print(table(measured), end="")


if __name__ == "__main__":
    main()
