"""Which combinations of Sophgo's options tpu-mlir compiles: chips, modes, strategies, precisions, on three networks.

    python -m tools.readers.sophgo_table --results combinations.jsonl

Each combination is quantized, compiled and run in the chip's simulator. Answers are kept line by line, so that a run
which was stopped goes on where it was; the same files for the same chip are compiled once. At the end the table of
docs/targets/sophgo-combinations.md is written (`--no-run`: from the answers that are there).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

import numpy as np

import onnxq
from onnxq.errors import ConfigError, OnnxqError
from onnxq.targets import get_backend
from tests.golden_graphs import GOLDEN
from tools.bench.results import markdown_table
from tools.readers.catalogue import READERS
from tools.readers.environments import ReaderError, clean_variables, python_of, readers_folder, state

PAGE = Path(__file__).resolve().parents[2] / "docs" / "targets" / "sophgo-combinations.md"
NETWORKS = {"CNN": "residual", "transformer": "transformer", "detector": "detector"}
"""What the table calls a network -> its name in tests/golden_graphs.py."""

CHIPS: Mapping[str, tuple[str, ...]] = {
    "sophgo_bm1688": ("bm1688",),
    "sophgo_bm1684x": ("bm1684x",),
    "sophgo_bm1690": ("bm1690",),
    "sophgo_sg2260": ("bm1690",),
    "sophgo_cv18x": ("cv180x", "cv181x", "cv182x", "cv183x", "cv186x"),
    "sophgo_mars3": ("cv184x",),
    "sophgo_academic": ("bm1688", "bm1690"),
}
"""Backend -> chips of model_deploy. SG2260 is its bm1690, MARS3 its cv184x; Academic is any chip with the format."""

SAMPLES = 4
EQUAL = 999.0
"""What the compiler answers where the simulator's result is that of tpu-mlir's own inference."""


@dataclass(frozen=True)
class Combination:
    """One line of the table on one network."""

    backend: str
    chip: str
    mode: str
    strategy: str
    precision: str
    asymmetric: str
    network: str

    @property
    def written(self) -> str:
        """The backend with its options, as -b has it."""
        options = {"mode": self.mode, "strategy": self.strategy, "precision": self.precision}
        options |= {"asymmetric": "yes"} if self.asymmetric == "yes" else {}
        return f"{self.backend}:{','.join(f'{key}={value}' for key, value in options.items())}"

    @property
    def quantize(self) -> str:
        """The default mode for model_deploy."""
        if self.mode == "weight_only":
            return f"W{self.precision[-1]}{'BF16' if self.chip.startswith('cv') else 'F16'}"
        return self.precision


def combinations() -> Iterator[Combination]:
    """All that the backends take, chip by chip."""
    for backend, chips in CHIPS.items():
        options = {option.name: option.values for option in get_backend(backend).options}
        names = ("mode", "strategy", "precision", "asymmetric")
        for values in product(*(options[name] for name in names)):
            chosen = dict(zip(names, values, strict=True))
            for chip, network in product(chips, NETWORKS):
                found = Combination(backend, chip, network=network, **chosen)
                if _offered(found) and _has_format(found):
                    yield found


def _offered(combination: Combination) -> bool:
    try:
        get_backend(combination.written)
    except ConfigError:
        return False
    return True


def _has_format(combination: Combination) -> bool:
    """Whether the chip that stands for Academic has the format: BM1690 float8, BM1688 the others."""
    in_float8 = combination.precision.startswith("F8")
    return combination.backend != "sophgo_academic" or in_float8 == (combination.chip == "bm1690")


class Compiler:
    """tpu-mlir with its packages loaded; answers to the same files for the same chip are remembered."""

    def __init__(self) -> None:
        reader = READERS["tpu_mlir"]
        found = state(reader, readers_folder())
        if found != "ready":
            raise ReaderError(f"the environment of tpu_mlir is {found}: python -m tools.readers install tpu_mlir")
        command = [str(python_of(readers_folder() / reader.name)), str(reader.check.with_name("compile.py"))]
        self._process = subprocess.Popen(
            command, env=clean_variables(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._known: dict[str, str] = {}

    def ask(self, folder: Path, chip: str, quantize: str, options: Sequence[str]) -> dict[str, object]:
        feed = dict(np.load(folder / "input.npz"))
        job = {"chip": chip, "quantize": quantize, "options": list(options)}
        key = _fingerprint(folder) + json.dumps(job)
        if key not in self._known:
            shapes = [list(value.shape) for value in feed.values()]
            job |= {"folder": str(folder), "shapes": shapes, "input": str(folder / "input.npz")}  # type: ignore[dict-item]
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(json.dumps(job) + "\n")
            self._process.stdin.flush()
            self._known[key] = self._process.stdout.readline()
        answer: dict[str, object] = json.loads(self._known[key])
        return answer

    def close(self) -> None:
        self._process.communicate()


def _fingerprint(folder: Path) -> str:
    files = sorted([*folder.glob("*_table_*"), *folder.glob("*_deploy_model.onnx")])
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def run(results: Path, only: str) -> None:
    """Ask about every combination that has no answer yet, and whose backend or chip holds `only`."""
    done = read(results)
    named = (found for found in combinations() if only in f"{found.written}, {found.chip}")
    left = [combination for combination in named if combination not in done]
    if not left:
        return
    compiler = Compiler()
    for number, combination in enumerate(left, 1):
        answer = measured(compiler, combination)
        with results.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"combination": asdict(combination), "answer": answer}) + "\n")
        print(f"{number} of {len(left)}: {combination.written}, {combination.chip}, {combination.network}: {answer}")
        sys.stdout.flush()
    compiler.close()


def measured(compiler: Compiler, combination: Combination) -> dict[str, object]:
    """Quantize, compile, run; where onnxq refuses, that is the answer."""
    golden = GOLDEN[NETWORKS[combination.network]]()
    settings = {"minimum_sqnr_db": 0.0, "effort": 0}
    with tempfile.TemporaryDirectory() as temporary, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folder = Path(temporary) / "out"
        samples = golden.samples[:SAMPLES]
        try:
            onnxq.quantize(golden.model, backend=combination.written, data=samples, out=folder, config=settings)
        except OnnxqError as error:
            return {"compiled": False, "error": f"onnxq: {error}"}
        np.savez(folder / "input.npz", **samples[0])  # type: ignore[arg-type]
        options = ["--asymmetric"] if combination.asymmetric == "yes" else []
        return compiler.ask(folder, combination.chip, combination.quantize, options)


def read(results: Path) -> dict[Combination, dict[str, object]]:
    """Combination -> answer; the last line counts."""
    lines = results.read_text(encoding="utf-8").splitlines() if results.exists() else []
    entries = [json.loads(line) for line in lines]
    return {Combination(**entry["combination"]): entry["answer"] for entry in entries}


def page(answers: Mapping[Combination, dict[str, object]]) -> str:
    """The document: what compiled, in how many seconds, and how the simulator agrees; then what did not, and why."""
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    failed: list[str] = []
    for combination in combinations():
        answer = answers.get(combination)
        precision = combination.precision + (" asymmetric" if combination.asymmetric == "yes" else "")
        heads = (combination.backend, combination.chip, combination.mode, combination.strategy, precision)
        names = ("backend", "chip", "mode", "strategy", "precision")
        row = rows.setdefault(heads, {**dict(zip(names, heads, strict=True)), **dict.fromkeys(NETWORKS, "not run")})
        if answer is not None:
            row[combination.network] = _cell(answer)
            if not answer["compiled"]:
                failed.append(
                    f"- `{combination.written}`, {combination.chip}, {combination.network}: {answer['error']}"
                )
    total = len(list(combinations()))
    compiled = sum(bool(answer["compiled"]) for answer in answers.values())
    text = TEXT.format(version=READERS["tpu_mlir"].version(), compiled=compiled, asked=len(answers), total=total)
    ending = "\nWhat does not compile:\n\n" + "\n".join(failed) + "\n" if failed else ""
    return f"{text}\n{markdown_table(list(rows.values()))}{ending}"


TEXT = """# Sophgo: what tpu-mlir compiles

