"""Dynamic quantization beside onnxruntime's quantize_dynamic: SQNR on samples nobody saw, time of a run, bytes.

    python -m tools.bench.dynamic_quantization [--models silero-vad-ifless minilm-l3] [--samples 24]

Neither tool is given data. Times are processor time on one thread, in turns, as multiples of the float model's time.
A model that comes quantized is made float first. Models and samples are those of `tools.zoo`. Prints a table in
Markdown.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import onnxruntime as ort
from onnx.shape_inference import InferenceError
from onnxruntime.quantization import QuantType, quantize_dynamic

from onnxq import quantize
from onnxq.errors import OnnxqWarning
from onnxq.graph import Graph
from onnxq.strip import strip
from tools.bench.samples import Feed
from tools.zoo.catalogue import MODELS
from tools.zoo.measure import DoesNotRun, decibels, outputs_of, worst
from tools.zoo.model import by_name
from tools.zoo.packages import Cache, default_cache

DEFAULT = ["minilm-l3", "minilm-l6", "silero-vad-ifless", "smart-turn-float", "whisper-encoder"]
ROUNDS, LEAST_SECONDS = 9, 0.15

Job = Callable[[Path, Path], None]


def onnxq_job(effort: int, feeds: list[Feed] | None = None) -> Job:
    def job(model: Path, result: Path) -> None:
        config = {"effort": effort, "report": "no", "minimum_sqnr_db": -100.0, "diagnose": False}
        folder = result.with_suffix("")
        quantize(
            model,
            backend="onnxruntime:activations=dynamic",
            data=feeds,
            config=config,
            out=folder,
            progress=False,
        )
        (folder / "model.onnx").rename(result)

    return job


def peer_job(kind: QuantType, *, per_channel: bool) -> Job:
    def job(model: Path, result: Path) -> None:
        quantize_dynamic(model, result, weight_type=kind, per_channel=per_channel)

    return job


class Timed:
    """A file in onnxruntime on one thread."""

    def __init__(self, path: Path, feeds: list[Feed]) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 4
        self.session, self.feeds = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"]), feeds
        self.repeats = 1
        while self.seconds() < LEAST_SECONDS:
            self.repeats *= 2

    def seconds(self) -> float:
        start = time.process_time()
        for _ in range(self.repeats):
            for feed in self.feeds:
                self.session.run(None, feed)
        return time.process_time() - start


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--models", nargs="*", default=DEFAULT)
    options.add_argument("--samples", type=int, default=24)
    given = options.parse_args()
    warnings.simplefilter("ignore", OnnxqWarning)
    print("| model | tool | SQNR | MB | time, x float |\n|---|---|---|---|---|", flush=True)
    for model in by_name(MODELS, given.models):
        cache = Cache(default_cache())
        seen, unseen = model.samples(cache, 16, given.samples)
        jobs: dict[str, Job] = {
            "onnxq": onnxq_job(0),
            "onnxq, 16 samples": onnxq_job(1, seen),
            "quantize_dynamic": peer_job(QuantType.QInt8, per_channel=False),
            "quantize_dynamic, per channel": peer_job(QuantType.QInt8, per_channel=True),
            "quantize_dynamic, unsigned": peer_job(QuantType.QUInt8, per_channel=False),
        }
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "float.onnx"
            graph = Graph.load(model.file(cache))
            strip(graph)
            graph.save(file)
            wanted = outputs_of(file, unseen)
            floor = Timed(file, unseen[:2])
            for name, job in jobs.items():
                result = Path(folder) / f"{name}.onnx"
                try:
                    job(file, result)
                    found = worst(decibels(model, wanted, outputs_of(result, unseen)))
                    timed = Timed(result, unseen[:2])
                except (DoesNotRun, ValueError, RuntimeError, InferenceError) as error:
                    print(f"| {model.name} | {name} | {str(error).splitlines()[0][:80]} | | |", flush=True)
                    continue
                ratios = []
                for _ in range(ROUNDS):
                    one, other = timed.seconds() / timed.repeats, floor.seconds() / floor.repeats
                    ratios.append(one / other)
                decibel = "" if found is None else f"{found[1]:.1f} dB"
                size = result.stat().st_size / 1e6
                print(
                    f"| {model.name} | {name} | {decibel} | {size:.1f} | {statistics.median(ratios):.2f} |", flush=True
                )


if __name__ == "__main__":
    main()
