"""Prints what training gained for each chip, from the reports that `onnxq qat` has left."""

import json
from pathlib import Path

print("target         before    after     in onnxruntime")
for path in sorted(Path("out").glob("*/report.json")):
    training = json.loads(path.read_text())["training"]
    numbers = [f"{training[key]:.1f} dB" for key in ("before", "after", "written")]
    print(f"{path.parent.name:13}  " + "   ".join(numbers))
    assert training["written"] > training["before"], "training has to bring the model nearer to the float one"
