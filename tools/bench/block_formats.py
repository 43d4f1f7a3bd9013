"""What each number format costs two real networks: dB of outputs with weights alone, and with weights and activations.

    python -m tools.bench.block_formats [--samples 16] [--models minilm-l3 mobilenetv2] [--formats mxfp4 nvfp4]
                                        [--passes fuse_conv_bias fold_batchnorm] [--float-depthwise]

The target is `academic` with the format for every layer, the first and the last included, and effort 0: scales as
calibration finds them, nothing is improved. Samples that are measured are none of those that integers are calibrated
with. `--passes` run before placement, `--float-depthwise` leaves convolutions of one channel each as they are: both
tell where a loss comes from. Models and samples are those of `tools.zoo`. Prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import onnx

from onnxq import quantize
from tools.bench.samples import Feed
from tools.zoo.catalogue import MODELS
from tools.zoo.measure import decibels, outputs_of, worst
from tools.zoo.model import ZooModel, by_name
from tools.zoo.packages import Cache, default_cache

FORMATS: tuple[tuple[str, str | None], ...] = (
    ("int8", None),
    ("mxint8", None),
    ("mxfp8_e4m3", None),
    ("mxfp8_e4m3", "ceil"),
    ("mxfp8_e5m2", None),
    ("mxfp6_e3m2", None),
    ("mxfp6_e2m3", None),
    ("int4", None),
    ("nf4", None),
    ("nvfp4", None),
    ("mxfp4", None),
    ("mxfp4", "even"),
    ("mxfp4", "ceil"),
)
DEPTHWISE = 1
"""Input channels of a group, the second length of a convolution's weight."""

LAYERS = ("Conv", "Gemm", "MatMul", "Gather")


def layers_of(file: Path) -> list[str]:
    """The operators of a model that can have weights."""
    found = {node.op_type for node in onnx.load(file, load_external_data=False).graph.node}
    return [name for name in LAYERS if name in found]


def depthwise_of(file: Path) -> list[str]:
    """The convolutions whose blocks of weights are single values, since they sum over one channel."""
    graph = onnx.load(file, load_external_data=False).graph
    narrow = {item.name for item in graph.initializer if len(item.dims) > 1 and item.dims[1] == DEPTHWISE}
    return [node.name for node in graph.node if node.op_type == "Conv" and node.input[1] in narrow]


def settings(layers: list[str], dtype: str, rule: str | None, *, activations: bool) -> dict[str, object]:
    """A configuration with one format for all layers."""
    form = {"dtype": dtype, **({} if rule is None else {"scale_rule": rule})}
    if not activations:
        return {"activation": {"skip": True}, "op": {name: {"weight": form} for name in layers}}
    return {"op": {name: {"weight": form, "activation": form} for name in layers}}


def measured(
    model: ZooModel,
    file: Path,
    seen: list[Feed],
    unseen: list[Feed],
    config: dict[str, object],
    folder: Path,
    passes: list[str],
) -> float:
    """dB of the worst output on samples that calibration has not seen."""
    quantize(
        file,
        backend="academic",
        data=seen,
        config={**config, "effort": 0, "report": "no", "minimum_sqnr_db": -100.0, "diagnose": False},
        out=folder,
        progress=False,
        passes=passes,
    )
    found = worst(decibels(model, outputs_of(file, unseen), outputs_of(folder / "model.onnx", unseen)))
    assert found is not None
    return found[1]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--samples", type=int, default=16)
    options.add_argument("--models", nargs="*", default=["minilm-l3", "mobilenetv2"])
    options.add_argument("--formats", nargs="*", default=list(dict.fromkeys(name for name, _ in FORMATS)))
    options.add_argument("--passes", nargs="*", default=[])
    options.add_argument("--float-depthwise", action="store_true")
    given = options.parse_args()
    cache = Cache(default_cache())
    for model in by_name(MODELS, given.models):
        file = model.file(cache)
        seen, unseen = model.samples(cache, given.samples, given.samples)
        print(f"\n{model.name}\n\n| format | weights | weights and activations |\n|---|---|---|", flush=True)
        skip = {"skip": depthwise_of(file)} if given.float_depthwise else {}
        for dtype, rule in FORMATS:
            if dtype not in given.formats:
                continue
            cells = []
            for activations in (False, True):
                with tempfile.TemporaryDirectory() as folder:
                    config = {**settings(layers_of(file), dtype, rule, activations=activations), **skip}
                    found = measured(model, file, seen, unseen, config, Path(folder), given.passes)
                    cells.append(f"{found:.1f}")
            print(f"| {dtype}{f', {rule}' if rule else ''} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
