"""A language model with weights of few bits: what each method and tool costs in cross-entropy, bytes and time.

    python -m tools.bench.language_models WORK [--model smollm2] [--peer-python nncf=PATH ...] [--only 'onnxq w4a16']

Both the prompts that methods are fitted to and those that are measured are sampled from the float model, with different
seeds; on such text the rise of the cross-entropy is, in expectation, the divergence of the next tokens. Every file lies
in WORK afterwards; those that are there already are measured and not made again. Prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from onnxq.errors import OnnxqError, OnnxqWarning
from onnxq.graph import Graph
from onnxq.integrations.huggingface.decoder import Decoder
from onnxq.integrations.huggingface.sampling import Sampled, sample_prompts
from tools.bench.child import ROOT
from tools.bench.language_model_measures import DecoderFile, losses, seconds_per_token
from tools.bench.language_model_rows import WANTED, peer_command, peer_jobs, write_prompts
from tools.zoo import smollm, stories_folder
from tools.zoo.packages import Cache, default_cache

MEASURED_TOKENS = 256


class WriteFolder(Protocol):
    """Writes a model as a folder, with table and head apart or as one constant."""

    def __call__(self, cache: Cache, folder: Path, *, apart: bool) -> None: ...


@dataclass(frozen=True)
class Subject:
    """A model; the token its prompts begin with; prompts to fit to, and their tokens; weights that share a scale.

    SmolLM2 comes in blocks of 32: with 64 its numbers are no longer those of the grid they lie on.
    """

    write: WriteFolder
    begin: int
    fitted: int
    fitted_tokens: int
    block: int


SUBJECTS = {
    "stories15m": Subject(stories_folder.write_folder, stories_folder.BEGIN, 32, 128, 32),
    "smollm2": Subject(smollm.write_folder, smollm.BEGIN, 16, 128, 64),
}
LIMIT = 1800
"""Seconds that a peer may take."""


def prepare(subject: Subject, work: Path, measured: int) -> dict[bool, Path]:
    """Folders whose table and head are one constant (True) or two (False); prompts to fit to and to measure."""
    folders = {tied: work / ("tied" if tied else "apart") for tied in (True, False)}
    for tied, folder in folders.items():
        if not folder.exists():
            subject.write(Cache(default_cache()), folder, apart=not tied)
    for name, wanted in (
        ("fitted", Sampled(subject.fitted, subject.fitted_tokens, 0)),
        ("measured", Sampled(measured, MEASURED_TOKENS, 1)),
    ):
        if not (work / f"{name}.npz").exists():
            graph = Graph.load(folders[False] / "model.onnx")
            decoder = Decoder.of(graph)
            assert decoder is not None
            write_prompts(sample_prompts(graph, decoder, wanted, subject.begin), work / f"{name}.npz")
    return folders


def make_files(
    block: int, work: Path, folders: dict[bool, Path], peers: dict[str, Path], wanted_rows: Callable[[str], bool]
) -> tuple[dict[str, Path], dict[str, str]]:
    """Row -> its file, and row -> why there is none."""
    files, failures = {}, {}
    for name, wanted in WANTED.items():
        folder = work / f"onnxq {name}"
        if not wanted_rows(f"onnxq {name}"):
            continue
        start = time.process_time()
        try:
            made = (
                folder / "model.onnx" if folder.exists() else wanted.make(folders, work / "fitted.npz", folder, block)
            )
        except OnnxqError as error:
            failures[f"onnxq {name}"] = str(error)
            continue
        files[f"onnxq {name}"] = made
        print(f"onnxq {name}: {time.process_time() - start:.0f} s", file=sys.stderr, flush=True)
    for job, python in peer_jobs(peers).items():
        result = work / f"{job}.onnx"
        if not wanted_rows(job):
            continue
        if not result.exists():
            model = folders[False] / "model.onnx"
            failure = _run(peer_command(job, python, model, work / "fitted.npz", result, block))
            if failure or not result.exists():
                failures[job] = failure
                continue
        files[job] = result
    return files, failures


def _run(command: list[str]) -> str:
    """The last line of what it says, where it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False, cwd=ROOT)
    except subprocess.TimeoutExpired:
        return f"not done after {LIMIT} s"
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["no word"])[-1]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("work", type=Path)
    options.add_argument("--model", choices=sorted(SUBJECTS), default="stories15m")
    options.add_argument("--peer-python", action="append", default=[], metavar="TOOL=PATH")
    options.add_argument("--prompts", type=int, default=48)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--only", action="append", default=[], metavar="TEXT", help="rows that begin so; repeatable")
    options.add_argument("--without", action="append", default=[], metavar="ROW", help="leave out this row")
    given = options.parse_args()
    if shutil.disk_usage(given.work.parent).free < 5e9:
        sys.exit("the files take up to 5 GB")
    given.work.mkdir(exist_ok=True)
    peers = {name: Path(path) for name, _, path in (item.partition("=") for item in given.peer_python)}
    warnings.simplefilter("ignore", OnnxqWarning)  # a file with 10 dB is a row as good as any
    subject = SUBJECTS[given.model]
    folders = prepare(subject, given.work, given.prompts)
    files, failures = make_files(
        subject.block,
        given.work,
        folders,
        peers,
        lambda row: row.startswith(tuple(given.only) or "") and row not in given.without,
    )

    prompts = list(np.load(given.work / "measured.npz")["ids"][: given.prompts])
    reference = DecoderFile(folders[False] / "model.onnx")
    models = {}
    for name, path in files.items():
        try:
            models[name] = DecoderFile(path)
        except Exception as error:  # onnxruntime has many classes of errors without a common one
            failures[name] = f"onnxruntime refuses the file: {str(error).rpartition('Error ')[2]}"
    times: dict[str, list[float]] = {name: [] for name in models}
    floats = []
    for _ in range(given.rounds):
        for name, model in models.items():
            floor = seconds_per_token(reference)
            floats.append(floor)
            times[name].append(seconds_per_token(model) / floor)
    seconds = statistics.median(floats)
    entropy, found = losses(models, reference, prompts)
    print("| file | MB | cross-entropy + | divergence | likeliest token the same | tokens/s | x float |")
    print("|---|---|---|---|---|---|---|")
    print(f"| float | {reference.megabytes():.1f} | {entropy:.4f} | | | {1 / seconds:.0f} | 1 |")
    for name, model in models.items():
        lost, ratio = found[name], statistics.median(times[name])
        print(
            f"| {name} | {model.megabytes():.1f} | {lost.rise:+.4f} ± {lost.error:.4f} | {lost.divergence:.4f} | "
            f"{lost.agreement:.1%} | {1 / (ratio * seconds):.0f} | {1 / ratio:.2f} |"
        )
    for name, why in failures.items():
        print(f"| {name} | not made: {why} | | | | | |")


if __name__ == "__main__":
    main()
