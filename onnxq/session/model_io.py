"""A model's inputs and outputs as the configuration wants them, and as numpy and onnxruntime can pass them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from onnxq.config import Config
from onnxq.errors import ConfigError, UnsupportedError, did_you_mean
from onnxq.graph import Graph
from onnxq.graph.model_io import add_output, fix_input_shape, input_to_constant, redeclare_outputs
from onnxq.graph.settle import drop_names, settle_declarations
from onnxq.match import names_matching
from onnxq.runtime import Dataset


def apply_io_settings(graph: Graph, config: Config) -> None:
    """Fix shapes and values of inputs and add outputs, in place; doing it twice does no more than doing it once.

    Shapes that the file declares wrongly are put right first, so that only what shares a dimension follows an input.
    """
    settle_declarations(graph)
    renamed: dict[str, int | str | None] = {}
    for name, wanted in config.inputs.items():
        if name not in graph.input_names:
            if graph.origins.current_tensor(name) != name:
                continue  # it is a constant already
            near = did_you_mean(name, graph.input_names)
            raise ConfigError(
                f"inputs: the model has no input '{name}' ({config.source('inputs', name)}).{near} "
                f"It has: {', '.join(graph.input_names)}"
            )
        if wanted.value is not None and wanted.shape is not None:
            raise ConfigError(f"inputs: '{name}' has a value and a shape: a value has its own shape, give one of them")
        with _named(config, "inputs", name):
            if wanted.shape is not None:
                renamed |= fix_input_shape(graph, name, wanted.shape)
            if wanted.value is not None:
                input_to_constant(graph, name, wanted.value)
    if config.inputs and not graph.input_names:
        raise ConfigError("inputs: no input is left to feed, so there is nothing to calibrate with: leave one out")
    if config.inputs or config.extra_outputs:
        graph.infer_shapes()
    if any(wanted.shape is not None for wanted in config.inputs.values()):
        redeclare_outputs(graph, renamed)
    names = dict.fromkeys(graph.tensor_names(), "")
    for pattern in config.extra_outputs:
        with _named(config, "extra_outputs", pattern):
            found = names_matching(pattern, names, "tensor")
            inside = {name for name in found if graph.is_constant(name) or graph.home_of(name) is not graph.gs}
            if pattern not in inside and len(inside) == len(found):
                raise ConfigError(f"'{pattern}' matches nothing but constants, or tensors inside an If, Loop or Scan")
            for name in found:
                if name == pattern or name not in inside:  # a glob means what can be returned
                    add_output(graph, name)


@contextmanager
def _named(config: Config, *path: str) -> Iterator[None]:
    """Errors inside the block name the place of the configuration that they are about."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{error} ({config.source(*path)})") from None


def separate_sizes(graph: Graph, dataset: Dataset) -> None:
    """Drop names of dimensions that have different sizes at the inputs in the first sample.

    onnxruntime lets tensors share buffers by these names. Only where several dimensions have one is the sample read.
    """
    named = {name: shape for name in graph.input_names if (shape := graph.shape(name)) is not None}
    uses = Counter(dim for shape in named.values() for dim in shape if isinstance(dim, str))
    shared = any(count > 1 for count in uses.values())
    shapes = dataset.first_shapes() if shared else None
    sizes: dict[str, set[int]] = {}
    for name, shape in named.items():
        for dim, size in zip(shape, (shapes or {}).get(name, ()), strict=False):
            if isinstance(dim, str):
                sizes.setdefault(dim, set()).add(size)
    unequal = {dim: sorted(found) for dim, found in sizes.items() if len(found) > 1}
    if unequal:
        drop_names(graph, unequal)
        graph.remarks += [
            f"dimensions of inputs that are called '{dim}' have the sizes {' and '.join(map(str, found))} in the first "
            "sample, so they have no name any more: onnxruntime takes equal names for equal sizes"
            for dim, found in unequal.items()
        ]


def check_io_types(graph: Graph) -> None:
    """Refuse models whose inputs or outputs cannot be passed between numpy and onnxruntime."""
    for name in [*graph.input_names, *graph.output_names]:
        kind = graph.dtype(name)
        if kind is not None and kind.name == "bfloat16":
            raise UnsupportedError(
                f"'{name}' is bfloat16, which cannot be fed to or read from onnxruntime, so the model cannot be "
                "calibrated or checked. Put a Cast from and to float32 at inputs and outputs: bfloat16 inside is fine"
            )
