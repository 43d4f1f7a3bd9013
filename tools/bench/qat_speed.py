"""What a training step costs: of a hand-written torch network, of the same network as a torchnet, and with quantizers.

A step is forward, loss, backward and SGD. All rows of a table take turns with the torchnet's float step, in one process
and with the same batch, so that load on the machine meets all of them alike.
"""

from __future__ import annotations

import copy
import statistics
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import onnx
import torch
from torch import Tensor, nn
from torch.nn import functional

from onnxq import qat
from onnxq.graph import Graph
from onnxq.qat.batch_norm import BatchNorms
from onnxq.torchnet import to_torch
from tools.bench.clock import CLOCKS, Measure, Timing, alternate
from tools.bench.results import Row, Tables
from tools.bench.torch_networks import ResNet18

FLOAT = "torchnet, float"
CALIBRATION_SAMPLES = 2
WARM_UP_STEPS = 2


@dataclass(frozen=True)
class Settings:
    """`rounds` counts how often each row is measured, one step each; `width` is that of the first blocks.

    The clock is "wall", or "cpu": the seconds of all threads, which other work on the machine disturbs less.
    """

    rounds: int = 9
    batch: int = 16
    size: int = 112
    width: int = 64
    threads: int = 2
    clock: str = "wall"
    torch_ao: bool = True


@dataclass(frozen=True)
class Training:
    """How a torchnet is made to train: target, fake-quantizer, and whether observers follow the values."""

    backend: str
    fake_quantizer: str
    observing: bool = False


FIXED = Training("tensorrt", "fixed")
FOLLOWING = Training("tensorrt", "fixed", observing=True)
ROWS: Mapping[BatchNorms, Mapping[str, Training]] = {
    "folded": {
        "QAT tensorrt, fixed, observers off": FIXED,
        "QAT tensorrt, fixed, observers on": FOLLOWING,
        "QAT tensorrt, lsq": Training("tensorrt", "lsq"),
        "QAT vitis, tqt": Training("vitis", "tqt"),
    },
    "frozen": {"QAT tensorrt, fixed, observers off": FIXED, "QAT tensorrt, fixed, observers on": FOLLOWING},
    "live": {"QAT tensorrt, fixed, observers off": FIXED, "QAT tensorrt, fixed, observers on": FOLLOWING},
}
"""Batch norms -> what is measured beside the float steps."""


def measure(settings: Settings) -> Tables:
    before = torch.get_num_threads()
    torch.set_num_threads(settings.threads)
    try:
        return {f"batch norms {norms}": _table(norms, settings) for norms in ROWS}
    finally:
        torch.set_num_threads(before)


def _table(norms: BatchNorms, settings: Settings) -> list[Row]:
    torch.manual_seed(0)
    images = torch.randn(settings.batch, 3, settings.size, settings.size)
    labels = torch.randint(0, 1000, (settings.batch,))
    hand_written = ResNet18(norm=norms != "folded", width=settings.width)
    model = hand_written.to_onnx(settings.size)
    network = to_torch(Graph.from_model(model))
    network.train()
    network.mode.live_statistics = norms == "live"
    _check_equal(hand_written, network, images[:1])
    _set_training(hand_written, norms)
    steps = partial(_steps, images=images, labels=labels, clock=CLOCKS[settings.clock])
    measures = {"hand-written nn.Module, float": steps(hand_written)}
    for name, training in ROWS[norms].items():
        measures[name] = steps(_trained(model, training, norms, images))
    if settings.torch_ao and norms == "live":
        measures["torch.ao FX QAT of the nn.Module"] = steps(_torch_ao(hand_written, images))
    floor, timings = alternate(steps(network), measures, settings.rounds)
    return [_row(FLOAT, floor), *(_row(name, timing) for name, timing in timings.items())]


def _trained(model: onnx.ModelProto, training: Training, norms: BatchNorms, images: Tensor) -> nn.Module:
    samples = [{"image": image[None].numpy()} for image in images[:CALIBRATION_SAMPLES]]
    kind = {"fake_quantizer": training.fake_quantizer}
    # The graph takes the weights of a ModelProto over, and the next row needs them too.
    own = onnx.ModelProto()
    own.CopyFrom(model)
    net = qat.prepare(own, training.backend, samples, {"weight": kind, "activation": kind}, batch_norms=norms)
    net.observe(training.observing)
    net.train()
    return net


def _check_equal(hand_written: nn.Module, network: nn.Module, image: Tensor) -> None:
    """Two networks that differ would be compared for nothing."""
    hand_written.eval()
    network.eval()
    with torch.no_grad():
        torch.testing.assert_close(network(image), hand_written(image), rtol=1e-3, atol=1e-4)
    network.train()


def _set_training(network: nn.Module, norms: BatchNorms) -> None:
    network.train()
    if norms == "frozen":
        for module in network.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.eval()


def _steps(network: nn.Module, *, images: Tensor, labels: Tensor, clock: Callable[[], float]) -> Measure:
    """One step for each call, in seconds; the first ones, which fill caches, are done here."""
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-5)

    def step() -> float:
        start = clock()
        optimizer.zero_grad(set_to_none=True)
        functional.cross_entropy(network(images), labels).backward()
        optimizer.step()
        return clock() - start

    for _ in range(WARM_UP_STEPS):
        step()
    return step


def _torch_ao(hand_written: nn.Module, images: Tensor) -> nn.Module:
    """torch's own QAT with its defaults for x86: batch norms live, observers on."""
    from torch.ao.quantization import get_default_qat_qconfig_mapping
    from torch.ao.quantization.quantize_fx import prepare_qat_fx

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mapping = get_default_qat_qconfig_mapping("x86")
        prepared: nn.Module = prepare_qat_fx(copy.deepcopy(hand_written), mapping, (images,))
    return prepared.train()


def _row(name: str, timing: Timing) -> Row:
    if not timing.seconds:
        return {"step": name, "note": timing.note}
    low, middle, high = statistics.quantiles(timing.ratios, n=4, method="inclusive")
    return {
        "step": name,
        "median ms": round(1000 * statistics.median(timing.seconds)),
        f"x {FLOAT}": round(middle, 2),
        "quartiles": f"{low:.2f} .. {high:.2f}",
        "rounds": len(timing.ratios),
        "note": timing.note,
    }
