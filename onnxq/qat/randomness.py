"""Random numbers that depend on named numbers (seed, step, process) and on nothing that was drawn before."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def seed_everything(*numbers: int) -> None:
    """Set the generators of torch, numpy and Python to a state that belongs to `numbers`."""
    state = np.random.SeedSequence(numbers).generate_state(3)
    torch.manual_seed(int(state[0]))
    np.random.seed(int(state[1]))
    random.seed(int(state[2]))


@contextmanager
def generators_kept() -> Iterator[None]:
    """A block after which the caller's generators are as they were."""
    torch_state, numpy_state, python_state = torch.get_rng_state(), np.random.get_state(), random.getstate()
    try:
        yield
    finally:
        torch.set_rng_state(torch_state)
        np.random.set_state(numpy_state)
        random.setstate(python_state)
