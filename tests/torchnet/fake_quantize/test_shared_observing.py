"""Processes that share a batch observe one range: that of the whole batch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
import torch.distributed as distributed
import torch.multiprocessing as multiprocessing

from onnxq.numerics import qparams_from_range
from onnxq.types import QuantSpec
from tests.torchnet.fake_quantize.cases import module

BATCHES = [np.random.default_rng(seed).standard_normal((4, 6)).astype(np.float32) * (1 + seed) for seed in range(3)]


def observed(batches: list[np.ndarray]) -> dict[str, torch.Tensor]:
    quantizer = module("fixed", qparams_from_range(-1.0, 2.0, QuantSpec("uint8", symmetric=False)), "activation")
    quantizer.observing = True
    for batch in batches:
        quantizer(torch.from_numpy(batch))
    return quantizer.state_dict()


def _one_of_two(rank: int, folder: str) -> None:
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    half = [batch[2 * rank : 2 * rank + 2].copy() for batch in BATCHES]
    if rank == 1:
        half.insert(1, np.full((2, 6), np.nan, np.float32))
    else:
        half.insert(1, np.full((2, 6), 99, np.float32))
    torch.save(observed(half), f"{folder}/{rank}.pt")
    distributed.destroy_process_group()


def test_two_halves_of_a_batch_give_the_numbers_of_the_whole(tmp_path: Path) -> None:
    multiprocessing.spawn(_one_of_two, (str(tmp_path),), nprocs=2)
    whole = observed(BATCHES)  # the batch with NaN on one side counts on neither
    for rank in range(2):
        found = torch.load(tmp_path / f"{rank}.pt")
        assert found.keys() == whole.keys()
        assert all(torch.equal(found[name], whole[name]) for name in whole)
