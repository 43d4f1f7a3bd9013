"""The same model for several chips: files, accuracy of the file, accuracy of the chip as simulated."""

from __future__ import annotations

from pathlib import Path

import onnxq
from onnxq.demo import load_data, model_path

TARGETS = (
    "tensorrt",
    "openvino",
    "qnn:activation=uint16",
    "vitis",
    "nnie",
    "sophgo_bm1688",
    "tengine_u8",
)

samples = {"image": load_data().calibration[:32]}
for target in TARGETS:
    folder = Path("out") / target.replace(":", "_")
    report = onnxq.quantize(model_path(), backend=target, data=samples, out=folder).report
    (written,) = report["sqnr_db"].values()
    on_chip = next(iter(report["simulated_sqnr_db"].values()), written)
    tables = [
        path.name
        for path in sorted(folder.iterdir())
        if path.name not in ("plan.json", "qparams.json", "config.json", "report.json", "report.html")
    ]
    print(f"{target:22} file {written:.1f} dB, chip {on_chip:.1f} dB: {', '.join(tables)}")
