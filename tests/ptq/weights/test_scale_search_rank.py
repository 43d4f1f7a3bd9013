"""Wide rows of which few samples were seen: the matrix of their moments has a low rank, and so have a few inputs."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.numerics import fake_quantize, qparams_from_range
from onnxq.ptq.weights.gptq_matrix import output_errors
from onnxq.ptq.weights.matrices import view_of_rows
from onnxq.ptq.weights.moments import ThinMoments
from onnxq.ptq.weights.scale_search import candidates, search_by_outputs
from onnxq.types import PerChannel, QParams, QuantSpec


@pytest.mark.parametrize("thin", [False, True])
@pytest.mark.parametrize("samples", [0, 1, 24, 400])
def test_rows_seen_in_few_samples_are_searched(samples: int, thin: bool) -> None:
    random = np.random.default_rng(0)
    weight = random.normal(size=(6, 600)).astype(np.float32)
    rows = random.normal(size=(samples, 600))
    moments = (rows.T @ rows / max(samples, 1))[None]
    held = qparams_from_range(weight.min(1), weight.max(1), QuantSpec("int3", granularity=PerChannel(0)))
    view = view_of_rows(weight.shape)
    seen = ThinMoments((rows / np.sqrt(max(samples, 1))).astype(np.float32)[None]) if thin else moments
    found = search_by_outputs(weight, held, candidates(weight, held, 0.0, False), view, seen)

    def errors(qparams: QParams) -> np.ndarray:
        return output_errors(view.unfold(weight - fake_quantize(weight, qparams)), moments)

    assert (errors(found) <= errors(held) * (1 + 1e-5) + 1e-12).all()
    if samples:
        assert errors(found).sum() < errors(held).sum()
