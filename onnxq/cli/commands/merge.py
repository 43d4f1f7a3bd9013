"""`onnxq merge`: the statistics of several shards as one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onnxq.cli import options
from onnxq.cli.console import say

STATISTICS_NAME = "statistics.npz"


def merge(
    shards: Annotated[
        list[Path],
        typer.Argument(metavar="STATISTICS...", help="Statistics of every shard, in any order.", show_default=False),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Write the merged statistics into this file.")],
    quiet: options.QuietOption = False,
) -> None:
    """Put the STATISTICS of all shards of a calibration together.

    The file is the one that a calibration without shards writes, byte for byte.
    """
    from onnxq.calibrate.merge import merge_statistics
    from onnxq.calibrate.statistics_file import read_statistics, write_statistics
    from onnxq.cli.artifacts import output_file

    target = output_file(out, STATISTICS_NAME, *shards)
    merged = merge_statistics(read_statistics(path) for path in shards)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_statistics(target, merged)
    parts = "1 shard" if len(shards) == 1 else f"{len(shards)} shards"
    seen = f"{len(merged.statistics)} tensors from {merged.sample_count} samples"
    say(f"statistics of {seen} in {parts} written to {target}", quiet=quiet)
