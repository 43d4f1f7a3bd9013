"""The rows of the table of language models: what onnxq is asked for, beside the jobs of other tools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from onnxq.integrations.huggingface import quantize_folder
from tools.bench.peers.language_models import JOBS


@dataclass(frozen=True)
class Wanted:
    """A file of onnxq: dtype, options of its target, improvements by name (none: the rounding alone), cache, effort.

    `tied` takes the folder whose table and head are one constant.
    """

    dtype: str
    improve: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    cache: str | None = None
    effort: int | None = None
    tied: bool = False

    def make(self, folders: Mapping[bool, Path], prompts: Path, out: Path, block: int) -> Path:
        settings: dict[str, Any] = {"report": "no", "minimum_sqnr_db": -100.0, "diagnose": False}
        settings["effort"] = 0 if self.effort is None and not self.improve else self.effort
        if self.improve:
            settings["improvements"] = list(self.improve)
        made = quantize_folder(
            folders[self.tied],
            out,
            dtypes=[self.dtype],
            data=str(prompts),
            options={"block": str(block), **self.options},
            kv_cache=self.cache,
            config={key: value for key, value in settings.items() if value is not None},
            progress=False,
        )
        return made[0].model


LINEAR = {"ops": "linear"}
SYMMETRIC = {"ops": "linear", "symmetric": "yes"}
WANTED: dict[str, Wanted] = {
    "w8a16 RTN": Wanted("w8a16", options=LINEAR),
    "w8a16 RTN, accuracy_level=1": Wanted("w8a16", options={**LINEAR, "accuracy_level": "1"}),
    "w4a16 RTN": Wanted("w4a16", options=LINEAR),
    "w4a16 HQQ": Wanted("w4a16", ("hqq",), LINEAR),
    "w4a16 AWQ": Wanted("w4a16", ("awq",), LINEAR),
    "w4a16 GPTQ": Wanted("w4a16", ("gptq",), LINEAR),
    "w4a16 AWQ, GPTQ": Wanted("w4a16", ("awq", "gptq"), LINEAR),
    "w4a16 GPTAQ": Wanted("w4a16", ("gptaq",), LINEAR),
    "w4a16 AutoRound": Wanted("w4a16", ("autoround",), LINEAR),
    "w4a16 rotation": Wanted("w4a16", ("rotation",), LINEAR),
    "w4a16 rotation, GPTQ": Wanted("w4a16", ("rotation", "gptq"), LINEAR),
    "w4a16 symmetric RTN": Wanted("w4a16", options=SYMMETRIC),
    "w4a16 symmetric GPTQ": Wanted("w4a16", ("gptq",), SYMMETRIC),
    "w4a16 effort 1": Wanted("w4a16", options=LINEAR, effort=1),
    "w4a8 RTN": Wanted("w4a8", options=LINEAR),
    "w4a8 GPTQ": Wanted("w4a8", ("gptq",), LINEAR),
    "w8a16 RTN, table of 8 bits shared": Wanted("w8a16", tied=True),
    "w4a16 RTN, table of 4 bits shared": Wanted("w4a16", tied=True),
    "w4a16 GPTQ, table of 4 bits shared": Wanted("w4a16", ("gptq",), tied=True),
    "w8a16 RTN, KV8": Wanted("w8a16", options=LINEAR, cache="int8"),
    "w8a16 RTN, KV4": Wanted("w8a16", options=LINEAR, cache="int4"),
    "w4a16 GPTQ, KV8": Wanted("w4a16", ("gptq",), LINEAR, cache="int8"),
}


def peer_command(job: str, python: Path, model: Path, prompts: Path, result: Path, block: int) -> list[str]:
    """What runs a job of a peer in its own interpreter, from the top of the repository."""
    module = "tools.bench.peers.language_models"
    return [str(python), "-m", module, job, str(model), str(prompts), str(result), str(block)]


def peer_of(job: str) -> str:
    return job.split()[0]


def peer_jobs(peers: Mapping[str, Path]) -> dict[str, Path]:
    """The jobs of those tools that there is an interpreter for."""
    return {job: peers[peer_of(job)] for job in JOBS if peer_of(job) in peers}


def write_prompts(prompts: list[np.ndarray], path: Path) -> None:
    np.savez(path, ids=np.stack(prompts).astype(np.int64))
