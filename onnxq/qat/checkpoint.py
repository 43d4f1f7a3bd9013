"""Checkpoints of a training: whole files, the last two and the best, refused where they belong to another training."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor, nn

from onnxq.config.training import WITHOUT_EFFECT_ON_THE_RESULT, TrainSettings
from onnxq.errors import CheckFailed, ConfigError
from onnxq.files import replace_file
from onnxq.json_file import JsonMapping, JsonObject, parse_json, validated
from onnxq.machine import is_fault_of_machine, machine_error
from onnxq.qat.checkpoint_schema import BestSchema, CheckpointSchema, Written
from onnxq.temporary import remove_stale

FORMAT = 1
KEPT = 2
"""How many of the regular checkpoints stay: if the newest cannot be read, there is the one before."""

BEST_NAME = "best.pt"
_NAME = re.compile(r"step-(\d+)\.pt")

State = dict[str, Any]
"""Tensors, numbers, texts, lists and dicts: what torch reads without running code of the file."""


class Checkpoints:
    """The folder of one training. `identity` says what must be the same for a training to go on."""

    def __init__(self, folder: Path, identity: JsonMapping) -> None:
        self.folder = folder
        self.identity = dict(identity)

    def save(self, step: int, state: State) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        remove_stale(self.folder)
        path = self.folder / f"step-{step:08}.pt"
        self._write(path, state)
        for old in self._regular()[:-KEPT]:
            old.unlink()
        return path

    def save_best(self, state: State) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._write(self.folder / BEST_NAME, state)

    def newest(self) -> State | None:
        """The last checkpoint of this training, or None where there is none."""
        files = self._regular()
        return self._read(files[-1], CheckpointSchema) if files else None

    def best(self) -> State | None:
        path = self.folder / BEST_NAME
        return self._read(path, BestSchema) if path.exists() else None

    def any(self) -> bool:
        """Whether there is one to go on from."""
        return bool(self._regular())

    def refuse_others(self) -> None:
        """A new training does not write over the checkpoints of one that could still go on."""
        files = self._regular()
        if files:
            raise ConfigError(
                f"{self.folder} holds checkpoints of a training ({files[-1].name}): go on with it with --resume, "
                "delete the folder, or choose another with --checkpoint"
            )

    def clear(self) -> None:
        """Delete the files, and the folder if nothing else is in it: the training is over and its result is kept."""
        for path in (*self._regular(), self.folder / BEST_NAME):
            path.unlink(missing_ok=True)
        if self.folder.is_dir() and not any(self.folder.iterdir()):
            self.folder.rmdir()

    def _regular(self) -> list[Path]:
        if not self.folder.is_dir():
            if self.folder.exists():
                raise ConfigError(f"{self.folder} is a file: choose a folder for checkpoints with --checkpoint")
            return []
        return sorted(path for path in self.folder.iterdir() if _NAME.fullmatch(path.name))

    def _write(self, path: Path, state: State) -> None:
        content = {"format": FORMAT, "identity": json.dumps(self.identity), **state}
        try:
            replace_file(path, lambda stream: _save(content, stream))
        except OSError as error:
            there = [file.name for file in self._regular()]
            last = f"the one before, {there[-1]}, is whole: go on from it with --resume" if there else "there is none"
            raise machine_error(error, f"the checkpoint could not be written ({last})") from error

    def damaged(self, error: Exception) -> ConfigError:
        """The error for a newest checkpoint whose parameters do not fit the network or the optimizer."""
        text = f"{type(error).__name__}: {error}".partition("\n")[0]
        return ConfigError(
            f"the newest checkpoint in {self.folder} does not fit this training ({text}): delete it to go on from the "
            "one before"
        )

    def _read(self, path: Path, schema: type[Written]) -> State:
        try:
            state: State = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # a damaged file makes torch raise anything, KeyError and IndexError among them
            if is_fault_of_machine(error):
                raise
            raise ConfigError(
                f"{path} is no readable checkpoint ({type(error).__name__}): delete it to go on from the one before"
            ) from error
        if not isinstance(state, dict) or state.get("format") != FORMAT:
            raise ConfigError(f"{path} is no checkpoint of this version of onnxq: train anew in another folder")
        validated(schema, state, str(path), ConfigError)
        try:
            identity = parse_json(state["identity"])
        except ValueError as error:
            raise ConfigError(f"{path}: identity: {error}") from None
        differences = compare(identity if isinstance(identity, dict) else {}, self.identity)
        if differences:
            text = "; ".join(differences)
            raise ConfigError(
                f"{path} belongs to another training: {text}. Give the same model, data and settings, or another "
                "folder with --checkpoint"
            )
        return state


class _Watched:
    """A stream that remembers why it could not write: torch raises an error of its own that does not say it."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.error: OSError | None = None

    def write(self, data: bytes) -> int:
        try:
            return self._stream.write(data)
        except OSError as error:
            self.error = error
            raise

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            self.error = error
            raise


def _save(content: State, stream: BinaryIO) -> None:
    watched = _Watched(stream)
    try:
        torch.save(content, watched)  # type: ignore[arg-type]
    except RuntimeError as error:
        if watched.error is None:
            raise
        raise watched.error from error


def identity_of(net: nn.Module, settings: TrainSettings, data: JsonMapping, plan: Any = None) -> JsonObject:
    """What a training depends on, as JSON: the parameters it starts from, the plan, the data and the settings."""
    digest = hashlib.sha256()
    for name, value in sorted(net.state_dict().items()):
        digest.update(f"{name} {tuple(value.shape)} {value.dtype}".encode())
        digest.update(_bytes(value))
    settled = {key: value for key, value in settings.to_json().items() if key not in WITHOUT_EFFECT_ON_THE_RESULT}
    identity = {"the network before training": digest.hexdigest()[:16], "data": dict(data), "settings": settled}
    if plan is not None:
        # Not its configuration: what that says about files and checks may be another when a training goes on.
        text = json.dumps({key: value for key, value in plan.to_json().items() if key != "config"}, sort_keys=True)
        identity["plan"] = hashlib.sha256(text.encode()).hexdigest()[:16]
    return json.loads(json.dumps(identity))  # type: ignore[no-any-return]


def compare(stored: JsonMapping, present: JsonMapping, inside: str = "") -> list[str]:
    """What differs, in words."""
    lines = []
    for key in dict.fromkeys((*stored, *present)):
        there, here = stored.get(key), present.get(key)
        if there == here:
            continue
        if isinstance(there, dict) and isinstance(here, dict):
            lines += compare(there, here, f"{key}: ")
        elif isinstance(there, str) and isinstance(here, str) and len(there) == len(here) == 16:
            lines.append(f"{inside}{key} is another")  # hashes say nothing to a reader
        else:
            lines.append(f"{inside}{key} was {there} and is {here}")
    return lines


def check_parameters(net: nn.Module, step: int, rate: float) -> None:
    """A network with a NaN in it is never saved."""
    for name, value in net.named_parameters():
        if not bool(torch.isfinite(value).all()):
            raise CheckFailed(
                f"'{name}' has NaN or infinite values after step {step} (learning rate {rate:g}): {ADVICE}"
            )


ADVICE = (
    "lower the learning rate (--lr, --scale-lr), limit the gradients with --clip-gradient 1, or add a warm-up "
    "(--warmup 0.05)"
)


def _bytes(value: Tensor) -> bytes:
    return value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if value.numel() else b""
