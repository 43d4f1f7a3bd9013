"""Lets onnxq quantize a folder of Hugging Face in this environment, and Optimum load and run what it has written.

    check.py FOLDER TEXTS.txt OUT DTYPES

Quantizes FOLDER into OUT with `onnxq huggingface`, embeds each line of TEXTS.txt with the float model and with the file
of each dtype, and prints one JSON object: dtype -> the least cosine between an embedding and that of the float model.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
from optimum.onnxruntime import ORTModelForFeatureExtraction
from transformers import AutoTokenizer

from onnxq.targets.transformers_dtypes import DTYPES


def embeddings(folder: Path, file: str, texts: list[str]) -> np.ndarray:
    """Means over the tokens of each text, of length 1."""
    model = ORTModelForFeatureExtraction.from_pretrained(folder, subfolder="onnx", file_name=file)
    tokens = AutoTokenizer.from_pretrained(folder)(texts, padding=True, truncation=True, return_tensors="np")
    hidden, mask = model(**tokens).last_hidden_state, tokens["attention_mask"][..., None]
    means = (hidden * mask).sum(1) / mask.sum(1)
    return means / np.linalg.norm(means, axis=1, keepdims=True)


def main() -> None:
    folder, texts, out, names = sys.argv[1:5]
    command = ["huggingface", folder, "-o", out, "-d", texts, "--dtype", names, "--effort", "0", "-q"]
    subprocess.run([sys.executable, "-m", "onnxq", *command], check=True)
    lines = Path(texts).read_text(encoding="utf-8").splitlines()
    expected = embeddings(Path(out), "model.onnx", lines)
    cosines = {
        name: float((embeddings(Path(out), f"model{DTYPES[name].suffix}.onnx", lines) * expected).sum(1).min())
        for name in names.split(",")
    }
    print(json.dumps({"version": version("optimum-onnx"), "cosines": cosines}))


if __name__ == "__main__":
    main()
