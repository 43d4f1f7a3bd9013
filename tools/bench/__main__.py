"""`python -m tools.bench graph|speed|memory`: measure onnxq against a baseline in the same run."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tools.bench import graph_work, large_model, quantized_speed

Rows = list[dict[str, Any]]


def markdown(rows: Rows) -> str:
    """Rows of equal keys as a table."""
    if not rows:
        return "(nothing measured)"
    keys = list(rows[0])
    lines = ["| " + " | ".join(keys) + " |", "|" + "---|" * len(keys)]
    lines += ["| " + " | ".join(str(row[key]) for key in keys) + " |" for row in rows]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="tools.bench", description=__doc__)
    parser.add_argument("what", choices=["graph", "speed", "memory"])
    parser.add_argument("--sizes", type=int, nargs="+", default=[500, 2000, 10000], help="graph: numbers of nodes")
    parser.add_argument("--models", nargs="+", default=["resnet50", "mobilenetv2"], help="speed: networks")
    parser.add_argument("--gigabytes", type=float, default=3.0, help="memory: size of the model")
    parser.add_argument("--repeats", type=int, default=15, help="speed: timed runs of each model")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    given = parser.parse_args()
    measure: dict[str, Callable[[], Rows]] = {
        "graph": lambda: graph_work.measure(given.sizes),
        "speed": lambda: quantized_speed.measure(given.models, given.repeats),
        "memory": lambda: large_model.measure(given.gigabytes),
    }
    rows = measure[given.what]()
    print(markdown(rows))
    if given.json:
        given.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
