"""Weight-only quantization of a model as large as one of 7 billion weights: peak memory and speed.

    python -m tools.bench.streamed_weights FOLDER [--gigabytes 14] [--target weight_only:bits=4,form=nbits]

Makes a chain of matrix products with float16 weights in shards of a gigabyte below FOLDER, quantizes it as a user
would and without data, and deletes both. MB/s are of the float16 file, by processor time and by the clock, in which
writing to the disk counts too. Prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from tools.bench.child import ROOT

WIDTH, INNER = 4096, 11008
"""Of Llama 7B."""
SHARD = 10**9
TARGETS = ("weight_only:bits=4,form=nbits", "weight_only:bits=8,form=nbits")


def write_model(folder: Path, gigabytes: float) -> tuple[Path, int]:
    """The file and the bytes of its weights: normally distributed numbers, other ones in each layer."""
    folder.mkdir(parents=True)
    some = np.random.default_rng(0).standard_normal(WIDTH * INNER, dtype=np.float32)
    size = 2 * some.size
    nodes, weights, x = [], [], "x"
    for number in range(max(2, round(gigabytes * 1e9 / size / 2) * 2)):
        shard, place = divmod(number, SHARD // size)
        tensor = TensorProto(name=f"w{number}", data_type=TensorProto.FLOAT16)
        tensor.dims.extend([WIDTH, INNER] if number % 2 == 0 else [INNER, WIDTH])
        tensor.data_location = TensorProto.EXTERNAL
        with open(folder / f"model.onnx.data{shard}", "ab") as stream:
            np.roll(some * np.float32(WIDTH**-0.5), number).astype(np.float16).tofile(stream)
        for key, value in (("location", f"model.onnx.data{shard}"), ("offset", place * size), ("length", size)):
            tensor.external_data.add(key=key, value=str(value))
        weights.append(tensor)
        nodes.append(helper.make_node("MatMul", [x, f"w{number}"], [f"y{number}"], name=f"matmul{number}"))
        x = f"y{number}"
    graph = helper.make_graph(
        nodes,
        "large",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT16, ["n", WIDTH])],
        [helper.make_tensor_value_info(x, TensorProto.FLOAT16, ["n", WIDTH])],
        weights,
    )
    path = folder / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path, size * len(weights)


_CHILD = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:])
print("peak", resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)
sys.exit(code)
"""
"""Kilobytes of the largest process below it: the command has one of its own for the work."""


def measure(model: Path, size: int, target: str, out: Path) -> str:
    command = [sys.executable, "-c", _CHILD, sys.executable, "-m", "onnxq", "quantize", str(model)]
    command += ["-b", target, "-o", str(out), "--report", "no"]
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    seconds, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(done.stderr)
    busy = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    peak = float(done.stderr.rpartition("peak ")[2])
    written = sum(path.stat().st_size for path in out.iterdir())
    return (
        f"| `{target}` | {size / 1e9:.1f} | {written / 1e9:.1f} | {peak / 1e6:.2f} | {busy:.0f} | "
        f"{size / 1e6 / busy:.0f} | {size / 1e6 / seconds:.0f} |"
    )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("folder", type=Path, help="where there is room for one and a half times the model")
    options.add_argument("--gigabytes", type=float, default=14.0)
    options.add_argument("--target", action="append", default=[])
    given = options.parse_args()
    work = given.folder / "onnxq-streamed-weights"
    try:
        model, size = write_model(work / "float", given.gigabytes)
        print("| target | float16 GB | written GB | peak GB | processor s | MB/s of these | MB/s by the clock |")
        print("|---|---|---|---|---|---|---|", flush=True)
        for target in given.target or TARGETS:
            print(measure(model, size, target, work / "out"), flush=True)
            shutil.rmtree(work / "out")
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
