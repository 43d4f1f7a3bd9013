"""What calibration costs: onnxq and its peers against plain inference over the same samples, and their peak memory."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx

from tools.bench import onnxq_jobs
from tools.bench.child import ONNXQ, ChildFailed, Tool
from tools.bench.clock import CLOCKS, Measure, alternate, clocked, failure_text
from tools.bench.models import MODELS
from tools.bench.peers.protocol import seconds_of
from tools.bench.results import Row, Tables
from tools.bench.samples import Feed, samples_for

FLOOR = "float inference"
PEERS = tuple(
    sorted(
        path.stem
        for path in (Path(__file__).parent / "peers").glob("*.py")
        if path.stem not in ("__init__", "protocol")
    )
)


@dataclass(frozen=True)
class Settings:
    """`memory_samples` are the numbers of samples at which peak memory is taken, on `memory_models`.

    peers  name -> interpreter that has the peer; empty leaves the peers out
    clock  "wall", or "cpu" for the seconds of all threads (`tools.bench.clock`); peers are always timed on the wall
    """

    models: Sequence[str]
    samples: int = 64
    repeats: int = 3
    memory_models: Sequence[str] = ("mobilenetv2",)
    memory_samples: Sequence[int] = (64, 1024)
    peers: Mapping[str, str] | None = None
    timeout: float = 1800.0
    clock: str = "wall"


def measure(settings: Settings) -> Tables:
    tables: Tables = {"time": [], "peak memory": []}
    if settings.peers is not None:
        tables["peers"] = []
    with tempfile.TemporaryDirectory() as text:
        for name in dict.fromkeys([*settings.models, *settings.memory_models]):
            path = Path(text) / f"{name}.onnx"
            onnx.save(MODELS[name](), str(path))
            if name in settings.models:
                feeds = list(samples_for(name, settings.samples))
                tables["time"] += _time_rows(name, path, feeds, settings)
                if settings.peers is not None:
                    tables["peers"] += _peer_rows(name, path, feeds, settings)
            if name in settings.memory_models:
                tables["peak memory"] += _memory_rows(name, path, settings)
            path.unlink()
    return tables


def _floor(path: Path, feeds: Sequence[Feed], clock: str = "wall") -> Measure:
    """The session is made once: the floor is inference alone."""
    # Threads that wait for each other would count as work.
    action = onnxq_jobs.floor(path, feeds, path.parent, threads=1 if clock == "cpu" else 0)
    return lambda: seconds_of(action, CLOCKS[clock])


def _time_rows(name: str, path: Path, feeds: Sequence[Feed], settings: Settings) -> list[Row]:
    def job(method: str) -> Measure:
        def set_up() -> onnxq_jobs.Action:
            return onnxq_jobs.JOBS[method](path, feeds, Path(tempfile.mkdtemp(dir=path.parent)))

        return clocked(set_up, settings.clock)

    measures = {method: job(method) for method in onnxq_jobs.JOBS if method != FLOOR}
    floor, timings = alternate(_floor(path, feeds, settings.clock), measures, settings.repeats)
    return [
        {"model": name, "what": what, "samples": len(feeds), "clock": settings.clock, **timing.columns(len(feeds))}
        for what, timing in {FLOOR: floor, **timings}.items()
    ]


def _memory_rows(name: str, path: Path, settings: Settings) -> list[Row]:
    """Each in a process of its own, with samples that are made when they are asked for."""
    tool = Tool(ONNXQ, timeout=settings.timeout)
    rows = []
    for method in onnxq_jobs.JOBS:
        row: Row = {"model": name, "what": method}
        notes = []
        for count in settings.memory_samples:
            try:
                row[f"MB, {count} samples"] = round(tool.run(method, path, name, count, lazy=True).peak_mb)
            except ChildFailed as error:
                notes.append(f"{count} samples: {failure_text(error)}")
        rows.append({**row, "note": "; ".join(notes)})
    return rows


def _peer_rows(name: str, path: Path, feeds: Sequence[Feed], settings: Settings) -> list[Row]:
    rows = []
    for peer in PEERS:
        row: Row = {"model": name, "peer": peer, "samples": len(feeds)}
        python = (settings.peers or {}).get(peer)
        if python is None:
            rows.append({**row, "note": f"not run: no interpreter was given with --peer-python {peer}=PATH"})
            continue
        tool = Tool(f"tools.bench.peers.{peer}", python, settings.timeout)
        try:
            methods, version = tool.describe()
        except ChildFailed as error:
            rows.append({**row, "note": failure_text(error)})
            continue
        rows += _methods_of_peer({**row, "peer": f"{peer} {version}"}, tool, methods, name, path, feeds, settings)
    return rows


def _methods_of_peer(
    row: Row, tool: Tool, methods: Sequence[str], name: str, path: Path, feeds: Sequence[Feed], settings: Settings
) -> list[Row]:
    def in_child(method: str) -> Measure:
        return lambda: tool.run(method, path, name, len(feeds)).seconds

    measures = {method: in_child(method) for method in methods}
    floor, timings = alternate(_floor(path, feeds), measures, settings.repeats)
    rows: list[Row] = [{**row, "what": f"{FLOOR} beside it", **floor.columns(len(feeds))}]
    for method, timing in timings.items():
        columns = timing.columns(len(feeds))
        note = columns.pop("note")
        if timing.seconds:
            try:
                columns["peak MB"] = round(tool.run(method, path, name, len(feeds), lazy=True).peak_mb)
            except ChildFailed as error:
                note = f"{note} peak memory {failure_text(error)}".strip()
        rows.append({**row, "what": method, **columns, "note": note})
    return rows
