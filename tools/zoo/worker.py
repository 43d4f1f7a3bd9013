"""The cells of one model in a process of its own: `python -m tools.zoo.worker MODEL CACHE CODE TARGET:EFFORT ...`.

Prints one line of JSON for each cell when it is done. A crash of onnxruntime ends this process and no other one.
"""

from __future__ import annotations

import signal
import sys
import tempfile
from pathlib import Path
from types import FrameType

from tools.zoo.catalogue import MODELS
from tools.zoo.cells import Bench
from tools.zoo.model import by_name
from tools.zoo.packages import Cache


def end(number: int, frame: FrameType | None) -> None:
    """As an exception, so that the command that runs is ended too and the scratch folder is removed."""
    raise SystemExit(128 + number)


def main(arguments: list[str]) -> None:
    signal.signal(signal.SIGTERM, end)
    name, cache, code, *wanted = arguments
    (model,) = by_name(MODELS, [name])
    with tempfile.TemporaryDirectory(prefix="onnxq-zoo-") as folder:
        bench = Bench(model, Cache(Path(cache)), Path(folder), code)
        for text in wanted:
            target, _, effort = text.rpartition(":")
            print(bench.run(target, int(effort)).to_json(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
