"""The processes of a torchrun: who this one is, and handing values to all of them. torch is imported only there."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from onnxq.errors import ConfigError, OnnxqError

T = TypeVar("T")

PATIENCE = timedelta(days=30)
"""How long to wait for slower processes. One that dies is noticed at once: torchrun ends the others."""


class AlreadyTold(OnnxqError):
    """An error of which the first process has told the user, so that only the exit code is left to give."""


@dataclass(frozen=True)
class Ranks:
    """This process is number `number` of `count` (from 0); `local` of them share this machine.

    `tell` shows an error to the user.
    """

    number: int
    count: int
    local: int
    tell: Callable[[str], None] = lambda text: None

    @property
    def first(self) -> bool:
        """Whether this is the one process that writes files and speaks to the user."""
        return self.number == 0

    def share(self, value: T) -> list[T]:
        """The values of all processes, in the order of their numbers; every process must call this."""
        import torch.distributed as distributed

        values: list[T | None] = [None] * self.count
        distributed.all_gather_object(values, value)
        return values  # type: ignore[return-value]


@contextmanager
def in_step(ranks: Ranks | None) -> Iterator[None]:
    """A block that all processes leave together: an error in one of them is told once and ends all with AlreadyTold.

    Without it, torchrun would end the others while they wait, or before the first one has spoken.
    """
    if ranks is None:
        yield
        return
    failure = ""
    try:
        yield
    except OnnxqError as error:
        failure = str(error) or type(error).__name__
    failures = ranks.share(failure)
    failed = next((number for number, text in enumerate(failures) if text), None)
    if failed is None:
        return
    text = failures[failed] if failed == 0 else f"process {failed + 1} of {ranks.count}: {failures[failed]}"
    if ranks.first:
        ranks.tell(text)
    ranks.share("")  # nobody ends before the user was told
    raise AlreadyTold(text)


@contextmanager
def torchrun_ranks(tell: Callable[[str], None] = lambda text: None) -> Iterator[Ranks | None]:
    """The processes started together with this one by torchrun, or None for a process on its own."""
    # Job schedulers set WORLD_SIZE and RANK too, for programs that have nothing to do with torch.
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        yield None
        return
    try:
        number, count, local = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    except (KeyError, ValueError) as error:
        raise ConfigError(
            f"TORCHELASTIC_RUN_ID is set as by torchrun, but RANK, WORLD_SIZE and LOCAL_WORLD_SIZE are not ({error}): "
            "start onnxq with torchrun, or unset it"
        ) from None
    if count < 2:
        yield None
        return
    try:
        import torch.distributed as distributed
    except ImportError as error:
        raise ConfigError(
            f"{count} processes were started as for torchrun, but torch cannot be imported ({error}): install it "
            "(pip install torch), or run without torchrun (--shard i/n and 'onnxq merge' need no torch)"
        ) from error
    ranks = Ranks(number, count, local, tell)
    started = not distributed.is_initialized()
    if started:
        distributed.init_process_group("gloo", timeout=PATIENCE)
    try:
        yield ranks
    finally:
        if started:
            distributed.destroy_process_group()