Every combination of options that the backends take, on three small networks (`residual`, `transformer` and `detector`
of `tests/golden_graphs.py`): quantized, compiled with tpu_mlir {version}, and run in the simulator of the chip.
Of {total} combinations {asked} have been run, and {compiled} of these compile. A cell has the seconds of processor time
of tpu-mlir, and how the simulator's results agree with tpu-mlir's own inference of the same model (the output that
agrees least). Written by `python -m tools.readers.sophgo_table`.
"""


def _cell(answer: Mapping[str, object]) -> str:
    if not answer["compiled"]:
        return "refused"
    simulator = answer.get("simulator")
    figures = [float(item["sqnr_db"]) for item in simulator.values()] if isinstance(simulator, dict) else []
    agrees = "" if not figures else ", equal" if min(figures) == EQUAL else f", {min(figures):.0f} dB"
    return f"{answer['seconds']} s{agrees}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="tools.readers.sophgo_table", description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, required=True, help="a file that keeps the answers, line by line")
    parser.add_argument("--only", default="", help="a part of a backend, of its options, or of a chip: precision=F8")
    parser.add_argument("--no-run", action="store_true", help="only make the table from the answers that are there")
    given = parser.parse_args()
    try:
        if not given.no_run:
            run(given.results, given.only)
    except ReaderError as error:
        print(error, file=sys.stderr)
        return 2
    PAGE.write_text(page(read(given.results)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
