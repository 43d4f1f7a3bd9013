"""The methods on small networks: what they change, what they leave and say, and that they go on after a cut."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxq.errors import ConfigError
from onnxq.numerics import derived_bias_scale, fake_quantize, quantize
from onnxq.ptq.method import State, read_improvement
from onnxq.ptq.reconstruction.adaquant import recipe
from onnxq.ptq.reconstruction.blocks import partition
from onnxq.ptq.reconstruction.learnable import Rules
from onnxq.ptq.reconstruction.recipe import Recipe
from onnxq.ptq.weights.cells import spread
from onnxq.torchnet.registry import OPERATORS
from onnxq.types import QParams
from tests.ptq.reconstruction.small_models import METHODS, case, golden
from tests.zoo_graphs.net import Net

FEW = "iterations=24,batch=8"


def weights_of(state: State) -> dict[str, np.ndarray]:
    return {p.tensor: state.graph.values(p.tensor) for p in state.plan if p.role == "weight"}


def snapshot(state: State) -> dict[str, Any]:
    constants = {c.name: state.graph.values(c.name).tobytes() for c in state.graph.constants()}
    return {"constants": constants, "qparams": state.qparams.to_json(), "plan": state.plan.to_json()}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["residual", "transformer", "if_body", "concat"])
def test_a_method_changes_numbers_and_scales_and_nothing_else(name: str, method: str) -> None:
    made = golden(name)
    before = snapshot(made.state)
    done = made.run(f"{method}:{FEW}")
    assert snapshot(made.state) == before
    assert done.state.plan == made.state.plan
    assert [n.name for n in done.state.graph.nodes()] == [n.name for n in made.state.graph.nodes()]
    assert {n: q.spec for n, q in done.state.qparams.entries.items()} == {
        n: q.spec for n, q in made.state.qparams.entries.items()
    }
    blocks = done.details["blocks"]
    assert len(done.changed) == sum(block["kept"] for block in blocks)
    assert len(done.changed) > 0
    for block in blocks:
        assert block["kept"] == (block["after"] < block["before"])
        for weight in block["weights"]:
            values, qparams = done.state.graph.values(weight), done.state.qparams[weight]
            if block["kept"]:  # on the grid: rounding to the nearest gives exactly what was fitted
                np.testing.assert_array_equal(fake_quantize(values, qparams), values)
            else:
                np.testing.assert_array_equal(values, made.state.graph.values(weight))
    assert np.isfinite(made.evaluator(done.state).value)


@pytest.mark.parametrize("method", METHODS)
def test_a_method_makes_a_network_of_few_bits_better(method: str) -> None:
    made = golden("residual")
    done = made.run(f"{method}:iterations=60,batch=8{'' if method == 'autoround' else ',lr=0.05'}")
    assert made.evaluator(done.state).value > made.evaluator(made.state).value + 0.5


def test_roundings_stay_next_to_the_float_weight() -> None:
    made = golden("residual")
    done = made.run(f"adaround:{FEW}")
    for name, values in weights_of(done.state).items():
        qparams = made.state.qparams[name]
        distance = np.abs(quantize(values, qparams).astype(int) - quantize(made.state.graph.values(name), qparams))
        assert distance.max() <= 1
    assert done.state.qparams.entries == made.state.qparams.entries


@pytest.mark.parametrize("form", ["uint4", "int4"])
def test_autoround_keeps_each_weight_next_to_its_own_and_clips_ranges_of_blocks(form: str) -> None:
    symmetric = "yes" if form == "int4" else "no"
    made = golden("residual", f"weight_only:bits=4,block=16,symmetric={symmetric}")
    before, reference = made.state.qparams, weights_of(made.state)
    done = made.run("autoround:iterations=20,batch=8")
    clipped = 0
    fitted = [name for block in done.details["blocks"] if block["kept"] for name in block["weights"]]
    assert fitted
    for name in fitted:
        values = done.state.graph.values(name)
        held, found = before[name], done.state.qparams[name]
        assert found.spec == held.spec
        low, high = (spread(ends, held.spec.granularity, values.shape) for ends in covered(found))
        inside = np.clip(reference[name], low, high)
        step = spread(found.scale, held.spec.granularity, values.shape)
        assert (np.abs(values - inside) <= 1.01 * step).all()  # half a step of the offset, half a step of rounding
        clipped += int((found.scale < held.scale).sum())
        assert (found.scale <= held.scale * (1 + 1e-6)).all() or form == "uint4"
    assert clipped > 0
    assert made.evaluator(done.state).value > made.evaluator(made.state).value


def covered(qparams: QParams) -> tuple[np.ndarray, np.ndarray]:
    zero = qparams.zero_point.astype(np.float64)
    return (qparams.spec.qmin - zero) * qparams.scale, (qparams.spec.qmax - zero) * qparams.scale


def test_two_runs_give_the_same_numbers() -> None:
    made = golden("residual")
    first, second = (made.run(f"qdrop:{FEW}") for _ in range(2))
    assert snapshot(first.state) == snapshot(second.state)
    other = made.run(f"qdrop:{FEW}", seed=1)
    assert snapshot(other.state) != snapshot(first.state)


def test_blocks_that_got_worse_are_restored_with_both_figures() -> None:
    made = golden("residual", "tensorrt")
    done = made.run("adaquant:iterations=1,batch=1,lr=0.99")
    assert done.changed == ()
    assert done.state is made.state
    restored = [line for line in done.declined if "was restored" in line]
    assert len(restored) == len(done.details["blocks"])
    assert all("->" in line for line in restored)


def test_blocks_that_soft_roundings_do_not_mend_are_given_up() -> None:
    done = golden("residual", "tensorrt").run("adaround:iterations=40")
    blocks = done.details["blocks"]
    given_up = [block for block in blocks if block["given_up"]]
    assert 0 < len(given_up) < len(blocks)
    assert all(block["after"] == block["before"] and not block["kept"] for block in given_up)
    assert len([line for line in done.declined if "not even soft roundings" in line]) == len(given_up)


def test_roundings_have_decided_in_the_end() -> None:
    """What is left between two numbers falls to one of them by chance, which costs more than was learnt."""
    done = golden("residual", "academic:w_bits=4,a_bits=8").run("adaround")
    left = [block["after"] / block["before"] for block in done.details["blocks"]]
    assert max(left) < 0.9
    assert sum(left) < 0.7 * len(left)


def test_learnt_scales_reach_biases_that_derive_from_them_and_tensors_that_share_them() -> None:
    made = golden("residual", "onnxruntime")
    done = made.run(f"brecq:{FEW}")
    plan, table = made.state.plan.active, done.state.qparams
    moved = [n for n, q in table.entries.items() if not np.array_equal(q.scale, made.state.qparams[n].scale)]
    assert any(plan[name].role == "activation" for name in moved)
    for placement in plan:
        if placement.derive is not None:
            input, weight = (table[plan.leader(source)] for source in placement.derive)
            np.testing.assert_array_equal(table[placement.tensor].scale, derived_bias_scale(input, weight))
        if placement.tie is not None:
            assert table[placement.tensor].scale == table[placement.tie].scale
    assert all("learnt by brecq" in table.provenance[n] for n in moved)


def test_power_of_two_scales_stay() -> None:
    made = golden("residual", "vitis")
    for method in ("brecq", "adaquant"):
        done = made.run(f"{method}:{FEW}")
        leaders = [p.tensor for p in made.state.plan.active if p.spec.power_of_two and p.derive is None]
        assert leaders
        for name in leaders:
            assert done.state.qparams[name] == made.state.qparams[name]


def test_numbers_that_are_not_evenly_spaced_are_declined() -> None:
    made = golden("residual", "nnie")
    done = made.run(f"adaround:{FEW}")
    assert done.changed == ()
    assert "evenly spaced" in done.declined[0]


def test_an_operator_that_torch_has_not_is_a_line_and_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    made = golden("depthwise")
    found = OPERATORS.get

    def without(domain: str, op: str, version: int, node: str):
        return found(domain, "NoSuchOperator" if op == "HardSwish" else op, version, node)

    monkeypatch.setattr(OPERATORS, "get", without)
    done = made.run(f"brecq:{FEW}")
    assert done.state is made.state
    assert "NoSuchOperator" in done.declined[0]


def test_samples_of_unequal_shapes_run_one_by_one() -> None:
    net = Net("dynamic")
    x = net.node("Relu", net.linear(net.input("x", ["batch", "tokens", 8]), 8, 16))
    net.output(net.linear(net.node("Relu", net.linear(x, 16, 16)), 16, 4))
    rng = np.random.default_rng(0)
    samples = [{"x": rng.normal(size=(1, 3 + n % 4, 8)).astype(np.float32)} for n in range(80)]
    made = case(net.model(), samples)  # eight samples of random numbers would be learnt by heart
    done = made.run("adaround:iterations=60,batch=8,lr=0.05")
    assert made.evaluator(done.state).value > made.evaluator(made.state).value


def test_activations_beyond_the_memory_limit_give_the_same_result(tmp_path: Path) -> None:
    made = golden("residual")
    inside, outside = (made.run(f"adaround:{FEW}", memory_limit=limit) for limit in (2**30, 20_000))
    assert inside.details["files"] == 0
    assert outside.details["files"] > 0
    assert snapshot(inside.state) == snapshot(outside.state)


class Killed(Exception):
    """What ends a run in the middle."""


@pytest.mark.parametrize("method", METHODS)
def test_a_run_that_was_cut_off_goes_on_with_the_next_block(method: str, tmp_path: Path) -> None:
    made = golden("residual")
    whole = made.run(f"{method}:{FEW}")
    third = 2 * 24

    def kill(what: str, done: int, total: int | None) -> None:
        if done > third:
            raise Killed

    with pytest.raises(Killed):
        made.run(f"{method}:{FEW}", folder=tmp_path, progress=kill)
    assert len(list(tmp_path.iterdir())) == 2  # the files of the finished blocks, and no activations
    resumed = made.run(f"{method}:{FEW}", folder=tmp_path)
    assert [block["resumed"] for block in resumed.details["blocks"]][:3] == [True, True, False]
    assert snapshot(resumed.state) == snapshot(whole.state)
    again = made.run(f"{method}:{FEW}", folder=tmp_path)
    assert all(block["resumed"] for block in again.details["blocks"])
    assert snapshot(again.state) == snapshot(whole.state)


def test_what_was_found_for_other_arguments_samples_or_weights_is_not_used(tmp_path: Path) -> None:
    made = golden("residual", folder=tmp_path)
    made.run("adaround:iterations=2")
    for changes in ({"seed": 5}, {"samples": made.task.samples.__class__(made.task.samples.dataset, (3, 4, 5))}):
        done = made.run("adaround:iterations=2", **changes)
        assert not any(block["resumed"] for block in done.details["blocks"])
    assert not any(block["resumed"] for block in made.run("adaround:iterations=3").details["blocks"])
    assert all(block["resumed"] for block in made.run("adaround:iterations=2").details["blocks"])


def test_progress_counts_the_steps_of_all_blocks() -> None:
    made = golden("residual")
    seen: list[tuple[str, int, int | None]] = []
    done = made.run("brecq:iterations=4", progress=lambda *step: seen.append(step))
    total = 4 * len(done.details["blocks"])
    assert {what for what, _, _ in seen} == {"brecq block"}
    assert {step[2] for step in seen} == {total}
    counts = [step[1] for step in seen]
    assert counts == sorted(counts)
    assert counts[-1] == total


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("brecq:block=wide", "block is auto, layer, or a number of layers"),
        ("adaround:iterations=0", "iterations must be at least 1"),
        ("qdrop:drop=1", "drop is a chance"),
        ("adaquant:lr=2", "lr must be from 0"),
        ("adaquant:epochs=-1", "epochs must be at least 0"),
    ],
)
def test_wrong_arguments_are_named(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        golden("residual").run(text)


@pytest.mark.parametrize(("samples", "iterations"), [(8, 3), (32, 3), (33, 6), (4000, 96)])
def test_epochs_are_passes_over_the_samples(samples: int, iterations: int) -> None:
    chosen = read_improvement("adaquant:epochs=3")
    assert recipe({**chosen.method.arguments, **chosen.arguments}, samples).iterations == iterations
    assert recipe(chosen.method.arguments, samples).iterations == 150


def test_a_scale_belongs_to_the_first_block_that_reads_through_it() -> None:
    made = golden("residual")
    graph, plan = made.state.graph, made.state.plan.active
    graph.sort()
    segments = partition(graph, plan, "layer")
    rules = Rules(graph, plan, segments, Recipe("brecq", "layer", "roundings", True, 1, 1, 0.1, 1, 0.1))
    scales = [name for number, segment in enumerate(segments) for name in rules.of(number, segment).scales]
    assert len(scales) == len(set(scales))
    wanted = {p.tensor for p in plan if p.role == "activation" and p.tie is None}
    assert set(scales) == wanted


def test_methods_are_listed_without_torch() -> None:
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "from onnxq.ptq.method import IMPROVEMENTS\n"
        "print(*[name for name in IMPROVEMENTS if IMPROVEMENTS.get(name).needs_torch])"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert set(METHODS) <= set(result.stdout.split())


def not_a_number(net: Net) -> list[dict[str, np.ndarray]]:
    hidden = net.linear(net.input("x", [2, 8]), 8, 8)
    net.output(net.linear(net.node("Sqrt", hidden), 8, 4))
    return [{"x": net.normal(2, 8)} for _ in range(8)]


def single_number(net: Net) -> list[dict[str, np.ndarray]]:
    net.input("temperature", [])
    hidden = net.relu(net.node("Mul", net.linear(net.input("x", [1, 8]), 8, 8), "temperature"))
    net.output(net.linear(hidden, 8, 4))
    return [{"x": net.normal(1, 8), "temperature": np.array(0.5, np.float32)} for _ in range(8)]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("build", [not_a_number, single_number])
def test_values_that_are_no_number_or_have_no_axes_are_no_error(build: Any, method: str) -> None:
    net = Net(build.__name__)
    samples = build(net)
    made = case(net.model(), samples)
    done = made.run(f"{method}:{FEW}")
    assert len(done.details["blocks"]) >= 1
    assert all(np.isfinite(values).all() for values in weights_of(done.state).values())
