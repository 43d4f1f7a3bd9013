"""How a tool is measured in a process of its own: one job, its seconds and the peak memory of the process, as JSON.

A job is set up outside the clock (imports, samples in memory, whatever the tool does once for a model) and returns the
action that is timed. Standard library and numpy alone: the interpreter of a peer need not have onnxq.

    python -m tools.bench.peers.NAME --list
    python -m tools.bench.peers.NAME METHOD MODEL.onnx SAMPLES COUNT [--lazy] [--memory-limit BYTES]
    python -m tools.bench.peers.NAME --write FORMAT SETTING MODEL.onnx FEEDS.npz RESULT.onnx
    python -m tools.bench.peers.NAME --climb FORMAT SETTINGS MODEL.onnx FEEDS.npz FOLDER

`--write` makes a quantized file to be evaluated elsewhere; `WRITERS` of a peer has its settings for each format.
`--climb` makes several in one process, where each setting goes on from the one before: FOLDER gets 0.onnx, 1.onnx ...
in the order of SETTINGS (separated by ;), and a line of JSON is printed as soon as each of them is there.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import re
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tools.bench.samples import Feed, read_feeds, samples_for

Action = Callable[[], object]
Job = Callable[[Path, Sequence[Feed], Path], Action]
"""(model file, samples, an empty folder) -> what is timed."""
Writer = Callable[[Path, Sequence[Feed], Path], object]
"""(model file, samples, the file to write); the whole call is timed. Its folder is its own."""
Writers = Mapping[str, Mapping[str, Writer]]
"""Number format -> setting -> writer."""


class Climber(NamedTuple):
    """Writes files of several settings in one process.

    `settings` are those of each format. `run` gets (format, some of its settings, model file, samples, folder, report)
    and reports for each file the seconds that its setting alone would have taken.
    """

    settings: Mapping[str, Sequence[str]]
    run: Callable[[str, Sequence[str], Path, Sequence[Feed], Path, Callable[[float], None]], None]


def peak_megabytes() -> float:
    """The largest resident memory that this process ever had (VmHWM), everything included."""
    found = re.search(r"^VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"), re.MULTILINE)
    if found is None:
        raise RuntimeError("/proc/self/status has no VmHWM: peak memory is measured on Linux only")
    return int(found[1]) / 1024


def seconds_of(action: Action, clock: Callable[[], float] = time.perf_counter) -> float:
    start = clock()
    action()
    return clock() - start


def cpu_seconds() -> float:
    """Processor time of this process and of those that it has waited for, in all threads."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def main(jobs: Mapping[str, Job], package: str, writers: Writers | None = None, climber: Climber | None = None) -> None:
    """The command line of a peer; the last line that it prints is the JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--list", action="store_true", help="print the methods and the version of the tool")
    parser.add_argument("method", nargs="?", choices=list(jobs))
    parser.add_argument("model", nargs="?", type=Path)
    parser.add_argument("samples", nargs="?", help="whose inputs, a name in tools.bench.samples")
    parser.add_argument("count", nargs="?", type=int)
    parser.add_argument("--lazy", action="store_true", help="make each sample when it is asked for")
    parser.add_argument("--memory-limit", type=int, help="bytes of private memory after which allocations fail")
    parser.add_argument("--write", nargs=5, metavar=("FORMAT", "SETTING", "MODEL", "FEEDS", "RESULT"))
    parser.add_argument("--climb", nargs=5, metavar=("FORMAT", "SETTINGS", "MODEL", "FEEDS", "FOLDER"))
    given = parser.parse_args()
    writers = writers or {}
    if given.list:
        settings = {name: list(known) for name, known in (writers if climber is None else climber.settings).items()}
        print(json.dumps({"methods": list(jobs), "version": importlib.metadata.version(package), "writers": settings}))
        return
    if given.write:
        form, setting, model, feeds, result = given.write
        samples = read_feeds(Path(feeds))
        before = cpu_seconds()
        seconds = seconds_of(lambda: writers[form][setting](Path(model), samples, Path(result)))
        _show(seconds, cpu_seconds=cpu_seconds() - before)
        return
    if given.climb:
        form, settings, model, feeds, result = given.climb
        if climber is None:
            parser.error(f"{package} writes each setting from the beginning: use --write")
        climber.run(form, settings.split(";"), Path(model), read_feeds(Path(feeds)), Path(result), _show)
        return
    if given.count is None:
        parser.error("give METHOD MODEL SAMPLES COUNT, or --list")
    if given.memory_limit:
        resource.setrlimit(resource.RLIMIT_DATA, (given.memory_limit, given.memory_limit))
    lazy = samples_for(given.samples, given.count)
    with tempfile.TemporaryDirectory() as folder:
        action = jobs[given.method](given.model, lazy if given.lazy else list(lazy), Path(folder))
        seconds = seconds_of(action)
    _show(seconds)


def _show(seconds: float, **more: float) -> None:
    sys.stdout.flush()
    print("\n" + json.dumps({"seconds": seconds, "peak_mb": peak_megabytes(), **more}), flush=True)
