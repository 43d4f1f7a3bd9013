"""Put a Sophgo folder of onnxq before tpu-mlir: import, lower with the tables, compile, run the chip's simulator.

    python check.py FOLDER --chip bm1688 --quantize INT8 --input input.npz --reference simulated=one.npz

FOLDER holds model_deploy_model.onnx and the tables; further options are those of model_deploy. The answer is one JSON
object on the last line:

    types         operator -> [storage type, scale, zero point] after lowering, or [storage type, 1, 0] for floats
    weights       operator -> the integers that became of its weight: shape, sum, sum of squares
    without_row   operators of the imported model that the calibration table has no row for
    simulator     how the compiled model on the chip's simulator agrees with tpu-mlir's own integer inference
    against       reference -> output -> cosine and SQNR in dB of the simulator's result
"""

import argparse
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx

TYPE = re.compile(r"-> tensor<(?:\d+x)*(!quant\.\w+<[^>]*(?:<[^>]*>[^>]*)?>|[a-z]\w*)>.* loc\((#loc\d*)\)$")
UNIFORM = re.compile(r"!quant\.uniform<(\w+)(?:<[^>]*>)?:\w+, ([^:>]+)(?::([-\d]+))?>")
FLOAT8 = re.compile(r"!quant\.calibrated<(f8E\w+)<[^:>]*:([^>]+)>")
LARGEST = {"f8E4M3FN": 448.0, "f8E5M2": 57344.0}
LOCATION = re.compile(r"^(#loc\d*) = loc\(\"(.*)\"\)$")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--chip", required=True)
    parser.add_argument("--quantize", required=True)
    parser.add_argument("--input", type=Path, required=True)
    parser.add_argument("--reference", action="append", default=[], help="name=file.npz")
    given, further = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as work:
        print(json.dumps(check(given, further, Path(work))))


def check(given, further, work):
    folder = given.folder.resolve()
    feed = dict(np.load(given.input))
    np.savez(work / "input.npz", **feed)
    shapes = "[" + ",".join("[" + ",".join(map(str, value.shape)) + "]" for value in feed.values()) + "]"
    tool(
        work,
        "model_transform",
        "--model_name",
        "net",
        "--model_def",
        folder / "model_deploy_model.onnx",
        "--input_shapes",
        shapes,
        "--mlir",
        "net.mlir",
    )
    table = find(folder, "model*cali_table_from_sophgo_mq_*")
    modes = find(folder, "model_q_table_from_sophgo_mq_*")
    references = {name: dict(np.load(path)) for name, path in (entry.split("=", 1) for entry in given.reference)}
    np.savez(work / "float.npz", **under_their_names(folder / "model_deploy_model.onnx", references))
    options = [*further, "--calibration_table", table] if table else further
    tool(
        work,
        "model_deploy",
        "--mlir",
        "net.mlir",
        "--quantize",
        given.quantize,
        "--chip",
        given.chip,
        "--model",
        "net.bmodel" if not given.chip.startswith("cv18") else "net.cvimodel",
        "--quantize_table",
        modes,
        "--debug",
        "--test_input",
        "input.npz",
        "--tolerance",
        "0,-100",
        "--test_reference",
        "float.npz",
        "--correctness",
        "0,-100",
        *options,
    )
    lowered = next(work.glob("net_*_tpu.mlir"))
    inferred = dict(np.load(next(work.glob("net_*_tpu_outputs.npz"))))
    simulated = dict(np.load(next(work.glob("net_*_model_outputs.npz"))))
    results = {plain(name): value for name, value in simulated.items() if name not in feed}
    own = {plain(name): value for name, value in inferred.items()}
    return {
        "types": types(lowered),
        "weights": weights(work),
        "without_row": without_row(work / "net.mlir", table),
        "simulator": {name: agreement(value, own[name]) for name, value in results.items() if name in own},
        "against": {name: compare(results, reference) for name, reference in references.items()},
    }


def under_their_names(model, references):
    """Results for model_deploy to compare with, called as it calls them; it is not asked to run the float model."""
    made = {name: node.op_type for node in onnx.load(model).graph.node for name in node.output}
    found = next(iter(references.values()), {})
    return {f"{name}_{made[name]}": value for name, value in found.items() if name in made}


def tool(work, name, *arguments):
    """Run a command of tpu-mlir; its own output goes to stderr so that the last line of stdout is the answer."""
    command = [str(Path(sys.executable).with_name(name)), *map(str, arguments)]
    environment = dict(os.environ, PATH=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")
    done = subprocess.run(
        command, cwd=work, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        lines = [line for line in done.stdout.splitlines() if not re.match(r"\s*#\d+ 0x", line)]
        sys.stderr.write("\n".join(line[:400] for line in lines[-40:]) + "\n")
        raise SystemExit(f"{name} ended with exit code {done.returncode}")


def find(folder, pattern):
    return next(iter(sorted(folder.glob(pattern))), None)


def types(path):
    lines = path.read_text().splitlines()
    names = {found[1]: found[2] for line in lines if (found := LOCATION.match(line))}
    made = {}
    for line in lines:
        found = TYPE.search(line)
        if found and '"top.Weight"' not in line:
            made[names.get(found[2], found[2])] = storage(found[1])
    return made


def storage(text):
    found = UNIFORM.match(text)
    if found:
        return [found[1], float(found[2]), int(found[3] or 0)]
    float8 = FLOAT8.match(text)
    if float8:
        return [float8[1], float(float8[2]) / LARGEST[float8[1]], 0]
    return [text.split("<")[1] if text.startswith("!") else text, 1.0, 0]


def weights(work):
    files = sorted(work.glob("net_tpu_lowered_*_weight.npz"))
    held = dict(np.load(files[0])) if files else {}
    return {
        name: [list(value.shape), float(value.astype(np.float64).sum()), float((value.astype(np.float64) ** 2).sum())]
        for name, value in held.items()
        if value.dtype.kind in "iu"
    }


def without_row(mlir, table):
    lines = mlir.read_text().splitlines()
    names = {found[1]: found[2] for line in lines if (found := LOCATION.match(line))}
    made = [
        names[found[1]]
        for line in lines
        if '"top.' in line and "top.Weight" not in line and "top.None" not in line
        if (found := re.search(r"loc\((#loc\d*)\)$", line)) and found[1] in names
    ]
    rows = {line.split()[0] for line in table.read_text().splitlines() if line and line[0] != "#"} if table else set()
    return [name for name in made if name not in rows]


def plain(name):
    """The name of a tensor of the ONNX model: without the operator, and without the type of a cast at the end."""
    name = re.sub(r"_(f32|si8|ui8|f16|bf16)(_dequant)?$", "", name)
    return name.rsplit("_", 1)[0]


def compare(results, reference):
    return {name: agreement(results[name], value) for name, value in reference.items() if name in results}


def agreement(value, wanted):
    one, other = value.astype(np.float64).reshape(-1), wanted.astype(np.float64).reshape(-1)
    noise, signal = float(((one - other) ** 2).sum()), float((other**2).sum())
    norm = math.sqrt(float((one**2).sum()) * signal)
    sqnr = 999.0 if noise == 0 else 10 * math.log10(signal / noise) if signal else -999.0
    return {"cosine": float((one * other).sum()) / norm if norm else 0.0, "sqnr_db": round(sqnr, 2)}


if __name__ == "__main__":
    main()
