"""The processes of a torchrun: who this one is, and handing values to all of them. torch is imported only there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from onnxq.errors import ConfigError

T = TypeVar("T")


@dataclass(frozen=True)
class Ranks:
    """This process is number `number` of `count` (from 0); `local` of them share this machine."""

    number: int
    count: int
    local: int

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
def torchrun_ranks() -> Iterator[Ranks | None]:
    """The processes started together with this one by torchrun, or None for a process on its own."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count < 2 or "RANK" not in os.environ or "MASTER_ADDR" not in os.environ:
        yield None
        return
    try:
        import torch.distributed as distributed
    except ImportError as error:
        raise ConfigError(
            f"{count} processes were started as for torchrun, but torch cannot be imported ({error}): install "
            "onnxq[torch], or run without torchrun (--shard i/n and 'onnxq merge' need no torch)"
        ) from error
    ranks = Ranks(int(os.environ["RANK"]), count, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    started = not distributed.is_initialized()
    if started:
        distributed.init_process_group("gloo")
    try:
        yield ranks
    finally:
        if started:
            distributed.destroy_process_group()
