"""The gallery: runs of models that come with onnxq, made while the site is built, each with the page that it wrote.

No figure is copied: commands are run as they are printed, and the figures beside a link are read from the
report of that run.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tools.zoo.packages import UNAVAILABLE


@dataclass(frozen=True)
class Exhibit:
    """One run: commands in a folder with the digit classifier of the demo and its data, and the page to show.

    `page` is the file to show, `figures` reads from the folder of the run what to say beside the link. One with a
    `package` needs a model out of it: where that cannot be had, the exhibit is left out.
    """

    name: str
    title: str
    about: str
    commands: tuple[str, ...]
    page: str
    figures: Callable[[Path], list[str]] | None
    package: str | None = None

    @property
    def folder(self) -> str:
        """The folder of the run."""
        return self.page.rpartition("/")[0]


def figures_of_a_run(folder: Path) -> list[str]:
    """Signal to noise of the worst output, coverage and size of `onnxq quantize`."""
    report = json.loads((folder / "report.json").read_text())
    worst = min(report["sqnr_db"], key=report["sqnr_db"].__getitem__)
    return [
        f"{report['sqnr_db'][worst]:.1f} dB on `{worst}`",
        f"{100 * report['coverage']['fraction']:.0f} % of the nodes quantized or fused",
    ]


def figures_of_training(folder: Path) -> list[str]:
    """The metric before and after `onnxq qat`."""
    training = json.loads((folder / "report.json").read_text())["training"]
    before, after = (f"{100 * training[when]:.1f} %" for when in ("before", "after"))
    return [f"{training['metric']} {before} before training, {after} after"]


def figures_of_a_search(folder: Path) -> list[str]:
    """What `onnxq search` has chosen."""
    front = json.loads((folder / "front.json").read_text())
    chosen = front["chosen"]
    return [f"{front['goal']}: {chosen['sqnr_db']:.1f} dB with {chosen['bytes']:,} bytes of weights"]


EXHIBITS = (
    Exhibit(
        "defaults",
        "Eight bits, default settings",
        "A run that went well. Look at the verdict first, then click a bar under Layers.",
        ("onnxq quantize digits.onnx -b tensorrt -d calib.npz -o tensorrt/",),
        "tensorrt/report.html",
        figures_of_a_run,
    ),
    Exhibit(
        "four-bits",
        "Four bits for weights and activations",
        "Few bits cost accuracy: which layers pay, and what each method brought (view Methods).",
        ("onnxq quantize digits.onnx -b academic:w_bits=4,a_bits=4 -d calib.npz -o four-bits/",),
        "four-bits/report.html",
        figures_of_a_run,
    ),
    Exhibit(
        "outlier",
        "A sample that spoils the ranges",
        "One calibration sample is sixty times too bright: the light is red, and a note names the sample. "
        "Histograms shows what it did to the ranges.",
        (
            "python spoil.py",
            "onnxq quantize digits.onnx -b onnxruntime -d spoiled.npz --effort 0 -o outlier/",
        ),
        "outlier/report.html",
        figures_of_a_run,
    ),
    Exhibit(
        "training",
        "Trained with two bits",
        "Weights of two bits, activations of four, three epochs: the views of `onnxq qat`, with curves over time.",
        (
            "onnxq qat digits.onnx -b academic:w_bits=2,a_bits=4 --fake-quantizer lsq --weight-fake-quantizer lsq "
            "--train train.npz --eval test.npz --epochs 3 -o trained/",
        ),
        "trained/report.html",
        figures_of_training,
    ),
    Exhibit(
        "search",
        "Bits for each layer, searched",
        "Eight or four bits for each layer within 70 % of the bytes: the view Front has every plan that was tried.",
        ("onnxq search digits.onnx -b tensorrt -d calib.npz --bits 8,4 --budget 70% -o searched/",),
        "searched/report.html",
        figures_of_a_search,
    ),
    Exhibit(
        "detector",
        "A text detector",
        "PP-OCRv4 out of the package rapidocr-onnxruntime, for Qualcomm's HTP: pictures under Data, "
        "shared scales under Ties, and the graph.",
        (
            "python -m tools.zoo.folder ppocrv4-det ppocr/ --calibration 16 --held 8",
            "onnxq quantize ppocr/model.onnx -b qnn -d ppocr/calibration -o detector/",
        ),
        "detector/report.html",
        figures_of_a_run,
        package="rapidocr-onnxruntime",
    ),
    Exhibit(
        "difference",
        "Two runs side by side",
        "What changed between the first run of this page and the one with four bits.",
        ("onnxq diff tensorrt/ four-bits/ --html difference.html",),
        "difference.html",
        None,
    ),
)

SPOIL = """\
import numpy as np

