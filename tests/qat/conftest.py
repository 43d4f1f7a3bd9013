"""Tests run side by side, one process per core: torch gets one thread in each."""

import torch

torch.set_num_threads(1)
