"""Training in the processes of a torchrun: gradients through DistributedDataParallel, sums and statistics over all."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as distributed
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from onnxq.distributed import Ranks, in_step
from onnxq.errors import OnnxqError


class Team:
    """One process and the others: what a training step needs of them. Alone, everything is a plain call."""

    def __init__(self, ranks: Ranks | None) -> None:
        self.ranks = ranks
        self.number = 0 if ranks is None else ranks.number
        self.count = 1 if ranks is None else ranks.count

    @property
    def first(self) -> bool:
        return self.number == 0

    def wrap(self, net: nn.Module) -> nn.Module:
        """The module to run in training: gradients are averaged over the processes while they are computed.

        Parameters may go without a gradient: scales before quantization begins, the weights of a branch that is not
        taken. Buffers are not copied from the first process in each step: ranges and statistics are those of the whole
        batch in every process already.
        """
        if self.ranks is None:
            return net
        known = inspect.signature(DistributedDataParallel.__init__).parameters
        copying = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
        wrapper: Callable[..., nn.Module] = DistributedDataParallel
        return wrapper(net, find_unused_parameters=True, **{copying: False})

    def no_sync(self, wrapped: nn.Module, *, last: bool) -> Any:
        """Around a slice of a batch: only the last one of a step sends its gradients."""
        if last or not isinstance(wrapped, DistributedDataParallel):
            return nullcontext()
        return wrapped.no_sync()

    def total(self, values: Sequence[float]) -> list[float]:
        """The sums over all processes."""
        if self.ranks is None:
            return list(values)
        summed = torch.tensor(values, dtype=torch.float64)
        distributed.all_reduce(summed)
        return [float(value) for value in summed]

    @contextmanager
    def together(self) -> Iterator[None]:
        """A block of a training step in which one process may fail while the others do not: then all of them end.

        Costs one small exchange where nothing fails.
        """
        if self.ranks is None:
            yield
            return
        failure: OnnxqError | None = None
        try:
            yield
        except OnnxqError as error:
            failure = error
        if self.total([0.0 if failure is None else 1.0])[0]:
            with in_step(self.ranks):
                if failure is not None:
                    raise failure
