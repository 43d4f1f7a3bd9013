"""The parts of reconstruction: soft roundings, numbers that survive the way into a graph, streams, nets of segments."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from onnxq.emit.simulate import simulate
from onnxq.errors import SpecError
from onnxq.numerics import fake_quantize, quantize
from onnxq.ptq.reconstruction.blocks import partition
from onnxq.ptq.reconstruction.fitting.adam import Adam, Learnt
from onnxq.ptq.reconstruction.fitting.batches import BlockSamples
from onnxq.ptq.reconstruction.fitting.outcome import Outcome, load_outcome, on_grid, save_outcome
from onnxq.ptq.reconstruction.fitting.segment_net import float_net, quantized_net
from onnxq.ptq.reconstruction.fitting.soft_rounding import SoftRounding
from onnxq.ptq.reconstruction.fitting.streams import Stream, store
from onnxq.ptq.reconstruction.fitting.target import float_model
from onnxq.runtime.session import float_session, run_session
from onnxq.torchnet.fake_quantize import make_fake_quantizer
from onnxq.types import PerBlock, PerChannel, PerTensor, Placement, QParams, QuantSpec
from tests.golden_graphs import GOLDEN
from tests.ptq.reconstruction.small_models import Case, golden

FORMATS = [
    QuantSpec("int4", granularity=PerChannel(0)),
    QuantSpec("uint4", symmetric=False, granularity=PerChannel(1)),
    QuantSpec("int8", granularity=PerTensor(), narrow_range=True),
    QuantSpec("int4", granularity=PerBlock(1, 4)),
    QuantSpec("int3", rounding="floor"),
    QuantSpec("int2", rounding="half_up"),
]


def drawn(spec: QuantSpec, seed: int) -> tuple[np.ndarray, QParams]:
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(6, 10)).astype(np.float32)
    shape = spec.scale_shape(values.shape)
    zero_point = 0 if spec.symmetric else rng.integers(spec.qmin, spec.qmax + 1, shape)
    scale = rng.uniform(0.05, 0.5, shape).astype(np.float32)
    return values, QParams(spec, scale, np.broadcast_to(zero_point, shape).astype(np.int32))


def rounding(values: np.ndarray, qparams: QParams, reference: np.ndarray | None = None) -> SoftRounding:
    placement = Placement("w", qparams.spec, "weight", "a test")
    return SoftRounding(make_fake_quantizer(placement, qparams), values, values if reference is None else reference)


@pytest.mark.parametrize("spec", FORMATS, ids=str)
@given(seed=st.integers(0, 10_000))
def test_a_rounding_that_was_not_fitted_gives_the_numbers_of_numerics(spec: QuantSpec, seed: int) -> None:
    values, qparams = drawn(spec, seed)
    module = rounding(values, qparams).eval()
    np.testing.assert_array_equal(module(torch.from_numpy(values)).detach().numpy(), fake_quantize(values, qparams))
    np.testing.assert_array_equal(module.numbers(), quantize(values, qparams))


@pytest.mark.parametrize("spec", FORMATS, ids=str)
@given(seed=st.integers(0, 10_000))
def test_learnt_numbers_are_neighbours_of_the_float_weight_and_come_back_from_the_graph(
    spec: QuantSpec, seed: int
) -> None:
    values, qparams = drawn(spec, seed)
    module = rounding(values, qparams).eval()
    with torch.no_grad():
        module.alpha.copy_(torch.randn(module.alpha.shape, generator=torch.Generator().manual_seed(seed)))
    module.fitted = True
    numbers = module.numbers()
    assert np.abs(numbers.astype(int) - quantize(values, qparams).astype(int)).max() <= 1
    written = on_grid(numbers, qparams, np.dtype(np.float32))
    np.testing.assert_array_equal(quantize(written, qparams), numbers)
    if spec.rounding != "floor":
        np.testing.assert_array_equal(module(torch.from_numpy(values)).detach().numpy(), written)


def test_soft_values_begin_as_the_float_weights_inside_of_the_range() -> None:
    values, qparams = drawn(QuantSpec("int8", granularity=PerChannel(0)), 3)
    soft = rounding(values, qparams).train()(torch.from_numpy(values)).detach().numpy()
    np.testing.assert_allclose(soft, values, atol=1e-6)


def test_a_weight_that_was_rounded_before_may_go_to_its_neighbour_towards_the_float_weight() -> None:
    qparams = QParams(QuantSpec("int4"), np.float32(1), np.int32(0))
    chosen, exact = np.array([1.0, 1.0, 2.0], np.float32), np.array([0.4, 1.6, 2.0], np.float32)
    module = rounding(chosen, qparams, exact)
    np.testing.assert_array_equal(module.lower.numpy(), [0, 1, 2])
    np.testing.assert_array_equal(module.eval().numbers(), chosen)


def test_numbers_that_the_type_of_the_graph_cannot_hold_are_refused() -> None:
    qparams = QParams(QuantSpec("int16"), np.float32(1e-3), np.int32(0))
    with pytest.raises(SpecError, match="float16 cannot hold"):
        on_grid(np.arange(30000, 30100, dtype=np.int16), qparams, np.dtype(np.float16))


@pytest.mark.slow  # torch.optim loads torch's compiler
def test_adam_is_the_one_of_torch() -> None:
    own, its = (torch.nn.Parameter(torch.tensor([1.0, -2.0, 3.0])) for _ in range(2))
    mine, other = Adam([Learnt(own, 0.1, False)]), torch.optim.Adam([its], lr=0.1)
    for _ in range(20):
        for parameter in (own, its):
            parameter.grad = None
            (parameter**4).sum().backward()
        mine.step(0.0)
        other.step()
    torch.testing.assert_close(own, its)


def test_values_beyond_the_limit_are_files_until_they_are_dropped(tmp_path: Path) -> None:
    values = [torch.full((10, 10), float(number)) for number in range(5)]
    with store(tmp_path, 1000) as room:
        stream = Stream(room)
        for value in values:
            stream.append("x", value)
        assert room.files == 3
        assert room.held == 800
        assert all(torch.equal(stream.get("x", number), value) for number, value in enumerate(values))
        stream.drop(["x"])
        assert room.held == 0
        assert not list(tmp_path.rglob("*.npy"))
    assert not list(tmp_path.iterdir())


def test_a_file_of_an_outcome_comes_back_and_a_damaged_one_counts_as_none(tmp_path: Path) -> None:
    path = tmp_path / "block.npz"
    assert load_outcome(path) is None
    save_outcome(path, Outcome(0.5, 0.25, 1.5, True, {"a/b": np.float32([1])}, {"w": np.int8([1, -2])}, {}))
    found = load_outcome(path)
    assert found is not None
    assert (found.before, found.after, found.kept) == (0.5, 0.25, True)
    np.testing.assert_array_equal(found.weights["w"], [1, -2])
    np.testing.assert_array_equal(found.scales["a/b"], [1])
    path.write_bytes(path.read_bytes()[:100])
    assert load_outcome(path) is None


def through_segments(made: Case, *, quantized: bool) -> dict[str, np.ndarray]:
    graph, plan = made.state.graph, made.state.plan.active
    graph.sort()
    values = {name: torch.from_numpy(value) for name, value in made.held[0].items()}
    for segment in partition(graph, plan):
        net = quantized_net(graph, segment, plan, made.state.qparams) if quantized else float_net(graph, segment)
        with torch.no_grad():
            values.update(zip(segment.makes, net([values[name] for name in segment.reads]), strict=True))
    return {name: values[name].numpy() for name in graph.output_names}


@pytest.mark.parametrize("name", GOLDEN)
def test_segments_one_after_the_other_compute_what_onnxruntime_computes(name: str) -> None:
    made = golden(name, "academic")
    graph, plan = made.state.graph, made.state.plan.active
    simulated, _ = simulate(graph, plan, made.state.qparams, made.task.backend)
    for quantized, model in ((False, graph), (True, simulated)):
        wanted = run_session(float_session(model), graph.output_names, made.held[0], "a sample")
        for found, expected in zip(through_segments(made, quantized=quantized).values(), wanted, strict=True):
            # A value at the border of two numbers may fall to the other side: sums are added up in another order.
            limit = 0.02 * np.abs(expected).max() if quantized else 1e-4
            np.testing.assert_allclose(found, expected, atol=limit)


def test_rounded_weights_are_compared_with_the_reference_and_equalized_ones_with_themselves() -> None:
    made = golden("residual")
    state = made.state.copy()
    graph, plan = state.graph, state.plan.active
    graph.sort()
    segments = partition(graph, plan)
    assert float_model(graph, made.task.reference, segments, made.held[0]) is made.task.reference
    weight = segments[0].weights[0]
    rounded = graph.values(weight) + 0.01 * np.abs(graph.values(weight)).max()
    graph.set_values(weight, rounded.astype(np.float32))
    assert float_model(graph, made.task.reference, segments, made.held[0]) is made.task.reference
    graph.set_values(weight, graph.values(weight) * np.float32(4))
    assert float_model(graph, made.task.reference, segments, made.held[0]) is graph


@pytest.mark.parametrize(("side", "most"), [(4, 16), (128, 8), (1024, 1)])
def test_a_step_takes_fewer_samples_of_large_images(side: int, most: int, tmp_path: Path) -> None:
    with store(tmp_path, 2**30) as room:
        stream = Stream(room)
        for _ in range(24):
            for name in ("x", "y"):
                stream.append(name, torch.zeros(1, 1, side, side))
        samples = BlockSamples(("x",), ("y",), stream, stream, 24)
        samples.stacked = True
        assert samples.per_step(16) == most
