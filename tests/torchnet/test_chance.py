"""Values chosen by chance: as many as the probability says, at every place, the same ones for the same seed."""

from __future__ import annotations

import pytest
import torch

from onnxq.torchnet.chance import by_chance


@pytest.mark.parametrize("probability", [0.0, 0.25, 0.5, 0.9, 1.0])
def test_as_many_are_chosen_as_the_probability_says(probability: float) -> None:
    torch.manual_seed(0)
    chosen = by_chance(torch.empty(80_000), probability).reshape(-1, 8).float()
    # Eight values come out of one random word: none of its bytes may differ. 10,000 values have a deviation of 0.005.
    assert chosen.mean(0).sub(probability).abs().max() < 0.02
    assert torch.corrcoef(chosen.T).triu(1).nan_to_num().abs().max() < 0.05


def test_any_shape_is_served_and_a_seed_repeats_it() -> None:
    for shape in ((), (0, 3), (7,), (3, 5, 2)):
        like = torch.empty(shape)
        torch.manual_seed(3)
        first = by_chance(like, 0.5)
        torch.manual_seed(3)
        assert first.shape == like.shape
        assert torch.equal(first, by_chance(like, 0.5))
