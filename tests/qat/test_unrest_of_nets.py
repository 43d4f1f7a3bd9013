"""A file may differ from a net by as much as float32 rounding makes the net differ from itself, and not by more."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from onnxq.qat.agreement import LEAST_SQNR_DB, Agreement, disagreements, own_unrest
from onnxq.torchnet.values import to_numpy
from tests.qat.digits_qat import prepared

WRONG = Agreement("y", step=0.1, largest=3.6, within=0.99, sqnr_db=19.9)


def test_a_restless_net_lowers_the_limit_of_its_file() -> None:
    assert WRONG.limit_db == LEAST_SQNR_DB
    assert "19.9 dB, up to 3.6 steps apart" in disagreements([WRONG])[0]
    assert not disagreements([replace(WRONG, limit_db=14.0)])
    assert disagreements([replace(WRONG, limit_db=14.0, sqnr_db=float("nan"))])


def test_values_on_the_border_of_two_steps_make_a_net_restless() -> None:
    net = prepared("tensorrt").eval()
    step = float(net.fake_quantizers["image"].to_qparams().scale)
    codes = np.random.default_rng(0).integers(1, 100, (16, 1, 8, 8))
    unrest = {}
    for place, part in (("middle", 0.0), ("border", 0.5)):
        feed = {"image": ((codes + part) * step).astype(np.float32)}
        with torch.no_grad():
            before = to_numpy(net.run(feed)["logits"])
            unrest[place] = own_unrest(net, [feed], {"logits": [before]})["logits"]
            np.testing.assert_array_equal(to_numpy(net.run(feed)["logits"]), before)  # nothing of it stays
    assert unrest["border"] < 45
    assert unrest["middle"] > unrest["border"] + 10
