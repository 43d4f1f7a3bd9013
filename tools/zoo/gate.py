"""Runs what is missing: one process for each model, several side by side; every result is written when it is there."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tools.zoo import results
from tools.zoo.cells import ROOT
from tools.zoo.model import ZooModel
from tools.zoo.packages import Cache, Unavailable, sha256
from tools.zoo.verdicts import Cell, Key, Verdict

Wanted = tuple[str, int]
Tell = Callable[[Cell], None]


@dataclass
class Gate:
    """`tell` hears of each result; `again` does also those that are there."""

    cache: Cache
    results: Path
    code: str
    tell: Tell
    again: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _stopped: threading.Event = field(default_factory=threading.Event)
    _running: set[subprocess.Popen[str]] = field(default_factory=set)

    def run(self, models: Sequence[ZooModel], wanted: Sequence[Wanted], jobs: int) -> None:
        """Models one after the other, `jobs` at a time. Ctrl-C ends them; what is done is kept."""
        done = {} if self.again else results.latest(results.read(self.results))
        with ThreadPoolExecutor(jobs) as pool:
            try:
                tasks = []
                for model in models:
                    left = self._left(model, wanted, done)
                    if left:
                        tasks.append(pool.submit(self._model, model, left))
                for task in tasks:
                    task.result()
            except BaseException:
                self._stop()
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _left(self, model: ZooModel, wanted: Sequence[Wanted], done: dict[Key, Cell]) -> list[Wanted]:
        """What is to do for a model; one that cannot be had is a result for each of its cells."""
        try:
            found = sha256(model.file(self.cache))
        except Unavailable as error:
            for target, effort in results.missing(done, "", wanted, self.code):
                self._keep(Cell(model.name, Key("", target, effort, self.code), Verdict.UNAVAILABLE, reason=str(error)))
            return []
        return results.missing(done, found, wanted, self.code)

    def _model(self, model: ZooModel, left: list[Wanted]) -> None:
        """All cells of a model. Where its process ends before they are done, the cell it was at has failed."""
        while left and not self._stopped.is_set():
            code, said, count = self._process(model, left)
            left = left[count:]
            if left and not self._stopped.is_set():
                (target, effort), left = left[0], left[1:]
                lines = [line for line in said.splitlines() if line.strip()][-3:]
                reason = f"the process that measures ended with {code}: " + " ".join(lines)
                key = Key(sha256(model.file(self.cache)), target, effort, self.code)
                self._keep(Cell(model.name, key, Verdict.GATE_FAULT, reason=reason[:600]))

    def _process(self, model: ZooModel, left: Sequence[Wanted]) -> tuple[int, str, int]:
        """Exit code, words, and how many cells were done."""
        command = [sys.executable, "-m", "tools.zoo.worker", model.name, str(self.cache.root), self.code]
        command += [f"{target}:{effort}" for target, effort in left]
        count, said = 0, Path(self.results).with_suffix(f".{model.name}.log")
        with (
            said.open("w", encoding="utf-8") as log,
            subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True) as process,
        ):
            self._running.add(process)
            assert process.stdout is not None
            for line in process.stdout:
                self._keep(Cell.from_json(line))
                count += 1
            process.wait()
            self._running.discard(process)
        words = said.read_text(encoding="utf-8", errors="replace")
        said.unlink()
        return process.returncode, words, count

    def _keep(self, cell: Cell) -> None:
        with self._lock:
            results.append(self.results, cell)
            self.tell(cell)

    def _stop(self) -> None:
        self._stopped.set()
        for process in list(self._running):
            process.terminate()
