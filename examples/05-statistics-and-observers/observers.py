"""Tries several observers and bit widths on one file of statistics; the model is not run again for any of them."""

import onnxq
from onnxq.calibrate import activation_leaders, calibrate, gather_into
from onnxq.runtime import input_infos, open_dataset
from onnxq.session.prepare import make_plan, prepare

model = onnxq.load("digits.onnx")
dataset = open_dataset("calib.npz", input_infos(model))
tensor = "stem.relu.out"
print(f"range of '{tensor}'")
for bits in ("uint8", "uint4"):
    for observer in ("minmax", "percentile:99.9", "mse", "kl", "aciq"):
        config = {"observer": observer, "activation": {"dtype": bits}}
        prepared = prepare(model.copy(), "onnxruntime", config)
        plan = make_plan(prepared)
        gathered = gather_into("stats.npz", prepared.graph, activation_leaders(plan), dataset)
        qparams, _, _ = calibrate(prepared.graph, plan, statistics=gathered)
        found = qparams[tensor]
        largest = float(found.scale) * (found.spec.qmax - int(found.zero_point))
        print(f"{bits}  {observer:16} 0 .. {largest:.3f}   runs of the model: {gathered.passes * gathered.samples}")
