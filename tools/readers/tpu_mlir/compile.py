"""Compile Sophgo folders of onnxq with tpu-mlir, one after the other, in one process that has its packages loaded.

    echo '{"folder": "out", "chip": "bm1688", "quantize": "INT8", "shapes": [[1, 3, 16, 16]]}' | python compile.py

Every line of stdin is a job, every line of stdout its answer. Loading tpu-mlir takes longer than compiling a small
network, so each job runs in a fork of this process. A job may hold:

    folder     the files of onnxq: model_deploy_model.onnx and the tables
    chip       as model_deploy calls it
    quantize   the default mode; the table of modes overrides it for every operator
    shapes     of the inputs
    options    further arguments of model_deploy
    input      an .npz with the inputs: the compiled model is run in the chip's simulator
    keep       a folder that everything tpu-mlir makes is kept in

The answer holds `compiled`, `seconds` of processor time, `error` where something failed, and where an input was given
`simulator`: how the compiled model agrees with tpu-mlir's own inference, output by output.
"""

import json
import os
import re
import resource
import runpy
import sys
import tempfile
import traceback
from pathlib import Path

import numpy as np
import tpu_mlir
from check import agreement, find

STARTED = "ONNXQ_TPU_MLIR_STARTED"
NOISE = re.compile(r"^\s*(#\d+ 0x|Stack dump|PLEASE submit|\d+\.\s|\[Running\]|$)")
TELLING = re.compile(r"(error:|Error|assert|Assertion|UNREACHABLE|not support|unsupported|failed)", re.IGNORECASE)


def main():
    if not os.environ.get(STARTED):  # the loader reads LD_LIBRARY_PATH, which importing tpu_mlir sets, at the start
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, STARTED: "yes"})
    load()
    for line in sys.stdin:
        answer = run_job(json.loads(line))
        print(json.dumps(answer), flush=True)


def load():
    """Import what the tools import, so that forks have it."""
    from tpu_mlir.python.tools import model_runner  # noqa: F401
    from tpu_mlir.python.transform import OnnxConverter  # noqa: F401


def run_job(job):
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(job.get("keep") or temporary).resolve()
        work.mkdir(parents=True, exist_ok=True)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        child = os.fork()
        if child == 0:
            os._exit(in_child(job, work))
        _, status = os.waitpid(child, 0)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        answer = {"compiled": status == 0, "seconds": round(seconds, 1)}
        if status:
            answer["error"] = reason((work / "log.txt").read_text(errors="replace"))
        elif job.get("input"):
            answer["simulator"] = json.loads((work / "simulator.json").read_text())
        return answer


def in_child(job, work):
    os.chdir(work)
    log = os.open("log.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    try:
        run("model_transform", transform_arguments(job))
        run("model_deploy", deploy_arguments(job))
        if job.get("input"):
            Path("simulator.json").write_text(json.dumps(simulator(job)))
    except SystemExit as ended:
        return int(bool(ended.code))
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def run(tool, arguments):
    sys.argv = [tool, *arguments]
    try:
        runpy.run_path(str(Path(tpu_mlir.__file__).parent / "python" / "tools" / f"{tool}.py"), run_name="__main__")
    except SystemExit as ended:
        if ended.code:
            raise


def transform_arguments(job):
    shapes = "[" + ",".join("[" + ",".join(map(str, shape)) + "]" for shape in job["shapes"]) + "]"
    model = find(Path(job["folder"]).resolve(), "*_deploy_model.onnx")
    return ["--model_name", "net", "--model_def", str(model), "--input_shapes", shapes, "--mlir", "net.mlir"]


def deploy_arguments(job):
    folder = Path(job["folder"]).resolve()
    table, modes = find(folder, "*cali_table_from_sophgo_mq_*"), find(folder, "*_q_table_from_sophgo_mq_*")
    made = ["--mlir", "net.mlir", "--quantize", job["quantize"], "--chip", job["chip"], "--model", compiled_name(job)]
    made += ["--quantize_table", str(modes)] + (["--calibration_table", str(table)] if table else [])
    made += ["--tolerance", "0,-100"]  # model_deploy has no tolerance of its own for INT4 and W4INT8, and then ends
    if job.get("input"):
        made.append("--debug")  # keeps the lowered model
    return made + list(job.get("options", ()))


def compiled_name(job):
    return "net.cvimodel" if job["chip"] in ("cv183x", "cv182x", "cv181x", "cv180x") else "net.bmodel"


def simulator(job):
    """Output -> how the compiled model agrees with tpu-mlir's own inference of the model that was compiled."""
    from tpu_mlir.python.tools.model_runner import mlir_inference, model_inference

    feed = dict(np.load(job["input"]))
    lowered = next(Path().glob(f"net_{job['chip']}_{job['quantize'].lower()}*_tpu.mlir"))
    inferred = mlir_inference(feed, str(lowered), False)
    np.savez("inferred.npz", **inferred)
    simulated = model_inference(feed, compiled_name(job), False)
    np.savez("simulated.npz", **simulated)
    return {name: agreement(value, inferred[name]) for name, value in simulated.items() if name in inferred}


def reason(log):
    """The line of a log that says what failed, and its last lines where none does."""
    lines = [line.strip() for line in log.splitlines() if not NOISE.match(line)]
    telling = [line for line in lines if TELLING.search(line)]
    return " | ".join(line[:300] for line in (telling[:3] or lines[-3:]))


if __name__ == "__main__":
    main()
