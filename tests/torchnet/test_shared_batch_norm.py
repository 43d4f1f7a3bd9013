"""Processes that share a batch normalize it with one mean and variance: those of the whole batch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
import torch.distributed as distributed
import torch.multiprocessing as multiprocessing

from onnxq.torchnet.call import Mode
from onnxq.torchnet.ops.batch_statistics import live_batch_norm

BATCH = torch.from_numpy(np.random.default_rng(3).normal(1, 2, (6, 3, 4, 4)))
FACTORS = torch.linspace(-1, 1, BATCH.numel(), dtype=torch.float64).reshape(BATCH.shape)


def trained(part: slice) -> dict[str, torch.Tensor]:
    """One step on a part of the batch: values, gradients and running statistics."""
    x = BATCH[part].clone().requires_grad_()
    gamma, beta = (torch.full((3,), start, dtype=torch.float64, requires_grad=True) for start in (1.5, 0.5))
    mean, variance = torch.zeros(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64)
    mode = Mode(training=True, live_statistics=True)
    y = live_batch_norm(mode, x, gamma, beta, mean, variance, 1e-5, 0.9)
    (y * y * FACTORS[part]).sum().backward()
    assert x.grad is not None
    assert gamma.grad is not None
    return {"y": y.detach(), "x": x.grad, "gamma": gamma.grad, "mean": mean, "variance": variance}


def _one_of_two(rank: int, folder: str) -> None:
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    torch.save(trained(slice(0, 2) if rank == 0 else slice(2, 6)), f"{folder}/{rank}.pt")
    distributed.destroy_process_group()


def test_parts_of_a_batch_of_different_size_give_the_step_of_the_whole(tmp_path: Path) -> None:
    multiprocessing.spawn(_one_of_two, (str(tmp_path),), nprocs=2)
    whole = trained(slice(None))
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    for name in ("mean", "variance"):
        torch.testing.assert_close(first[name], whole[name])
        torch.testing.assert_close(second[name], whole[name])
    for name in ("y", "x"):
        torch.testing.assert_close(torch.cat([first[name], second[name]]), whole[name])
    torch.testing.assert_close(first["gamma"] + second["gamma"], whole["gamma"])
