"""Encoders in 8 bits for targets of many kinds, at the default effort: dB and decisions on samples onnxq has not seen.

    python -m tools.bench.encoders RESULTS [--models minilm-l3] [--targets qnn] [--samples 32] [--page docs/encoders.md]

Each cell is `onnxq quantize` in a process of its own. RESULTS has a line of JSON for each; what it has is not run
again. Models, samples and decisions are those of `tools.zoo`. Prints a table in Markdown, or puts it between the marks
of a page.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from onnxq import QuantPlan
from tools.bench.results import markdown_table
from tools.bench.samples import Feed
from tools.zoo import page
from tools.zoo.boxes import Outputs
from tools.zoo.catalogue import MODELS
from tools.zoo.cells import DEFAULT_EFFORT, run_quantize
from tools.zoo.measure import decibels, outputs_of, worst
from tools.zoo.model import ZooModel, by_name
from tools.zoo.packages import Cache, default_cache

ENCODERS = ("minilm-l3", "minilm-l6", "vit-fashion", "whisper-encoder", "smart-turn-float")
TARGETS = ("onnxruntime", "openvino", "tensorrt", "qnn", "snpe", "vitis", "sophgo_bm1684x")
HELD = 48
LIMIT = 3600.0
"""Seconds of processor time that a cell may take."""
GOOD_DB, GOOD_AGREEMENT = 20.0, 0.9
WIDER = ("uint16", "int16")
MARK = "encoders"


@dataclass(frozen=True)
class Cell:
    """`work` is the share of multiplications in quantized layers, `float_nodes` and `wider` are what outliers have made
    float and what has 16 bits; `said` is why there is no file, or what the run says of its accuracy.
    """

    model: str
    target: str
    db: float | None = None
    agreement: float | None = None
    seconds: float = 0.0
    work: float | None = None
    float_nodes: int = 0
    wider: int = 0
    said: str = ""

    @property
    def good(self) -> bool:
        decided = self.agreement is None or self.agreement >= GOOD_AGREEMENT
        return self.db is not None and self.db >= GOOD_DB and decided

    def row(self) -> dict[str, str]:
        return {
            "model": self.model,
            "target": f"`{self.target}`",
            "SQNR in dB": "" if self.db is None else f"{self.db:.1f}",
            "decisions kept": "" if self.agreement is None else f"{self.agreement:.0%}",
            "work in 8 bits": "" if self.work is None else f"{self.work:.0%}",
            "left float for outliers": str(self.float_nodes or ""),
            "tensors of 16 bits": str(self.wider or ""),
            "CPU s": f"{self.seconds:.0f}",
            "": "" if self.good else self.said,
        }


@dataclass
class Encoder:
    """A model with its samples, and what it makes of those that are held; the folder has the others as files."""

    model: ZooModel
    file: Path
    folder: Path
    held: list[Feed]
    before: list[Outputs]

    @classmethod
    def of(cls, model: ZooModel, cache: Cache, folder: Path, samples: int) -> Encoder:
        file = model.file(cache)
        seen, held = model.samples(cache, samples, HELD)
        (folder / "seen").mkdir(parents=True)
        for number, feed in enumerate(seen):
            np.savez(folder / "seen" / f"{number:03}.npz", **feed)  # type: ignore[arg-type]
        return cls(model, file, folder, held, outputs_of(file, held))

    def cell(self, target: str, out: Path) -> Cell:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        ended = run_quantize(self.file, target, self.folder / "seen", out, DEFAULT_EFFORT, LIMIT)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1)
        if ended.exit_code is None:
            return Cell(self.model.name, target, seconds=seconds, said=f"not done after {LIMIT:.0f} s")
        if ended.exit_code:
            return Cell(self.model.name, target, seconds=seconds, said=(ended.said.split("\n") or [""])[0])
        results = outputs_of(out / "model.onnx", self.held)
        lowest = worst(decibels(self.model, self.before, results))
        agreement = self.model.decision(self.before, results) if self.model.decision else None
        report = json.loads((out / "report.json").read_text(encoding="utf-8"))
        plan = QuantPlan.from_json(json.loads((out / "plan.json").read_text(encoding="utf-8")))
        return Cell(
            self.model.name,
            target,
            None if lowest is None else lowest[1],
            agreement,
            seconds,
            report["work"]["quantized_macs"] / report["work"]["macs"],
            len(report["coverage"]["float_codes"].get("outliers", [])),
            sum(item.spec.dtype in WIDER for item in plan if item.role != "bias"),
            "; ".join(report["warnings"]),
        )


def read(results: Path) -> dict[tuple[str, str], Cell]:
    lines = results.read_text(encoding="utf-8").splitlines() if results.exists() else []
    return {(cell.model, cell.target): cell for cell in (Cell(**json.loads(line)) for line in lines)}


def run_missing(models: Sequence[ZooModel], given: argparse.Namespace) -> None:
    cache = Cache(default_cache())
    for model in models:
        wanted = [target for target in given.targets if (model.name, target) not in read(given.results)]
        if not wanted:
            continue
        with tempfile.TemporaryDirectory(prefix="onnxq-encoders-") as scratch:
            encoder = Encoder.of(model, cache, Path(scratch), given.samples)
            for target in wanted:
                out = Path(scratch) / target
                cell = encoder.cell(target, out)
                with given.results.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(cell)) + "\n")
                if given.keep and out.exists():
                    shutil.move(out, given.keep / f"{model.name}-{target}")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("results", type=Path, help="lines of JSON; missing cells are added")
    options.add_argument("--models", nargs="*", default=list(ENCODERS))
    options.add_argument("--targets", nargs="*", default=list(TARGETS))
    options.add_argument("--samples", type=int, default=32)
    options.add_argument("--keep", type=Path, metavar="FOLDER", help="keep what was written here")
    options.add_argument("--page", type=Path, metavar="FILE")
    given = options.parse_args()
    models = by_name(MODELS, given.models)
    run_missing(models, given)
    done = read(given.results)
    wanted = [(model.name, target) for model in models for target in given.targets]
    cells = [done[key] for key in wanted if key in done]
    table = markdown_table([cell.row() for cell in cells])
    if given.page:
        page.write(given.page, MARK, table)
    else:
        print(table)


if __name__ == "__main__":
    main()