images = np.load("calib.npz")["image"]
images[7] *= 60
np.savez("spoiled.npz", image=images)
"""


class RunFailed(Exception):
    """A command of the gallery ended with an error."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


def run_exhibits(root: Path, work: Path, exhibits: tuple[Exhibit, ...] = EXHIBITS) -> None:
    """Run the commands in the folder `work`; a file in it says afterwards that all of them are done."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    programs = work / "programs"
    programs.mkdir()
    for name, arguments in (("python", ""), ("onnxq", "-m onnxq ")):
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments}"$@"\n')
        program.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(root),
        "ONNXQ_PROGRESS": "no",
        "OMP_NUM_THREADS": "1",  # small networks: threads of torch would wait for each other on a busy machine
    }
    shutil.copy(root / "examples" / "make_data.py", work)
    (work / "spoil.py").write_text(SPOIL)
    _run("python make_data.py", work, environment)
    for exhibit in exhibits:
        try:
            for command in exhibit.commands:
                _run(command, work, environment)
        except RunFailed as error:
            if exhibit.package is None or error.code != UNAVAILABLE:
                raise
            print(
                f"{exhibit.name} is left out of the gallery: {exhibit.package} cannot be had\n{error}", file=sys.stderr
            )
    (work / DONE).touch()


def stage_gallery(work: Path, source: Path, exhibits: tuple[Exhibit, ...] = EXHIBITS) -> None:
    """Write the page of the gallery and the pages of the runs in `work` below the folder `source`."""
    gallery = source / "gallery"
    gallery.mkdir(parents=True)
    parts = [INTRODUCTION]
    for exhibit in exhibits:
        if exhibit.package is not None and not (work / exhibit.page).is_file():
            continue
        shutil.copy(work / exhibit.page, gallery / f"{exhibit.name}.html")
        parts.append(_entry(exhibit, work))
    (gallery / "index.md").write_text("\n".join(parts), encoding="utf-8")


DONE = "all-runs-are-done"


INTRODUCTION = f"""# Gallery

Pages that onnxq wrote while this site was built: each run leaves one beside its files, and it can be sent or attached
as it is ([what the page shows](../report.md)). The model is the digit classifier that comes with onnxq, but for one
exhibit; the commands run in a folder where `python examples/make_data.py` of the repository has written it and its
data.

The spoiled data of the third run is made by this file:

```python
# spoil.py
{SPOIL}```
"""


def _run(command: str, work: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(["sh", "-c", command], cwd=work, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RunFailed(f"$ {command}\n{done.stdout}{done.stderr}", done.returncode)


def _entry(exhibit: Exhibit, work: Path) -> str:
    commands = "\n".join(exhibit.commands)
    figures = [] if exhibit.figures is None else exhibit.figures(work / exhibit.folder)
    figures.append(f"page of {(work / exhibit.page).stat().st_size / 1024:.0f} KiB")
    return (
        f"## {exhibit.title}\n\n{exhibit.about}\n\n```sh\n{commands}\n```\n\n"
        f"[Open the page]({exhibit.name}.html){{ .md-button .md-button--primary }}\n\n"
        f"{', '.join(figures)}\n"
    )
